"""Blocks and their repairs as Markdown, in the layout of CURE's tables 1 and 4 beside the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import repairs
from .table import Row, number, share, table, with_interval


def repairs_text(result: dict[str, Any]) -> str:
    """Blocks with and without repairs beside the paper's figures; nothing unless both were measured."""
    entries = repairs.block_methods(result)
    if not entries:
        return ""
    parts = ["### Blocks and their repairs (as in CURE's Table 1)", sets_table(result)]
    parts += ["### What repairs need (as in CURE's Table 4)", ablation_table(result, entries), REPAIRS_NOTE]
    return "\n\n".join(parts)


def sets_table(result: dict[str, Any]) -> str:
    head = (
        "prompts", "ar, ms a token", "sd", "block", "cure", "block over ar", "cure over ar",
        "block, drafts kept a step", "cure",
    )  # fmt: skip
    by_label = {entry["label"]: entry for entry in result["methods"]}
    methods = [by_label.get(label) for label in ("ar", "sd", repairs.PARALLEL, "cure")]
    kept = [
        repairs.kept(result["prompts"], entry["label"], entry, entry).drafts if entry else None
        for entry in methods[2:]
    ]
    measured = [
        *(number(1000 / entry["tokens_per_s"] if entry else None, 1) for entry in methods),
        *(number(entry["ratio_to_ar"] if entry else None, 2) for entry in methods[2:]),
        *(number(value, 3) for value in kept),
    ]
    rows = [(f"{len(result['prompts'])} here", *measured)]
    for name, figures in repairs.PUBLISHED_SETS.items():
        shown = [
            number(value, 1 if column < 4 else 2 if column < 6 else 3) for column, value in enumerate(figures)
        ]
        rows.append((f"paper, {name}", *shown))
    return table(head, rows)


def ablation_table(result: dict[str, Any], entries: Sequence[dict[str, Any]]) -> str:
    head = (
        "method", "drafts kept a step", "over block", "difference", "speedup over ar", "time over block",
        "identical to ar", "tokens repairs gained",
    )  # fmt: skip
    base = next(entry for entry in entries if entry["label"] == repairs.PARALLEL)
    rows: list[Row] = []
    for entry in entries:
        label, judged = entry["label"], entry["quality"]
        found = repairs.kept(result["prompts"], label, entry, base)
        rows.append(
            (
                label,
                number(found.drafts, 3),
                with_interval(found.over_parallel, found.over_parallel_ci, 3),
                with_interval(found.beyond_parallel, found.beyond_parallel_ci, 3),
                with_interval(entry["ratio_to_ar"], entry["ratio_ci"]),
                number(found.time_over_parallel, 3),
                share(judged["identical_to_ar"], judged["compared_to_ar"]),
                number(found.extra, 0),
            )
        )
        if label in repairs.PUBLISHED:
            paper = repairs.PUBLISHED[label]
            figures = (paper.drafts, paper.over_parallel, None, paper.speedup, paper.time_over_parallel)
            rows.append(
                (f"paper's {label}", *(number(value, 3) for value in figures), f"{paper.exact:.1%}", "-")
            )
    return table(head, rows)


REPAIRS_NOTE = (
    "Drafts kept a step: without the verifier's own token. Over block, difference: against the single path "
    "of the same drafter on the same prompts, with the paired bootstrap interval over prompts. Time over "
    "block: milliseconds a token. The paper's figures are of Qwen3-8B on a GPU; Table 4 averages three sets."
)

"""Speed and rejection by the number of layers, as VIA-SD's Table 1 (arXiv 2606.12243) has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..trace import ratio
from .results import method_entry
from .table import number, table, with_interval


def layers_text(result: dict[str, Any]) -> str:
    """Rejection and speed by the number of layers, in the layout of VIA-SD's Table 1 (2 is speculative
    decoding, 3 one slim verifier): over all prompts, and beside each other for every data set among them.
    Nothing unless some method has several slim verifiers.
    """
    counted = [(layers_of(entry), entry) for entry in result["methods"]]
    ranked = sorted(((count, entry) for count, entry in counted if count), key=lambda pair: pair[0])
    if not any(count > 3 for count, _ in ranked):
        return ""
    head = ("method", "layers", "r", "speedup over ar", "slim forwards a cycle", "q forwards a cycle")
    rows = [
        (
            entry["label"],
            str(count),
            number(entry["rejection_rate"], 2),
            with_interval(entry["ratio_to_ar"], entry["ratio_ci"]),
            number(ratio(entry["slim_forwards"], entry["cycles"]), 2),
            number(ratio(entry["full_forwards"] + entry["settle_forwards"], entry["cycles"]), 2),
        )
        for count, entry in ranked
    ]
    parts = ["### By number of layers (as in the paper's Table 1)", table(head, rows)]
    tasks = by_task(result["prompts"])
    if len(tasks) > 1:
        parts.append(layers_by_task(ranked, tasks))
    return "\n\n".join(parts)


def by_task(prompts: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The prompts of each data set, in the order of their first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for prompt in prompts:
        found.setdefault(str(prompt["task"] or "others"), []).append(prompt)
    return found


def layers_by_task(
    ranked: Sequence[tuple[int, dict[str, Any]]], tasks: dict[str, list[dict[str, Any]]]
) -> str:
    head = ["method", "layers"]
    for task, prompts in tasks.items():
        head += [f"{task} ({len(prompts)}): r", "speedup"]
    rows = []
    for count, entry in ranked:
        row = [entry["label"], str(count)]
        for prompts in tasks.values():
            one = method_entry({"label": entry["label"]}, prompts)
            row += [number(one["rejection_rate"], 2), number(one["ratio_to_ar"], 2)]
        rows.append(row)
    return table(head, rows)


def layers_of(entry: dict[str, Any]) -> int:
    """Layers of a method in the paper's count: drafter, slim verifiers, full verifier; 0 for others."""
    if entry["method"] == "via-sd" and entry["cycles"] is not None:
        return 2 + (len(entry["settings"].get("tiers") or ()) or 1)
    return 2 if entry["method"] == "sd" and entry["cycles"] is not None else 0

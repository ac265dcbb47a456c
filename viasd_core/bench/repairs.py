"""Blocks with and without repairs, in the layout of CURE's tables 1 and 4 beside the paper's own figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..method_options import BLOCK_METHODS
from ..settings import Settings
from ..trace_repairs import total_if_known
from .statistics import Interval, difference_interval, ratio_interval, ratio_of_speeds, speed

PARALLEL = "block"  # CURE is measured against the same drafter's single path
ABLATIONS: dict[str, dict[str, bool]] = {
    "cure, no branch 0": {"branch0": False},
    "cure, no resync": {"resync": False},
    "cure, neither": {"branch0": False, "resync": False},
}


@dataclass(frozen=True)
class Published:
    """A row of the paper's Table 4 (Qwen3-8B, mean of three sets)."""

    drafts: float  # accepted a step
    over_parallel: float  # of these
    speedup: float  # over plain decoding
    time_over_parallel: float  # TPOT
    exact: float  # share of outputs equal to plain decoding's


PUBLISHED = {
    "cure": Published(6.826, 1.055, 2.708, 1.776, 0.854),
    "cure, no branch 0": Published(6.435, 0.996, 2.616, 1.687, 0.833),
    "cure, no resync": Published(4.089, 0.637, 1.733, 2.642, 0.849),
    "cure, neither": Published(2.707, 0.422, 1.141, 3.877, 0.849),
}
# Table 1 (Qwen3-8B): ms a token of AR, naive SD, parallel, CURE; speed of the last two; accepted a step.
PUBLISHED_SETS = {
    "HumanEval": (30.430, 42.203, 6.232, 8.718, 4.883, 3.490, 7.165, 7.641),
    "MBPP": (30.279, 49.853, 7.919, 11.378, 3.824, 2.661, 5.808, 6.053),
    "LCB-lite": (31.577, 55.782, 6.382, 10.283, 4.948, 3.071, 6.268, 6.735),
    "GSM8K": (107.070, 155.153, 16.165, 29.461, 6.624, 3.634, 8.514, 11.231),
}


@dataclass(frozen=True)
class Kept:
    """What a method kept a cycle, against `PARALLEL` on the same prompts; intervals over prompts, paired."""

    drafts: float  # a cycle, without the bonus
    over_parallel: float  # of `drafts`
    over_parallel_ci: Interval
    beyond_parallel: float  # `drafts`, less those of the single path
    beyond_parallel_ci: Interval
    time_over_parallel: float  # milliseconds a token
    extra: int | None  # drafted tokens that repairs kept beyond branch 0 alone; None: not known


def ablations(settings: Settings) -> dict[str, Settings]:
    """CURE's settings with each of the ablations of Table 4, by label."""
    return {label: settings.with_(**changes) for label, changes in ABLATIONS.items()}


def block_methods(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Entries of methods that draft blocks, where the single path was measured beside them."""
    found = [one for one in result["methods"] if one["method"] in BLOCK_METHODS and one["cycles"]]
    return found if len(found) > 1 and any(one["label"] == PARALLEL for one in found) else []


def kept(prompts: Sequence[dict[str, Any]], label: str, entry: dict[str, Any], base: dict[str, Any]) -> Kept:
    """The figures of one label from a result's raw `prompts`; `entry` and `base` are its method entries."""
    ours, theirs = _steps(prompts, label), _steps(prompts, PARALLEL)
    drafts = speed(*ours)
    extra = total_if_known(prompt["runs"][label]["summary"]["repair"]["extra_tokens"] for prompt in prompts)
    return Kept(
        drafts,
        ratio_of_speeds(*ours, *theirs),
        ratio_interval(*ours, *theirs),
        drafts - speed(*theirs),
        difference_interval(*ours, *theirs),
        base["tokens_per_s"] / entry["tokens_per_s"],
        extra,
    )


def _steps(prompts: Sequence[dict[str, Any]], label: str) -> tuple[list[float], list[float]]:
    """Drafted tokens that were kept, and cycles, one a prompt."""
    summaries = [prompt["runs"][label]["summary"] for prompt in prompts]
    cycles = [float(one["cycles"]) for one in summaries]
    return [one["repair"]["accepted_per_step"] * one["cycles"] for one in summaries], cycles

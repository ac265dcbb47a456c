"""Blocks with and without repairs, in the layout of CURE's tables 1 and 4 beside the paper's own figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..method_options import BLOCK_METHODS
from ..settings import Settings
from ..trace_repairs import total_if_known
from .statistics import ratio_interval, ratio_of_speeds

PARALLEL = "block"  # CURE is measured against the same drafter's single path
ABLATIONS: dict[str, dict[str, bool]] = {
    "cure, no branch 0": {"branch0": False},
    "cure, no resync": {"resync": False},
    "cure, neither": {"branch0": False, "resync": False},
}
# Qwen3-8B, mean of three sets: kept a step, and milliseconds a token, each over the parallel draft's.
PUBLISHED = {
    "cure": (1.055, 1.776),
    "cure, no branch 0": (0.996, 1.687),
    "cure, no resync": (0.637, 2.642),
    "cure, neither": (0.422, 3.877),
}


@dataclass(frozen=True)
class Kept:
    """What a method kept a cycle, against `PARALLEL` on the same prompts; intervals over prompts, paired."""

    drafts: float  # a cycle, without the bonus
    tokens: float  # a cycle, with the verifier's own token
    over_parallel: float  # of `tokens`
    over_parallel_ci: tuple[float | None, float | None]
    time_over_parallel: float  # milliseconds a token
    extra: str  # drafted tokens that repairs kept beyond branch 0 alone; "-" where not known


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
    summaries = [prompt["runs"][label]["summary"] for prompt in prompts]
    drafts = sum(one["repair"]["accepted_per_step"] * one["cycles"] for one in summaries)
    extra = total_if_known(one["repair"]["extra_tokens"] for one in summaries)
    return Kept(
        drafts / entry["cycles"],
        entry["mean_committed"],
        ratio_of_speeds(*ours, *theirs),
        ratio_interval(*ours, *theirs),
        base["tokens_per_s"] / entry["tokens_per_s"],
        "-" if extra is None else str(extra),
    )


def _steps(prompts: Sequence[dict[str, Any]], label: str) -> tuple[list[float], list[float]]:
    """Tokens committed and cycles, one a prompt."""
    summaries = [prompt["runs"][label]["summary"] for prompt in prompts]
    cycles = [float(one["cycles"]) for one in summaries]
    return [one["mean_committed"] * one["cycles"] for one in summaries], cycles

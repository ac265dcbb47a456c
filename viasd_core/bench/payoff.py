"""Does the third tier pay? Cost a token of VIA-SD against plain speculative decoding, from measured phases.

VIA-SD costs (draft + t_q' + rho t_q) / m_via a token, speculative decoding (draft + t_q) / m_sd, where m is
tokens a cycle and t a forward's time. rho below the skipped share is enough only at equal m, so the whole
comparison is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..trace import ratio
from .results import column
from .statistics import ratio_interval, ratio_of_speeds


@dataclass(frozen=True)
class CycleCost:
    """An average cycle of one method. Times in ms; prefill left out."""

    draft_ms: float  # drafting, a cycle
    slim_ms: float  # one slim forward (0 where the method has none)
    full_ms: float  # one full forward
    slim_per_cycle: float
    full_per_cycle: float  # settles included
    other_ms: float  # gates, commit, host work, a cycle
    committed: float  # tokens a cycle

    @property
    def ms_per_token(self) -> float:
        verified = self.slim_per_cycle * self.slim_ms + self.full_per_cycle * self.full_ms
        return ratio(self.draft_ms + verified + self.other_ms, self.committed)


def cycle_cost(entry: dict[str, Any]) -> CycleCost:
    """The average cycle of a traced method's entry in a result file."""
    phases, cycles = entry["phases_ms"], entry["cycles"]
    full = entry["full_forwards"] + entry["settle_forwards"]
    other = sum(value for phase, value in phases.items() if phase not in ("prefill", "draft", "slim", "full"))
    return CycleCost(
        draft_ms=ratio(phases["draft"], cycles),
        slim_ms=ratio(phases["slim"], entry["slim_forwards"]),
        full_ms=ratio(phases["full"], full),
        slim_per_cycle=ratio(entry["slim_forwards"], cycles),
        full_per_cycle=ratio(full, cycles),
        other_ms=ratio(other, cycles),
        committed=entry["mean_committed"],
    )


def fastest(methods: Sequence[dict[str, Any]], method: str) -> str:
    """The label with the highest speed among a method's entries (its settings, and its best gamma)."""
    own = [entry for entry in methods if entry["method"] == method]
    return str(max(own, key=lambda entry: entry["tokens_per_s"])["label"])


def rival(result: dict[str, Any], via: str) -> str:
    """The speculative decoding that label `via` is compared with: the one with the same drafter."""
    labels = {entry["label"] for entry in result["methods"]}
    return own if (own := via.removeprefix("via-")) in labels else "sd"


def compare(result: dict[str, Any], via: str, sd: str) -> dict[str, Any]:
    """Measured speed of label `via` over label `sd` on the same prompts: {"ratio", "ci", "verdict"}."""
    prompts: Sequence[dict[str, Any]] = result["prompts"]
    columns = [column(prompts, label, key) for label in (via, sd) for key in ("new_tokens", "seconds")]
    measured = ratio_of_speeds(*columns)
    low, high = ratio_interval(*columns)
    return {"ratio": measured, "ci": [low, high], "verdict": verdict(low, high)}


def verdict(low: float | None, high: float | None) -> str:
    """What an interval around a speed ratio says, in words."""
    if low is None or high is None:
        return "one prompt cannot tell"
    if low > 1:
        return "pays"
    return "does not pay" if high < 1 else "no difference shown"

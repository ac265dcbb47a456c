"""Acceptance by draft position, from the token rows of a trace. Plain Python: no torch, no numpy."""

from __future__ import annotations

from collections import Counter

from .settings import MAX_GAMMA
from .trace import Trace

DEFINITION = (
    "accepted / examined of the drafts at one position of their block; accepted: kept by the slim or the "
    "full verifier; examined: reached a gate or a verifier's test; dropped after that (strict, end of the "
    "text): examined only"
)
ACCEPTED = ("accepted_slim", "accepted_full")
DRAFTED = ("draft", "repair")  # sources of a drafted token


def acceptance_by_position(trace: Trace) -> list[dict[str, int]]:
    """How many examined drafts stood at each position of their block, and how many of them were kept.

    One {"position", "examined", "accepted"} for each position from 1 to the last at which a draft stood, at
    most `MAX_GAMMA`; empty when nothing was drafted. Examined counts sum to the trace's `examined`. A draft
    that passed its gate and was dropped afterwards (behind the end of the text, or by strict) is examined and
    not accepted.
    """
    drafts = [row for row in trace.tokens if row.source in DRAFTED and 0 <= row.slot < MAX_GAMMA]
    examined = Counter(row.slot for row in drafts if row.region)
    accepted = Counter(row.slot for row in drafts if row.region and row.verdict in ACCEPTED)
    last = max((row.slot + 1 for row in drafts), default=0)
    return [
        {"position": slot + 1, "examined": examined[slot], "accepted": accepted[slot]} for slot in range(last)
    ]

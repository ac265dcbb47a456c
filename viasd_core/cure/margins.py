"""Where a block-parallel draft is unsure of itself, and how many repairs each place gets (CURE, eqs. 2, 3).

The margin m_i of a drafted position is the drafter's raw log-probability of its first choice less that of its
second, in nats. Positions with m_i below `tau_margin` are uncertain focal points (UFPs).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

B_MIN = 1


@dataclass(frozen=True)
class Repair:
    """`count` alternatives are tried at drafted position `position` (0 is the token behind the anchor)."""

    position: int
    count: int


def focal_points(margins: Sequence[float], tau: float) -> list[int]:
    """Positions whose margin is below `tau` (eq. 2), smallest margin first, the earlier one on a tie."""
    unsure = [place for place, margin in enumerate(margins) if margin < tau]
    return sorted(unsure, key=lambda place: (margins[place], place))


def branch_count(margin: float, scale: float, b_max: int, b_min: int = B_MIN) -> int:
    """b_i of eq. 3: b_max at margin 0, falling to b_min where the margin reaches `scale` (nats, above 0).

    The paper writes `round` without saying how; halves are rounded up, as floor(x + 1/2).
    """
    unsure = min(1.0, max(0.0, 1 - margin / scale))
    wanted = math.floor(b_min + unsure * (b_max - b_min) + 0.5)
    return min(max(wanted, b_min), b_max)


def plan_repairs(
    margins: Sequence[float], tau: float, scale: float | None, b_max: int, max_positions: int
) -> list[Repair]:
    """The repairs of one block, most uncertain position first; `scale` None stands for `tau`."""
    chosen = focal_points(margins, tau)[:max_positions]
    return [Repair(place, branch_count(margins[place], scale or tau, b_max)) for place in chosen]

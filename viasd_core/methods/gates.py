"""VIA-SD's two gates: which region a drafted token falls in, from q' alone (arXiv 2606.12243, Algorithm 2,
App. B).

r = q'(v) / max q' on raw (T = 1) rows. Nesting as printed: r < tau2 escalates (C); else r >= tau1 keeps (A);
else q' regenerates (B). Where tau1 <= tau2, B is empty by itself. The drafter's own probability is not looked
at.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def confidence_ratios(slim_logits: Tensor, tokens: Tensor) -> Tensor:
    """r of each drafted token, float64 [g], from raw q' logits [g, V] and ids [g]."""
    drafted = slim_logits.gather(-1, tokens[:, None])[:, 0]
    return (drafted - slim_logits.amax(-1)).double().exp()


def region(r: float, tau1: float, tau2: float) -> str:
    """A (keep), B (regenerate) or C (escalate) for one ratio."""
    if r < tau2:
        return "C"
    return "A" if r >= tau1 else "B"


def in_region_b(ratios: Tensor, tau1: float, tau2: float) -> Tensor:
    """`region(...) == "B"` on the device, bool [g]."""
    return (ratios >= tau2) & (ratios < tau1)


def block_regions(
    ratios: Sequence[float],
    tau1: float,
    tau2: float,
    *,
    regenerate: bool = True,
    after_escalation: str = "gate",
) -> list[str]:
    """Regions of a block up to and including the first B, which ends it whatever q says.

    `regenerate` False sends B to q as well (binary hierarchical SD). `after_escalation` "q" sends everything
    behind the first C to q, whose rows are there anyway.
    """
    regions: list[str] = []
    for r in ratios:
        found = region(r, tau1, tau2)
        if (found == "B" and not regenerate) or (after_escalation == "q" and "C" in regions):
            found = "C"
        regions.append(found)
        if found == "B":
            break
    return regions

"""One path through a draft tree by VIA-SD's gates, asking q only where a node falls in region C.

At temperature 0 the path follows the child q' thinks likeliest, branch 0 on a tie. Above it the child of the
lowest branch is gated, which is a true draw from the drafter; its siblings are looked at only in region C,
where q's replacement may be one of them. So the one-step law of VIA-SD (arXiv 2606.12243, App. B) holds at
every node.
Plain Python over numbers that were copied from the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..cure.growth import DraftTree
from .gates import region


@dataclass(frozen=True)
class Gates:
    """The thresholds of a cycle; without `regenerate` region B goes to q as well."""

    tau1: float
    tau2: float
    regenerate: bool
    greedy: bool


@dataclass(frozen=True)
class Verdicts:
    """q's view of each row (the anchor's is 0, node n's n + 1): whether the gated child passes, and the token
    drawn where it does not, or where there is no child.
    """

    passes: Sequence[float]
    draws: Sequence[float]


@dataclass(frozen=True)
class Gated:
    """Accepted nodes, the region of every examined one, the node that was refused or has to be put to q, and
    how it ended: B, C, leaf, or ask (q is needed and was not given).
    """

    path: tuple[int, ...]
    regions: tuple[str, ...]
    node: int | None
    end: str


def gated_child(tree: DraftTree, at: int, ratios: Sequence[float], *, greedy: bool) -> int | None:
    """The child of node `at` (-1: the anchor) that the gate looks at; None at a leaf."""
    children = tree.children(at)
    if not children:
        return None
    if greedy:
        return max(children, key=lambda node: (ratios[node], -tree.nodes[node].branch, -node))
    return min(children, key=lambda node: (tree.nodes[node].branch, node))


def follow_gates(tree: DraftTree, ratios: Sequence[float], gates: Gates, verdicts: Verdicts | None) -> Gated:
    """Walk from the anchor. `ratios` are r = q'(v) / max q' of every node, raw."""
    path: list[int] = []
    regions: list[str] = []
    while True:
        at = path[-1] if path else -1
        child = gated_child(tree, at, ratios, greedy=gates.greedy)
        if child is None:
            return Gated(tuple(path), tuple(regions), None, "leaf")
        found = region(ratios[child], gates.tau1, gates.tau2)
        if found == "B" and gates.regenerate:
            return Gated(tuple(path), (*regions, "B"), child, "B")
        if found == "A":
            path.append(child)
            regions.append("A")
            continue
        if verdicts is None:
            return Gated(tuple(path), (*regions, "C"), child, "ask")
        kept = child if verdicts.passes[at + 1] else _matching(tree, at, int(verdicts.draws[at + 1]))
        if kept is None:
            return Gated(tuple(path), (*regions, "C"), child, "C")
        path.append(kept)
        regions.append("C")


def branch0_length(
    tree: DraftTree, ratios: Sequence[float], gates: Gates, verdicts: Verdicts | None
) -> int | None:
    """Drafts that the same gates would have kept had branch 0 stood alone; None where it would have been put
    to q and q did not run. Branch 0 must be whole: its nodes come first, as `grow` leaves them.

    At temperature 0 the path may leave branch 0 for a sibling of a larger ratio although branch 0 would have
    passed, so its accepted nodes do not say this.
    """
    alone = DraftTree(tuple(node for node in tree.nodes if node.branch == 0))
    gated = follow_gates(alone, ratios, gates, verdicts)
    return None if gated.end == "ask" else len(gated.path)


def _matching(tree: DraftTree, at: int, token: int) -> int | None:
    return next((node for node in tree.children(at) if tree.nodes[node].token == token), None)

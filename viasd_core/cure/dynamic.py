"""EAGLE-2's choice among a drafter's candidates (arXiv 2406.16858): the most valuable make the tree."""

from __future__ import annotations

from collections.abc import Sequence, Set

from ..drafters.base import Candidate
from .growth import DraftTree, Node


def rerank(candidates: Sequence[Candidate], budget: int, eos_ids: Set[int]) -> DraftTree:
    """The `budget` candidates of the highest value, which never leave a parent out: values do not rise along
    a path. Nothing stands behind an end-of-sequence token.

    Branch 0 is the chain of likeliest tokens; every other child of a node starts a branch of its own.
    """
    ranked = sorted(range(len(candidates)), key=lambda index: (-candidates[index].value, index))
    kept = sorted(ranked[:budget])
    place = {-1: -1}
    nodes: list[Node] = []
    branches, continued = 0, set[int]()
    for index in kept:
        one = candidates[index]
        behind_end = one.parent >= 0 and candidates[one.parent].token in eos_ids
        if behind_end or one.parent not in place:
            continue
        parent = place[one.parent]
        if parent in continued:
            branches += 1
            branch = branches
        else:
            branch = nodes[parent].branch if parent >= 0 else 0
        continued.add(parent)
        place[index] = len(nodes)
        depth = nodes[parent].depth + 1 if parent >= 0 else 1
        nodes.append(Node(one.token, parent, depth, branch, one.logp, None, one.value))
    return DraftTree(tuple(nodes))

"""The tree of a drafted block and its repairs: a trie of paths, kept within a beam and a node budget.

Branch 0 is the block as it was drafted; no bound removes it, so the tree never keeps less than the block
alone would (CURE, arXiv 2608.00531, section 3). Everything here is plain Python over token ids.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Step:
    """One token of a path, with the drafter's raw log-probability and top-1 less top-2 margin, nats."""

    token: int
    logp: float
    margin: float | None = None


@dataclass(frozen=True)
class Node:
    """A tree node; `depth` is 1 for children of the anchor, `branch` the first path that needed the node."""

    token: int
    parent: int
    depth: int
    branch: int
    logp: float
    margin: float | None
    total: float  # log-probability of the whole path under the drafter


@dataclass(frozen=True)
class DraftTree:
    """Nodes in an order in which parents precede children; siblings never share a token."""

    nodes: tuple[Node, ...]

    @cached_property
    def parents(self) -> tuple[int, ...]:
        return tuple(node.parent for node in self.nodes)

    @cached_property
    def tokens(self) -> tuple[int, ...]:
        return tuple(node.token for node in self.nodes)

    @cached_property
    def _children(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for index, parent in enumerate(self.parents):
            found.setdefault(parent, []).append(index)
        return found

    def children(self, node: int) -> Sequence[int]:
        """Children of a node, of the anchor for -1, in their order."""
        return self._children.get(node, ())

    def main_line(self, path: Sequence[int]) -> list[int]:
        """`path` of node indices continued to a leaf, at every node by the child of the lowest branch."""
        line = list(path)
        while True:
            children = self.children(line[-1] if line else -1)
            if not children:
                return line
            line.append(min(children, key=lambda index: (self.nodes[index].branch, index)))


def until_end(steps: Sequence[Step], eos_ids: Set[int]) -> list[Step]:
    """Steps up to and including the first end-of-sequence token: nothing is decoded behind it."""
    for length, step in enumerate(steps, start=1):
        if step.token in eos_ids:
            return list(steps[:length])
    return list(steps)


def merge(paths: Sequence[Sequence[Step]]) -> list[Node]:
    """The trie of `paths`, path by path: a shared prefix is one chain, and belongs to the earlier path."""
    nodes: list[Node] = []
    known: dict[tuple[int, int], int] = {}
    for branch, path in enumerate(paths):
        at, total = -1, 0.0
        for depth, step in enumerate(path, start=1):
            total += step.logp
            key = (at, step.token)
            if key not in known:
                known[key] = len(nodes)
                nodes.append(Node(step.token, at, depth, branch, step.logp, step.margin, total))
            at = known[key]
    return nodes


def grow(
    main: Sequence[Step],
    repairs: Sequence[Sequence[Step]],
    *,
    beam: int,
    budget: int,
    branch0: bool = True,
) -> DraftTree:
    """The tree of a drafted block `main` and of whole repaired paths, most promising first.

    At each depth at most `beam` repair nodes stand, those of the highest cumulative log-probability; then
    paths are taken in order while the tree has fewer than `budget` nodes, the last one being cut short.
    Branch 0 counts towards the budget and is kept whole whatever it is. With `branch0` False the tree holds
    the repaired paths alone, and the block where there is no repair (ablation of Table 4).
    """
    nodes = merge([main, *repairs])
    kept = _within_beam(nodes, beam)
    if not branch0 and repairs:
        needed = _ancestors_of_repairs(nodes, kept)
        kept = [index for index in kept if nodes[index].branch or index in needed]
        kept = kept[: max(budget, 1)]
    else:
        kept = kept[: max(budget, len(main))]
    return DraftTree(tuple(_renumbered(nodes, kept)))


def _within_beam(nodes: Sequence[Node], beam: int) -> list[int]:
    """Indices left when each depth keeps its `beam` best repair nodes whose parents were kept."""
    kept = {index for index, node in enumerate(nodes) if not node.branch}
    for depth in range(1, max((node.depth for node in nodes), default=0) + 1):
        alive = [
            index
            for index, node in enumerate(nodes)
            if node.branch and node.depth == depth and (node.parent < 0 or node.parent in kept)
        ]
        kept.update(sorted(alive, key=lambda index: (-nodes[index].total, index))[:beam])
    return sorted(kept)


def _ancestors_of_repairs(nodes: Sequence[Node], kept: Sequence[int]) -> set[int]:
    found: set[int] = set()
    for index in (nodes[index].parent for index in kept if nodes[index].branch):
        while index >= 0:
            found.add(index)
            index = nodes[index].parent
    return found


def _renumbered(nodes: Sequence[Node], kept: Sequence[int]) -> list[Node]:
    place = {-1: -1} | {index: number for number, index in enumerate(kept)}
    return [
        Node(node.token, place[node.parent], node.depth, node.branch, node.logp, node.margin, node.total)
        for node in (nodes[index] for index in kept)
    ]

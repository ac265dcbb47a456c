"""Draft trees as parent lists. `parents[i]` is the node before node i, -1 for a child of the committed
prefix.

Parents come before children. A chain is the tree with one branch: parents [-1, 0, 1, ...]. Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence


def chain(length: int) -> tuple[int, ...]:
    return tuple(range(-1, length - 1))


def check(parents: Sequence[int]) -> None:
    """Raises ValueError unless every parent precedes its child."""
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            raise ValueError(f"node {node} has parent {parent}; a parent must come before its child")


def depths(parents: Sequence[int]) -> list[int]:
    """Distance from the prefix: 0 for its children."""
    found: list[int] = []
    for parent in parents:
        found.append(0 if parent < 0 else found[parent] + 1)
    return found


def path(parents: Sequence[int], node: int) -> list[int]:
    """Node indices from the prefix down to `node`, inclusive."""
    nodes = []
    while node >= 0:
        nodes.append(node)
        node = parents[node]
    return nodes[::-1]


def ancestors(parents: Sequence[int]) -> list[list[bool]]:
    """seen[i][j] is True iff j is i or an ancestor of i: what node i may attend to among the nodes."""
    seen: list[list[bool]] = []
    for node, parent in enumerate(parents):
        row = list(seen[parent]) if parent >= 0 else [False] * len(parents)
        row[node] = True
        seen.append(row)
    return seen


def is_chain(parents: Sequence[int]) -> bool:
    return all(parent == node - 1 for node, parent in enumerate(parents))

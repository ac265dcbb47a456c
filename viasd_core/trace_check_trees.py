"""Checks of draft trees: that each is one, that its best path is what the cycle kept, and its bounds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from .trace import CycleRow, TokenRow, Trace, TreeRow

Nodes = dict[int, TreeRow]


def trees_hold(trace: Trace) -> Iterator[str]:
    """Nodes hang together, the best path is the one that was kept, cycles and token rows agree with it."""
    trees: dict[int, Nodes] = defaultdict(dict)
    for row in trace.tree:
        if row.node in trees[row.cycle]:
            yield f"tree.csv: cycle {row.cycle} has node {row.node} twice"
        trees[row.cycle][row.node] = row
    for cycle in trace.cycles if trace.tree else ():
        nodes = trees.get(cycle.cycle, {})
        for problem in _cycle_problems(cycle, nodes):
            yield f"cycle {cycle.cycle}: {problem}"
    for number, nodes in trees.items():
        for problem in (*_node_problems(nodes), *_shape_problems(nodes)):
            yield f"tree.csv: cycle {number}{problem}"
    for token in trace.tokens:
        for problem in _token_problems(token, trees.get(token.cycle, {})):
            yield f"cycle {token.cycle}, slot {token.slot}: {problem}"


def _cycle_problems(cycle: CycleRow, nodes: Nodes) -> Iterator[str]:
    """A cycle counts its nodes, keeps its best path, and knows what uncertain means."""
    if cycle.tree_nodes != len(nodes):
        yield f"tree_nodes is {cycle.tree_nodes}, tree.csv has {len(nodes)}"
    if not nodes:
        return
    kept, counted = sum(row.accepted for row in nodes.values()), cycle.region_a + cycle.region_c_accepted
    if kept != counted:
        yield f"tree.csv has {kept} accepted nodes, the regions count {counted} kept drafts"
    if cycle.v_max is not None and len(nodes) > max(cycle.v_max, cycle.drafted):
        yield f"its tree has {len(nodes)} nodes, more than v_max {cycle.v_max}"
    if cycle.tau_margin is None:
        return
    for row in nodes.values():
        unsure = row.branch == 0 and row.margin is not None and row.margin < cycle.tau_margin
        if row.is_ufp != unsure:
            margin = f"margin {row.margin!r} on branch {row.branch}, tau_margin {cycle.tau_margin!r}"
            yield f"node {row.node}: is_ufp is {int(row.is_ufp)}, but {margin}"


def _node_problems(nodes: Nodes) -> Iterator[str]:
    for row in nodes.values():
        for problem in (*_marks(row), *_place(row, nodes)):
            yield f", node {row.node}: {problem}"


def _marks(row: TreeRow) -> Iterator[str]:
    if row.accepted and not row.verified:
        yield "is accepted without having been verified"
    if row.accepted != row.on_best_path:
        yield f"accepted is {int(row.accepted)}, on_best_path {int(row.on_best_path)}; one path is kept"


def _place(row: TreeRow, nodes: Nodes) -> Iterator[str]:
    parent = nodes.get(row.parent)
    if row.parent == -1:
        if row.depth != 1:
            yield f"depth is {row.depth}, a child of the anchor has depth 1"
        return
    if parent is None:
        yield f"its parent {row.parent} is not in the tree"
    elif row.depth != parent.depth + 1:
        yield f"depth is {row.depth}, its parent's is {parent.depth}"
    elif row.on_best_path and not parent.on_best_path:
        yield "is on the best path, its parent is not"
    elif row.accepted and not parent.accepted:
        yield "is accepted, its parent is not"
    elif row.branch < parent.branch:
        yield f"is on branch {row.branch}, behind branch {parent.branch}"


def _shape_problems(nodes: Nodes) -> Iterator[str]:
    """One best path, one branch 0, and siblings that differ: shared prefixes are merged."""
    best = Counter(row.depth for row in nodes.values() if row.on_best_path)
    if any(count > 1 for count in best.values()):
        yield " has two best paths"
    main = Counter(row.depth for row in nodes.values() if row.branch == 0)
    if any(count > 1 for count in main.values()):
        yield " has two nodes of branch 0 at one depth"
    children = Counter((row.parent, row.token_id) for row in nodes.values())
    for (parent, token), count in children.items():
        if count > 1:
            yield f", node {parent}: has token {token} as a child {count} times"


def _token_problems(row: TokenRow, nodes: Nodes) -> Iterator[str]:
    """A token row that names a tree node is that node's token, and was kept only if the node was."""
    if not nodes or row.node < 0:
        return
    node = nodes.get(row.node)
    if node is None:
        yield f"stands for node {row.node}, which is not in the tree"
        return
    if (node.token_id, node.branch, node.parent) != (row.token_id, row.branch, row.parent):
        yield f"differs from node {row.node} in token, branch or parent"
    if row.emitted and not node.accepted:
        yield f"was emitted, but node {row.node} was not accepted"

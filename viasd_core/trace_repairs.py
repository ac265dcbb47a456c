"""What repairs gained: kept drafts of a tree against those of branch 0 alone, cycle by cycle and in total.

CURE (arXiv 2608.00531), eq. 5: gain = max(0, kept on the tree - kept on branch 0). Nobody runs branch 0
alone, so its length is known only where the verifiers' rows of the tree give it. Imports no torch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from .rows import CycleRow, TreeRow


def repair_totals(cycles: Sequence[CycleRow], tree: Sequence[TreeRow]) -> dict[str, int | None]:
    """Counts of a run's trees.

    `won` and `extra_tokens` are None where it is not known of some repaired cycle what branch 0 alone would
    have kept, `ufps` where it is not known of some tree how many positions of its block were uncertain.
    """
    trees: dict[int, list[TreeRow]] = defaultdict(list)
    for row in tree:
        trees[row.cycle].append(row)
    by_number = {row.cycle: row for row in cycles}
    gains = [
        repair_gain(by_number.get(number), nodes)
        for number, nodes in trees.items()
        if any(row.branch > 0 for row in nodes)
    ]
    return {
        "ufps": total_if_known(
            uncertain_positions(by_number.get(number), nodes) for number, nodes in trees.items()
        ),
        "tried": len(gains),
        "won": total_if_known(None if gain is None else int(gain > 0) for gain in gains),
        "extra_tokens": total_if_known(gains),
        "nodes": sum(row.tree_nodes for row in cycles),
        "resyncs": len({row.cycle for row in tree if row.branch > 0 and row.on_best_path}),
    }


def holds_block(cycle: CycleRow, nodes: Sequence[TreeRow]) -> bool:
    """Whether the whole block stands in the tree, as branch 0. False also where an end of sequence made
    branch 0 shorter than a repair: cycle rows do not tell the two apart.
    """
    return sum(row.branch == 0 for row in nodes) == cycle.drafted


def kept_on_branch0(cycle: CycleRow | None, nodes: Sequence[TreeRow]) -> int | None:
    """Drafted tokens of a cycle that branch 0 alone would have kept on the same verifier rows.

    None: not known. Traces from before that was recorded have it where the full verifier alone judged a tree
    that holds the whole block: then it is the accepted nodes of branch 0.
    """
    if cycle is None or cycle.branch0_kept is not None:
        return cycle.branch0_kept if cycle else None
    through_slim = cycle.alpha1 is not None
    if through_slim or not holds_block(cycle, nodes):
        return None
    return sum(row.accepted and row.branch == 0 for row in nodes)


def repair_gain(cycle: CycleRow | None, nodes: Sequence[TreeRow]) -> int | None:
    """Drafted tokens that the tree of a cycle kept beyond branch 0 alone, at least 0; None: not known."""
    alone = kept_on_branch0(cycle, nodes)
    return None if alone is None else max(0, sum(row.accepted and row.on_best_path for row in nodes) - alone)


def uncertain_positions(cycle: CycleRow | None, nodes: Sequence[TreeRow]) -> int | None:
    """Positions of a cycle's block with a margin below tau_margin; None: not known, since the cycle does not
    count them and the tree leaves out part of the block.
    """
    if cycle is None or cycle.ufps is not None:
        return cycle.ufps if cycle else None
    return sum(row.is_ufp for row in nodes) if holds_block(cycle, nodes) else None


def total_if_known(values: Iterable[int | None]) -> int | None:
    """The sum, None where one of the values is."""
    known = list(values)
    return None if None in known else sum(value or 0 for value in known)

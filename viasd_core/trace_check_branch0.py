"""Checks of what is said of branch 0: how much of it would have been kept alone, where it was uncertain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .trace import CycleRow, TokenRow, Trace, TreeRow
from .trace_check_regions import region_of
from .trace_positions import DRAFTED
from .trace_repairs import holds_block


def branch0_is_judged(trace: Trace) -> Iterator[str]:
    """`branch0_kept` and `ufps` of every cycle agree with its tree, as far as the rows tell.

    A trace in which no cycle has `branch0_kept` is from before there was the column, and is not asked for it.
    """
    recorded = any(cycle.branch0_kept is not None for cycle in trace.cycles)
    trees: dict[int, list[TreeRow]] = defaultdict(list)
    for row in trace.tree:
        trees[row.cycle].append(row)
    drafts: dict[int, list[TokenRow]] = defaultdict(list)
    for token in trace.tokens:
        if token.source in DRAFTED:
            drafts[token.cycle].append(token)
    settings = trace.run.get("settings", {})
    for cycle in trace.cycles:
        nodes = trees[cycle.cycle]
        if nodes and (recorded or cycle.branch0_kept is not None):
            lengths = _lengths(cycle, nodes, drafts[cycle.cycle], settings)
            if lengths is not None and cycle.branch0_kept not in lengths:
                expected = " or ".join("nothing" if length is None else str(length) for length in lengths)
                said = "empty" if cycle.branch0_kept is None else cycle.branch0_kept
                yield f"cycle {cycle.cycle}: branch0_kept is {said}, the rows give {expected}"
        yield from _uncertain_problems(cycle, nodes)


def _uncertain_problems(cycle: CycleRow, nodes: Sequence[TreeRow]) -> Iterator[str]:
    if not cycle.tree_nodes and (cycle.branch0_kept is not None or cycle.ufps is not None):
        yield f"cycle {cycle.cycle}: branch0_kept and ufps speak of a tree, but tree_nodes is 0"
    if not nodes or cycle.ufps is None:
        return
    marked = sum(row.is_ufp for row in nodes)
    most = marked if holds_block(cycle, nodes) else cycle.drafted
    if not marked <= cycle.ufps <= most:
        allowed = str(marked) if marked == most else f"{marked} to {most}"
        yield f"cycle {cycle.cycle}: ufps is {cycle.ufps}, its tree and block give {allowed}"


def _lengths(
    cycle: CycleRow, nodes: Sequence[TreeRow], drafts: Sequence[TokenRow], settings: Mapping[str, Any]
) -> list[int | None] | None:
    """What `branch0_kept` may be; None where the rows do not say."""
    if not settings.get("branch0", True) and not holds_block(cycle, nodes):
        return [None]
    if cycle.alpha1 is None or cycle.temperature > 0:
        return [sum(row.accepted and row.branch == 0 for row in nodes)]
    examined = next((row for row in drafts if row.thr1 is not None and row.thr2 is not None), None)
    ratios = {row.node: row.slim_ratio for row in drafts if row.slim_ratio is not None}
    main = sorted((row for row in nodes if row.branch == 0), key=lambda row: row.depth)
    if examined is None or any(row.node not in ratios for row in main):
        return None
    assert examined.thr1 is not None and examined.thr2 is not None
    for kept, row in enumerate(main):
        found = region_of(ratios[row.node], examined.thr1, examined.thr2, settings.get("regenerate", True))
        if found == "B":
            return [kept]
        if found == "A" or row.accepted:
            continue
        if not cycle.full_forwards + cycle.settle_forwards:
            return [None]
        if _q_said_another(cycle, nodes, drafts, row):
            return [kept]
        unknown = (
            [] if cycle.full_forwards else [None]
        )  # a settle may be that of the run's end, without a tree
        return [*range(kept, len(main) + 1), *unknown]
    return [len(main)]


def _q_said_another(
    cycle: CycleRow, nodes: Sequence[TreeRow], drafts: Sequence[TokenRow], row: TreeRow
) -> bool:
    """Whether q, asked behind the parent of a node at temperature 0, said another token than the node's."""
    asked = {token.node for token in drafts if token.region == "C"}
    siblings = [other for other in nodes if other.parent == row.parent]
    if any(other.accepted for other in siblings):
        return any(other.accepted and other.node in asked for other in siblings)
    return cycle.region_c_rejected > 0 and any(other.node in asked for other in siblings)

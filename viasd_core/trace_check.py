"""Does a trace contradict itself? Every invariant a reader may rely on, tested; each problem is one sentence.

The groups: the shape of the rows, the output (ids, text, counts), the cycles, the three regions of VIA-SD
(arXiv 2606.12243, Algorithm 2), the audit, the trees and the numbers in run.json. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .trace import Trace
from .trace_check_branch0 import branch0_is_judged
from .trace_check_cycles import cycles_hold, masks_hold
from .trace_check_output import output_is_whole, rows_are_possible, run_is_described, run_is_typed
from .trace_check_regions import audit_is_complete, gate_decides_regions, regions_match_counts, tiers_hold
from .trace_check_totals import totals_follow_from_rows
from .trace_check_trees import trees_hold

Rule = Callable[[Trace], Iterator[str]]

RULES: tuple[Rule, ...] = (
    run_is_described,
    rows_are_possible,
    output_is_whole,
    cycles_hold,
    regions_match_counts,
    gate_decides_regions,
    tiers_hold,
    audit_is_complete,
    trees_hold,
    branch0_is_judged,
    masks_hold,
    totals_follow_from_rows,
)


def check(trace: Trace) -> list[str]:
    """Problems of a finished, partial or loaded trace, one sentence each; an empty list when it holds."""
    if mistyped := list(run_is_typed(trace)):
        return [*trace.problems, *mistyped]
    return [*trace.problems, *(problem for rule in RULES for problem in rule(trace))]

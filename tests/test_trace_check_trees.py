"""The checker names each thing changed in a trace with repair trees, or with several slim verifiers."""

from __future__ import annotations

from typing import Any

import pytest

from sample_traces import cycle_row, draft, drawn, finish_run, tiered_trace, tree_trace
from trace_changes import Change, cycle, node, problems_after, setting, token, total
from viasd_core.bundle_format import decode, encode
from viasd_core.trace import CycleEvent, Trace, TreeRow
from viasd_core.trace_check import check

TREE_BROKEN: dict[str, tuple[Change, str]] = {
    "node count": (cycle(0, tree_nodes=6), "tree_nodes is 6, tree.csv has 5"),
    "node twice": (node(1, node=0), "cycle 0 has node 0 twice"),
    "parent missing": (node(2, parent=9), "its parent 9 is not in the tree"),
    "depth of a child": (node(2, depth=2), "depth is 2, its parent's is 2"),
    "depth of a root": (node(0, depth=2), "depth is 2, a child of the anchor has depth 1"),
    "accepted under a rejected parent": (node(2, accepted=True), "node 2: is accepted, its parent is not"),
    "best path with a gap": (node(3, on_best_path=False), "node 4: is on the best path, its parent is not"),
    "accepted unverified": (node(4, verified=False), "node 4: is accepted without having been verified"),
    "accepted beside the best path": (node(4, on_best_path=False), "node 4: accepted is 1, on_best_path 0"),
    "siblings alike": (node(3, token_id=7), "node 0: has token 7 as a child 2 times"),
    "two branches 0": (node(3, branch=0), "two nodes of branch 0 at one depth"),
    "branch 0 behind a repair": (node(4, branch=0), "is on branch 0, behind branch 1"),
    "certain yet uncertain": (
        node(2, is_ufp=True),
        "node 2: is_ufp is 1, but margin 1.5 on branch 0, tau_margin 1.0",
    ),
    "uncertain yet certain": (node(1, is_ufp=False), "node 1: is_ufp is 0, but margin 0.2"),
    "uncertain repair": (node(4, is_ufp=True, margin=0.1), "node 4: is_ufp is 1, but margin 0.1 on branch 1"),
    "margin moved": (cycle(0, tau_margin=0.1), "is_ufp is 1, but margin 0.2 on branch 0, tau_margin 0.1"),
    "more nodes than allowed": (cycle(0, v_max=4), "its tree has 5 nodes, more than v_max 4"),
    "kept more than it accepted": (cycle(0, region_c_accepted=2), "3 accepted nodes, the regions count 2"),
    "token of another node": (token(1, node=1), "slot 1: differs from node 1 in token, branch or parent"),
    "token of no node": (token(1, node=9), "stands for node 9, which is not in the tree"),
    "branch lost": (token(1, branch=0), "slot 1: differs from node 3 in token, branch or parent"),
    "emitted off the path": (
        node(4, accepted=False, on_best_path=False),
        "slot 2: was emitted, but node 4 was not accepted",
    ),
    "two best paths": (node(1, on_best_path=True), "cycle 0 has two best paths"),
    "branch 0 shorter": (cycle(0, branch0_kept=0), "cycle 0: branch0_kept is 0, the rows give 1"),
    "branch 0 longer": (cycle(1, branch0_kept=2), "cycle 1: branch0_kept is 2, the rows give 1"),
    "branch 0 without its length": (
        cycle(0, branch0_kept=1),
        "cycle 1: branch0_kept is empty, the rows give 1",
    ),
    "uncertain positions": (cycle(0, ufps=2), "cycle 0: ufps is 2, its tree and block give 1"),
    "repair total": (total("repair", "won", value=0), "totals.repair.won is 0, the rows give 1"),
    "length not reached": (setting(max_new_tokens=9), "finish_reason is length after 6 of 9 tokens"),
}


@pytest.mark.parametrize(("change", "named"), TREE_BROKEN.values(), ids=TREE_BROKEN.keys())
def test_each_contradiction_of_a_tree_is_named(change: Change, named: str) -> None:
    assert named in problems_after(tree_trace, change)


def gated_tree() -> Trace:
    """A cycle of VIA-SD's gates over a tree: the path follows the sibling of ratio 1 although branch 0, of
    ratios .9 and .6, would have passed twice.
    """
    trace = Trace()
    counts: dict[str, Any] = {"region_a": 1, "region_b": 1, "tree_nodes": 4, "v_max": 90, "tau_margin": 1.0}
    trace.add(
        CycleEvent(
            cycle_row(0, 2, 2, 6, n_q=4, n_s=5, debt=1, branch0_kept=2, ufps=1, **counts),
            (
                draft(0, 0, "c", "accepted_slim", "A", 0, **gated(2, -1, 1, 1.0)),
                draft(0, 1, "d", "rejected", "B", None, **gated(3, 2, 1, 0.4)),
                drawn(0, 1, "e", "regenerated_slim", 1),
                draft(0, 0, "a", "discarded", "", None, **gated(0, -1, 0, 0.9), is_ufp=True),
                draft(0, 1, "b", "discarded", "", None, **gated(1, 0, 0, 0.6)),
            ),
            tree=(
                TreeRow(0, 0, -1, 1, 0, 20, "a", margin=0.2, is_ufp=True, verified=True),
                TreeRow(0, 1, 0, 2, 0, 21, "b", margin=1.5, verified=True),
                TreeRow(0, 2, -1, 1, 1, 22, "c", verified=True, accepted=True, on_best_path=True),
                TreeRow(0, 3, 2, 2, 1, 23, "d", verified=True),
            ),
            finish="length",
        )
    )
    return finish_run(trace, "cure", {"max_new_tokens": 2, "tiers": ["via-sd"], "final_audit": False})


def gated(node: int, parent: int, branch: int, ratio: float) -> dict[str, Any]:
    source = "repair" if branch else "draft"
    return {
        "node": node, "parent": parent, "branch": branch, "slim_ratio": ratio, "source": source,
        "token_id": 20 + node,
    }  # fmt: skip


GATED: dict[str, tuple[list[Change], str]] = {
    "what the tree marks": ([cycle(0, branch0_kept=0)], "branch0_kept is 0, the rows give 2"),
    "less than it passed": ([cycle(0, branch0_kept=1)], "branch0_kept is 1, the rows give 2"),
    "region B ends it": ([token(4, slim_ratio=0.4)], "branch0_kept is 2, the rows give 1"),
    "nobody asked q": ([token(4, slim_ratio=0.1)], "branch0_kept is 2, the rows give nothing"),
    "q ran, and must have judged": (
        [token(4, slim_ratio=0.1), cycle(0, full_forwards=1, branch0_kept=0)],
        "branch0_kept is 0, the rows give 1 or 2",
    ),
    "without regeneration q is asked": (
        [token(4, slim_ratio=0.4), setting(regenerate=False)],
        "branch0_kept is 2, the rows give nothing",
    ),
    "drawn at a temperature": ([cycle(0, temperature=1.0)], "branch0_kept is 2, the rows give 0"),
    "left out": ([setting(branch0=False), cycle(0, drafted=3)], "branch0_kept is 2, the rows give nothing"),
    "a tree that is not there": ([cycle(0, tree_nodes=0)], "speak of a tree, but tree_nodes is 0"),
    "a gain that is none": ([total("repair", "won", value=1)], "totals.repair.won is 1, the rows give 0"),
}


@pytest.mark.parametrize(("changes", "named"), GATED.values(), ids=GATED)
def test_each_contradiction_about_branch_0_behind_gates_is_named(changes: list[Change], named: str) -> None:
    assert named in problems_after(gated_tree, *changes)


def test_a_tree_whose_gates_left_a_better_branch_0_is_sound_and_has_no_gain() -> None:
    trace = gated_tree()
    assert check(trace) == []
    assert (trace.summary()["repair"]["won"], trace.summary()["repair"]["extra_tokens"]) == (0, 0)
    assert decode(encode(trace)).cycles == trace.cycles, "the columns are written and read"


TIERED: dict[str, tuple[Change, str]] = {
    "unknown tier": (token(0, tier=3), "cycle 0, slot 0: tier 3 of 2 slim verifiers"),
    "tier that did not run": (token(0, tier=2), "slim verifier 2 settled it but did not run"),
    "no tier": (token(0, tier=None), "region A, but no slim verifier settled it"),
    "tier in region C": (token(5, tier=1), "slim verifier settled it, but its region is C"),
    "forwards that do not add up": (
        cycle(1, slim_forwards=3),
        "tier_forwards sum to 2, not to slim_forwards",
    ),
    "the second without the first": (cycle(1, tier_forwards=(0, 2)), "a tier runs once, after those before"),
    "q without the second": (
        cycle(1, tier_forwards=(1, 0)),
        "region C, but not every slim verifier was asked",
    ),
    "another number of tiers": (cycle(1, tier_forwards=(1,)), "different numbers of slim verifiers"),
    "negative time": (cycle(1, tier_us=(-1, 0)), "a slim verifier took a time below 0"),
    "totals of a tier": (total("tiers", "2", "forwards", value=9), "tiers.2.forwards is 9, the rows give 1"),
}


@pytest.mark.parametrize(("change", "named"), TIERED.values(), ids=TIERED)
def test_each_contradiction_of_several_slim_verifiers_is_named(change: Change, named: str) -> None:
    assert named in problems_after(tiered_trace, change)

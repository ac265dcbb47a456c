"""Rows grown from cycle events, and the numbers defined on them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from sample_traces import audit, cycle_row, draft, strict_trace, tree_trace, via_sd_trace
from viasd_core.trace import DEFINITIONS, CycleEvent, ShownEdit, Trace, summarise


def test_output_ids_follow_emitted_rows_and_leave_rejected_drafts_out() -> None:
    trace = via_sd_trace()
    assert trace.token_ids == [100, 101, 152, 200, 201, 252, 300, 301, 302, 353, 450]


def test_character_split_over_two_tokens_is_whole_in_the_text_and_eos_is_not_in_it() -> None:
    assert via_sd_trace().text == "Plants eat\U0001f331.\nNA =1+1 so"


def test_incomplete_last_character_shows_as_replacement() -> None:
    trace = Trace(tokens=[draft(0, 0, "", "accepted_slim", "A", 0, data=b"\xf0\x9f")])
    assert trace.text == "\ufffd"


def test_retracted_tokens_leave_the_output_but_keep_row_and_region() -> None:
    trace = strict_trace()
    taken_back = [row for row in trace.tokens if row.verdict == "retracted"]
    assert trace.token_ids == [100, 250]
    assert [(row.emitted, row.out_pos, row.region) for row in taken_back] == [(False, None, "A")] * 2


def test_edit_trims_an_earlier_token_when_a_stop_string_completes() -> None:
    trace = Trace()
    trace.add(CycleEvent(cycle_row(0, 1, 1, 5), (draft(0, 0, "end STO", "accepted_slim", "A", 0),)))
    hidden = draft(1, 0, "P", "accepted_slim", "A", 1, shown=False)
    trace.add(CycleEvent(cycle_row(1, 1, 1, 6), (hidden,), edits=(ShownEdit(0, True, b"end ", "end "),)))
    assert trace.text == "end "
    assert len(trace.token_ids) == 2


def test_audit_lands_on_its_token_with_the_cycle_that_judged_it() -> None:
    row = via_sd_trace().emitted[1]
    assert (row.audit_cycle, row.audit_rank, row.audit_kl) == (1, 2, 0.02)


def test_second_audit_of_a_token_is_recorded_as_a_problem() -> None:
    trace = via_sd_trace()
    trace.add(CycleEvent(cycle_row(4, 0, 0, 15), audits=(audit(2),)))
    assert trace.problems == ["output token 2 was audited again in cycle 4"]


def test_loaded_rows_can_still_be_audited() -> None:
    grown = via_sd_trace()
    loaded = Trace(tokens=[replace(row, audit_cycle=None, audit_rank=None) for row in grown.tokens])
    loaded.add(CycleEvent(cycle_row(4, 0, 0, 15), audits=(audit(10, rank=3),)))
    assert loaded.emitted[10].audit_rank == 3


def test_rates_are_the_written_definitions() -> None:
    summary = via_sd_trace().summary()
    assert summary["examined"] == 9
    assert summary["rejection_rate"] == 2 / 9
    assert summary["region_c_share"] == 2 / 9
    assert summary["mixture"] == {"A": 6 / 9, "B": 1 / 9, "C": 2 / 9}
    assert summary["escalation_rate"] == 2 / 4
    assert summary["escalating_cycles"] == 1
    assert summary["mean_committed"] == 11 / 4
    assert sum(summary["counts"].values()) == summary["new_tokens"] == 11


def test_settle_counts_as_escalation_but_not_as_a_full_forward() -> None:
    summary = strict_trace().summary()
    assert (summary["escalation_rate"], summary["full_forwards"], summary["settle_forwards"]) == (0.5, 0, 1)


def test_audit_agreement_leaves_out_what_the_full_verifier_decided_itself() -> None:
    judged = via_sd_trace().summary()["audit"]
    assert judged["judged"] == 11
    assert judged["agree"] == 6 / 8


def test_phases_are_summed_in_milliseconds() -> None:
    phases = via_sd_trace().summary()["phases_ms"]
    assert (phases["draft"], phases["slim"], phases["full"]) == (0.48, 1.02, 0)


def test_repair_gain_counts_only_tokens_beyond_branch_0() -> None:
    repair = tree_trace().summary()["repair"]
    assert (repair["extra_tokens"], repair["won"], repair["resyncs"]) == (2, 1, 1)
    assert (repair["ufps"], repair["tried"], repair["nodes"]) == (2, 2, 7)


def test_repair_gain_shrinks_by_what_branch_0_would_have_kept() -> None:
    trace = tree_trace()
    trace.tree[1] = replace(trace.tree[1], accepted=True)
    assert trace.summary()["repair"]["extra_tokens"] == 1


@pytest.mark.parametrize(("alone", "extra", "won"), [(0, 3, 1), (1, 2, 1), (3, 0, 0), (4, 0, 0)])
def test_repair_gain_is_over_what_branch_0_alone_would_have_kept(alone: int, extra: int, won: int) -> None:
    """Where it is recorded, whatever nodes of branch 0 the path went through."""
    trace = tree_trace()
    trace.cycles[0] = replace(trace.cycles[0], branch0_kept=alone)
    repair = trace.summary()["repair"]
    assert (repair["extra_tokens"], repair["won"], repair["tried"]) == (extra, won, 2)


def test_repair_gain_is_not_known_where_branch_0_was_left_out_or_not_judged() -> None:
    left_out, not_judged = tree_trace(), tree_trace()
    left_out.tree = [row for row in left_out.tree if (row.cycle, row.node) not in ((0, 1), (0, 2))]
    not_judged.cycles[0] = replace(not_judged.cycles[0], alpha1=0.5, alpha2=0.3)
    for trace in (left_out, not_judged):
        repair = trace.summary()["repair"]
        assert (repair["extra_tokens"], repair["won"], repair["tried"]) == (None, None, 2)
    assert left_out.summary()["repair"]["ufps"] is None
    left_out.cycles[0] = replace(left_out.cycles[0], ufps=1)
    assert left_out.summary()["repair"]["ufps"] == 2


def test_repair_counts_are_zero_without_a_tree() -> None:
    repair = via_sd_trace().summary()["repair"]
    assert {repair[key] for key in ("ufps", "tried", "won", "extra_tokens", "nodes", "resyncs")} == {0}


def test_empty_trace_has_a_summary_without_division_by_zero() -> None:
    summary = summarise([], [])
    assert (summary["rejection_rate"], summary["mean_committed"], summary["audit"]["agree"]) == (
        0.0,
        0.0,
        None,
    )


@pytest.mark.parametrize("name", ["rejection_rate", "mean_committed", "escalation_rate", "region_c_share"])
def test_every_headline_rate_has_a_written_definition(name: str) -> None:
    assert name in DEFINITIONS


def test_summary_is_plain_json() -> None:
    summary = via_sd_trace().summary()
    assert json.loads(json.dumps(summary)) == summary


def test_reading_a_trace_imports_no_torch_numpy_or_pandas() -> None:
    code = (
        "import sys, viasd_core.bundle, viasd_core.trace_check, viasd_core.trace_show\n"
        "print([name for name in ('torch', 'numpy', 'pandas', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""VIA-SD's cycle, branch by branch, on rows made for the branch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from scripted import Table, TableRunner, constant_table, near, random_table, run, scripted_parts
from viasd_core.settings import Settings
from viasd_core.trace import Trace
from viasd_core.trace_check import check

# The drafter always says 0, q' thinks 0 worth r of its favourite 1, and q prefers 2.
DRAFT = constant_table([0.98, 0.01, 0.01])
FULL = constant_table([0.15, 0.25, 0.60])


def slim(r: float) -> Table:
    return constant_table([r, 1.0, 0.01])


def via(
    q: Table, small: Table, p: Table = DRAFT, *, parts: dict[str, Any] | None = None, **settings: Any
) -> Trace:
    chosen: dict[str, Any] = {"mask": "101", "gamma": 3, "max_new_tokens": 12} | settings
    trace = run(scripted_parts(TableRunner(q, small), p, **(parts or {})), [1], Settings(**chosen))
    assert check(trace) == []
    return trace


def verdicts(trace: Trace) -> list[str]:
    return [row.verdict for row in trace.emitted]


def test_a_confident_slim_verifier_keeps_the_block_without_q() -> None:
    trace = via(FULL, slim(0.6))
    assert verdicts(trace) == ["accepted_slim"] * 12
    assert trace.summary()["full_forwards"] == 0


def test_between_the_gates_the_slim_verifier_writes_its_own_token_and_ends_the_block() -> None:
    trace = via(FULL, slim(0.4), debt_cap=0)
    assert verdicts(trace) == ["regenerated_slim"] * 12
    assert trace.token_ids == [1] * 12
    assert [row.verdict for row in trace.tokens[:4]] == [
        "rejected", "discarded", "discarded", "regenerated_slim"
    ]  # fmt: skip
    assert trace.summary()["full_forwards"] == 0


def test_below_both_gates_q_decides_and_its_token_ends_the_block() -> None:
    trace = via(FULL, slim(0.1))
    assert verdicts(trace) == ["rewritten_full"] * 12
    assert trace.token_ids == [2] * 12
    assert trace.cycles[0].reason == "draft 0 fell in region C: ratio 0.100 < 0.300"


def test_a_draft_that_q_keeps_does_not_end_the_block() -> None:
    trace = via(DRAFT, slim(0.1))
    assert verdicts(trace) == ["accepted_full"] * 12
    assert [cycle.full_forwards for cycle in trace.cycles] == [1] * 4


def test_the_debt_is_settled_behind_the_cap_in_the_very_cycle_that_passes_it() -> None:
    """T + g - n_q > cap: 4 and 7 rows fit a cap of 7, 10 do not; then q holds all but the anchor."""
    trace = via(FULL, slim(0.6), debt_cap=7, max_new_tokens=15)
    assert [cycle.settle_forwards for cycle in trace.cycles] == [0, 0, 1, 0, 1]
    assert [cycle.n_q for cycle in trace.cycles][:4] == [0, 0, 9, 9]
    assert [cycle.debt for cycle in trace.cycles][:4] == [3, 6, 0, 3]
    assert trace.cycles[2].reason == "10 rows of debt and block exceed the cap of 7"


def test_a_settle_serves_region_c_of_its_cycle_and_still_counts_as_a_settle() -> None:
    """q runs once; the cycle's C uses the settle's rows."""
    trace = via(DRAFT, slim(0.1), debt_cap=1, max_new_tokens=6)
    assert [(cycle.settle_forwards, cycle.full_forwards) for cycle in trace.cycles] == [(1, 0), (1, 0)]
    assert trace.summary()["escalating_cycles"] == 2
    assert verdicts(trace) == ["accepted_full"] * 6


def first_escalates() -> tuple[Table, Table]:
    """(q, q'): behind token 1 (the prompt) draft 0 falls in C and q keeps it; behind 0 it would be B."""
    rows = torch.tensor([[0.4, 1.0, 0.01]] * 4, dtype=torch.float64)
    rows[2] = torch.tensor([0.1, 1.0, 0.01])
    return DRAFT, Table(rows.log(), 1)


def test_after_an_escalation_the_gates_go_on_unless_q_was_asked_to_take_over() -> None:
    q, small = first_escalates()
    gate = via(q, small, max_new_tokens=3)
    assert [row.region for row in gate.tokens if row.cycle == 0 and row.region] == ["C", "B"]
    taken = via(q, small, max_new_tokens=3, after_escalation="q")
    assert [row.region for row in taken.tokens if row.region] == ["C", "C", "C"]
    assert [row.slim_ratio for row in taken.tokens] == pytest.approx([0.1, 0.4, 0.4])
    assert verdicts(taken) == ["accepted_full"] * 3


def test_a_settle_alone_does_not_hand_the_block_to_q() -> None:
    """after_escalation = q is about region C, not about q's rows being there."""
    trace = via(FULL, slim(0.6), debt_cap=1, after_escalation="q", max_new_tokens=6)
    assert verdicts(trace) == ["accepted_slim"] * 6


def test_the_default_bonus_is_none_and_the_block_leaves_no_room_for_one() -> None:
    trace = via(DRAFT, slim(1.0), max_new_tokens=6)
    assert [cycle.committed for cycle in trace.cycles] == [3, 3]


@pytest.mark.parametrize("kind", ["q-if-called", "slim"])
def test_when_q_ran_a_full_block_earns_qs_token_for_free(kind: str) -> None:
    trace = via(DRAFT, slim(0.1), bonus=kind, max_new_tokens=8)
    assert verdicts(trace) == (["accepted_full"] * 3 + ["bonus"]) * 2
    assert [row.source for row in trace.emitted if row.verdict == "bonus"] == ["bonus"] * 2


def test_a_slim_bonus_needs_a_confident_row_and_is_audited_like_region_a() -> None:
    sure = constant_table([0.95, 0.04, 0.01])
    trace = via(FULL, sure, bonus="slim", bonus_threshold=0.9, max_new_tokens=8)
    assert verdicts(trace) == (["accepted_slim"] * 3 + ["bonus"]) * 2
    bonus = [row for row in trace.emitted if row.verdict == "bonus"]
    assert {row.source for row in bonus} == {"slim_sample"}
    assert all(row.audit_kl is not None for row in bonus)
    unsure = via(FULL, sure, bonus="slim", bonus_threshold=0.96, max_new_tokens=8)
    assert "bonus" not in verdicts(unsure)[:6]


def test_with_a_bonus_possible_the_last_token_of_the_run_is_not_drafted_past_the_limit() -> None:
    """g = remaining - 1; one token left: q alone."""
    trace = via(FULL, slim(0.6), bonus="q-if-called", max_new_tokens=5)
    assert [cycle.drafted for cycle in trace.cycles] == [3, 1, 0]
    assert verdicts(trace)[-1] == "target"


def test_without_regeneration_the_reason_names_the_gap_between_the_gates() -> None:
    trace = via(FULL, slim(0.4), regenerate=False, max_new_tokens=2)
    assert trace.cycles[0].reason == ("draft 0 fell between the gates (ratio 0.400) and regeneration is off")
    assert verdicts(trace) == ["rewritten_full"] * 2


@pytest.mark.parametrize(("rule", "token"), [("greedy", 2), ("lossless", 2), ("lossy", 2), ("pi", 2)])
def test_every_rule_rewrites_a_draft_it_refuses(rule: str, token: int) -> None:
    trace = via(FULL, slim(0.1), rule_c=rule, max_new_tokens=4)
    assert trace.token_ids[0] == token


def test_a_lenient_rule_keeps_what_q_finds_good_enough_also_at_temperature_zero() -> None:
    """q(0) / max q = .25: refused with alpha .5, kept with alpha .8."""
    strict = via(FULL, slim(0.1), rule_c="lossy", alpha=0.5, max_new_tokens=3)
    lenient = via(FULL, slim(0.1), rule_c="lossy", alpha=0.8, max_new_tokens=3)
    assert verdicts(strict) == ["rewritten_full"] * 3
    assert verdicts(lenient) == ["accepted_full"] * 3


def test_the_mixture_rule_moves_towards_the_drafter_as_drafts_pass_without_q() -> None:
    """pi of (14) with the counts of earlier cycles: C only, then A A C, then half A makes pi's argmax p's."""
    nowhere = [1.0, 1.0, 1.0]
    p = Table(torch.tensor([nowhere, [0.01, 0.98, 0.01], [0.98, 0.01, 0.01], [0.98, 0.01, 0.01]]).log(), 1)
    small = Table(torch.tensor([nowhere, [0.01, 0.98, 0.01], [0.1, 1.0, 0.01], [0.98, 0.01, 0.01]]).log(), 1)
    trace = via(FULL, small, p, rule_c="pi", max_new_tokens=7)
    assert [[row.verdict for row in trace.emitted if row.cycle == cycle] for cycle in range(3)] == [
        ["rewritten_full"],
        ["accepted_slim", "accepted_slim", "rewritten_full"],
        ["accepted_slim", "accepted_slim", "accepted_full"],
    ]


def test_a_lookup_like_drafter_without_logits_leaves_those_columns_empty() -> None:
    parts = scripted_parts(TableRunner(FULL, slim(0.6)), DRAFT)
    factory = parts.drafter
    assert factory is not None

    class WithoutLogits:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def draft(self, *arguments: Any) -> Any:
            return replace(self.inner.draft(*arguments), logits=None)

    bare = replace(parts, drafter=lambda verifier, capacity: WithoutLogits(factory(verifier, capacity)))
    for rule in ("lossless", "pi"):
        trace = run(bare, [1], Settings(mask="101", rule_c=rule, alpha2=0.5, max_new_tokens=9))
        assert check(trace) == []
        drafts = [row for row in trace.tokens if row.source == "draft"]
        assert all(row.logp_draft is None and row.top2_margin is None for row in drafts)
        assert all(row.logp_slim is not None for row in drafts)


def test_no_forward_is_made_while_committing() -> None:
    """Forward counts of the trace are those of the runner: nothing else runs a model."""
    q = random_table(6, 2, 1)
    runner = TableRunner(q, near(q, 0.6, 2))
    settings = Settings(mask="101", temperature=1.0, max_new_tokens=80, seed=4)
    trace = run(scripted_parts(runner, near(q, 0.6, 3)), [1, 2, 3], settings)
    totals = trace.summary()
    assert len(runner.calls()) == totals["full_forwards"] + totals["settle_forwards"]
    assert len(runner.calls("101")) == totals["slim_forwards"]
    assert [call.logit_rows for call in runner.log].count(0) == 1  # the prefill
    assert len(runner.log) == 1 + len(runner.calls()) + len(runner.calls("101"))
    assert totals["draft_forwards"] == sum(cycle.drafted for cycle in trace.cycles)


def test_a_prompt_of_one_token_needs_no_prefill() -> None:
    runner = TableRunner(FULL, slim(0.6))
    run(scripted_parts(runner, DRAFT), [1], Settings(mask="101", max_new_tokens=3))
    assert all(call.logit_rows for call in runner.log)

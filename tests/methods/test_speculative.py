"""Two-tier speculative decoding and plain decoding, cycle by cycle."""

from __future__ import annotations

from scripted import TableRunner, constant_table, near, random_table, run, scripted_parts
from viasd_core.settings import Settings
from viasd_core.trace_check import check

Q = random_table(6, 2, 40)


def test_each_cycle_costs_one_q_forward_over_anchor_and_block() -> None:
    runner = TableRunner(Q)
    trace = run(scripted_parts(runner, near(Q, 0.5, 1)), [0], Settings(method="sd", gamma=4))
    assert [call.rows for call in runner.calls()] == [cycle.drafted + 1 for cycle in trace.cycles]
    assert all(cycle.full_forwards == 1 for cycle in trace.cycles)
    assert check(trace) == []


def test_plain_decoding_costs_one_q_forward_of_one_row_a_token() -> None:
    runner = TableRunner(Q)
    trace = run(scripted_parts(runner, None), [0, 1], Settings(method="ar", max_new_tokens=7))
    assert [call.rows for call in runner.calls()] == [1] * 7
    assert [row.verdict for row in trace.emitted] == ["target"] * 7
    assert all(row.audit_rank == 0 for row in trace.emitted)


def test_every_row_of_the_block_is_tested_with_its_own_uniform() -> None:
    """One number for all would make acceptance all or nothing."""
    trace = run(
        scripted_parts(TableRunner(Q), near(Q, 0.3, 2)), [0], Settings(method="sd", temperature=1.0, gamma=6)
    )
    uniforms = [row.rand_u for row in trace.tokens if row.rand_u is not None]
    assert len(uniforms) > 30 and len(set(uniforms)) == len(uniforms)


def test_the_block_behind_a_rejection_is_discarded_unexamined() -> None:
    p, q = constant_table([0.98, 0.01, 0.01]), constant_table([0.01, 0.98, 0.01])
    trace = run(scripted_parts(TableRunner(q), p), [0], Settings(method="sd", gamma=3, max_new_tokens=4))
    first = [row for row in trace.tokens if row.cycle == 0]
    assert [(row.verdict, row.region) for row in first] == [
        ("rejected", "C"), ("discarded", ""), ("discarded", ""), ("rewritten_full", "")
    ]  # fmt: skip


def test_speculative_decoding_leaves_no_debt() -> None:
    trace = run(scripted_parts(TableRunner(Q), near(Q, 0.4, 3)), [0, 1], Settings(method="sd"))
    assert {cycle.debt for cycle in trace.cycles} == {0}
    assert all(cycle.n_q == cycle.kv_len - 1 for cycle in trace.cycles)


def test_without_a_bonus_a_full_block_commits_gamma_tokens() -> None:
    trace = run(
        scripted_parts(TableRunner(Q), Q),
        [0],
        Settings(method="sd", gamma=4, bonus="none", max_new_tokens=10),
    )
    assert [cycle.committed for cycle in trace.cycles] == [4, 4, 2]


def test_recorded_draft_facts_are_those_of_the_raw_draft_row() -> None:
    p = constant_table([0.5, 0.3, 0.2])
    trace = run(
        scripted_parts(TableRunner(p), p), [0], Settings(method="sd", temperature=0.5, max_new_tokens=4)
    )
    margins = {round(row.top2_margin or 0, 6) for row in trace.tokens if row.source == "draft"}
    entropies = {round(row.entropy_draft or 0, 6) for row in trace.tokens if row.source == "draft"}
    assert margins == {0.510826}  # ln(.5 / .3)
    assert entropies == {1.029653}

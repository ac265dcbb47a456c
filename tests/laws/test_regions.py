"""Regions A, B and C as the loop applies them, and when the full verifier is called."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scripted import TableDrafter, TableRunner, near, random_table, run, scripted_parts
from viasd_core.methods.via_sd import mixture_weights
from viasd_core.settings import Settings
from viasd_core.trace import Trace
from viasd_core.trace_check import check

Q = random_table(7, 2, 300)
SLIM, DRAFTER = near(Q, 0.6, 301), near(Q, 0.6, 302)
PROMPT = [1, 2]


def via(runner: TableRunner | None = None, *, drafter: Any = DRAFTER, **settings: Any) -> Trace:
    chosen: dict[str, Any] = {"mask": "101", "max_new_tokens": 60} | settings
    runner = runner or TableRunner(Q, SLIM)
    trace = run(scripted_parts(runner, drafter), PROMPT, Settings(**chosen))
    assert check(trace) == []
    return trace


def text_before(trace: Trace, row_index: int) -> list[int]:
    """Prompt, and what a token row stands behind: the emitted text, then the drafts of its own cycle."""
    row = trace.tokens[row_index]
    text = list(PROMPT) + [other.token_id for other in trace.emitted if other.cycle < row.cycle]
    drafts = [o.token_id for o in trace.tokens if o.cycle == row.cycle and o.source == "draft"]
    return text + drafts[: row.slot]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_each_recorded_ratio_is_the_slim_rows_at_temperature_one(temperature: float) -> None:
    """Rule 1.1: r = raw q'(v) / max raw q', also where draws are greedy or sharpened."""
    trace = via(temperature=temperature, seed=5, top_k=3)
    for index, row in enumerate(trace.tokens):
        if not row.region:
            continue
        slim = SLIM.probs(text_before(trace, index))
        assert row.slim_ratio == pytest.approx(slim[row.token_id] / slim.max(), abs=1e-12)
        assert row.logp_slim == pytest.approx(np.log(slim[row.token_id]))
        assert row.logp_draft == pytest.approx(np.log(DRAFTER.probs(text_before(trace, index))[row.token_id]))


def test_every_examined_draft_is_in_exactly_the_region_its_ratio_gives() -> None:
    """V4: A, B and C are disjoint and cover; `direct` defaults reach all three."""
    regions = set()
    for seed in range(4):
        for row in via(temperature=1.0, seed=seed).tokens:
            if row.slim_ratio is None or not row.region:
                continue
            regions.add(row.region)
            inside = {
                "A": row.slim_ratio >= 0.5, "B": 0.3 <= row.slim_ratio < 0.5, "C": row.slim_ratio < 0.3
            }  # fmt: skip
            assert inside[row.region] and sum(inside.values()) == 1
    assert regions == {"A", "B", "C"}


def test_the_literal_reading_of_the_paper_never_regenerates_at_its_own_defaults() -> None:
    """V4: literal tau1 = .5 < tau2 = .7 leaves region B empty."""
    for seed in range(4):
        trace = via(temperature=1.0, seed=seed, gate="literal")
        assert sum(cycle.region_b for cycle in trace.cycles) == 0
        assert {row.region for row in trace.tokens if row.region} == {"A", "C"}


def test_the_gate_ignores_what_the_drafter_thought_of_its_own_token() -> None:
    """V9: other claimed draft probabilities, same tokens: same regions. Rule C here looks at q alone."""
    claimed = near(DRAFTER, 3.0, 9)
    settings = Settings(mask="101", temperature=1.0, max_new_tokens=60, rule_c="greedy")
    honest = run(scripted_parts(TableRunner(Q, SLIM), DRAFTER), PROMPT, settings)
    other = run(scripted_parts(TableRunner(Q, SLIM), DRAFTER, claimed=claimed), PROMPT, settings)
    assert [row.region for row in other.tokens] == [row.region for row in honest.tokens]
    assert [row.token_id for row in other.tokens] == [row.token_id for row in honest.tokens]
    assert [row.p_used for row in other.tokens] != [row.p_used for row in honest.tokens]


def test_a_greedy_regenerated_token_is_qs_small_siblings_argmax_and_never_the_draft() -> None:
    """V10."""
    found = 0
    for start in range(7):
        settings = Settings(mask="101", max_new_tokens=60, alpha1=0.9, alpha2=0.2)
        trace = run(scripted_parts(TableRunner(Q, SLIM), DRAFTER), [start, 2], settings)
        drafts = {(r.cycle, r.slot): r for r in trace.tokens if r.source == "draft"}
        for row in trace.tokens:
            if row.verdict == "regenerated_slim":
                found += 1
                draft = drafts[row.cycle, row.slot]
                assert draft.region == "B" and draft.verdict == "rejected"
                assert row.token_id != draft.token_id
    assert found > 5


def test_a_sampled_redraw_may_equal_the_draft_and_still_ends_the_block() -> None:
    """Rule 1.1, literal break."""
    same = 0
    for seed in range(6):
        trace = via(temperature=1.0, seed=seed, alpha1=1.0, alpha2=0.1)
        for row in trace.tokens:
            if row.verdict != "regenerated_slim":
                continue
            block = [r for r in trace.tokens if r.cycle == row.cycle and r.source == "draft"]
            same += block[row.slot].token_id == row.token_id
            assert all(r.verdict == "discarded" for r in block[row.slot + 1 :])
    assert same > 0


def test_q_runs_at_most_once_a_cycle_and_only_for_a_draft_in_region_c() -> None:
    """V7 with cap and final audit off: the C-only statement."""
    for seed in range(3):
        runner = TableRunner(Q, SLIM)
        trace = via(runner, temperature=1.0, seed=seed, debt_cap=0, final_audit=False)
        assert all(cycle.full_forwards == (cycle.region_c > 0) for cycle in trace.cycles)
        assert all(cycle.settle_forwards == 0 and cycle.slim_forwards == 1 for cycle in trace.cycles)
        assert len(runner.calls()) == sum(cycle.full_forwards for cycle in trace.cycles)
        assert len(runner.calls("101")) == len(trace.cycles)
        assert 0 < len(runner.calls()) < len(trace.cycles)


@pytest.mark.parametrize("cap", [1, 4, 9])
def test_q_runs_at_most_once_a_cycle_and_no_forward_is_wider_than_the_debt_cap_allows(cap: int) -> None:
    """V7 with the cap on: full and settle counted together; rows <= cap + gamma + 1."""
    runner = TableRunner(Q, SLIM)
    trace = via(runner, temperature=1.0, debt_cap=cap, gamma=4, max_new_tokens=80)
    assert all(cycle.full_forwards + cycle.settle_forwards <= 1 for cycle in trace.cycles[:-1])
    assert max(call.rows for call in runner.calls()) <= cap + 4 + 1
    assert len(runner.calls()) == sum(cycle.full_forwards + cycle.settle_forwards for cycle in trace.cycles)
    assert sum(cycle.settle_forwards for cycle in trace.cycles) >= 1


def test_more_strictness_at_a_gate_never_moves_a_draft_the_other_way() -> None:
    """V5 on the first block, whose drafts and q' rows are the same for every threshold."""

    def first_regions(tau1: float, tau2: float) -> list[str]:
        thresholds = (tau1, tau2)
        trace = via(core_thresholds=thresholds, temperature=1.0, gamma=8, regenerate=False, rule_c="lossy",
                    alpha=0.999999, after_escalation="gate")  # fmt: skip
        return [row.region for row in trace.tokens if row.cycle == 0 and row.region]

    steps = [first_regions(0.0, tau2) for tau2 in (0.0, 0.2, 0.5, 0.8, 1.0, 1.1)]
    escalated = [regions.count("C") for regions in steps]
    assert escalated == sorted(escalated) and escalated[0] == 0 and escalated[-1] == 8
    kept = [first_regions(tau1, 0.0).count("A") for tau1 in (0.0, 0.3, 0.6, 0.9, 1.1)]
    assert kept == sorted(kept, reverse=True) and kept[0] == 8 and kept[-1] == 0


def test_the_mixture_weights_add_to_one_and_give_the_papers_other_form() -> None:
    """V12: with d1 = P[B] / (1 - d2), equation (14) equals (B.7)."""
    p, slim, q = np.eye(3)
    for a, b, c in ((5, 3, 2), (0, 4, 1), (7, 0, 0), (1, 0, 9)):
        examined = a + b + c
        d1, d2 = mixture_weights({"A": a, "B": b, "C": c})
        pi = (1 - d2) * ((1 - d1) * p + d1 * slim) + d2 * q
        np.testing.assert_allclose(pi, [a / examined, b / examined, c / examined])
        assert pi.sum() == pytest.approx(1.0)
    assert mixture_weights({"A": 0, "B": 0, "C": 6}) == (0.0, 1.0)
    trace = via(temperature=1.0)
    assert sum(trace.summary()["mixture"].values()) == pytest.approx(1.0)


def test_a_drafter_that_offers_nothing_hands_every_cycle_to_q() -> None:
    """Rule 0: g == 0 is a legal cycle, one `target` token by q alone."""
    trace = run(
        scripted_parts(TableRunner(Q, SLIM), DRAFTER, most=0), PROMPT, Settings(mask="101", max_new_tokens=9)
    )
    assert trace.summary()["counts"]["target"] == 9
    assert all(cycle.full_forwards == 1 and cycle.drafted == 0 for cycle in trace.cycles)
    assert check(trace) == []


def test_the_table_drafter_is_told_every_committed_token() -> None:
    """The double itself: after a run its text is the committed text, so its rows were the right ones."""
    made: list[TableDrafter] = []
    parts = scripted_parts(TableRunner(Q, SLIM), DRAFTER)
    factory = parts.drafter
    assert factory is not None

    def remembering(*arguments: Any) -> Any:
        made.append(factory(*arguments))  # type: ignore[arg-type]
        return made[-1]

    trace = run(replace(parts, drafter=remembering), PROMPT, Settings(mask="101", strict=True))
    assert made[0].context == PROMPT + trace.token_ids

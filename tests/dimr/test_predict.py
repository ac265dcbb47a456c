"""Predicted rho and tokens a cycle are those of a simulated run; speed is their cost by measured times."""

from __future__ import annotations

import random

import pytest

from dimr.dimr_toys import toy_runner
from viasd_core.dimr.calibration import Drafting
from viasd_core.dimr.predict import Draftsman, Times, measure_times, predict, renewal
from viasd_core.dimr.score import Score
from viasd_core.rows import CycleRow
from viasd_core.sublayers import Half
from viasd_core.trace import Trace

Regions = list[tuple[float, float, float]]
FADING: Regions = [(0.9 - 0.05 * age, 0.05, 0.05 + 0.05 * age) for age in range(8)]


def simulate(regions: Regions, drafter: Draftsman, cap: int | None, cycles: int) -> tuple[float, float]:
    """Decode with a coin for every event, by the rules of the VIA-SD cycle."""
    rng = random.Random(0)
    debt = calls = tokens = 0
    for _ in range(cycles):
        called, length = False, 0
        if rng.random() < drafter.empty:
            called, length = True, 1
        else:
            called = cap is not None and debt + 1 + drafter.drafted > cap
            for offset in range(drafter.drafted):
                length += 1
                if rng.random() >= drafter.acceptance:  # q replaces it
                    called = True
                    break
                kept, redrawn, _ = regions[min(debt + offset, len(regions) - 1)]
                u = rng.random()
                if kept <= u < kept + redrawn:
                    break
                called |= u >= kept + redrawn
        debt = 0 if called else debt + length
        calls += called
        tokens += length
    return calls / cycles, tokens / cycles


@pytest.mark.parametrize("drafter", [Draftsman(3, 1.0, 0.0), Draftsman(5, 0.7, 0.0), Draftsman(2, 0.5, 0.4)])
@pytest.mark.parametrize("cap", [8, 20, None])
def test_predicted_rho_and_tokens_a_cycle_are_those_of_a_simulated_run(
    drafter: Draftsman, cap: int | None
) -> None:
    rho, committed = renewal(FADING, drafter, cap)
    seen_rho, seen_committed = simulate(FADING, drafter, cap, 40_000)
    assert rho == pytest.approx(seen_rho, abs=0.012)
    assert committed == pytest.approx(seen_committed, rel=0.012)


def test_a_mask_that_never_defers_calls_q_only_for_the_cap() -> None:
    """Blocks of 5 all kept: debts of 0, 5, 10, 15; the block at 15 reaches 21 rows, above 20."""
    assert renewal([(1.0, 0.0, 0.0)], Draftsman(5, 1.0, 0.0), 20) == pytest.approx((0.25, 5.0))
    rho, committed = renewal([(1.0, 0.0, 0.0)], Draftsman(5, 1.0, 0.0), None)
    assert (rho, committed) == pytest.approx((0.0, 5.0))


def test_a_mask_that_always_defers_calls_q_every_cycle() -> None:
    assert renewal([(0.0, 0.0, 1.0)], Draftsman(4, 1.0, 0.0), 20) == pytest.approx((1.0, 4.0))


def score(regions: Regions) -> Score:
    return Score(0.1, 1.0, 0.9, regions[0], (0.1,), (0.9,), tuple(regions), 10)


def test_speed_is_the_cost_of_a_cycle_over_its_tokens_against_speculative_decoding() -> None:
    """10 layers of 1 ms, 2 ms for the rest, 3 ms to draft; 6 layers kept; q in a quarter of the cycles."""
    found = predict(
        score([(1.0, 0.0, 0.0)]), range(6), 10, Times(1.0, 2.0, 3.0), Draftsman(5, 1.0, 0.0), cap=20
    )
    assert found.ms_per_token == pytest.approx((3 + 8 + 0.25 * 12) / 5)
    assert found.sd_ms_per_token == pytest.approx((3 + 12) / 6)
    assert found.speed == pytest.approx((15 / 6) / (14 / 5))


def test_an_empty_draft_costs_no_slim_forward() -> None:
    found = predict(score(FADING), range(6), 10, Times(1.0, 2.0, 0.5), Draftsman(5, 0.5, 1.0), cap=20)
    assert found.ms_per_token == pytest.approx(12.5)
    assert found.speed == pytest.approx(1.0)


def test_speculative_decoding_commits_the_geometric_sum() -> None:
    """E[N] = (1 - a^(g + 1)) / (1 - a)."""
    assert Draftsman(4, 0.5, 0.0).committed_by_sd == pytest.approx((1 - 0.5**5) / 0.5)
    assert Draftsman(4, 1.0, 0.5).committed_by_sd == pytest.approx(0.5 + 0.5 * 5)


def row(cycle: int, drafted: int, accepted: int) -> CycleRow:
    return CycleRow(
        cycle, 0, {"draft": 100}, 5, None, None, None, 0.0, 0,
        drafted=drafted, region_c_accepted=accepted, region_c_rejected=int(accepted < drafted),
        committed=accepted + 1,
    )  # fmt: skip


def test_a_drafter_is_described_by_what_it_did() -> None:
    drafting = Drafting(5)
    drafting.add(Trace(cycles=[row(0, 0, 0), row(1, 5, 2), row(2, 3, 3), row(3, 4, 0)]))
    assert (drafting.cycles, drafting.committed, drafting.draft_us) == (4, 9, 400)
    assert Draftsman.of(drafting, 5) == Draftsman(4, 5 / 7, 1 / 4)


def test_no_drafter_counts_as_one_that_is_always_right() -> None:
    assert Draftsman.of(None, 6) == Draftsman(6, 1.0, 0.0)


def test_measured_times_add_up_to_a_forward() -> None:
    times = measure_times(toy_runner(), 6, 30, 0.5)
    assert times.layer_ms > 0 and times.rest_ms > 0 and times.draft_ms == 0.5
    assert times.forward_ms(range(7)) == pytest.approx(times.rest_ms + 7 * times.layer_ms)


def test_halves_of_layers_cost_their_share_of_a_layer() -> None:
    times = Times(2.0, 1.0, 0.0, attention_share=0.25)
    assert times.forward_ms([0, 1]) == pytest.approx(5.0)
    assert times.forward_ms([0, Half(1, True)]) == pytest.approx(3.5)
    assert times.forward_ms([0, Half(1, False)]) == pytest.approx(4.5)

"""The two gates as pure functions: which region a ratio falls in."""

from __future__ import annotations

import itertools

import pytest
import torch

from viasd_core.methods.gates import block_regions, confidence_ratios, in_region_b, region

GRID = [0.0, 0.1, 0.3, 0.5, 0.7, 0.999, 1.0]


def test_regions_are_disjoint_and_cover_every_ratio_for_every_pair_of_thresholds() -> None:
    """V4: C iff r < tau2, else A iff r >= tau1, else B."""
    for tau1, tau2, r in itertools.product([*GRID, 1.1], [*GRID, 1.1], GRID):
        inside = {"C": r < tau2, "A": r >= tau2 and r >= tau1, "B": tau2 <= r < tau1}
        assert sum(inside.values()) == 1
        assert inside[region(r, tau1, tau2)]


def test_a_ratio_exactly_on_a_threshold_passes_that_gate() -> None:
    assert region(0.5, 0.5, 0.3) == "A"
    assert region(0.3, 0.5, 0.3) == "B"
    assert region(0.2999, 0.5, 0.3) == "C"


def test_region_b_is_empty_when_the_first_threshold_is_not_above_the_second() -> None:
    """V4: the literal thresholds .5 and .7."""
    assert {region(r, 0.5, 0.7) for r in GRID} == {"A", "C"}


def test_escalation_grows_and_acceptance_shrinks_with_their_thresholds() -> None:
    """V5."""
    for fixed in GRID:
        escalated = [[region(r, fixed, tau2) for r in GRID].count("C") for tau2 in GRID]
        assert escalated == sorted(escalated)
        kept = [[region(r, tau1, fixed) for r in GRID].count("A") for tau1 in GRID]
        assert kept == sorted(kept, reverse=True)
        kept = [[region(r, fixed, tau2) for r in GRID].count("A") for tau2 in GRID]
        assert kept == sorted(kept, reverse=True)


def test_the_device_side_test_for_region_b_agrees_with_the_host_side_one() -> None:
    ratios = torch.tensor(GRID, dtype=torch.float64)
    for tau1, tau2 in itertools.product(GRID, GRID):
        expected = [region(r, tau1, tau2) == "B" for r in GRID]
        assert in_region_b(ratios, tau1, tau2).tolist() == expected


def test_ratios_are_relative_to_the_rows_best_token_at_temperature_one() -> None:
    probs = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]], dtype=torch.float64)
    ratios = confidence_ratios(probs.log() + 3.0, torch.tensor([1, 2]))
    torch.testing.assert_close(ratios, torch.tensor([0.5, 1.0], dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_argmax_has_a_ratio_of_exactly_one_in_any_precision(dtype: torch.dtype) -> None:
    """A gate at 1 must pass q's own argmax, whatever rounding does to the softmax."""
    logits = (torch.randn(50, 100, generator=torch.Generator().manual_seed(0)) * 4).to(dtype)
    assert confidence_ratios(logits, logits.argmax(-1)).tolist() == [1.0] * 50


def test_a_block_ends_at_its_first_regenerated_token() -> None:
    assert block_regions([0.9, 0.1, 0.4, 0.9], 0.5, 0.3) == ["A", "C", "B"]


def test_a_block_goes_on_behind_an_escalated_token() -> None:
    assert block_regions([0.1, 0.9, 0.2, 0.6], 0.5, 0.3) == ["C", "A", "C", "A"]


def test_without_regeneration_the_middle_region_escalates_and_the_block_goes_on() -> None:
    assert block_regions([0.4, 0.9, 0.4], 0.5, 0.3, regenerate=False) == ["C", "A", "C"]


def test_after_escalation_q_everything_behind_the_first_escalated_token_is_qs() -> None:
    found = block_regions([0.9, 0.1, 0.9, 0.4], 0.5, 0.3, after_escalation="q")
    assert found == ["A", "C", "C", "C"]
    assert block_regions([0.9, 0.4, 0.1], 0.5, 0.3, after_escalation="q") == ["A", "B"]

"""Which positions are uncertain, and how many repairs each gets (CURE, eqs. 2 and 3)."""

from __future__ import annotations

import pytest

from viasd_core.cure.margins import Repair, branch_count, focal_points, plan_repairs


@pytest.mark.parametrize(
    ("margin", "count"), [(0.0, 5), (0.25, 4), (0.5, 3), (0.75, 2), (1.0, 1), (0.9, 1), (7.0, 1)]
)
def test_the_papers_numbers_of_repairs(margin: float, count: int) -> None:
    """C1, with b from 1 to 5 over a scale of 1 nat."""
    assert branch_count(margin, 1.0, 5) == count


def test_halves_are_rounded_up() -> None:
    """u = 0.375 gives b = 2.5; rounding half to even would give 2."""
    assert branch_count(0.625, 1.0, 5) == 3
    assert branch_count(0.875, 1.0, 5) == 2


@pytest.mark.parametrize("b_max", [1, 2, 5, 9])
def test_the_count_stays_between_one_and_b_max_and_falls_with_the_margin(b_max: int) -> None:
    counts = [branch_count(step / 50, 0.7, b_max) for step in range(100)]
    assert counts[0] == b_max and counts[-1] == 1
    assert counts == sorted(counts, reverse=True)


def test_uncertain_is_below_tau_and_the_least_margin_comes_first() -> None:
    assert focal_points([1.0, 0.3, 0.999, 0.3, 5.0], 1.0) == [1, 3, 2]
    assert focal_points([0.0, 0.0], 0.0) == []


def test_one_block_gets_its_most_uncertain_positions_only() -> None:
    margins = [0.8, 2.0, 0.0, 0.5]
    assert plan_repairs(margins, 1.0, None, 5, 1) == [Repair(2, 5)]
    assert plan_repairs(margins, 1.0, None, 5, 9) == [Repair(2, 5), Repair(3, 3), Repair(0, 2)]
    assert plan_repairs(margins, 0.0, None, 5, 9) == []


def test_the_scale_is_tau_unless_it_is_given() -> None:
    assert plan_repairs([0.25], 0.5, None, 5, 1) == [Repair(0, 3)]
    assert plan_repairs([0.25], 0.5, 2.0, 5, 1) == [Repair(0, 5)]

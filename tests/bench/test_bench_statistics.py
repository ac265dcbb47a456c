"""Ratios of sums, paired bootstrap intervals, agreement and final numbers, against hand-worked values."""

from __future__ import annotations

import random

import pytest

from viasd_core.bench import quality
from viasd_core.bench.statistics import ratio_interval, ratio_of_speeds, speed


def test_speed_is_a_ratio_of_sums_not_a_mean_of_ratios() -> None:
    assert speed([10, 10], [1, 9]) == pytest.approx(2.0)
    assert ratio_of_speeds([10, 10], [1, 9], [10, 10], [2, 2]) == pytest.approx(0.4)


def test_no_time_gives_no_division_by_zero() -> None:
    assert speed([], []) == 0.0
    assert ratio_of_speeds([1], [1], [1], [0]) == 0.0


def test_a_method_against_itself_has_ratio_one_and_no_spread() -> None:
    tokens, seconds = [5, 9, 2, 7], [0.3, 0.9, 0.1, 0.8]
    assert ratio_interval(tokens, seconds, tokens, seconds) == (1.0, 1.0)


def test_pairing_cancels_what_makes_a_prompt_slow_for_both() -> None:
    source = random.Random(1)
    base = [source.uniform(0.1, 10) for _ in range(30)]
    faster = [value / 1.5 for value in base]
    tokens = [20.0] * 30
    low, high = ratio_interval(tokens, faster, tokens, base)
    assert low == pytest.approx(1.5) and high == pytest.approx(1.5)


def test_the_interval_holds_the_ratio_and_narrows_with_more_prompts() -> None:
    source = random.Random(2)

    def interval(count: int) -> tuple[float, float, float]:
        tokens = [float(source.randint(20, 60)) for _ in range(count)]
        base = [value * source.uniform(0.9, 1.1) for value in tokens]
        own = [value / source.uniform(1.0, 1.6) for value in base]
        low, high = ratio_interval(tokens, own, tokens, base)
        assert low is not None and high is not None
        return low, ratio_of_speeds(tokens, own, tokens, base), high

    few, many = interval(6), interval(200)
    assert few[0] < few[1] < few[2] and many[0] < many[1] < many[2]
    assert many[2] - many[0] < few[2] - few[0]


def test_the_interval_of_two_prompts_spans_their_own_ratios() -> None:
    # A resample is (a, a), (a, b) or (b, b): the tails are the single prompts' ratios, 1 and 2.
    low, high = ratio_interval([10, 10], [1, 1], [10, 10], [1, 2])
    assert (low, high) == (pytest.approx(1.0), pytest.approx(2.0))


def test_the_interval_is_the_same_every_time() -> None:
    columns = ([3.0, 8, 4], [1.0, 2, 3], [3.0, 8, 4], [2.0, 1, 4])
    assert ratio_interval(*columns) == ratio_interval(*columns)


def test_one_prompt_has_no_interval() -> None:
    assert ratio_interval([1], [1], [1], [2]) == (None, None)


def test_unpaired_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="paired"):
        ratio_interval([1, 2], [1, 2], [1], [1])


@pytest.mark.parametrize(
    ("tokens", "base", "expected"),
    [
        ([1, 2, 3], [1, 2, 3], None),
        ([1, 9, 3], [1, 2, 3], 1),
        ([1, 2], [1, 2, 3], 2),
        ([1, 2, 3, 4], [1, 2, 3], 3),
        ([], [], None),
        ([], [1], 0),
    ],
)
def test_first_divergence(tokens: list[int], base: list[int], expected: int | None) -> None:
    assert quality.first_divergence(tokens, base) == expected


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("so 3 and 4 make 7.", 7.0),
        ("It costs $1,234.50 in all.", 1234.5),
        ("minus: -12", -12.0),
        ("7 items\n#### 18", 18.0),
        ("#### 18 and then 99", 18.0),
        ("first 5 ####", 5.0),
        ("no number", None),
        ("", None),
        ("half is .5", 0.5),
        ("10-3=7, for ages 5-7", 7.0),
    ],
)
def test_final_number(text: str, number: float | None) -> None:
    assert quality.final_number(text) == number


def test_only_a_gsm8k_reference_is_judged_by_its_number() -> None:
    assert quality.reference_number("6 * 3 = 18\n#### 18") == 18.0
    assert quality.reference_number("the year 1912") is None
    assert quality.reference_number(["#### 18"]) is None
    assert quality.reference_number(None) is None


def test_quality_pools_over_the_prompts_that_could_be_judged() -> None:
    judged = [
        quality.judge([1, 2], [1, 2], "#### 3", "#### 3"),
        quality.judge([1, 5], [1, 2], "#### 4", "#### 3"),
        quality.judge([4, 5], [1, 2], "text", None),
        quality.judge([4, 5], None, "text", None),
    ]
    assert quality.pool(judged) == {
        "compared_to_ar": 3,
        "identical_to_ar": pytest.approx(1 / 3),
        "median_first_divergence": 0.5,
        "final_numbers_judged": 2,
        "final_number_correct": 0.5,
    }


def test_nothing_judged_gives_none_not_zero() -> None:
    pooled = quality.pool([quality.judge([1], None, "text", None)])
    assert pooled["identical_to_ar"] is None and pooled["final_number_correct"] is None

"""Paired statistics over prompts: medians over repeats, ratio of sums, bootstrap interval. No torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import numpy as np

RESAMPLES = 2000
CONFIDENCE = 0.95
BOOTSTRAP_SEED = 20260612


def speed(tokens: Sequence[float], seconds: Sequence[float]) -> float:
    """Tokens per second over prompts: sum of tokens / sum of times. One entry a prompt; 0 without time."""
    total = sum(seconds)
    return sum(tokens) / total if total > 0 else 0.0


def ratio_of_speeds(
    tokens: Sequence[float],
    seconds: Sequence[float],
    base_tokens: Sequence[float],
    base_seconds: Sequence[float],
) -> float:
    """Speed of a method over the speed of the base on the same prompts (1.0 = equally fast)."""
    base = speed(base_tokens, base_seconds)
    return speed(tokens, seconds) / base if base > 0 else 0.0


Interval = tuple[float | None, float | None]


def ratio_interval(
    tokens: Sequence[float],
    seconds: Sequence[float],
    base_tokens: Sequence[float],
    base_seconds: Sequence[float],
    *,
    resamples: int = RESAMPLES,
    seed: int = BOOTSTRAP_SEED,
) -> Interval:
    """Percentile bootstrap interval of `ratio_of_speeds`.

    Prompts are resampled with replacement, a method and its base together (paired), so that what makes a
    prompt slow for both cancels. Each sequence holds one number a prompt, in the same order. Returns (None,
    None) for fewer than two prompts: one prompt says nothing about the spread over prompts.
    """
    columns = (tokens, seconds, base_tokens, base_seconds)
    return _interval(columns, lambda ours, theirs: ours / theirs, resamples, seed)


def difference_interval(*columns: Sequence[float]) -> Interval:
    """The same of the difference of the two rates; the columns as `ratio_interval` takes them."""
    return _interval(columns, lambda ours, theirs: ours - theirs, RESAMPLES, BOOTSTRAP_SEED)


def _interval(
    columns: Sequence[Sequence[float]],
    compare: Callable[[np.ndarray, np.ndarray], np.ndarray],
    resamples: int,
    seed: int,
) -> Interval:
    count = len(columns[0])
    if any(len(column) != count for column in columns):
        raise ValueError("paired statistics need one entry a prompt in every sequence")
    if count < 2:
        return None, None
    draws = np.random.default_rng(seed).integers(0, count, size=(resamples, count))
    sums = [np.asarray(column, dtype=float)[draws].sum(axis=1) for column in columns]
    with np.errstate(divide="ignore", invalid="ignore"):
        compared = compare(sums[0] / sums[1], sums[2] / sums[3])
    compared = compared[np.isfinite(compared)]
    if not len(compared):
        return None, None
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(compared, [tail, 1 - tail])
    return float(low), float(high)


def middle(values: Sequence[float]) -> float:
    """The median of repeats; of an even number, the mean of the middle two."""
    return float(median(values))

"""Does a sample come from a law? Pearson's chi-square with thin cells pooled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

THINNEST = 5.0  # expected count below which cells are pooled


def statistic(counts: np.ndarray, law: np.ndarray) -> tuple[float, int]:
    """(chi-square, degrees of freedom) of counts [n] against probabilities [n]; inf if the impossible
    happened.
    """
    if counts[law <= 0].sum() > 0:
        return float("inf"), 1
    expected = counts.sum() * law / law.sum()
    thick = expected >= THINNEST
    cells = [(counts[thick], expected[thick])]
    if expected[~thick].sum() >= THINNEST:
        cells.append((counts[~thick].sum(keepdims=True), expected[~thick].sum(keepdims=True)))
    observed = np.concatenate([cell[0] for cell in cells])
    wanted = np.concatenate([cell[1] for cell in cells])
    if len(wanted) < 2:
        return 0.0, 0
    return float(((observed - wanted) ** 2 / wanted).sum()), len(wanted) - 1


def survival(value: float, freedom: int) -> float:
    """P[chi-square with `freedom` degrees >= value]: the regularised upper incomplete gamma function."""
    half = torch.tensor([max(1, freedom) / 2, value / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def p_value(counts: np.ndarray, law: np.ndarray) -> float:
    """Chance of a sample this far from the law."""
    value, freedom = statistic(np.asarray(counts, dtype=float), np.asarray(law, dtype=float))
    return survival(value, freedom)


def episode_p_value(outputs: Sequence[Sequence[int]], law: np.ndarray) -> float:
    """Joint law [V, ..., V] (k axes) of the consecutive k-token episodes of some outputs."""
    counts, size = np.zeros(law.shape), law.ndim
    for output in outputs:
        for start in range(0, len(output) - size + 1, size):
            counts[tuple(output[start : start + size])] += 1
    return p_value(counts.reshape(-1), law.reshape(-1))


def transition_p_value(
    outputs: Sequence[Sequence[int]],
    prompt: Sequence[int],
    context: Callable[[Sequence[int]], int],
    law: Callable[[Sequence[int]], np.ndarray],
) -> float:
    """Law of each token given its prefix: `context` groups prefixes that share a law."""
    counts: dict[int, np.ndarray] = {}
    laws: dict[int, np.ndarray] = {}
    for output in outputs:
        text = list(prompt)
        for token in output:
            key = context(text)
            if key not in laws:
                laws[key] = law(text)
                counts[key] = np.zeros(len(laws[key]))
            counts[key][token] += 1
            text.append(token)
    parts = [statistic(counts[key], laws[key]) for key in laws]
    value, freedom = sum(part[0] for part in parts), sum(part[1] for part in parts)
    return survival(value, freedom)

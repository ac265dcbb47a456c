"""How often drafts are kept, and how many tokens a cycle brings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from scripted import TableRunner, constant_table, random_table, run, scripted_parts
from viasd_core.dimr.cost import rejection_rate, rejection_rate_eq1
from viasd_core.settings import Settings
from viasd_core.trace import Trace

P = np.array([0.40, 0.30, 0.20, 0.10])
Q = np.array([0.30, 0.25, 0.20, 0.25])
SIGMAS = 4.5
RUN: dict[str, Any] = {"temperature": 1.0, "max_new_tokens": 1500, "gamma": 4}


def decoded(settings: Settings) -> Trace:
    parts = scripted_parts(TableRunner(constant_table(Q.tolist())), constant_table(P.tolist()))
    return run(parts, [0], settings)


def kept_and_examined(trace: Trace) -> tuple[int, int]:
    kept = sum(cycle.region_c_accepted for cycle in trace.cycles)
    return kept, sum(cycle.examined for cycle in trace.cycles)


def off_by(kept: int, examined: int, chance: float) -> float:
    """Distance of a count from its mean, in standard deviations."""
    return abs(kept - examined * chance) / math.sqrt(examined * chance * (1 - chance))


def test_drafts_are_kept_as_often_as_the_two_laws_overlap_and_cycles_are_as_long_as_that_implies() -> None:
    """L1, L2 (arXiv 2211.17192): acceptance sum min(p, q); tokens a cycle (1 - a^(g+1)) / (1 - a)."""
    overlap = np.minimum(P, Q).sum()
    trace = decoded(Settings(method="sd", **RUN))
    kept, examined = kept_and_examined(trace)
    assert examined > 1200 and off_by(kept, examined, overlap) < SIGMAS
    committed = np.array([cycle.committed for cycle in trace.cycles[:-2]])  # the limit shortens the last ones
    expected = (1 - overlap**5) / (1 - overlap)
    assert abs(committed.mean() - expected) < SIGMAS * committed.std() / math.sqrt(len(committed))


def test_a_drafter_equal_to_the_verifier_is_always_kept_and_earns_a_bonus() -> None:
    """L3: gamma + 1 tokens a cycle; the residual of equal rows has no mass and must not matter."""
    table = random_table(6, 2, 8)
    settings = Settings(method="sd", temperature=1.0, gamma=4, max_new_tokens=50)
    trace = run(scripted_parts(TableRunner(table), table), [0], settings)
    assert [cycle.committed for cycle in trace.cycles] == [5] * 10
    assert trace.summary()["rejection_rate"] == 0
    assert trace.summary()["counts"]["bonus"] == 10


@pytest.mark.parametrize("alpha", [0.1, 0.2])
def test_lossy_decoding_keeps_the_drafts_its_rule_predicts(alpha: float) -> None:
    """Y2: acceptance = 1 - sum_v max(0, p - q / (1 - alpha))."""
    chance = 1 - np.maximum(0, P - Q / (1 - alpha)).sum()
    kept, examined = kept_and_examined(decoded(Settings(method="lossy-sd", alpha=alpha, **RUN)))
    assert kept < examined and off_by(kept, examined, chance) < SIGMAS


def test_more_leniency_never_keeps_fewer_drafts() -> None:
    """Y2, on the first block of each seed, where drafts and noise are the same for every alpha."""
    longest, shortest = 0, 0
    for seed in range(12):
        kept = [
            decoded(
                Settings(
                    method="lossy-sd", alpha=alpha, temperature=1.0, gamma=6, seed=seed, max_new_tokens=7
                )
            )
            .cycles[0]
            .region_c_accepted
            for alpha in (0.0, 0.1, 0.2, 0.9)
        ]
        assert kept == sorted(kept)
        shortest, longest = shortest + kept[0], longest + kept[-1]
    assert shortest < longest == 12 * 6


def test_the_printed_rejection_rate_differs_from_the_true_one_as_derived() -> None:
    """Y4: eq. 1 = alpha + (1 - alpha) times the true rate; both are the total variation at alpha 0."""
    generator = torch.Generator().manual_seed(0)
    p, q = (torch.rand(20, 7, generator=generator, dtype=torch.float64).softmax(-1) for _ in range(2))
    for alpha in (0.0, 0.3, 0.7):
        true, printed = rejection_rate(p, q, alpha), rejection_rate_eq1(p, q, alpha)
        torch.testing.assert_close(printed, alpha + (1 - alpha) * true)
    total_variation = (p - q).abs().sum(-1) / 2
    torch.testing.assert_close(rejection_rate(p, q, 0.0), total_variation)
    torch.testing.assert_close(rejection_rate_eq1(p, q, 0.0), total_variation)

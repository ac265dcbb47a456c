"""Which law the output follows: q for lossless methods, the one-step laws of the paper for the others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from laws.chi_square import episode_p_value, transition_p_value
from scripted import Table, TableRunner, constant_table, near, random_table, sampled, scripted_parts
from viasd_core.probs import Sampling
from viasd_core.settings import Settings

CHANCE = 1e-3
PROMPT = (0,)
SD = Settings(method="sd", temperature=1.0, gamma=20)
VIA = Settings(mask="101", temperature=1.0, gamma=12, debt_cap=0)
SHAPED = Sampling(temperature=0.8, top_k=3)


def joint_law(table: Table, length: int) -> np.ndarray:
    """Exact law [V] * length of an episode's tokens under one table."""
    law = np.zeros([table.vocab] * length)
    for tokens in itertools.product(range(table.vocab), repeat=length):
        chance, text = 1.0, list(PROMPT)
        for token in tokens:
            chance *= table.probs(text)[token]
            text.append(token)
        law[tokens] = chance
    return law


def residual(q: np.ndarray, p: np.ndarray, beta: float = 1.0) -> np.ndarray:
    mass = np.maximum(0, q / beta - p)
    return mass / mass.sum() if mass.sum() > 0 else q


def lossy_law(p: np.ndarray, q: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    """One-step law of VIA-SD (A.2), (A.3)."""
    refused = np.maximum(0, p - q / (1 - alpha)).sum()
    return np.minimum(p, q / (1 - alpha)) + refused * residual(q, p, beta)


def via_sd_law(
    p: np.ndarray, slim: np.ndarray, q: np.ndarray, raw_slim: np.ndarray, tau1: float, tau2: float
) -> np.ndarray:
    """One-step law of Algorithm 2: regions from raw q' rows, everything else from processed rows."""
    r = raw_slim / raw_slim.max()
    in_c = r < tau2
    in_a, in_b = ~in_c & (r >= tau1), ~in_c & (r < tau1)
    refused = (np.maximum(0, p - q) * in_c).sum()
    return p * in_a + (p * in_b).sum() * slim + np.minimum(p, q) * in_c + refused * residual(q, p)


def chain(vocab: int, seed: int) -> tuple[Table, Table, Table]:
    """(q, q', p): tables of the last token that mostly agree, so that blocks are long."""
    q = random_table(vocab, 1, seed, scale=1.5)
    return q, near(q, 0.5, seed + 1), near(q, 0.35, seed + 2)


def lossy_outputs(alpha: float, beta: float, p: Table, q: Table) -> list[list[int]]:
    settings = SD.with_(method="lossy-sd", bonus="none", alpha=alpha, beta=beta)
    return sampled(scripted_parts(TableRunner(q), p), settings, count=20_000)


def test_speculative_decoding_draws_every_pair_of_tokens_with_exactly_the_verifiers_odds() -> None:
    """I3: joint law of the first two tokens over 20,000 independent pairs, blocks crossing pair borders."""
    q = random_table(5, 1, 3, episode=2)
    outputs = sampled(scripted_parts(TableRunner(q), near(q, 0.25, 4)), SD, count=40_000)
    assert episode_p_value(outputs, joint_law(q, 2)) > CHANCE
    assert episode_p_value(outputs, joint_law(near(q, 0.25, 4), 2)) < CHANCE, "the test sees no difference"


@pytest.mark.slow
def test_speculative_decoding_keeps_the_processed_law_under_temperature_and_top_k() -> None:
    """I3 for processed rows, behind every pair of preceding tokens."""
    q = random_table(5, 2, 5)
    p = near(q, 0.25, 6)
    settings = SD.with_(temperature=SHAPED.temperature, top_k=SHAPED.top_k)
    outputs = sampled(scripted_parts(TableRunner(q), p), settings, count=20_000)
    assert transition_p_value(outputs, PROMPT, q.row, lambda text: q.probs(text, SHAPED)) > CHANCE
    assert transition_p_value(outputs, PROMPT, q.row, lambda text: p.probs(text, SHAPED)) < CHANCE


def test_lossy_decoding_draws_from_the_law_of_its_two_equations_and_not_from_q() -> None:
    """Y3, with negative controls: the law must not pass for q, nor for that of another beta."""
    q, _, p = chain(5, 11)
    outputs = lossy_outputs(0.1, 2.0, p, q)

    def law(beta: float) -> Callable[[Sequence[int]], np.ndarray]:
        return lambda text: lossy_law(p.probs(text), q.probs(text), 0.1, beta)

    assert transition_p_value(outputs, PROMPT, q.row, law(2.0)) > CHANCE
    assert transition_p_value(outputs, PROMPT, q.row, law(1.0)) < CHANCE
    assert transition_p_value(outputs, PROMPT, q.row, q.probs) < CHANCE


def test_balanced_lossy_decoding_clips_the_drafters_law_between_two_multiples_of_q() -> None:
    """Y3: where beta balances the masses the law is clip(p, q / beta, q / (1 - alpha)), Tran-Thien's form."""
    p = np.array([0.45, 0.30, 0.15, 0.10])
    q = np.array([0.36, 0.34, 0.18, 0.12])
    alpha = 0.1
    refused = np.maximum(0, p - q / (1 - alpha)).sum()
    low, high = 1.0, 10.0  # the residual's mass falls with beta
    for _ in range(60):
        beta = (low + high) / 2
        low, high = (beta, high) if np.maximum(0, q / beta - p).sum() > refused else (low, beta)
    clipped = np.clip(p, q / beta, q / (1 - alpha))
    np.testing.assert_allclose(lossy_law(p, q, alpha, beta), clipped, atol=1e-12)
    outputs = lossy_outputs(alpha, beta, constant_table(p.tolist()), constant_table(q.tolist()))
    assert transition_p_value(outputs, PROMPT, lambda text: 0, lambda text: clipped) > CHANCE
    assert transition_p_value(outputs, PROMPT, lambda text: 0, lambda text: q) < CHANCE


CUTS = {
    "direct": ((0.5, 0.3), Sampling(1.0)),
    "literal": ((0.5, 0.7), Sampling(1.0)),
    "swapped": ((0.7, 0.5), Sampling(1.0)),
    "no B, little C": ((0.2, 0.2), Sampling(1.0)),
    "processed rows": ((0.5, 0.3), SHAPED),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "direct" else pytest.mark.slow) for name in CUTS]
)
def test_a_token_of_via_sd_follows_the_one_step_law_of_its_three_regions(name: str) -> None:
    """V3: regions from raw q' rows, draws and tests from processed ones; q itself must fail."""
    (tau1, tau2), sampling = CUTS[name]
    q, slim, p = chain(5, 206)
    settings = VIA.with_(core_thresholds=(tau1, tau2), temperature=sampling.temperature, top_k=sampling.top_k)
    outputs = sampled(scripted_parts(TableRunner(q, slim), p), settings, count=20_000)

    def law(text: Sequence[int]) -> np.ndarray:
        used = (p.probs(text, sampling), slim.probs(text, sampling), q.probs(text, sampling))
        return via_sd_law(*used, slim.probs(text), tau1, tau2)

    assert len(CUTS) * transition_p_value(outputs, PROMPT, q.row, law) > CHANCE
    assert transition_p_value(outputs, PROMPT, q.row, lambda text: q.probs(text, sampling)) < CHANCE


def test_gates_at_zero_keep_every_draft_so_that_the_law_is_the_drafters_and_q_never_runs() -> None:
    """V2, with debt cap and final audit off and no bonus."""
    q, slim, p = chain(5, 31)
    runner = TableRunner(q, slim)
    settings = VIA.with_(core_thresholds=(0.0, 0.0), final_audit=False)
    outputs = sampled(scripted_parts(runner, p), settings, count=20_000)
    assert transition_p_value(outputs, PROMPT, q.row, p.probs) > CHANCE
    assert not runner.calls()


def test_gates_above_one_escalate_every_draft_so_that_the_law_is_exactly_q() -> None:
    """V1: whatever q' says."""
    q, slim, p = chain(5, 41)
    settings = VIA.with_(core_thresholds=(2.0, 2.0))
    outputs = sampled(scripted_parts(TableRunner(q, slim), p), settings, count=20_000)
    assert transition_p_value(outputs, PROMPT, q.row, q.probs) > CHANCE
    assert transition_p_value(outputs, PROMPT, q.row, p.probs) < CHANCE


def test_a_slim_cache_that_drifts_with_its_debt_leaves_the_lossless_law_at_q() -> None:
    """V1 and V7 together: q' rows that depend on how stale its cache is never reach an escalated token."""
    q, slim, p = chain(4, 51)
    runner = TableRunner(q, slim, drift=0.05)
    settings = VIA.with_(core_thresholds=(2.0, 2.0), gamma=4)
    drifting = sampled(scripted_parts(runner, p), settings, count=600)
    still = sampled(scripted_parts(replace(runner, drift=0.0), p), settings, count=600)
    assert drifting == still

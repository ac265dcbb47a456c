"""The cost of a layer mask: VIA-SD equations 7 to 12 and the alternatives of its appendix F."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from viasd_core.dimr.cost import (
    FLOOR,
    CostSettings,
    Phi,
    divergence,
    exponential_hinge,
    floored_log_probs,
    hinge,
    huber_hinge,
    insertion_gain,
    power_hinge,
    segment_cost,
    soft_hinge,
    squared_hinge,
)
from viasd_core.errors import SettingsError

PHIS: dict[str, Phi] = {
    "hinge": hinge,
    "squared": squared_hinge,
    "huber": huber_hinge(0.5),
    "soft": soft_hinge(0.3),
    "power": power_hinge(1.5),
    "exponential": exponential_hinge(2.0),
}
Z = torch.linspace(-3, 3, 121, dtype=torch.float64)


def rows(seed: int, count: int = 12, vocab: int = 9) -> Tensor:
    logits = torch.randn(count, vocab, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (2 * logits).log_softmax(-1)


LOG_Q, LOG_P, LOG_U = rows(1), rows(2), rows(3)


def test_the_divergence_of_a_hand_made_pair_of_rows() -> None:
    """V = 3, alpha .5, beta 1: only ln(.5 * .7 / .1) = ln 3.5 and ln(.7 / .1) = ln 7 are above zero."""
    p = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64).log()
    q = torch.tensor([[0.1, 0.5, 0.4]], dtype=torch.float64).log()
    found = divergence(q, p, CostSettings(alpha=0.5, beta=1.0))
    assert found.tolist() == pytest.approx([0.7 * math.log(3.5) + 0.1 * math.log(7)])


@pytest.mark.parametrize("name", PHIS)
def test_the_divergence_is_never_negative(name: str) -> None:
    for alpha, beta in ((0.0, 1.0), (0.5, 0.5), (0.3, 2.0)):
        assert (divergence(LOG_Q, LOG_P, CostSettings(alpha, beta, PHIS[name])) >= 0).all()


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 1.0), (0.5, 0.5), (0.5, 1.0)])
def test_a_model_costs_nothing_against_itself_while_beta_is_at_most_one(alpha: float, beta: float) -> None:
    """V6, V13: R(q || q) = 0, so that inserting q or p gains exactly nothing."""
    settings = CostSettings(alpha, beta)
    assert divergence(LOG_Q, LOG_Q, settings).tolist() == [0.0] * 12
    assert float(insertion_gain(LOG_P, LOG_Q, LOG_Q, settings)) == pytest.approx(0.0, abs=1e-12)
    assert float(insertion_gain(LOG_P, LOG_P, LOG_Q, settings)) == pytest.approx(0.0, abs=1e-12)


def test_a_beta_above_one_charges_a_model_against_itself() -> None:
    found = divergence(LOG_Q, LOG_Q, CostSettings(0.5, 2.0))
    assert found.tolist() == pytest.approx([math.log(2)] * 12)


def test_a_tier_between_drafter_and_verifier_gains_and_a_useless_one_loses() -> None:
    """Delta(u | pi) of eq. 7 by its definition, and its sign on a clear case."""
    settings = CostSettings(0.5, 0.5)
    expected = (
        segment_cost(LOG_Q, LOG_P, settings)
        - segment_cost(LOG_U, LOG_P, settings)
        - segment_cost(LOG_Q, LOG_U, settings)
    )
    torch.testing.assert_close(insertion_gain(LOG_P, LOG_U, LOG_Q, settings), expected)
    far = torch.tensor([[4.0, 0.0, -4.0]], dtype=torch.float64).log_softmax(-1)
    near = torch.tensor([[-4.0, 0.0, 4.0]], dtype=torch.float64).log_softmax(-1)
    middle = torch.tensor([[0.0, 0.0, 0.0]], dtype=torch.float64).log_softmax(-1)
    assert insertion_gain(far, middle, near, settings) > 0
    assert insertion_gain(near, far, near, settings) < 0


def test_renaming_the_vocabulary_changes_no_cost() -> None:
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(divergence(LOG_Q[:, order], LOG_P[:, order]), divergence(LOG_Q, LOG_P))


def test_more_leniency_costs_less_and_a_larger_beta_more() -> None:
    by_alpha = torch.stack([divergence(LOG_Q, LOG_P, CostSettings(a, 1.0)) for a in (0.0, 0.2, 0.5, 0.9)])
    assert (by_alpha.diff(dim=0) <= 0).all() and (by_alpha[0] > by_alpha[-1]).all()
    by_beta = torch.stack([divergence(LOG_Q, LOG_P, CostSettings(0.9, b)) for b in (0.1, 0.5, 1.0, 3.0)])
    assert (by_beta.diff(dim=0) >= 0).all() and (by_beta[0] < by_beta[-1]).all()


@pytest.mark.parametrize("tau", [0.1, 1.0, 3.0])
def test_the_smooth_hinge_stays_within_tau_log_two_of_the_hinge(tau: float) -> None:
    """(F.8), pointwise, and for the divergence within twice that."""
    smooth = soft_hinge(tau)(Z)
    assert (smooth >= hinge(Z) - 1e-12).all()
    assert (smooth <= hinge(Z) + tau * math.log(2) + 1e-12).all()
    plain = divergence(LOG_Q, LOG_P, CostSettings(0.5, 0.5))
    softened = divergence(LOG_Q, LOG_P, CostSettings(0.5, 0.5, soft_hinge(tau)))
    assert (softened >= plain).all() and (softened <= plain + 2 * tau * math.log(2) + 1e-12).all()


def test_the_alternative_penalties_at_hand_made_points() -> None:
    z = torch.tensor([-1.0, 0.0, 0.25, 2.0], dtype=torch.float64)
    wanted: dict[str, list[float]] = {
        "hinge": [0, 0, 0.25, 2],
        "squared": [0, 0, 0.0625, 4],
        "huber": [0, 0, 0.0625, 1.75],
        "power": [0, 0, 0.125, 2**1.5],
        "exponential": [0, 0, math.exp(0.125) - 1, math.exp(1) - 1],
    }
    for name, expected in wanted.items():
        assert PHIS[name](z).tolist() == pytest.approx(expected), name


@pytest.mark.parametrize("name", PHIS)
def test_every_penalty_is_non_decreasing_and_all_but_the_smooth_one_vanish_below_zero(name: str) -> None:
    values = PHIS[name](Z)
    assert (values.diff() >= 0).all()
    assert name == "soft" or (values[Z <= 0] == 0).all()


def test_huber_joins_its_two_pieces_without_a_step() -> None:
    edge = torch.tensor([0.5 - 1e-9, 0.5 + 1e-9], dtype=torch.float64)
    low, high = huber_hinge(0.5)(edge).tolist()
    assert low == pytest.approx(high, abs=1e-8)


def test_the_segment_cost_is_the_sum_over_positions() -> None:
    torch.testing.assert_close(segment_cost(LOG_Q, LOG_P), divergence(LOG_Q, LOG_P).sum())


def test_an_underflowing_row_costs_a_finite_amount() -> None:
    logits = torch.tensor([[0.0, -1e6, 5.0]])
    floored = floored_log_probs(logits)
    assert float(floored.min()) == FLOOR
    other = floored_log_probs(torch.tensor([[0.0, 1e6, 5.0]]))
    cost = divergence(floored, other)
    assert cost.isfinite().all() and cost[0] > 20


def test_half_precision_logits_are_costed_in_single_precision() -> None:
    assert floored_log_probs(torch.zeros(1, 4, dtype=torch.bfloat16)).dtype == torch.float32
    assert floored_log_probs(torch.zeros(1, 4, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize(
    ("alpha", "beta", "part"),
    [(1.0, 1.0, "alpha is 1"), (-0.1, 2.0, "alpha is -0.1"), (0.5, 0.3, "at least 1 - alpha = 0.5")],
)
def test_a_cost_outside_the_papers_range_is_refused(alpha: float, beta: float, part: str) -> None:
    with pytest.raises(SettingsError, match=part):
        CostSettings(alpha, beta)


def test_the_cost_of_a_pair_bounds_the_overlap_from_the_right_side() -> None:
    """(E.5), Pinsker: total variation <= sqrt(KL / 2)."""
    variation = (LOG_P.exp() - LOG_Q.exp()).abs().sum(-1) / 2
    kl = (LOG_P.exp() * (LOG_P - LOG_Q)).sum(-1)
    assert (variation <= (kl / 2).sqrt()).all()

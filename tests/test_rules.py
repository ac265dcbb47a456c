"""Region C's rules on hand-made rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from viasd_core.methods.rules import Contest, GreedyFull, Lossless, Lossy, Mixture, first_failure

P = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64)
Q = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64)
FIRST = torch.tensor([0])


def contest(
    token: int,
    uniform: float,
    *,
    p: Tensor = P,
    q: Tensor = Q,
    slim: Tensor | None = None,
    greedy: bool = False,
) -> Contest:
    """One drafted token; greedy rows are one-hot, as the loop hands them."""
    raw = q.log()
    if greedy:
        p, q = (torch.nn.functional.one_hot(rows.argmax(-1), 3).double() for rows in (p, q))
    return Contest(
        torch.tensor([token]), torch.tensor([uniform], dtype=torch.float64), p, q, raw, slim, greedy
    )


def keeps(rule: Lossless | Lossy | Mixture | GreedyFull, token: int, uniform: float, **rows: object) -> bool:
    return bool(rule.keep(contest(token, uniform, **rows))[0])  # type: ignore[arg-type]


@pytest.mark.parametrize(("uniform", "kept"), [(0.0, True), (0.399, True), (0.401, False), (0.999, False)])
def test_lossless_keeps_with_probability_q_over_p(uniform: float, kept: bool) -> None:
    assert keeps(Lossless(), 0, uniform) is kept


def test_lossless_always_keeps_what_q_likes_better() -> None:
    assert keeps(Lossless(), 1, 0.999999)


def test_lossless_never_keeps_what_q_gives_no_chance_even_for_a_zero_uniform() -> None:
    assert not keeps(Lossless(), 0, 0.0, q=torch.tensor([[0.0, 0.6, 0.4]], dtype=torch.float64))


def test_the_replacement_is_the_positive_part_of_q_minus_p() -> None:
    found = Lossless().replacement(contest(0, 0.9), FIRST)
    torch.testing.assert_close(found, torch.tensor([[0.0, 2 / 3, 1 / 3]], dtype=torch.float64))


def test_a_residual_without_mass_falls_back_to_q_instead_of_nan() -> None:
    """p equal to q, and one-hot rows that agree."""
    torch.testing.assert_close(Lossless().replacement(contest(0, 0.9, p=Q), FIRST), Q)
    same = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(Lossless().replacement(contest(1, 0.9, p=same, q=same), FIRST), same)


@pytest.mark.parametrize(("uniform", "kept"), [(0.799, True), (0.801, False)])
def test_lossy_divides_the_drafters_odds_by_its_leniency(uniform: float, kept: bool) -> None:
    """(A.2): q / ((1 - .5) p) = .8."""
    assert keeps(Lossy(0.5, 1.0), 0, uniform) is kept


def test_lossy_draws_its_replacement_from_q_over_beta_minus_p() -> None:
    """(A.3) with beta .8: (.25, .625, .375) - p = (<0, .325, .175)."""
    found = Lossy(0.2, 0.8).replacement(contest(0, 0.9), FIRST)
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.65, 0.35]], dtype=torch.float64))


def test_a_large_beta_that_leaves_no_residual_falls_back_to_q() -> None:
    torch.testing.assert_close(Lossy(0.2, 100.0).replacement(contest(0, 0.9), FIRST), Q)


def test_lossy_without_leniency_is_lossless() -> None:
    """Y1 on every token and a grid of uniforms."""
    for token in range(3):
        for uniform in (0.0, 0.3, 0.39, 0.41, 0.99):
            assert keeps(Lossy(0.0, 1.0), token, uniform) == keeps(Lossless(), token, uniform)
    strict, lossy = (rule.replacement(contest(0, 0.9), FIRST) for rule in (Lossless(), Lossy(0.0, 1.0)))
    torch.testing.assert_close(lossy, strict)


def test_greedy_lossy_judges_raw_rows_since_one_hot_rows_would_make_it_lossless() -> None:
    """T = 0: q(v) >= (1 - alpha) max q; q = (.2, .5, .3)."""
    assert keeps(Lossy(0.5, 1.0), 2, 0.0, greedy=True)
    assert not keeps(Lossy(0.5, 1.0), 0, 0.0, greedy=True)
    assert not keeps(Lossy(0.0, 1.0), 2, 0.0, greedy=True)
    assert Lossy(0.5, 1.0).replacement(contest(0, 0.9, greedy=True), FIRST).tolist() == [[0, 1, 0]]


def test_greedy_lossless_keeps_exactly_qs_argmax() -> None:
    one_hot = [torch.nn.functional.one_hot(torch.tensor([token]), 3).double() for token in range(3)]
    assert [keeps(Lossless(), token, 0.7, p=one_hot[token], greedy=True) for token in range(3)] == [
        False, True, False
    ]  # fmt: skip


def test_greedy_full_keeps_only_the_argmax_at_any_temperature() -> None:
    assert [keeps(GreedyFull(), token, 0.0) for token in range(3)] == [False, True, False]
    assert GreedyFull().replacement(contest(0, 0.9), FIRST).tolist() == [[0, 1, 0]]


SLIM = torch.tensor([[0.1, 0.1, 0.8]], dtype=torch.float64)


def test_the_mixture_rule_is_lossless_towards_pi() -> None:
    """(14): pi = (1 - d2)((1 - d1) p + d1 q') + d2 q with d1 = .5, d2 = .4."""
    rule = Mixture(0.5, 0.4, P, SLIM)
    pi = 0.6 * (0.5 * P + 0.5 * SLIM) + 0.4 * Q
    assert pi.sum().item() == pytest.approx(1.0)
    chance = float(pi[0, 0] / P[0, 0])
    assert keeps(rule, 0, chance - 1e-6, slim=SLIM)
    assert not keeps(rule, 0, chance + 1e-6, slim=SLIM)
    gain = (pi - P).clamp_min(0)
    torch.testing.assert_close(rule.replacement(contest(0, 0.9, slim=SLIM), FIRST), gain / gain.sum())


def test_the_mixture_rule_is_lossless_towards_q_before_anything_was_counted() -> None:
    torch.testing.assert_close(Mixture(0.0, 1.0, P, SLIM).target(contest(0, 0.0, slim=SLIM)), Q)


def test_the_greedy_mixture_decides_by_the_argmax_of_raw_rows() -> None:
    rule = Mixture(0.5, 0.4, P, SLIM)  # pi = (.26, .32, .42)
    assert [keeps(rule, token, 0.0, slim=SLIM, greedy=True) for token in range(3)] == [False, False, True]
    assert rule.replacement(contest(0, 0.9, slim=SLIM, greedy=True), FIRST).argmax() == 2


def test_first_failure_looks_only_at_tested_offsets_and_is_the_block_length_when_none_fails() -> None:
    tokens = torch.tensor([1, 0, 0, 2])
    rows = [table.expand(4, 3) for table in (P, Q)]
    uniforms = torch.tensor([0.9, 0.9, 0.9, 0.9], dtype=torch.float64)
    block = Contest(tokens, uniforms, rows[0], rows[1], rows[1].log(), None, False)
    assert Lossless().keep(block).tolist() == [True, False, False, True]
    every = torch.ones(4, dtype=torch.bool)
    assert int(first_failure(Lossless(), block, every)) == 1
    assert int(first_failure(Lossless(), block, torch.tensor([True, False, True, True]))) == 2
    assert int(first_failure(Lossless(), block, torch.tensor([True, False, False, True]))) == 4

"""Logits to probabilities against Hugging Face's processors; draws, residuals and random streams."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from laws.chi_square import p_value
from viasd_core.probs import (
    Noise,
    Sampling,
    draw,
    logits_to_probs,
    normalise,
    raw_log_probs,
    residual,
)

CPU = torch.device("cpu")
LOGITS = torch.randn(40, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
SETTINGS = [
    Sampling(1.0),
    Sampling(0.6),
    Sampling(1.7, top_k=4),
    Sampling(1.0, top_p=0.8),
    Sampling(0.8, min_p=0.1),
    Sampling(0.7, top_k=9, top_p=0.7, min_p=0.05),
    Sampling(1.0, top_k=1),
    Sampling(1.0, top_p=1e-6),
    Sampling(1.0, min_p=1.0),
]


def hugging_face(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """What `generate` would sample from."""
    steps = LogitsProcessorList([TemperatureLogitsWarper(sampling.temperature)])
    if sampling.top_k:
        steps.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        steps.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        steps.append(MinPLogitsWarper(sampling.min_p))
    return steps(torch.zeros(len(logits), 1, dtype=torch.long), logits).softmax(-1)  # type: ignore[arg-type]


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_processed_rows_are_those_hugging_face_samples_from(sampling: Sampling) -> None:
    torch.testing.assert_close(logits_to_probs(LOGITS, sampling), hugging_face(LOGITS, sampling))


def test_greedy_rows_are_one_hot_at_the_argmax() -> None:
    rows = logits_to_probs(LOGITS, Sampling(0.0, top_k=5, top_p=0.5))
    assert rows.sum(-1).tolist() == [1.0] * 40
    assert rows.argmax(-1).tolist() == LOGITS.argmax(-1).tolist()
    assert set(rows.unique().tolist()) == {0.0, 1.0}


def test_top_k_wider_than_the_vocabulary_changes_nothing() -> None:
    torch.testing.assert_close(
        logits_to_probs(LOGITS, Sampling(1.0, top_k=1000)), logits_to_probs(LOGITS, Sampling(1.0))
    )


def test_half_precision_logits_are_processed_in_single_and_double_stays_double() -> None:
    """A token drawn from half-precision rows would be tested against other odds."""
    assert logits_to_probs(LOGITS.bfloat16(), Sampling(1.0)).dtype == torch.float32
    assert raw_log_probs(LOGITS.half()).dtype == torch.float32
    assert logits_to_probs(LOGITS, Sampling(1.0)).dtype == torch.float64


def test_padding_rows_at_minus_infinity_get_no_probability() -> None:
    logits = LOGITS.clone()
    logits[:, 25:] = -torch.inf
    rows = logits_to_probs(logits, Sampling(1.0, top_p=0.9))
    assert rows[:, 25:].sum() == 0 and not rows.isnan().any()


def test_raw_log_probs_are_temperature_one_whatever_the_sampling() -> None:
    torch.testing.assert_close(raw_log_probs(LOGITS), LOGITS.log_softmax(-1))


def test_draws_follow_their_law_and_never_take_an_impossible_token() -> None:
    law = torch.tensor([0.5, 0.0, 0.3, 0.2], dtype=torch.float64)
    noise = Noise(3, CPU, torch.float64).exponentials("draft", Sampling(1.0), 20_000, 4)
    counts = torch.bincount(draw(law.expand(20_000, 4), noise), minlength=4)
    assert counts[1] == 0
    assert p_value(counts.numpy(), law.numpy()) > 1e-3
    assert p_value(counts.numpy(), torch.tensor([0.48, 0.0, 0.32, 0.2]).numpy()) < 1e-3


def test_greedy_draws_use_no_noise() -> None:
    assert Noise(0, CPU).exponentials("draft", Sampling(0.0), 2, 4) is None
    rows = logits_to_probs(LOGITS, Sampling(0.0))
    assert draw(rows, None).tolist() == LOGITS.argmax(-1).tolist()


def test_the_residual_is_the_normalised_positive_part() -> None:
    p, q = torch.tensor([0.6, 0.3, 0.1]), torch.tensor([0.2, 0.4, 0.4])
    torch.testing.assert_close(residual(q, p), torch.tensor([0.0, 0.25, 0.75]))


@pytest.mark.parametrize("mass", [[0.0, 0.0], [float("inf"), 1.0], [float("nan"), 1.0]])
def test_mass_that_cannot_be_normalised_falls_back(mass: list[float]) -> None:
    fallback = torch.tensor([0.25, 0.75])
    torch.testing.assert_close(normalise(torch.tensor(mass), fallback), fallback)


def test_each_row_is_normalised_by_itself() -> None:
    rows = normalise(torch.tensor([[1.0, 3.0], [0.0, 0.0]]), torch.tensor([[0.5, 0.5], [0.9, 0.1]]))
    torch.testing.assert_close(rows, torch.tensor([[0.25, 0.75], [0.9, 0.1]]))


def test_a_stream_does_not_depend_on_what_other_streams_gave() -> None:
    """Methods that draw from more streams still see the same accept noise."""
    alone, busy = Noise(5, CPU), Noise(5, CPU)
    busy.uniforms("redraw", 7)
    busy.exponentials("draft", Sampling(1.0), 3, 3)
    assert busy.uniforms("accept", 4).tolist() == alone.uniforms("accept", 4).tolist()


def test_uniforms_go_on_instead_of_repeating_and_differ_by_seed_and_name() -> None:
    """One seed must not give one number again and again."""
    noise = Noise(5, CPU)
    values = [*noise.uniforms("accept", 50).tolist(), *noise.uniforms("accept", 50).tolist()]
    values += [*noise.uniforms("replace", 50).tolist(), *Noise(6, CPU).uniforms("accept", 50).tolist()]
    assert len(set(values)) == 200
    assert all(0 <= value < 1 for value in values)


def test_exponential_noise_is_never_zero() -> None:
    """A zero would turn an impossible token into 0 / 0."""
    noise = Noise(1, CPU).exponentials("draft", Sampling(1.0), 1000, 100)
    assert noise is not None and (noise > 0).all()

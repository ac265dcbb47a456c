"""Plain greedy decoding says what Hugging Face `generate` says, family by family."""

from __future__ import annotations

import pytest
import torch

from oracle.models import VARIANTS, WINDOW, WINDOWED, hf_greedy, pair, prompt, say

NEW = 3 * WINDOW + 4


@pytest.mark.parametrize(
    ("dtype", "attention"),
    [(torch.float32, "sdpa"), (torch.float32, "eager"), (torch.float64, "sdpa")],
    ids=["float32", "float32-eager", "float64"],
)
@pytest.mark.parametrize("variant", VARIANTS)
def test_greedy_decoding_equals_generate(variant: str, dtype: torch.dtype, attention: str) -> None:
    source = pair(variant, "none", dtype=dtype, attention=attention)
    said = say(source, prompt(13), "ar", max_new_tokens=NEW)
    assert said == list(hf_greedy(variant, 13, NEW, dtype, attention))
    assert len(set(said)) > 3  # not one token over and over, which any mistake would survive


@pytest.mark.parametrize("length", [1, WINDOW, WINDOW + 1, 3 * WINDOW])
@pytest.mark.parametrize("variant", WINDOWED)
def test_prompts_around_the_window(variant: str, length: int) -> None:
    said = say(pair(variant, "none"), prompt(length), "ar", max_new_tokens=NEW)
    assert said == list(hf_greedy(variant, length, NEW))


@pytest.mark.slow
@pytest.mark.parametrize("length", range(2, 40, 3))
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_prompt_length(variant: str, length: int) -> None:
    said = say(pair(variant, "none"), prompt(length, 3), "ar", max_new_tokens=40)
    assert said == list(hf_greedy(variant, length, 40, seed=3))

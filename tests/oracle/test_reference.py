"""The oracle itself: it must agree with Hugging Face before anything is compared with it."""

from __future__ import annotations

import pytest
import torch

from oracle.models import LAYERS, VARIANTS, model, prompt
from oracle.reference import first, recompute


@pytest.mark.parametrize("variant", VARIANTS)
def test_plain_arithmetic_equals_the_model(variant: str) -> None:
    made, ids = model(variant), prompt(21)
    logits, rows = recompute(made, ids)
    theirs = made(torch.tensor([ids]), use_cache=False).logits[0]
    assert (logits - theirs).abs().max() < 1e-10
    assert rows[0][0].shape == (2, 21, 8)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_prefix_changes_nothing(variant: str) -> None:
    made, ids = model(variant), prompt(21)
    logits, rows = recompute(made, ids)
    behind, again = recompute(made, ids, prefix=first(rows, 13))
    assert (logits[13:] - behind).abs().max() < 1e-10
    for layer in range(LAYERS):
        assert (rows[layer][0] - again[layer][0]).abs().max() < 1e-10

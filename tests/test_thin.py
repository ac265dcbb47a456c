"""The view that multiplies few rows the other way round: same numbers, same weights, the model untouched."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from toys import toy_model
from viasd_core.thin import MOST_ROWS, ThinLinear, suits, thin_view


@pytest.mark.parametrize("rows", [1, 2, 3, MOST_ROWS, MOST_ROWS + 1, 40])
@pytest.mark.parametrize("bias", [True, False])
def test_a_thin_layer_gives_what_the_plain_one_gives(rows: int, bias: bool) -> None:
    plain = nn.Linear(24, 56, bias=bias)
    inputs = torch.randn(1, rows, 24)
    thin = thin_view(plain)(inputs)
    assert thin.shape == (1, rows, 56)
    torch.testing.assert_close(thin, plain(inputs), atol=1e-5, rtol=1e-5)


def test_an_empty_input_stays_empty() -> None:
    assert thin_view(nn.Linear(4, 6))(torch.empty(1, 0, 4)).shape == (1, 0, 6)


def test_the_view_shares_every_weight_and_leaves_the_model_as_it_was() -> None:
    model = toy_model("qwen2")
    view = thin_view(model.model)
    assert not any(isinstance(module, ThinLinear) for module in model.modules())
    thin = [module for module in view.modules() if isinstance(module, ThinLinear)]
    assert len(thin) == sum(type(module) is nn.Linear for module in model.model.modules())
    ours = {weight.data_ptr() for weight in view.parameters()}
    assert ours == {weight.data_ptr() for weight in model.model.parameters()}


def test_only_float32_on_a_cpu_is_turned_round() -> None:
    assert suits(torch.zeros(1))
    assert not suits(torch.zeros(1, dtype=torch.float64))
    assert not suits(torch.zeros(1, dtype=torch.bfloat16))
    assert not suits(torch.zeros(1, device="meta"))

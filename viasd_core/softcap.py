"""Gemma2 caps its logits softly: cap * tanh(logits / cap). The head does it, so that nobody can forget."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class CappedHead(nn.Module):
    """An output head [.., H] to [.., V] whose logits stay within +-`cap`."""

    def __init__(self, inner: nn.Linear, cap: float) -> None:
        super().__init__()
        self.inner, self.cap = inner, cap

    @property
    def weight(self) -> Tensor:
        return self.inner.weight

    @property
    def bias(self) -> Tensor | None:
        return self.inner.bias

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.tanh(self.inner(hidden) / self.cap) * self.cap


def with_cap(head: Any, config: Any) -> Any:
    """The head as a model of `config` applies it."""
    cap = getattr(config, "final_logit_softcapping", None)
    return head if cap is None or isinstance(head, CappedHead) else CappedHead(head, cap)

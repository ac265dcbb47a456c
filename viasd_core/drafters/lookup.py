"""Prompt lookup: propose what followed the last occurrence of the text's own suffix. No model, no forward."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn.functional import one_hot

from ..probs import Noise, Sampling
from ..transfer import to_device
from .base import Draft

LONGEST_NGRAM = 3
SHORTEST_NGRAM = 2


def find_continuation(text: np.ndarray, count: int) -> np.ndarray:
    """Up to `count` ids that followed the most recent earlier occurrence of the longest matching suffix
    n-gram.
    """
    for size in range(LONGEST_NGRAM, SHORTEST_NGRAM - 1, -1):
        if len(text) <= size:
            continue
        windows = np.lib.stride_tricks.sliding_window_view(text[:-1], size)
        matches = np.flatnonzero((windows == text[-size:]).all(axis=1))
        if len(matches):
            start = matches[-1] + size
            return text[start : start + count]
    return text[:0]


class LookupDrafter:
    """A deterministic proposal: its rows are one-hot, so the accept test q/p and the residual stay exact."""

    name = "lookup"

    def __init__(self, vocab_size: int, device: torch.device, dtype: torch.dtype, n_ctx: int) -> None:
        self.n_ctx = n_ctx
        self._vocab_size, self._device = vocab_size, device
        self._dtype = torch.float64 if dtype == torch.float64 else torch.float32
        self._context: list[int] = []

    def begin(self, context: Sequence[int]) -> None:
        self._context = list(context)

    def draft(self, count: int, sampling: Sampling, noise: Noise, p_min: float = 0.0) -> Draft:
        found = find_continuation(np.asarray(self._context), count)
        tokens = to_device(found.tolist(), self._device)
        return Draft(tokens, one_hot(tokens, self._vocab_size).to(self._dtype), None, 0)

    def commit(self, tokens: Sequence[int], start: int) -> None:
        self._context[start:] = tokens

    def rewind(self, length: int) -> None:
        """Nothing is computed ahead, so there is nothing to forget."""

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


def copied(
    text: Sequence[int], count: int, vocab_size: int, device: torch.device, dtype: torch.dtype
) -> Draft:
    """A draft of the ids behind an earlier occurrence of the text's end; empty where there is none.

    Its rows are one-hot, in float64 for a model in float64, else float32.
    """
    tokens = to_device(find_continuation(np.asarray(text), count).tolist(), device)
    rows = one_hot(tokens, vocab_size).to(torch.float64 if dtype == torch.float64 else torch.float32)
    return Draft(tokens, rows, None, 0)


class LookupDrafter:
    """A deterministic proposal: its rows are one-hot, so the accept test q/p and the residual stay exact."""

    name = "lookup"

    def __init__(self, vocab_size: int, device: torch.device, dtype: torch.dtype, n_ctx: int) -> None:
        self.n_ctx = n_ctx
        self._vocab_size, self._device, self._dtype = vocab_size, device, dtype
        self._context: list[int] = []

    def begin(self, context: Sequence[int]) -> None:
        self._context = list(context)

    def draft(self, count: int, sampling: Sampling, noise: Noise, p_min: float = 0.0) -> Draft:
        return copied(self._context, count, self._vocab_size, self._device, self._dtype)

    def commit(self, tokens: Sequence[int], start: int) -> None:
        self._context[start:] = tokens

    def rewind(self, length: int) -> None:
        """Nothing is computed ahead, so there is nothing to forget."""

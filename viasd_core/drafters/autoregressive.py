"""Drafts token by token with a causal model, or with a layer subset of the verifier itself.

The three kinds differ only in whose rows they write: an independent model has slots of its own, `own`
layer-skip has slots of its own over the verifier's weights, `nested` layer-skip writes into the verifier's
slots as its weakest tier.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..probs import Noise, Sampling, draw, logits_to_probs
from ..tiers import TierStack
from ..transfer import to_device
from .base import Draft, unsure


class AutoregressiveDrafter:
    """`tier` of `stack` is the drafter. Draft j costs one forward; n_p = T + g - 1 rows afterwards."""

    def __init__(self, name: str, stack: TierStack, tier: int, n_ctx: int, vocab_size: int) -> None:
        self.name = name
        self.n_ctx = n_ctx
        self._stack, self._tier, self._vocab_size = stack, tier, vocab_size
        self._context: list[int] = []

    @property
    def n_p(self) -> int:
        """Rows below are valid for the drafter."""
        return self._stack.rows[self._tier]

    def begin(self, context: Sequence[int]) -> None:
        self._context = list(context)
        # A nested drafter's rows were written by the verifier's prefill already.
        self._stack.prefill(self._context[:-1], self._tier)

    def draft(self, count: int, sampling: Sampling, noise: Noise, p_min: float = 0.0) -> Draft:
        logits, probs, tokens = [], [], []
        feed = to_device(self._context[self.n_p :], self._stack.runner.device)
        for _ in range(count):
            logits.append(self._stack.run(self._tier, feed, logit_rows=1)[:, : self._vocab_size])
            probs.append(logits_to_probs(logits[-1], sampling))
            feed = draw(probs[-1], noise.exponentials("draft", sampling, 1, self._vocab_size))
            tokens.append(feed)
            if p_min and unsure(logits[-1], p_min):
                break
        return Draft(torch.cat(tokens), torch.cat(probs), torch.cat(logits), len(tokens))

    def commit(self, tokens: Sequence[int], start: int) -> None:
        self._context[start:] = tokens
        self.rewind(len(self._context) - 1)

    def rewind(self, length: int) -> None:
        self._stack.rewind(length)

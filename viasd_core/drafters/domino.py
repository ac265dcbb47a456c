"""Domino's causal correction (arXiv 2605.29707): what a parallel draft cannot know of its own earlier tokens.

A GRU reads the embeddings of the tokens chosen so far; a low-rank head of its state and the slot's hidden
state is added to the slot's logits, dL_i = W2 SiLU(W1 [h_i; s_{i-1}]). The first slot keeps its logits:
everything before it was known to the network. Tokens are then chosen one after the other, without another
network pass.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Domino(nn.Module):
    """Corrects logits over `vocab` draft ids; `hidden` is the model's width, `state` the GRU's."""

    def __init__(self, hidden: int, state: int, rank: int, vocab: int) -> None:
        super().__init__()
        self.gru = nn.GRU(hidden, state, bias=False, batch_first=True)
        self.down = nn.Linear(hidden + state, rank, bias=False)
        self.up = nn.Linear(rank, vocab, bias=False)
        nn.init.zeros_(self.up.weight)  # an untrained correction corrects nothing

    def forward(self, hidden: Tensor, embedded: Tensor) -> Tensor:
        """Corrections [n, k, vocab] of slots with hidden states [n, k, H], told the true tokens.

        embedded [n, k, H] holds what stands before each slot: the anchor first.
        """
        states = self.gru(embedded)[0]
        correction = self._head(hidden[:, 1:], states[:, 1:])
        return functional.pad(correction, (0, 0, 1, 0))

    def follow(self, embedded: Tensor, state: Tensor | None) -> Tensor:
        """The state [1, n, S] after one more token with embedding [n, H]."""
        moved: Tensor = self.gru(embedded[:, None], state)[1]
        return moved

    def correct(self, hidden: Tensor, state: Tensor) -> Tensor:
        """Correction [n, vocab] of one slot, hidden [n, H], after `state` [1, n, S]."""
        return self._head(hidden, state[0])

    def _head(self, hidden: Tensor, state: Tensor) -> Tensor:
        corrected: Tensor = self.up(functional.silu(self.down(torch.cat([hidden, state], dim=-1))))
        return corrected

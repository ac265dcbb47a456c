"""What DFlash2 (`incoai/*-DFlash2`, z-lab's `DFlash2DraftModel`) adds to DFlash's network.

Around attention and MLP of every layer stands a causal convolution over the block's rows, whose kernels a row
tells itself; and a slot's token is chosen among its likeliest candidates by how well it follows the one
before. Tensor names and config keys are the release's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import SourceError
from .checkpoints import Checkpoint, Target

ARCHITECTURE = "DFlash2DraftModel"
MOST = 65536  # beyond what any release has; memory for it is taken before the tensors are looked at


class DynamicConv(nn.Module):
    """Mixes every row with the `size` - 1 rows before it, once before and once behind what it stands around.

    A kernel is a fixed one for each of `hidden` channels plus one that the row tells for each `group` of
    channels. Rows before the block count as zeros.
    """

    def __init__(self, hidden: int, size: int, group: int) -> None:
        super().__init__()
        self.size, self.group = size, group
        self.base_kernel = nn.Parameter(torch.zeros(2, size, hidden))
        self.kernel_projection = nn.Linear(hidden, 2 * size * (hidden // group), bias=False)

    def forward(self, rows: Tensor, inner: Callable[[Tensor], Tensor]) -> Tensor:
        """`inner` of the mixed rows [b, r, H], mixed once more by what `rows` tell."""
        told = self.kernel_projection(rows).unflatten(-1, (2, self.size, -1))
        told = told.repeat_interleave(self.group, dim=-1)
        before, behind = (told + self.base_kernel).unbind(2)
        return self._mix(inner(self._mix(rows, before)), behind)

    def _mix(self, rows: Tensor, kernel: Tensor) -> Tensor:
        """rows [b, r, H]; kernel [b, r, size, H], entry o of a row for the row o places before it."""
        window = functional.pad(rows, (0, 0, self.size - 1, 0)).unfold(1, self.size, 1).flip(-1)
        return (kernel * window.transpose(-1, -2)).sum(-2)


class Selector(nn.Module):
    """Chooses among the `top_k` likeliest ids of a slot by a low-rank score of the id before and each of
    them.
    """

    def __init__(self, hidden: int, rank: int, top_k: int, vocab: int) -> None:
        super().__init__()
        self.top_k = top_k
        self.predecessor_codebook = nn.Parameter(torch.zeros(vocab, rank))
        self.successor_codebook = nn.Parameter(torch.zeros(vocab, rank))
        self.hidden_projection = nn.Linear(hidden, rank, bias=False)

    def forward(self, logits: Tensor, hidden: Tensor, before: Tensor) -> Tensor:
        """Raw logits [n, V] behind the ids `before` [n], minus infinity for all but the candidates, from the
        slot's own [n, V] and its hidden states [n, H].
        """
        own, candidates = logits.topk(self.top_k, dim=-1)
        wanted = self.predecessor_codebook[before] * self.hidden_projection(hidden)
        following = (self.successor_codebook[candidates] * wanted[:, None]).sum(-1)
        return torch.full_like(logits, -torch.inf).scatter(-1, candidates, own + following)


def conv_of(checkpoint: Checkpoint, special: Mapping[str, Any]) -> tuple[int, int]:
    """Size and group of DFlash2's convolutions. Raises SourceError."""
    size, group = (_size(checkpoint, special, name) for name in ("conv_kernel_size", "conv_group_size"))
    if checkpoint.need("hidden_size") % group:
        raise SourceError(
            f"config.json of {checkpoint.name} has groups of {group} channels, which do not divide its "
            f"hidden size {checkpoint.need('hidden_size')}"
        )
    return size, group


def selector_of(checkpoint: Checkpoint, special: Mapping[str, Any], target: Target) -> Selector:
    """An empty candidate selector of the config's sizes. Raises SourceError."""
    rank, top_k = (_size(checkpoint, special, name) for name in ("selector_rank", "selector_top_k"))
    if top_k > target.runner.vocab_size:
        raise SourceError(
            f"config.json of {checkpoint.name} selects among {top_k} candidates, and there are "
            f"{target.runner.vocab_size} ids"
        )
    return Selector(checkpoint.need("hidden_size"), rank, top_k, checkpoint.need("vocab_size"))


def _size(checkpoint: Checkpoint, special: Mapping[str, Any], name: str) -> int:
    """Releases have it in dflash_config or beside it."""
    value = special.get(name, checkpoint.config.get(name))
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
        raise SourceError(f"config.json of {checkpoint.name} has no usable {name!r}; got {value!r}")
    return value

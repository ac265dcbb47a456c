"""Preallocated key/value slots. Rolling back is lowering a watermark; nothing is ever concatenated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from .masks import Pass
from .transfer import to_device


class SlotCache:
    """Keys and values of chosen layers, [1, kv_heads, capacity + 1, head_dim] each; slot 0 is scratch.

    For drafters that are fed the verifier's features, the hidden states behind the `taps` layers lie beside
    them, [capacity + 1, taps, H], and move with their rows.

    Handed to Hugging Face blocks as their cache: `update` is all they call when positions and visibility are
    explicit. `begin(plan)` says where the coming forward writes.
    """

    def __init__(
        self,
        layers: Iterable[int],
        kv_heads: int,
        head_dim: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
        *,
        taps: Sequence[int] = (),
        hidden_size: int = 0,
    ) -> None:
        shape = (1, kv_heads, capacity + 1, head_dim)
        self.capacity = capacity
        self.keys = {layer: torch.zeros(shape, dtype=dtype, device=device) for layer in layers}
        self.values = {layer: torch.zeros(shape, dtype=dtype, device=device) for layer in layers}
        self.taps = tuple(taps)
        self.features = torch.zeros(
            capacity + 1 if taps else 0, len(self.taps), hidden_size, dtype=dtype, device=device
        )
        self._plan: Pass | None = None

    def begin(self, plan: Pass) -> None:
        needed = plan.end if plan.contiguous else plan.end - 1
        if needed > self.capacity:
            raise ValueError(f"rows up to {needed} do not fit {self.capacity} KV slots")
        self._plan = plan

    def update(self, key: Tensor, value: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write the rows' keys and values [1, kv_heads, rows, head_dim]; return all exposed ones."""
        plan = self._plan
        assert plan is not None
        keys, values = self.keys[layer], self.values[layer]
        if plan.contiguous:
            first = plan.first + 1
            keys[:, :, first : first + plan.rows] = key
            values[:, :, first : first + plan.rows] = value
            return keys[:, :, 1 : plan.end + 1], values[:, :, 1 : plan.end + 1]
        keys.index_copy_(2, plan.slots, key)
        values.index_copy_(2, plan.slots, value)
        return keys[:, :, : plan.end], values[:, :, : plan.end]

    def keep(self, hidden: Sequence[Tensor]) -> None:
        """Write the rows' hidden states [rows, H] behind each tapped layer."""
        assert self._plan is not None
        self.features[self._plan.slots] = torch.stack(tuple(hidden), dim=1)

    def compact(self, rows: Sequence[int], start: int, *, features: bool = True) -> None:
        """Move rows (not slots) to start, start+1, ...: makes the accepted path of a tree contiguous.

        `features` False leaves the hidden states of the rows that stood there.
        """
        if list(rows) == list(range(start, start + len(rows))):
            return
        moved = slice(start + 1, start + 1 + len(rows))
        source = to_device([row + 1 for row in rows], next(iter(self.keys.values())).device)
        for tensors in (self.keys, self.values):
            for tensor in tensors.values():
                # Source and destination may overlap: indexing copies before the assignment writes.
                tensor[:, :, moved] = tensor[:, :, source]
        if self.taps and features:
            self.features[moved] = self.features[source]


class SharedRows:
    """Rows below `rows` of a cache, which several sequences have in common: read, never written."""

    def __init__(self, slots: SlotCache, rows: int) -> None:
        self._slots, self._rows = slots, rows

    def update(self, key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values [b, kv_heads, rows + r, head_dim] of b sequences, r rows behind the shared."""
        kept = slice(1, self._rows + 1)
        keys = self._slots.keys[layer][:, :, kept].expand(key.shape[0], -1, -1, -1)
        values = self._slots.values[layer][:, :, kept].expand(key.shape[0], -1, -1, -1)
        return torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)

"""How the decode loop moves numbers between host and device: one packed copy back, none that waits forth."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def to_host(**tensors: Tensor) -> dict[str, list[float]]:
    """Copy scalars and vectors to the host together; each comes back as a flat list of floats.

    Token ids and ranks are exact in float64. Matrices are flattened row by row.
    """
    flat = [tensor.reshape(-1).double() for tensor in tensors.values()]
    packed = torch.cat(flat).cpu()
    pieces = packed.split([piece.numel() for piece in flat])
    return {name: piece.tolist() for name, piece in zip(tensors, pieces, strict=True)}


def to_device(values: Sequence[int] | Sequence[bool], device: torch.device) -> Tensor:
    """Ids [n] (int64) or marks [n] (bool) on the device. Unlike `torch.tensor(..., device=...)` the host does
    not wait for the copy.
    """
    dtype = torch.bool if values and isinstance(values[0], bool) else torch.long
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)

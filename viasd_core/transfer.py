"""One packed device-to-host copy: the only way the decode loop reads a tensor."""

from __future__ import annotations

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

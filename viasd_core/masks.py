"""What a row may see. One `Pass` plans one forward: where rows are written, their positions, what is visible.

Slot 0 of every cache is scratch: rows that only pad a width write there and see only it. Committed row i
lives in slot i + 1, so a slot number is never a position; sliding windows are always measured in positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from . import tree
from .transfer import to_device

WIDTHS = (1, 2, 4, 8, 16, 32, 64)
KEY_BUCKET = 256


@dataclass(frozen=True)
class Pass:
    """A planned forward over `len(positions)` rows.

    `slots` are slot numbers (0 = scratch), `positions` the rows' positions; `end` is how many slots are
    exposed, and `visible` [rows, end] says which of them each row sees, or None where a single row sees every
    exposed one. `contiguous` marks unpadded chains: they write one slice and expose slots 1..end without the
    scratch slot.
    """

    slots: Tensor
    positions: Tensor
    key_positions: Tensor
    visible: Tensor | None
    first: int
    end: int
    contiguous: bool

    @property
    def rows(self) -> int:
        return self.positions.shape[0]

    def within(self, window: int) -> Tensor | None:
        """Visibility under a sliding window: a key counts iff it is less than `window` positions behind."""
        if self.end <= window:  # no key can be that far behind
            return self.visible
        near = self.positions[:, None] - self.key_positions[None, :] < window
        return near if self.visible is None else self.visible & near


def chain_pass(
    start: int, rows: int, device: torch.device, *, bucketed: bool = False, capacity: int = 0
) -> Pass:
    """Rows start..start+rows-1 of one sequence, each seeing everything up to itself.

    `bucketed` pads the width and the exposed length to fixed sizes (for captured graphs); `capacity` is the
    cache's.
    """
    positions = torch.arange(start, start + rows, device=device)
    if not bucketed:
        keys = torch.arange(start + rows, device=device)
        visible = None if rows == 1 else keys[None, :] <= positions[:, None]
        return Pass(positions + 1, positions, keys, visible, start, start + rows, True)
    nodes = torch.ones(rows, rows, dtype=torch.bool, device=device).tril()
    return _padded(start, positions, nodes, device, capacity)


def tree_pass(
    committed: int,
    parents: Sequence[int],
    device: torch.device,
    *,
    bucketed: bool = False,
    capacity: int = 0,
    written: int = 0,
) -> Pass:
    """Tree nodes after `committed` rows: node i in slot committed+i+1, at position committed+depth, seeing
    every committed row, its ancestors and itself. The first `written` nodes are in their slots already and
    are not run again (unbucketed passes only): a tree that grows level by level.
    """
    tree.check(parents)
    positions = to_device(tree.depths(parents), device) + committed
    nodes = _ancestor_matrix(parents, device)
    if bucketed:
        return _padded(committed, positions, nodes, device, capacity)
    rows = len(parents)
    keys = torch.cat([torch.arange(committed, device=device), positions])
    visible = torch.cat([torch.ones(rows, committed, dtype=torch.bool, device=device), nodes], dim=1)
    slots = torch.arange(committed + written, committed + rows, device=device) + 1
    return Pass(
        slots, positions[written:], keys, visible[written:], committed + written, committed + rows, True
    )


def bucket(count: int, sizes: Sequence[int]) -> int:
    """Smallest listed size that holds `count`; multiples of the largest beyond the list."""
    for size in sizes:
        if count <= size:
            return size
    return -(-count // sizes[-1]) * sizes[-1]


def _ancestor_matrix(parents: Sequence[int], device: torch.device) -> Tensor:
    seen = tree.ancestors(parents)
    return to_device([mark for row in seen for mark in row], device).reshape(len(seen), -1)


def _padded(committed: int, positions: Tensor, nodes: Tensor, device: torch.device, capacity: int) -> Pass:
    rows = positions.shape[0]
    width = bucket(rows, WIDTHS)
    end = min(capacity + 1, bucket(committed + rows + 1, (KEY_BUCKET,)))
    slots = torch.zeros(width, dtype=torch.long, device=device)
    slots[:rows] = torch.arange(committed, committed + rows, device=device) + 1
    padded_positions = torch.zeros(width, dtype=torch.long, device=device)
    padded_positions[:rows] = positions
    keys = torch.arange(end, device=device) - 1
    keys[committed + 1 : committed + 1 + rows] = positions
    keys[0] = 0
    visible = torch.zeros(width, end, dtype=torch.bool, device=device)
    visible[:rows, 1 : committed + 1] = True
    visible[:rows, committed + 1 : committed + 1 + rows] = nodes
    visible[rows:, 0] = True
    return Pass(slots, padded_positions, keys, visible, committed, end, False)

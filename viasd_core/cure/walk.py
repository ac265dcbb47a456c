"""The longest path of a draft tree that the verifier's own draws follow, found where the logits are.

Sample-and-match: at each node a token is drawn from the verifier's row; a child with that token is entered,
else the drawn token ends the path. Siblings hold distinct tokens, so at most one child matches and the path
is unique: at temperature 0 it is the longest accepted one (CURE, arXiv 2608.00531), above it the emitted text
has the verifier's law whatever the tree holds, as long as the tree does not depend on these draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import tree
from ..transfer import to_device


@dataclass(frozen=True)
class Walk:
    """`path` [D] holds the accepted node of each depth, of which the first `length` [1] count; rows number
    the anchor 0 and node n n + 1, and the walk ends at row `stop` [1].
    """

    path: Tensor
    length: Tensor
    stop: Tensor

    @property
    def rows(self) -> Tensor:
        """[D] the row that judges each path node: its parent's."""
        behind_anchor = torch.zeros_like(self.path[:1])
        return torch.cat([behind_anchor, self.path[:-1] + 1])


def walk(tokens: Tensor, parents: Sequence[int], draws: Tensor) -> Walk:
    """Follow `draws` [N + 1], one token for the anchor's row and each node's, through nodes `tokens` [N]."""
    device = tokens.device
    depths = to_device(tree.depths(parents), device)
    seen = torch.tensor(tree.ancestors(parents)).to(device, non_blocking=True)
    missed = tokens != draws[to_device([parent + 1 for parent in parents], device)]
    accepted = ~(seen & missed[None, :]).any(-1)
    levels = torch.arange(max(tree.depths(parents)) + 1, device=device)
    path = (accepted[None, :] & (depths[None, :] == levels[:, None])).int().argmax(-1)
    length = accepted.sum().reshape(1)
    stop = torch.where(length > 0, path[(length - 1).clamp_min(0)] + 1, 0)
    return Walk(path, length, stop)

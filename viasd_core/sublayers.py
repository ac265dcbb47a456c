"""What of a decoder runs: whole layers, or one half of a layer, its attention or its MLP.

SWIFT (arXiv 2410.06916) skips the two halves of a layer apart. A layer that runs whole is its number; a half
is a `Half`. As *units* the attention of layer l is 2 l and its MLP 2 l + 1, so that subsets compare by sets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Half:
    """The attention of a layer without its MLP, or the other way round; norms go with their half."""

    layer: int
    attention: bool

    @property
    def unit(self) -> int:
        return 2 * self.layer + (not self.attention)


Layer = int | Half


def number_of(kept: Layer) -> int:
    """The layer's number, original index."""
    return kept.layer if isinstance(kept, Half) else kept


def caches(kept: Layer) -> bool:
    """Whether it writes keys and values."""
    return not isinstance(kept, Half) or kept.attention


def units(kept: Iterable[Layer]) -> frozenset[int]:
    """The units of layers and halves."""
    found: set[int] = set()
    for layer in kept:
        found |= {layer.unit} if isinstance(layer, Half) else {2 * layer, 2 * layer + 1}
    return frozenset(found)


def from_units(kept: Iterable[int]) -> tuple[Layer, ...]:
    """Layers and halves in the order they run; both units of a layer make it whole. Undoes `units`."""
    known = set(kept)
    whole = {unit // 2 for unit in known if unit ^ 1 in known}
    halves = [Half(unit // 2, unit % 2 == 0) for unit in known if unit // 2 not in whole]
    return tuple(sorted([*whole, *halves], key=number_of))

"""The search space of DIMR: masks that skip exactly n of the units that may be skipped (VIA-SD eq. 13).

A unit is a layer, or with the granularity `sublayer` the attention or the MLP of one (SWIFT, arXiv
2410.06916: 2 (L - 2) bits).
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import MaskError, SettingsError
from ..sublayers import units
from .masks import GRANULARITIES, LayerMask, even_mask, from_skipped, middle_units, skip_count, spread


@dataclass(frozen=True)
class Space:
    """Masks over the units of `n_layers` that skip `skipped` of them; the first and last layer stay unless
    `ends`. Units in `gone` are skipped in every mask: those of a stronger tier that the mask must lie inside.

    A mask is its 0/1 string. Raises SettingsError when there is nothing to choose.
    """

    n_layers: int
    skipped: int
    ends: bool = False
    granularity: str = "layer"
    gone: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        kept_at_least = 2 * GRANULARITIES[self.granularity]
        if not 0 < self.chosen < len(self.free) or self.skipped > self.units - kept_at_least:
            already = f" besides the {len(self.gone)} skipped anyway" if self.gone else ""
            raise SettingsError(
                f"{self.chosen} of the {len(self.free)} {self.granularity}s that may be skipped{already} "
                f"leaves nothing to search in a model of {self.n_layers} layers; give another skip ratio"
            )

    @classmethod
    def of(
        cls,
        ratio: float,
        n_layers: int,
        ends: bool = False,
        granularity: str = "layer",
        inside: LayerMask | None = None,
    ) -> Space:
        """The space of a skip ratio: floor(r U + 1/2) of U units are skipped, those that `inside` skips among
        them. Raises MaskError when `inside` skips halves and the space knows whole layers only.
        """
        skipped = skip_count(ratio, n_layers, granularity)
        return cls(n_layers, skipped, ends, granularity, gone_units(inside, n_layers, granularity))

    @property
    def units(self) -> int:
        """Bits of a mask."""
        return self.n_layers * GRANULARITIES[self.granularity]

    @property
    def chosen(self) -> int:
        """Units that a search chooses."""
        return self.skipped - len(self.gone)

    @cached_property
    def free(self) -> tuple[int, ...]:
        """Units that a search may skip."""
        allowed = range(self.units) if self.ends else middle_units(self.n_layers, self.granularity)
        return tuple(unit for unit in allowed if unit not in self.gone)

    @property
    def size(self) -> int:
        """How many masks there are."""
        return math.comb(len(self.free), self.chosen)

    @property
    def even(self) -> str:
        """The evenly spaced mask, the search's start."""
        if self.gone:
            return self.without(spread(self.chosen, self.free))
        return even_mask(self.skipped / self.units, self.n_layers, self.granularity).bits

    def without(self, chosen: Iterable[int]) -> str:
        """The mask that skips the units `chosen`, however many, and those gone anyway."""
        return from_skipped([*self.gone, *chosen], self.n_layers, "", self.granularity).bits

    def random(self, random: np.random.Generator) -> str:
        """Uniform over the space."""
        return self.without(int(unit) for unit in random.choice(self.free, self.chosen, replace=False))

    def unseen(self, random: np.random.Generator, seen: Container[str]) -> str:
        """A random mask that is not in `seen`, which must not hold the whole space."""
        while (mask := self.random(random)) in seen:
            continue
        return mask

    def neighbours(self, mask: str) -> list[str]:
        """All masks one swap away: one skipped unit comes back, a kept one goes."""
        gone = [unit for unit in self.free if mask[unit] == "0"]
        kept = [unit for unit in self.free if mask[unit] == "1"]
        return [self.without([*(set(gone) - {back}), other]) for back in gone for other in kept]

    def features(self, masks: Iterable[str]) -> np.ndarray:
        """0/1 matrix [masks, free units], 1 = skipped."""
        return np.array([[mask[unit] == "0" for unit in self.free] for mask in masks], dtype=float)


def gone_units(inside: LayerMask | None, n_layers: int, granularity: str) -> tuple[int, ...]:
    """What `inside` skips, in units of `granularity`. Raises MaskError."""
    if inside is None:
        return ()
    halves = set(range(2 * n_layers)) - units(inside.layers)
    if granularity == "sublayer":
        return tuple(sorted(halves))
    gone = {unit // 2 for unit in halves}
    if len(halves) != 2 * len(gone):
        raise MaskError(f"{inside.name} skips halves of layers; search inside it with --granularity sublayer")
    return tuple(sorted(gone))

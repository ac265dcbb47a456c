"""The search space of DIMR: masks that skip exactly n of the layers that may be skipped (VIA-SD eq. 13)."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import SettingsError
from .masks import even_mask, from_skipped, skip_count


@dataclass(frozen=True)
class Space:
    """Masks over `n_layers` that skip `skipped` of them; the first and last layer stay unless `ends`.

    A mask is its 0/1 string. Raises SettingsError when there is nothing to choose.
    """

    n_layers: int
    skipped: int
    ends: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.skipped < len(self.free) or self.skipped > self.n_layers - 2:
            raise SettingsError(
                f"{self.skipped} of the {len(self.free)} layers that may be skipped leaves nothing to search "
                f"in a model of {self.n_layers} layers; give another skip ratio"
            )

    @classmethod
    def of(cls, ratio: float, n_layers: int, ends: bool = False) -> Space:
        """The space of a skip ratio: floor(r L + 1/2) layers are skipped."""
        return cls(n_layers, skip_count(ratio, n_layers), ends)

    @cached_property
    def free(self) -> tuple[int, ...]:
        """Layers that may be skipped."""
        return tuple(range(self.n_layers) if self.ends else range(1, self.n_layers - 1))

    @property
    def size(self) -> int:
        """How many masks there are."""
        return math.comb(len(self.free), self.skipped)

    @property
    def even(self) -> str:
        """The evenly spaced mask, the search's start."""
        return even_mask(self.skipped / self.n_layers, self.n_layers).bits

    def without(self, layers: Iterable[int]) -> str:
        """The mask that skips `layers`, however many."""
        return from_skipped(layers, self.n_layers, "").bits

    def random(self, random: np.random.Generator) -> str:
        """Uniform over the space."""
        return self.without(int(layer) for layer in random.choice(self.free, self.skipped, replace=False))

    def unseen(self, random: np.random.Generator, seen: Container[str]) -> str:
        """A random mask that is not in `seen`, which must not hold the whole space."""
        while (mask := self.random(random)) in seen:
            continue
        return mask

    def neighbours(self, mask: str) -> list[str]:
        """All masks one swap away: one skipped layer comes back, a kept one goes."""
        gone = [layer for layer in self.free if mask[layer] == "0"]
        kept = [layer for layer in self.free if mask[layer] == "1"]
        return [self.without([*(set(gone) - {back}), other]) for back in gone for other in kept]

    def features(self, masks: Iterable[str]) -> np.ndarray:
        """0/1 matrix [masks, free layers], 1 = skipped."""
        return np.array([[mask[layer] == "0" for layer in self.free] for mask in masks], dtype=float)

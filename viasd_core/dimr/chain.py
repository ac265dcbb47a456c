"""Masks for several slim verifiers on one cache: each keeps only what the next stronger one keeps, and less.

With a shared cache a stronger tier overwrites the rows of weaker ones; a weaker one that kept a layer the
stronger skips would read rows of another text there (VIA-SD, Fig. 3a: z_u1 within z_u2 within q).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

from ..errors import MaskError
from .masks import (
    GRANULARITIES,
    LayerMask,
    MaskStore,
    from_skipped,
    inside,
    middle_units,
    seed_of,
    skip_count,
    spread,
)


def choose_chain(store: MaskStore, tiers: Sequence[float | str | LayerMask], choice: str) -> list[LayerMask]:
    """A mask for each tier, weak to strong: a skip ratio, a mask file or bits, or a mask.

    `choice` says where a ratio's mask comes from, as `MaskStore.choose` has it. `auto`: of all nested ways to
    give every ratio a stored mask the one whose ratios are nearest in sum. `even`, `random:SEED`: the
    strongest tier's mask is that of a single slim verifier, each weaker one skips more layers, spread evenly
    or drawn, beside those. Explicit masks are taken as they are. Raises MaskError, also where the masks are
    not nested.
    """
    if choice == "auto" and any(isinstance(tier, float | int) for tier in tiers):
        return _nearest(store, tiers)
    chosen: list[LayerMask] = []  # strong to weak
    for tier in reversed(tiers):
        if isinstance(tier, float | int):
            chosen.append(_extended(chosen[-1], tier, choice) if chosen else store.choose(choice, tier))
        else:
            chosen.append(_explicit(store, tier))
    masks = chosen[::-1]
    check_nested(masks)
    return masks


def check_nested(masks: Sequence[LayerMask]) -> None:
    """Raises MaskError naming two neighbours, weak to strong, that are not nested."""
    for place, (weak, strong) in enumerate(pairwise(masks), start=1):
        if not inside(weak, strong):
            raise MaskError(
                f"tier {place} ({weak.name}) is not inside tier {place + 1} ({strong.name}): a weaker tier "
                "may keep only layers that every stronger one keeps, and must keep fewer; give nested masks, "
                "or search one with dimr --inside"
            )


def _explicit(store: MaskStore, tier: str | LayerMask) -> LayerMask:
    return tier if isinstance(tier, LayerMask) else store.explicit(tier)


def _nearest(store: MaskStore, tiers: Sequence[float | str | LayerMask]) -> list[LayerMask]:
    """The nested chain of stored masks nearest to the asked ratios; of equals the one that skips less."""
    ratios = [tier if isinstance(tier, float | int) else None for tier in tiers]
    if len(tiers) == 1 and ratios[0] is not None:
        return [store.nearest(ratios[0])]
    candidates = [
        store.stored if isinstance(tier, float | int) else [_explicit(store, tier)] for tier in tiers
    ]
    found = min(_chains(candidates), key=lambda chain: _distance(chain, ratios), default=None)
    if found is None:
        asked = ", ".join("a given mask" if ratio is None else f"{ratio:g}" for ratio in ratios)
        raise MaskError(
            f"no stored masks of {store.identity.get('id')} for the tiers {asked} lie inside each other: a "
            "weaker tier may keep only layers that every stronger one keeps; search one with dimr --inside "
            "MASK, or choose --mask even"
        )
    return found


def _chains(candidates: Sequence[Sequence[LayerMask]]) -> Iterator[list[LayerMask]]:
    """All nested choices of one candidate a tier."""
    if not candidates:
        yield []
        return
    for rest in _chains(candidates[1:]):
        for mask in candidates[0]:
            if not rest or inside(mask, rest[0]):
                yield [mask, *rest]


def _distance(chain: Sequence[LayerMask], ratios: Sequence[float | None]) -> tuple[float, float]:
    gaps = (
        abs(mask.skip_ratio - ratio) for mask, ratio in zip(chain, ratios, strict=True) if ratio is not None
    )
    return sum(gaps), sum(mask.skip_ratio for mask in chain)


def _extended(strong: LayerMask, ratio: float, choice: str) -> LayerMask:
    """A mask that skips what `strong` skips and more units, up to `ratio`. Raises MaskError."""
    n_layers = len(strong.bits) // GRANULARITIES[strong.granularity]
    gone = [unit for unit, bit in enumerate(strong.bits) if bit == "0"]
    left = [unit for unit in middle_units(n_layers, strong.granularity) if strong.bits[unit] == "1"]
    more = skip_count(ratio, n_layers, strong.granularity) - len(gone)
    if not 0 < more <= len(left):
        raise MaskError(
            f"a tier of skip ratio {ratio:g} cannot lie inside {strong.name}, which skips {len(gone)} of "
            f"{len(strong.bits)}; give ratios that are further apart"
        )
    if choice == "even":
        added = spread(more, left)
    else:
        # A stream of its own: the stronger mask came from this seed too.
        added = random.Random(f"{seed_of(choice)}/{len(gone)}").sample(left, more)
    name = f"{choice}:{len(gone) + more}"
    return from_skipped([*gone, *added], n_layers, name, strong.granularity)

"""Layer masks: z in {0, 1}^L, 1 = kept, 0 = bypassed on the residual stream (VIA-SD eq. 13).

A mask of sub-layers (SWIFT, arXiv 2410.06916) has 2 L bits: the attention of layer 0, its MLP, the attention
of layer 1, and so on. Each bit is a *unit* that may be skipped; without halves a unit is a layer.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import MaskError
from ..sublayers import Layer, from_units, units
from ..tier_names import is_bits

SCHEMA = "viasd-mask/1"
PROOFS = ("revision", "sha256")  # of a model's weights, on the hub and of a file or folder
GRANULARITIES = {"layer": 1, "sublayer": 2}  # units a layer


@dataclass(frozen=True)
class LayerMask:
    """`bits` is the 0/1 string, one a unit; `name` says where it came from and goes into the trace."""

    bits: str
    name: str
    granularity: str = "layer"

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Kept layers and halves of layers, original indices."""
        kept = [index for index, bit in enumerate(self.bits) if bit == "1"]
        return tuple(kept) if self.granularity == "layer" else from_units(kept)

    @property
    def skip_ratio(self) -> float:
        return self.bits.count("0") / len(self.bits)


def skip_count(ratio: float, n_layers: int, granularity: str = "layer") -> int:
    """Units to skip of U: floor(r U + 1/2), none of the first and last layer, which are kept by default."""
    middle = middle_units(n_layers, granularity)
    return max(0, min(int(ratio * n_layers * GRANULARITIES[granularity] + 0.5), len(middle)))


def middle_units(n_layers: int, granularity: str = "layer") -> range:
    """Units of all layers but the first and the last."""
    per_layer = GRANULARITIES[granularity]
    return range(per_layer, per_layer * (n_layers - 1))


def from_skipped(skipped: Iterable[int], n_layers: int, name: str, granularity: str = "layer") -> LayerMask:
    """The mask without the units `skipped`."""
    gone = set(skipped)
    count = n_layers * GRANULARITIES[granularity]
    return LayerMask("".join("0" if unit in gone else "1" for unit in range(count)), name, granularity)


def spread(count: int, places: Sequence[int]) -> list[int]:
    """`count` of the places, evenly spaced."""
    return [places[int((index + 0.5) * len(places) / count)] for index in range(count)]


def even_mask(ratio: float, n_layers: int, granularity: str = "layer") -> LayerMask:
    """Skipped layers spread evenly over the middle ones: the usual guess, and useless on small models.

    Of sub-layers both halves of a layer go, as in SWIFT's first mask; an odd number leaves one MLP.
    """
    count, per_layer = skip_count(ratio, n_layers, granularity), GRANULARITIES[granularity]
    layers = spread(-(-count // per_layer), range(1, n_layers - 1))
    skipped = [per_layer * layer + half for layer in layers for half in range(per_layer)][:count]
    return from_skipped(skipped, n_layers, f"even:{count}", granularity)


def contiguous_mask(ratio: float, n_layers: int, granularity: str = "layer") -> LayerMask:
    """Skipped units in one stretch in the middle."""
    count = skip_count(ratio, n_layers, granularity)
    first = (n_layers * GRANULARITIES[granularity] - count) // 2
    return from_skipped(range(first, first + count), n_layers, f"contiguous:{count}", granularity)


def random_mask(ratio: float, n_layers: int, seed: int, granularity: str = "layer") -> LayerMask:
    """Uniform over masks that skip exactly n units of the middle layers."""
    count = skip_count(ratio, n_layers, granularity)
    skipped = random.Random(seed).sample(middle_units(n_layers, granularity), count)
    return from_skipped(skipped, n_layers, f"random:{seed}:{count}", granularity)


def parse_bits(text: str, n_layers: int) -> LayerMask:
    """An explicit 0/1 string: L characters, or 2 L for attention and MLP of each layer. Raises MaskError."""
    lengths = {n_layers * per_layer: name for name, per_layer in GRANULARITIES.items()}
    if set(text) - {"0", "1"} or len(text) not in lengths:
        raise MaskError(
            f"the mask has {len(text)}; give {n_layers} characters 0 or 1, one a layer, or {2 * n_layers}, "
            "for attention and MLP of each layer in turn"
        )
    if "1" not in text:
        raise MaskError("the mask keeps no layer; keep at least one")
    return LayerMask(text, f"bits:{text}", lengths[len(text)])


def inside(weak: LayerMask, strong: LayerMask) -> bool:
    """Whether `weak` keeps only what `strong` keeps, and less."""
    return units(weak.layers) < units(strong.layers)


def read_mask(path: Path, identity: dict[str, Any]) -> LayerMask:
    """A stored mask, checked against the verifier it will serve. Raises MaskError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MaskError(f"mask file {path} does not exist") from None
    except (OSError, ValueError, RecursionError) as error:
        raise MaskError(f"mask file {path} cannot be read: {error}") from None
    if (
        not isinstance(content, dict)
        or content.get("schema") != SCHEMA
        or not isinstance(content.get("mask"), str)
        or not isinstance(content.get("model"), dict)
    ):
        raise MaskError(f"{path} is not a mask file: expected schema {SCHEMA!r}, a model and a mask")
    if not fits(content, identity):
        model = {"id": "another model", **content["model"]}
        ours, theirs = str(model["id"]), str(identity.get("id"))
        if Path(ours).name == Path(theirs).name and content.get("layers") == identity.get("layers"):
            ours, theirs = f"{ours} ({proof(model)})", f"{theirs} ({proof(identity)})"
        raise MaskError(
            f"mask file {path} was made for {ours} with {content.get('layers')} layers, not for {theirs} "
            f"with {identity.get('layers')}"
        )
    return replace(parse_bits(content["mask"], int(identity["layers"])), name=path.stem)


def fits(content: dict[str, Any], identity: dict[str, Any]) -> bool:
    """Whether a stored mask belongs to a model: same depth, and the same file hash or the same hub id. A
    revision or hash that both name must be the same.
    """
    model = content.get("model", {})
    shared = [key for key in PROOFS if model.get(key) is not None and identity.get(key) is not None]
    same_id = identity.get("kind") == "hub" and model.get("id") == identity.get("id")
    return (
        content.get("layers") == identity.get("layers")
        and all(model[key] == identity[key] for key in shared)
        and ("sha256" in shared or same_id)
    )


def proof(model: Mapping[str, Any]) -> str:
    """What tells two models of one name apart, for a message."""
    known = [f"{key} {str(model[key])[:12]}" for key in PROOFS if model.get(key) is not None]
    return ", ".join(known) or "no revision or hash"


class MaskStore:
    """The stored masks that fit one verifier, and how a `--mask` choice becomes a mask."""

    def __init__(self, files: Sequence[Path], identity: dict[str, Any]) -> None:
        self.identity = identity
        self.n_layers = int(identity["layers"])
        self._files = tuple(files)
        self._stored: list[LayerMask] | None = None

    @property
    def stored(self) -> list[LayerMask]:
        """Masks in files that fit the verifier; files for other models are passed over."""
        if self._stored is None:
            self._stored = []
            for path in self._files:
                try:
                    self._stored.append(read_mask(path, self.identity))
                except MaskError:
                    continue
        return self._stored

    def nearest(self, ratio: float) -> LayerMask:
        """The stored mask of the closest skip ratio; of two, the one that skips less. Raises MaskError."""
        if not self.stored:
            raise MaskError(
                f"no searched mask is stored for {self.identity.get('id')}; choose --mask even, "
                "random:SEED, a mask file or a string of 0 and 1"
            )
        return min(self.stored, key=lambda mask: (abs(mask.skip_ratio - ratio), mask.skip_ratio))

    def choose(self, choice: str, ratio: float) -> LayerMask:
        """`auto` (nearest stored), `even`, `random:SEED`, a mask file, or 0/1 bits. Raises MaskError."""
        if choice == "auto":
            return self.nearest(ratio)
        if choice == "even":
            return even_mask(ratio, self.n_layers)
        if choice.startswith("random:"):
            return random_mask(ratio, self.n_layers, seed_of(choice))
        return self.explicit(choice)

    def explicit(self, choice: str) -> LayerMask:
        """A mask file, or 0/1 bits. Raises MaskError."""
        if is_bits(choice):
            return parse_bits(choice, self.n_layers)
        return read_mask(Path(choice), self.identity)


def seed_of(choice: str) -> int:
    """SEED of `random:SEED`. Raises MaskError."""
    seed = choice.removeprefix("random:")
    if not (seed.isascii() and seed.isdigit() and len(seed) <= 18):
        raise MaskError("the mask needs a whole number after random: of at most 18 digits, as in random:7")
    return int(seed)


def follows_ratio(choice: str) -> bool:
    """Whether a mask choice depends on the skip ratio; an explicit file or bit string does not."""
    return choice in ("auto", "even") or choice.startswith("random:")

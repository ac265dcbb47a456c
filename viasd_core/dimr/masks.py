"""Layer masks: z in {0, 1}^L, 1 = kept, 0 = bypassed on the residual stream (VIA-SD eq. 13)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import MaskError

SCHEMA = "viasd-mask/1"


@dataclass(frozen=True)
class LayerMask:
    """`bits` is the 0/1 string of length L; `name` says where it came from and goes into the trace."""

    bits: str
    name: str

    @property
    def layers(self) -> tuple[int, ...]:
        """Kept layers, original indices."""
        return tuple(index for index, bit in enumerate(self.bits) if bit == "1")

    @property
    def skip_ratio(self) -> float:
        return self.bits.count("0") / len(self.bits)


def skip_count(ratio: float, n_layers: int) -> int:
    """Layers to skip: floor(r L + 1/2), at most L - 2, since the first and last layer are kept by default."""
    return max(0, min(int(ratio * n_layers + 0.5), n_layers - 2))


def from_skipped(skipped: Iterable[int], n_layers: int, name: str) -> LayerMask:
    gone = set(skipped)
    return LayerMask("".join("0" if layer in gone else "1" for layer in range(n_layers)), name)


def even_mask(ratio: float, n_layers: int) -> LayerMask:
    """Skipped layers spread evenly over the middle ones: the usual guess, and useless on small models."""
    count, middle = skip_count(ratio, n_layers), n_layers - 2
    skipped = [1 + int((index + 0.5) * middle / count) for index in range(count)]
    return from_skipped(skipped, n_layers, f"even:{count}")


def contiguous_mask(ratio: float, n_layers: int) -> LayerMask:
    """Skipped layers in one stretch in the middle."""
    count = skip_count(ratio, n_layers)
    first = (n_layers - count) // 2
    return from_skipped(range(first, first + count), n_layers, f"contiguous:{count}")


def random_mask(ratio: float, n_layers: int, seed: int) -> LayerMask:
    """Uniform over masks that skip exactly n middle layers."""
    count = skip_count(ratio, n_layers)
    skipped = random.Random(seed).sample(range(1, n_layers - 1), count)
    return from_skipped(skipped, n_layers, f"random:{seed}:{count}")


def parse_bits(text: str, n_layers: int) -> LayerMask:
    """An explicit 0/1 string. Raises MaskError."""
    if set(text) - {"0", "1"} or len(text) != n_layers:
        raise MaskError(f"the mask has {len(text)}; give {n_layers} characters 0 or 1, one a layer")
    if "1" not in text:
        raise MaskError("the mask keeps no layer; keep at least one")
    return LayerMask(text, f"bits:{text}")


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
        model = content["model"]
        raise MaskError(
            f"mask file {path} was made for {model.get('id', 'another model')} with {content.get('layers')} "
            f"layers, not for {identity.get('id')} with {identity.get('layers')}"
        )
    bits = parse_bits(content["mask"], int(identity["layers"])).bits
    return LayerMask(bits, path.stem)


def fits(content: dict[str, Any], identity: dict[str, Any]) -> bool:
    """Whether a stored mask belongs to a model: same depth, and the same file hash or the same hub id."""
    model = content.get("model", {})
    same_file = model.get("sha256") is not None and model.get("sha256") == identity.get("sha256")
    same_id = identity.get("kind") == "hub" and model.get("id") == identity.get("id")
    return content.get("layers") == identity.get("layers") and (same_file or same_id)


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
            seed = choice.removeprefix("random:")
            if not (seed.isascii() and seed.isdigit() and len(seed) <= 18):
                raise MaskError(
                    "the mask needs a whole number after random: of at most 18 digits, as in random:7"
                )
            return random_mask(ratio, self.n_layers, int(seed))
        if choice and not set(choice) - {"0", "1"}:
            return parse_bits(choice, self.n_layers)
        return read_mask(Path(choice), self.identity)


def follows_ratio(choice: str) -> bool:
    """Whether a mask choice depends on the skip ratio; an explicit file or bit string does not."""
    return choice in ("auto", "even") or choice.startswith("random:")

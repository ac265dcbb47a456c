"""What `distill` is asked to do, checked before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from ..errors import SettingsError

Kind = Literal["ar", "eagle", "block"]
DOMINO = (512, 128)  # state and rank of a causal correction unless told
BLOCKS = {"ar": 2, "eagle": 1, "block": 3}  # layers of a drafter unless told
# Beyond what any machine serves; memory for them is taken at once.
MOST = {"lanes": 4096, "batch": 4096, "slots": 256, "layers": 4096, "taps": 4096}


@dataclass(frozen=True)
class Request:
    """One drafter to make. Sizes of 0 are chosen for the verifier. Raises SettingsError for bad values."""

    kind: Kind
    tokens: int = 1_000_000
    origins: tuple[int, ...] = ()  # verifier layers the blocks start from; empty: the most important ones
    layers: int = 0  # how many blocks, where `origins` is empty
    draft_vocab: int = 16384
    slots: int = 8  # block: the anchor and what is drafted in parallel
    taps: int = 4  # eagle, block: verifier layers whose outputs are fused
    domino: tuple[int, ...] = ()  # block: state and rank of the causal correction; empty: none
    temperatures: tuple[float, ...] = (0.2, 0.7)
    max_new_tokens: int = 256
    longest_prompt: int = 160
    lanes: int = 64
    epochs: float = 2.0
    batch: int = 16
    learning_rate: float = 1e-3
    seed: int = 0
    start: str | None = None  # a drafter to go on from: a shipped name, or a folder

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise SettingsError(f"kind must be ar, eagle or block; got {self.kind!r}")
        for name, least in (
            ("tokens", 1),
            ("layers", 0),
            ("draft_vocab", 2),
            ("slots", 2),
            ("taps", 1),
            ("max_new_tokens", 2),
            ("longest_prompt", 1),
            ("lanes", 1),
            ("batch", 1),
            ("seed", 0),
        ):
            if getattr(self, name) < least:
                raise SettingsError(f"{name} must be at least {least}; got {getattr(self, name)}")
        for name, most in MOST.items():
            if getattr(self, name) > most:
                raise SettingsError(f"{name} can be {most} at most; got {getattr(self, name)}")
        if self.origins and self.layers not in (0, len(self.origins)):
            raise SettingsError(
                f"blocks names {len(self.origins)} layers and layers asks for {self.layers}; give one of them"
            )
        if self.kind == "eagle" and self.blocks != 1:
            raise SettingsError(f"a drafter of kind eagle has one layer; got {self.blocks}")
        if self.seed >= 2**32:
            raise SettingsError(f"seed must be below {2**32}; got {self.seed}")
        if not 0 < self.epochs <= 1000:
            raise SettingsError(f"epochs must lie between 0 and 1000; got {self.epochs}")
        if not 0 < self.learning_rate <= 1:
            raise SettingsError(f"learning_rate must lie between 0 and 1; got {self.learning_rate}")
        if not self.temperatures or not all(0 <= value <= 10 for value in self.temperatures):
            raise SettingsError(f"temperatures must lie between 0 and 10; got {list(self.temperatures)}")
        if self.domino and self.kind != "block":
            raise SettingsError(f"domino corrects a block drafter; it does not go with kind {self.kind}")

    @property
    def blocks(self) -> int:
        return len(self.origins) or self.layers or BLOCKS[self.kind]

"""What a run is asked to do, as plain values that travel to a forked worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from viasd_core.settings import Settings

OWN = "preset"  # the drafter that the preset names


@dataclass(frozen=True)
class PairKey:
    """Which models: a preset, with its own drafter or another one."""

    preset: str
    drafter: str = OWN  # or a word of viasd_core.presets.drafter_choices


@dataclass(frozen=True)
class Job:
    pair: PairKey
    prompt: str
    settings: Settings
    raw: bool = False

    @property
    def length(self) -> int:
        """Tokens to decode, at most."""
        return self.settings.max_new_tokens


@dataclass(frozen=True)
class SearchJob:
    """A layer-mask search. `asked` are options of the `dimr` command, None where its default counts."""

    pair: PairKey
    asked: dict[str, Any]
    folder: str  # of the mask file and its log
    resume: bool = False

    @property
    def length(self) -> int:
        """Tokens to score, at most."""
        return int(self.asked["steps"] or 1) * int(self.asked["tokens"] or 1)

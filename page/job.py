"""What a run is asked to do, as plain values that travel to a forked worker."""

from __future__ import annotations

from dataclasses import dataclass

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

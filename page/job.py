"""What a run is asked to do, as plain values that travel to a forked worker."""

from __future__ import annotations

from dataclasses import dataclass

from viasd_core.settings import Settings


@dataclass(frozen=True)
class PairKey:
    """Which models: a preset, with its own drafter or another kind."""

    preset: str
    drafter: str = "preset"  # preset | lookup | layer-skip


@dataclass(frozen=True)
class Job:
    pair: PairKey
    prompt: str
    settings: Settings
    raw: bool = False

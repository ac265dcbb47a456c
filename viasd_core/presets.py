"""Presets: a verifier, a drafter and the settings that suit them, read from YAML."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from .sources import Source

DrafterKind = Literal["none", "lookup", "layer-skip", "model"]


@dataclass(frozen=True)
class DrafterSpec:
    """What drafts: nothing, prompt lookup, the verifier with layers skipped, or a model of its own."""

    kind: DrafterKind
    skip_ratio: float | None = None  # layer-skip: share of the verifier's layers left out
    cache: Literal["nested", "own"] | None = (
        None  # layer-skip: in the verifier's KV slots, or slots of its own
    )
    source: Source | None = None  # model


@dataclass(frozen=True)
class Preset:
    """One model pair with its defaults. `settings` holds keyword arguments of `Settings`."""

    name: str
    verifier: Source
    drafter: DrafterSpec
    description: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    masks: tuple[Path, ...] = ()  # stored layer masks that fit the verifier
    prompts: tuple[str, ...] = ()  # for calibration and demonstration
    chat: bool = True  # wrap prompts in the verifier's chat template; False: raw text

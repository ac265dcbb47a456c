"""Slim verifiers as settings and the command line name them: skip ratios, models, masks."""

from __future__ import annotations

from pathlib import PurePath

MODEL_TIER = "model:"
VIA_SD_TIERS = ("via-sd",)  # CURE's trees go through q' and VIA-SD's gates before q


def is_bits(text: str) -> bool:
    """Whether a text is an explicit layer mask, a string of 0 and 1."""
    return bool(text) and not set(text) - {"0", "1"}


def parse_tiers(text: str) -> tuple[float | str, ...]:
    """Tiers as the command line names them, separated by commas: `0.6,0.45` or `model:org/name,0.3`."""
    return tuple(_tier(part.strip()) for part in text.split(","))


def _tier(part: str) -> float | str:
    try:
        return part if is_bits(part) and len(part) > 1 else float(part)
    except ValueError:
        return part


def public_tier(tier: float | str) -> float | str:
    """A tier without folders of this machine; a hub id stays whole."""
    if not isinstance(tier, str):
        return tier
    if not tier.startswith(MODEL_TIER):
        return PurePath(tier).name
    source = tier.removeprefix(MODEL_TIER)
    local = source.startswith(("/", ".", "~")) or source.count("/") > 1 or source.endswith(".gguf")
    return MODEL_TIER + PurePath(source).name if local and not source.startswith("wheel:") else tier

"""Where files live: the user's cache and the data files that ship with the project."""

from __future__ import annotations

import os
from pathlib import Path

PRESETS = Path(__file__).resolve().parent.parent / "presets"


def cache_root() -> Path:
    """$VIASD_CACHE, else $XDG_CACHE_HOME/viasd, else ~/.cache/viasd. Not created here."""
    if own := os.environ.get("VIASD_CACHE"):
        return Path(own).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser() / "viasd"
    return Path.home() / ".cache" / "viasd"


def mask_folder() -> Path:
    """Where the user's own layer masks lie; every run looks there. Not created here."""
    return cache_root() / "masks"

"""VIA-SD Explorer's engine. Names are imported on first use, so that reading a trace needs no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .decode import generate
    from .errors import ViasdError
    from .live import LiveSettings
    from .pair import ModelPair, load_pair
    from .presets import Preset, load_preset
    from .recording import record
    from .settings import Settings
    from .trace import CycleEvent, Trace

__version__ = "0.1.0"

_HOME = {
    "CycleEvent": "trace",
    "LiveSettings": "live",
    "ModelPair": "pair",
    "Preset": "presets",
    "Settings": "settings",
    "Trace": "trace",
    "ViasdError": "errors",
    "generate": "decode",
    "load_pair": "pair",
    "load_preset": "presets",
    "record": "recording",
}

__all__ = [
    "CycleEvent",
    "LiveSettings",
    "ModelPair",
    "Preset",
    "Settings",
    "Trace",
    "ViasdError",
    "generate",
    "load_pair",
    "load_preset",
    "record",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])

"""Caps of the page, from the environment, so that a shared machine can set its own."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

from viasd_core.errors import SettingsError

ENVIRONMENT = {
    "max_tokens": "VIASD_MAX_TOKENS",
    "max_seconds": "VIASD_MAX_SECONDS",
    "idle_seconds": "VIASD_IDLE_SECONDS",
    "max_prompt": "VIASD_MAX_PROMPT",
    "max_waiting": "VIASD_MAX_WAITING",
}
SHARED = "VIASD_SHARED"


@dataclass(frozen=True)
class Limits:
    """Times in seconds. `max_seconds` counts from the first cycle, pauses included; 0 = no cap."""

    max_tokens: int = 1024  # new tokens a run
    max_seconds: float = 0.0
    idle_seconds: float = 120.0  # a paused run, or one nobody watches, gives its slot back after this
    max_prompt: int = 20_000  # characters
    max_waiting: int = 8  # runs in the queue, the decoding one not counted
    shared: bool = False  # strangers use this page: what one of them does must not change the runs of others

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Limits:
        """Raises SettingsError for a value that is not a number or is negative."""
        given = {
            name: _number(
                variable, environment[variable], integer=name not in ("max_seconds", "idle_seconds")
            )
            for name, variable in ENVIRONMENT.items()
            if environment.get(variable)
        }
        shared = environment.get(SHARED) or "0"
        if shared not in ("0", "1"):
            raise SettingsError(f"{SHARED} is {shared!r}; give 1 for a page that strangers use, else 0")
        return cls(shared=shared == "1", **given)  # type: ignore[arg-type]


def _number(variable: str, text: str, *, integer: bool) -> float:
    try:
        value = int(text) if integer else float(text)
    except ValueError:
        value = -1
    if not math.isfinite(value) or value < (1 if integer else 0):
        kind = "a whole number of at least 1" if integer else "a number of at least 0"
        raise SettingsError(f"{variable} is {text!r}; give {kind}")
    return value

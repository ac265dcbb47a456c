"""The channel the sliders write to. One interface, two carriers: this process, or memory shared with a fork.

The decode loop takes one snapshot at each cycle boundary and never reads a knob in mid-cycle; the snapshot's
version goes into the cycle's row, so every row can be traced back to the values it was decided with.
"""

from __future__ import annotations

import math
import mmap
import struct
import threading
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from .errors import SettingsError
from .settings import Settings


@dataclass(frozen=True)
class Knobs:
    """Values that may change during a run, as one cycle sees them."""

    version: int
    alpha1: float
    alpha2: float
    gamma: int
    skip_ratio: float
    temperature: float
    tau_margin: float
    margin_scale: float | None
    v_max: int
    b_max: int
    max_positions: int
    mask: str


MASK_BYTES = 512  # a 0/1 string of the deepest models fits
KNOB_NAMES = tuple(field.name for field in fields(Knobs) if field.name != "version")


def knobs_of(settings: Settings) -> Knobs:
    """With tiers the skip ratio is the first one's, where it has one."""
    values = {name: getattr(settings, name) for name in KNOB_NAMES}
    if settings.slim_ratio is not None:
        values["skip_ratio"] = settings.slim_ratio
    return Knobs(version=0, **values)


class Carrier(Protocol):
    """Where knob values live."""

    def read(self) -> Knobs: ...

    def write(self, knobs: Knobs) -> None: ...


class LocalCarrier:
    """Knobs in this process."""

    def __init__(self) -> None:
        self._knobs: Knobs | None = None

    def read(self) -> Knobs:
        assert self._knobs is not None
        return self._knobs

    def write(self, knobs: Knobs) -> None:
        self._knobs = knobs


class SharedCarrier:
    """Knobs in an anonymous shared mapping: create it before the fork and both sides see every write.

    A sequence counter guards against torn reads (odd while a write is under way); one writer at a time. A
    margin scale that follows tau_margin travels as not-a-number; a mask choice of more than MASK_BYTES does
    not fit: SettingsError.
    """

    # sequence, then the fields of Knobs in order
    _FORMAT = struct.Struct(f"<Qqddqddddqqq{MASK_BYTES}s")

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self._FORMAT.size)

    def read(self) -> Knobs:
        while True:
            sequence, version, *values = self._FORMAT.unpack(self._memory[:])
            if sequence % 2 == 0 and struct.unpack_from("<Q", self._memory)[0] == sequence:
                named: dict[str, Any] = dict(zip(KNOB_NAMES, values, strict=True))
                knobs = Knobs(version, **named | {"mask": named["mask"].rstrip(b"\0").decode()})
                follows = knobs.margin_scale is not None and math.isnan(knobs.margin_scale)
                return replace(knobs, margin_scale=None) if follows else knobs

    def write(self, knobs: Knobs) -> None:
        *values, mask = (getattr(knobs, name) for name in KNOB_NAMES)
        packed = mask.encode()
        if len(packed) > MASK_BYTES:
            raise SettingsError(
                f"the mask choice takes {len(packed)} bytes, {MASK_BYTES} fit; name it shorter"
            )
        sequence = struct.unpack_from("<Q", self._memory)[0]
        struct.pack_into("<Q", self._memory, 0, sequence + 1)
        numbers = [math.nan if value is None else value for value in values]
        self._memory[8:] = self._FORMAT.pack(0, knobs.version, *numbers, packed)[8:]
        struct.pack_into("<Q", self._memory, 0, sequence + 2)


class LiveSettings:
    """Knobs of one run that another thread, or the parent of a forked worker, may turn.

    `update` checks the values exactly as `Settings` does (so strict stays refused above temperature 0) and
    raises SettingsError without changing anything. `snapshot` is what the loop reads once a cycle.
    """

    def __init__(self, settings: Settings, carrier: Carrier | None = None) -> None:
        self._settings = settings
        self._carrier = carrier or LocalCarrier()
        self._lock = threading.Lock()
        self._carrier.write(knobs_of(settings))

    def update(self, **changes: Any) -> int:
        """Set some knobs; returns the new version. Raises SettingsError for a bad name or value."""
        unknown = sorted(set(changes) - set(KNOB_NAMES))
        if unknown:
            raise SettingsError(
                f"{', '.join(unknown)} cannot change during a run; live: {', '.join(KNOB_NAMES)}"
            )
        with self._lock:
            current = self._carrier.read()
            self._settings.with_(**{name: getattr(current, name) for name in KNOB_NAMES} | changes)
            self._carrier.write(replace(current, version=current.version + 1, **changes))
            return current.version + 1

    def snapshot(self) -> Knobs:
        return self._carrier.read()

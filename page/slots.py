"""Shared memory for runs: the knobs and the pause, step and stop flags of every run that may be under way.

On a machine that decodes in a forked worker (Hugging Face ZeroGPU), an ordinary object changed in the parent
is invisible to the worker. So the table is made once, before any fork, and a run is handed the index of its
slot. In one process it works the same.
"""

from __future__ import annotations

import mmap
import struct
import threading
import time
from collections.abc import Callable

from viasd_core.live import Knobs, SharedCarrier

SLOTS = 32
POLL_S = 0.01  # how often a paused loop looks at its flags


class Control:
    """Flags of one run. The page writes them (one thread at a time), the decode loop only reads."""

    _FORMAT = struct.Struct("<III")  # stop, paused, steps asked for

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self._FORMAT.size)
        self._lock = threading.Lock()

    def _read(self) -> tuple[int, int, int]:
        stop, paused, steps = self._FORMAT.unpack(self._memory[:])
        return stop, paused, steps

    def _write(self, *, stop: int | None = None, paused: int | None = None, more_steps: int = 0) -> None:
        with self._lock:
            old_stop, old_paused, steps = self._read()
            self._memory[:] = self._FORMAT.pack(
                old_stop if stop is None else stop,
                old_paused if paused is None else paused,
                (steps + more_steps) % 2**32,
            )

    @property
    def stopped(self) -> bool:
        return bool(self._read()[0])

    @property
    def paused(self) -> bool:
        return bool(self._read()[1])

    @property
    def steps(self) -> int:
        return self._read()[2]

    def clear(self) -> None:
        with self._lock:
            self._memory[:] = bytes(self._FORMAT.size)

    def stop(self) -> None:
        self._write(stop=1)

    def pause(self) -> None:
        self._write(paused=1)

    def resume(self) -> None:
        self._write(paused=0)

    def step(self) -> None:
        """Run one more cycle, then pause."""
        self._write(paused=1, more_steps=1)


class Gate:
    """The loop's side of a `Control`: passed between two cycles, it waits while the run is paused."""

    def __init__(self, control: Control, sleep: Callable[[float], None] = time.sleep) -> None:
        self._control, self._sleep = control, sleep
        self._taken = control.steps
        self.waited = 0.0  # seconds spent paused

    def open(self) -> bool:
        """Wait until a cycle may run; False when the run is to stop."""
        began = time.perf_counter()
        try:
            while not self._control.stopped:
                if not self._control.paused:
                    self._taken = self._control.steps
                    return True
                if self._control.steps != self._taken:
                    self._taken = (self._taken + 1) % 2**32
                    return True
                self._sleep(POLL_S)
            return False
        finally:
            self.waited += time.perf_counter() - began


class ReadOnlyCarrier:
    """The worker's view of a carrier: it reads what the page writes and never writes back."""

    def __init__(self, carrier: SharedCarrier) -> None:
        self._carrier = carrier

    def read(self) -> Knobs:
        return self._carrier.read()

    def write(self, knobs: Knobs) -> None:
        """A new LiveSettings announces its first values; here they are in the slot already."""


class Slot:
    def __init__(self, index: int) -> None:
        self.index = index
        self.carrier = SharedCarrier()
        self.control = Control()


class SlotTable:
    """A fixed number of slots; `take` returns None when all are in use."""

    def __init__(self, size: int = SLOTS) -> None:
        self._slots = [Slot(index) for index in range(size)]
        self._free = list(range(size))
        self._lock = threading.Lock()

    def __getitem__(self, index: int) -> Slot:
        return self._slots[index]

    @property
    def in_use(self) -> int:
        return len(self._slots) - len(self._free)

    def take(self) -> Slot | None:
        with self._lock:
            if not self._free:
                return None
            slot = self._slots[self._free.pop(0)]
        slot.control.clear()
        return slot

    def give_back(self, slot: Slot) -> None:
        with self._lock:
            if slot.index not in self._free:
                self._free.append(slot.index)


TABLE = SlotTable()  # made on import, before anything can fork

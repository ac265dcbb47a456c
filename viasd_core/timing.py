"""Where a cycle's time goes, phase by phase, without a synchronisation per phase.

On CUDA each boundary records an event; events are read when the cycle closes, after the cycle's last packed
copy has already waited for them. On a CPU the marks are clock readings.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class PhaseClock:
    """Accumulates microseconds per phase for the cycle under way. Phases do not nest."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self.origin_ns = time.perf_counter_ns()
        self.busy_ns = 0  # engine time so far: pauses between cycles do not count
        self._cycle_start = self.origin_ns
        self._host_us: dict[str, float] = {}
        self._part_us: dict[int, float] = {}
        self._events: list[tuple[str, int | None, torch.cuda.Event, torch.cuda.Event]] = []

    def now_us(self) -> int:
        """Microseconds since the run began."""
        return (time.perf_counter_ns() - self.origin_ns) // 1000

    def start_cycle(self) -> int:
        """Begin a cycle; returns its start in microseconds since the run began."""
        self._cycle_start = time.perf_counter_ns()
        self._host_us.clear()
        self._part_us.clear()
        self._events.clear()
        return (self._cycle_start - self.origin_ns) // 1000

    @contextmanager
    def phase(self, name: str, part: int | None = None) -> Iterator[None]:
        """Time what runs inside as `name`; with `part` also as that slim verifier's."""
        started = time.perf_counter_ns()
        if self._cuda:
            before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            before.record()
        yield
        if self._cuda:
            after.record()
            self._events.append((name, part, before, after))
        else:
            self._add(name, (time.perf_counter_ns() - started) / 1000, part)

    def close_cycle(self) -> dict[str, int]:
        """Microseconds of each phase of the cycle; `host` is what no phase covered."""
        for name, part, before, after in self._events:
            after.synchronize()
            self._add(name, before.elapsed_time(after) * 1000, part)
        elapsed_ns = time.perf_counter_ns() - self._cycle_start
        self.busy_ns += elapsed_ns
        covered = sum(self._host_us.values())
        self._add("host", max(0.0, elapsed_ns / 1000 - covered))
        return {name: round(spent) for name, spent in self._host_us.items()}

    def parts(self, count: int) -> tuple[int, ...]:
        """Microseconds of parts 0..count-1 of the cycle that was closed last."""
        return tuple(round(self._part_us.get(part, 0.0)) for part in range(count))

    def _add(self, name: str, spent: float, part: int | None = None) -> None:
        self._host_us[name] = self._host_us.get(name, 0.0) + spent
        if part is not None:
            self._part_us[part] = self._part_us.get(part, 0.0) + spent

"""One decode at a time: a first-in first-out queue, one worker thread, and a watch over the slot's holder."""

from __future__ import annotations

import contextvars
import logging
import re
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

import gradio as gr

from viasd_core.errors import ViasdError
from viasd_core.live import LiveSettings

from .decoder import Decoder, make_decoder
from .dimr_worker import make_searcher
from .job import Job, PairKey, SearchJob
from .limits import Limits
from .pairs import PairStore
from .runs import Loading, Run
from .slots import TABLE, Slot, SlotTable

log = logging.getLogger(__name__)

WATCH_S = 0.25  # how often the slot's holder is looked at
SAY_S = 2.0  # how often a run that loads its models says so


class BusyError(ViasdError):
    """Too many runs wait already."""


class Engine:
    """Runs jobs in the order in which their models were ready. All public methods return at once."""

    def __init__(
        self,
        pairs: PairStore,
        limits: Limits,
        *,
        table: SlotTable = TABLE,
        wrap: Callable[[Decoder], Decoder] = lambda decoder: decoder,
    ) -> None:
        self.pairs, self.limits, self._table = pairs, limits, table
        self._decode = wrap(make_decoder(pairs, table))
        self._search = wrap(make_searcher(pairs, table))
        self._queue: deque[Run] = deque()
        self._loading: dict[str, Loading] = {}
        self._contexts: dict[str, contextvars.Context] = {}
        self._active: Run | None = None
        self._aside: Run | None = None  # a search that gave way to the active run
        self._turn = threading.Condition()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []

    # -- what the page asks for

    def submit(self, run: Run, job: Job | SearchJob) -> None:
        """Load the job's models if need be, then work when it is the run's turn. Raises BusyError."""
        with self._turn:
            waiting = len(self._queue) + len(self._loading)
            slot = self._table.take() if waiting < self.limits.max_waiting else None
            if slot is None:
                raise BusyError(f"{waiting} runs are waiting already; try again when one of them has ended")
            self._start_threads()
            run.job, run.slot = job, slot
            if isinstance(job, Job):
                run.live = LiveSettings(job.settings, slot.carrier)
            self._loading[run.id] = Loading(run, time.monotonic(), time.monotonic())
            self._contexts[run.id] = contextvars.copy_context()
        run.say("loading", f"getting the models of {job.pair.preset} ready")
        self.pairs.request(job.pair, lambda pair, problem: self._models_answered(run, problem))

    def load_now(self, preset: str) -> str:
        """Load a preset's models in the calling thread; returns the problem in a sentence, or nothing."""
        try:
            self.pairs.now(PairKey(preset))
        except (ViasdError, ImportError) as error:
            return str(error)
        return ""

    def pause(self, run: Run) -> None:
        if (slot := run.slot) and not slot.control.paused:
            run.touched = time.monotonic()
            slot.control.pause()
            run.note("pause")
            if run is self._active:
                run.say("paused", f"paused; the slot is kept for {self.limits.idle_seconds:g} s")

    def resume(self, run: Run) -> None:
        if (slot := run.slot) and slot.control.paused:
            run.touched = time.monotonic()
            slot.control.resume()
            run.note("resume")
            if run is self._active:
                run.say("running", "running")

    def step(self, run: Run) -> None:
        """One more cycle, then pause."""
        if slot := run.slot:
            run.touched = time.monotonic()
            slot.control.step()
            run.note("step")
            if run is self._active:
                run.say("paused", "one more cycle, then paused")

    def stop(self, run: Run, reason: str = "") -> None:
        """End the run at the next cycle boundary; what was decoded is kept. Only sets flags."""
        if (slot := run.slot) and not slot.control.stopped:
            run.reason = reason
            slot.control.stop()
            run.note("stop", reason)
            run.say("stopping", run.stopping)

    def turn_knob(self, run: Run, name: str, value: Any) -> None:
        """Set a live value; it acts from the next cycle. Raises SettingsError."""
        if run.live and not run.ended:
            run.touched = time.monotonic()
            run.turned(name, value, run.live.update(**{name: value}))

    def waiting(self) -> int:
        return len(self._queue) + len(self._loading)

    @property
    def idle(self) -> bool:
        """Nothing decodes, waits or holds a slot."""
        return self._active is None and not self.waiting() and not self._table.in_use

    def close(self, timeout: float = 10.0) -> None:
        """Stop every run and wait for the threads: torch must not be at work when the program ends."""
        self._closing.set()
        with self._turn:
            runs = [*self._queue, *(entry.run for entry in self._loading.values())]
            self._turn.notify_all()
        for run in [*runs, *filter(None, [self._active, self._aside])]:
            self.stop(run, "the page was shut down")
        for thread in self._threads:
            thread.join(timeout)

    # -- threads

    def _start_threads(self) -> None:
        if not self._threads:
            for target in (self._work, self._watch):
                thread = threading.Thread(target=target, name=f"engine {target.__name__}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _models_answered(self, run: Run, problem: str) -> None:
        with self._turn:
            if self._loading.pop(run.id, None) is None:  # stopped while it was loading
                return
            if not problem:
                self._queue.append(run)
            self._turn.notify_all()
        if problem:
            self._end(run, problem)
        else:
            self._tell_places()

    def _work(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: len(self._queue) > 0 or self._closing.is_set())
                if not self._queue:
                    return
                run = self._active = self._queue.popleft()
            self._tell_places()
            self._perform(run)

    def _perform(self, run: Run) -> None:
        """Work on the run, which is active, until it has ended."""
        problem = "the run ended unexpectedly; what was decoded is kept"
        try:
            problem = self._contexts[run.id].run(self._work_on, run)
        except gr.Error as error:  # ZeroGPU refuses a visitor whose quota is used up
            problem = f"{re.sub('<[^>]*>', '', str(error.message))}; recorded runs still play"
        except Exception as error:  # an engine failure must not take the queue with it
            frames = "".join(traceback.format_tb(error.__traceback__))
            log.error("a run failed with %s at\n%s", type(error).__name__, frames)
            problem = f"the run failed ({type(error).__name__}); what was decoded is kept"
        finally:
            self._end(run, problem)
            self._active = None

    def _give_way(self, run: Run) -> None:
        """Let the decoding runs that wait go first, then go on."""
        began = time.monotonic()
        while True:
            with self._turn:
                other = next((other for other in self._queue if not other.gives_way), None)
                if other is None:
                    break
                self._queue.remove(other)
                self._active, self._aside = other, run
            run.say("paused", "a decoding run has the models; the search goes on behind it")
            self._tell_places()
            self._perform(other)
            self._active, self._aside = run, None
        if run.began is not None:
            run.began += time.monotonic() - began

    def _work_on(self, run: Run) -> str:
        """Decode or search to the end; returns the problem in a sentence, or nothing."""
        assert run.slot is not None and run.job is not None
        if run.slot.control.stopped:
            return ""
        run.touched = run.watched = time.monotonic()
        if run.slot.control.paused:
            run.say("paused", "paused before the first cycle")
        else:
            run.say("running", run.opening)
        work = self._decode if isinstance(run.job, Job) else self._search
        for kind, value, seconds in work(run.job, run.slot.index):
            if kind == "problem":
                return str(value)
            if kind == "start":
                self.pairs.remember(run.job.pair, value)
                run.began = time.monotonic()
            run.take(kind, value, seconds)
            if run.gives_way:
                self._give_way(run)
        return ""

    def _end(self, run: Run, problem: str) -> None:
        """Complete the trace, tell the browser, give the slot back."""
        with self._turn:
            slot, run.slot = run.slot, None
            self._contexts.pop(run.id, None)
        if run.trace.run:
            from viasd_core.recording import finish

            finish(run.trace, run.trace.run.pop("wall_s", 0.0))
        if slot is not None:
            self._table.give_back(slot)
        state = "error" if problem else "done" if run.complete else "stopped"
        run.close(state, problem or run.reason or run.outcome())

    def _tell_places(self) -> None:
        with self._turn:  # under the lock, so that no run is called queued once it is running
            for place, run in enumerate(self._queue, 1):
                ahead = "one run is" if place == 1 else f"{place} runs are"
                run.say("queued", f"{ahead} ahead; place {place} in the queue", position=place - 1)

    def _watch(self) -> None:
        while not self._closing.wait(WATCH_S):
            now = time.monotonic()
            self._drop_stopped()
            self._tell_loading(now)
            active = self._active
            if active is not None and active.slot is not None:
                self._check_holder(active, active.slot, now)

    def _drop_stopped(self) -> None:
        with self._turn:
            dropped = [run for run in self._queue if run.slot and run.slot.control.stopped]
            for run in dropped:
                self._queue.remove(run)
            loading = [entry.run for entry in self._loading.values()]
            loading = [run for run in loading if run.slot and run.slot.control.stopped]
            for run in loading:
                del self._loading[run.id]
        for run in dropped + loading:
            self._end(run, "")
        if dropped:
            self._tell_places()

    def _tell_loading(self, now: float) -> None:
        for loading in list(self._loading.values()):
            if now - loading.said >= SAY_S:
                loading.said = now
                run = loading.run
                preset = run.job.pair.preset if run.job else ""
                run.say("loading", f"loading the models of {preset}, {now - loading.since:.0f} s")

    def _check_holder(self, run: Run, slot: Slot, now: float) -> None:
        """Take the slot from a run that is paused too long, unwatched, or over its time."""
        limits = self.limits
        if slot.control.paused and now - run.touched > limits.idle_seconds:
            self.stop(
                run,
                f"paused for more than {limits.idle_seconds:g} s, so the slot went to the next run; "
                "the trace so far is kept",
            )
        elif now - run.watched > limits.idle_seconds:
            self.stop(run, "nobody was watching, so the run was ended")
        elif limits.max_seconds and run.began and now - run.began > limits.max_seconds:
            self.stop(
                run,
                f"ended after {limits.max_seconds:g} s, this page's limit; the trace so far is kept",
            )

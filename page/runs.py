"""One run as the page sees it: a numbered log of messages that a browser reads at its own pace."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from viasd_core.live import LiveSettings
from viasd_core.trace import CycleEvent, EventRow, Trace
from viz.wire import batch, encode_event, encode_row, end_event, start_event, status_event

from .job import Job, SearchJob
from .slots import Slot

BATCH = 500  # messages a browser is sent at once
ENDED = ("done", "stopped", "error")
APPLIED_S = 5.0  # how long the line says that settings were applied

Message = dict[str, Any]


class Run:
    """A log of messages numbered 1, 2, ..., and for a live run the trace that grows with it.

    `state` is one of the viewer's: queued, loading, running, paused, stopping, stopped, done, error. Messages
    are only appended, under the lock; readers keep the number of the last one they have seen.
    """

    gives_way = False  # to runs that decode, between two of its steps
    opening = "reading the prompt"
    stopping = "stopping at the end of this cycle"

    def __init__(self, messages: Sequence[str] | None = None) -> None:
        self.id = secrets.token_urlsafe(18)
        self._log: list[str] = list(messages or ())  # each as JSON
        self._made = [0.0] * len(self._log)  # epoch seconds, for the delay from cycle to paint
        self._changed = threading.Condition()
        self._notes: list[EventRow] = []  # not yet in a message
        self._pending: dict[str, Any] = {}  # knobs turned and not yet applied
        self._pending_version = 0
        self._stale: float | None = None  # when the last sentence has been shown for long enough
        self.trace = Trace()
        self.state = "queued" if messages is None else "done"
        self.job: Job | SearchJob | None = None
        self.slot: Slot | None = None
        self.live: LiveSettings | None = None
        self.began: float | None = None  # of the first cycle, time.monotonic
        self.touched = time.monotonic()  # the user last did something
        self.watched = time.monotonic()  # somebody last read the log
        self.last_words = ""  # the sentence it ended with
        self.reason = ""  # why the page ended the run, in a sentence

    @property
    def total(self) -> int:
        return len(self._log)

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def complete(self) -> bool:
        """Whether it came to its own end."""
        return bool(self.trace.run.get("complete"))

    @property
    def paused(self) -> bool:
        return self.slot is not None and self.slot.control.paused

    def publish(self, *messages: Message) -> None:
        texts = [as_text(message) for message in messages]
        with self._changed:
            self._log.extend(texts)
            self._made.extend([time.time()] * len(messages))
            self._changed.notify_all()

    def say(self, state: str, text: str, **more: Any) -> None:
        """Change the state and tell the browser in one sentence. A run that has ended stays so."""
        with self._changed:
            if not self.ended:
                self.state, self._stale = state, None
                self.publish(status_event(state, text, **more))

    def note(self, kind: str, text: str = "") -> None:
        """A pause, resume, step or stop, for the trace: it goes out with the next cycle, or with the end."""
        t_us = int((time.monotonic() - self.began) * 1e6) if self.began is not None else 0
        cycle = len(self.trace.cycles)
        self._notes.append(EventRow(t_us, cycle, kind, "", "", text))

    def take(self, kind: str, value: Any, seconds: float) -> None:
        """A step of the worker; see `make_decoder`."""
        if kind == "doing" and not self.paused:
            self.say("running", value)
        elif kind == "start":
            self.trace.run.update(value)
            self.publish(start_event(self.trace.run))
            if not self.paused:
                self.say("running", "decoding")
        elif kind == "cycle":
            self.trace.run.setdefault("ttft_s", seconds)
            self.trace.run["wall_s"] = seconds
            self.add(value)

    def add(self, event: CycleEvent) -> None:
        """Fold a cycle into the trace and the log."""
        notes, self._notes = self._notes, []
        event = replace(event, events=event.events + tuple(notes))
        self.trace.add(event)
        self.publish(encode_event(event))
        with self._changed:
            applied = bool(self._pending) and event.cycle.param_version >= self._pending_version
            if applied:
                self._pending = {}
        now = time.monotonic()
        if applied:
            self.say(self.state, f"settings applied in cycle {event.cycle.cycle}", pending={})
            self._stale = now + APPLIED_S
        elif self._stale is not None and now >= self._stale:
            self.say(self.state, "decoding")

    def turned(self, name: str, value: Any, version: int) -> None:
        """A knob was written and waits for the next cycle."""
        with self._changed:
            self._pending = self._pending | {name: value}
            self._pending_version = version
            shown = "auto" if value is None else value if isinstance(value, str) else f"{value:g}"
            self.say(self.state, f"{name} {shown} acts from the next cycle", pending=dict(self._pending))

    def close(self, state: str, text: str) -> None:
        """The last two messages: how it ended, and run.json."""
        notes = [replace(row, cycle=max(0, len(self.trace.cycles) - 1)) for row in self._notes]
        self.trace.events.extend(notes)
        last = end_event(self.trace.run, self.trace.dimr)
        if notes:
            last["events"] = [encode_row(row) for row in notes]
        with self._changed:
            if not self.ended:
                self.state, self.last_words = state, text
                self.publish(status_event(state, text, pending={}), last)

    def outcome(self) -> str:
        """How it ended, in a sentence."""
        facts = self.trace.run
        if not self.trace.cycles:
            return "stopped before the first cycle; nothing was decoded"
        totals, seconds = facts["totals"], facts["wall_s"]
        if not facts["complete"]:
            return f"stopped; the {totals['new_tokens']} tokens so far are kept"
        return f"finished ({facts['finish_reason']}): {totals['new_tokens']} tokens in {seconds:.1f} s"

    def wait(self, last: int, timeout: float) -> bool:
        """Block until there is a message after number `last`; False when none came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._log) > last, timeout)

    def batch(self, last: int, limit: int = BATCH) -> Message:
        """The messages after number `last`, at most `limit`, as the viewer takes them: packed into one text.

        Gradio compares a streamed value with the one before and the browser applies the difference in place,
        so rows that the viewer had taken from an earlier batch would change under it; and a text costs the
        server nothing to send again.
        """
        self.watched = time.monotonic()
        with self._changed:
            texts, total = self._log[last : last + limit], len(self._log)
            made = self._made[last] if texts else 0.0
        more: Message = {"more": True} if last + len(texts) < total else {}
        if made:
            more["t"] = made
        value = batch(self.id, last + 1, (), packed="[" + ",".join(texts) + "]", **more)
        return value | {"seq": last + len(texts)}


@dataclass
class Loading:
    """A run whose models are not ready; times are time.monotonic."""

    run: Run
    since: float
    said: float


def as_text(message: Message) -> str:
    """A message as JSON."""
    return json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

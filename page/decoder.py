"""The one place where the page decodes: a generator of plain values that may run in a forked worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from viasd_core.errors import ViasdError
from viasd_core.live import KNOB_NAMES, LiveSettings

from .job import Job
from .pairs import PairStore
from .slots import Gate, ReadOnlyCarrier, SlotTable

Step = tuple[str, Any, float]
Decoder = Callable[[Any, int], Iterator[Step]]  # of a job and the index of its slot


def make_decoder(pairs: PairStore, table: SlotTable) -> Decoder:
    """A generator function of a job and a slot's index; it yields ("start", run.json so far, 0), then
    ("cycle", CycleEvent, seconds) for each. Before them ("doing", sentence, 0) may come.

    Seconds count from the first cycle's start without pauses. The last step is ("end", None, seconds), or
    ("problem", sentence, seconds) for input that cannot be decoded.
    """

    def decode_job(job: Job, index: int) -> Iterator[Step]:
        from viasd_core.decode import generate
        from viasd_core.recording import describe, encode_prompt
        from viasd_core.suffix_choice import will_measure, with_suffix

        slot = table[index]
        knobs = slot.carrier.read()
        gate = Gate(slot.control)
        began = time.perf_counter()
        elapsed = 0.0
        try:
            settings = job.settings.with_(**{name: getattr(knobs, name) for name in KNOB_NAMES})
            pair = pairs.now(job.pair)
            prompt_ids = encode_prompt(pair, job.prompt, raw=job.raw)
            live = LiveSettings(settings, ReadOnlyCarrier(slot.carrier))
            if will_measure(pair, settings):
                yield "doing", "comparing the drafter's suffixes on a short text", 0.0
            settings, found = with_suffix(pair, settings)
            events = generate(pair, prompt_ids, settings, live)
            facts = describe(pair, job.prompt, prompt_ids, settings) | found
            if settings.method != "ar":
                if not pairs.checked(job.pair):
                    yield "doing", "checking the drafter on a short text", 0.0
                if check := pairs.check(job.pair, pair):
                    facts["drafter_check"] = check
            yield "start", facts, 0.0
            began, gate.waited = time.perf_counter(), 0.0
            while gate.open():
                event = next(events, None)
                elapsed = time.perf_counter() - began - gate.waited
                if event is None:
                    break
                yield "cycle", event, elapsed
        except ViasdError as error:
            yield "problem", str(error), elapsed
            return
        yield "end", None, elapsed

    return decode_job

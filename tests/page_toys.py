"""What the page's tests share: jobs for toy models, and waiting for what happens on other threads."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import toys
from page.engine import Engine
from page.examples import Example
from page.job import Job, PairKey
from page.limits import Limits
from page.runs import Run
from page.server import Page, close, launch, make_page
from sample_traces import via_sd_trace
from viasd_core.pair import ModelPair
from viasd_core.settings import Settings
from viasd_core.trace import Trace

EVEN = {"mask": "even", "skip_ratio": 0.4}  # toy models have no searched mask
WAIT_S = 60.0
FORWARD_S = 0.04  # what a forward of the default model takes on two cores
HOSTILE = (
    "<img src=x onerror=window.__pwned=1> ${window.__pwned=1} {{x}} </script>"
    "<script>window.__pwned=1</script> `\\ @children"
)


def endless_pair(**model: Any) -> ModelPair:
    """Ends at 4000 tokens at the earliest, so that a test can count on a run being under way. Keywords go to
    `toys.toy_model`.
    """
    made = toys.toy_pair(noise=0.01, max_position_embeddings=8192, **model)
    return replace(made, verifier=replace(made.verifier, eos_ids=frozenset()))


def unhurried(pair: ModelPair) -> ModelPair:
    """A pair whose verifier takes as long as a real one does, so that a browser can act while a run is under
    way, on a loaded machine as well.
    """
    body: Any = pair.verifier.model.get_input_embeddings()
    body.register_forward_pre_hook(lambda *_: time.sleep(FORWARD_S))
    return pair


def hostile_trace() -> Trace:
    """A recorded run whose tokens, settings and names try to be markup or code."""
    trace = via_sd_trace()
    trace.tokens = [replace(row, text=HOSTILE, data=HOSTILE.encode()) for row in trace.tokens]
    trace.cycles = [replace(row, mask_id=HOSTILE, reason=HOSTILE) for row in trace.cycles]
    trace.events = [replace(row, key=HOSTILE, old=HOSTILE, new=HOSTILE) for row in trace.events]
    names = {"prompt": HOSTILE, "method": HOSTILE, "mask_id": HOSTILE, "preset": HOSTILE}
    trace.run |= names | {"text": trace.text, "models": {"verifier": HOSTILE, "drafter": HOSTILE}}
    return trace


@contextmanager
def serving(
    loader: Callable[[str], Any], shown: list[Example], limits: Limits | None = None
) -> Iterator[tuple[Page, str]]:
    """A launched page and its address."""
    page = make_page(limits or Limits(), loader=loader, shown=shown)
    try:
        _, address, _ = launch(page, block=False)
        yield page, address
    finally:
        close(page)


def toy_job(prompt: str = "the and", **settings: Any) -> Job:
    """A VIA-SD job for toy models; keywords go to `Settings`."""
    method = settings.pop("method", "via-sd")
    chosen: dict[str, Any] = (EVEN if method == "via-sd" else {}) | settings
    return Job(PairKey("toy"), prompt, Settings(method=method, **chosen))


def until(condition: Callable[[], Any], seconds: float = WAIT_S) -> Any:
    """Wait for something to hold and return it; fails when it does not come to pass."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if result := condition():
            return result
        time.sleep(0.01)
    raise AssertionError(f"did not happen within {seconds:g} s")


def until_ended(run: Run) -> None:
    until(lambda: run.ended)


def until_cycles(run: Run, count: int) -> None:
    """Wait until the run has made so many cycles."""
    until(lambda: len(run.trace.cycles) >= count)


def events(batch: dict[str, Any]) -> list[dict[str, Any]]:
    """A batch's messages."""
    found: list[dict[str, Any]] = json.loads(batch["packed"])
    return found


def messages(run: Run, kind: str) -> list[dict[str, Any]]:
    return [message for message in events(run.batch(0, 10**6)) if message["kind"] == kind]


@contextmanager
def held(run: Run, engine: Engine) -> Iterator[None]:
    """Keep a run's slot busy: paused from before its first cycle."""
    engine.pause(run)
    yield
    engine.stop(run)

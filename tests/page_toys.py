"""What the page's tests share: jobs for toy models, and waiting for what happens on other threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from page.engine import Engine
from page.job import Job, PairKey
from page.runs import Run
from viasd_core.settings import Settings

EVEN = {"mask": "even", "skip_ratio": 0.4}  # toy models have no searched mask
WAIT_S = 60.0


def toy_job(prompt: str = "the and", **settings: Any) -> Job:
    """A VIA-SD job for toy models; keywords go to `Settings`."""
    method = settings.pop("method", "via-sd")
    chosen = (EVEN if method == "via-sd" else {}) | settings
    return Job(PairKey("toy"), prompt, Settings(method=method, **chosen))


def until(condition: Callable[[], Any], seconds: float = WAIT_S) -> Any:
    """Wait for something to hold and return it; fails when it does not come to pass."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if result := condition():
            return result
        time.sleep(0.01)
    raise AssertionError(f"did not happen within {seconds:g} s")


def messages(run: Run, kind: str) -> list[dict[str, Any]]:
    return [message for message in run.batch(0, 10**6)["events"] if message["kind"] == kind]


@contextmanager
def held(run: Run, engine: Engine) -> Iterator[None]:
    """Keep a run's slot busy: paused from before its first cycle."""
    engine.pause(run)
    yield
    engine.stop(run)

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from page import hardware
from page.limits import Limits
from page_toys import toy_job
from viasd_core.errors import SettingsError

ROOT = Path(__file__).resolve().parents[2]

# What the spaces package does to a generator: it runs in a forked process, and only pickles come back.
FAKE_SPACES = """
import multiprocessing, threading

DURATIONS = []

def GPU(function, duration=60):
    def call(*arguments):
        DURATIONS.append(duration(*arguments))
        context = multiprocessing.get_context("fork")
        results = context.Queue()
        def work():
            for value in function(*arguments):
                results.put((True, value))
            results.put((False, None))
        process = context.Process(target=work, daemon=True)
        process.start()
        while True:
            more, value = results.get()
            if not more:
                process.join()
                return
            yield value
    return call
"""

SCENARIO = """
import functools, json, os, sys
sys.path.insert(0, "tests")
import torch
torch.set_num_threads(1)
import spaces
from page import hardware
from page.engine import Engine
from page.limits import Limits
from page.pairs import PairStore
from page.runs import Run
from page_toys import endless_pair, toy_job, until

limits = hardware.space_limits(Limits())
pair = endless_pair()
wrap = functools.partial(hardware.on_lent_gpu, limits=limits)
engine = Engine(PairStore(lambda preset: pair), limits, wrap=wrap)
run = Run()
engine.submit(run, toy_job(max_new_tokens=4000, alpha1=0.9))
engine.pause(run)
until(lambda: run.trace.run)
engine.step(run)
until(lambda: len(run.trace.cycles) == 1)
engine.turn_knob(run, "alpha1", 0.25)
engine.step(run)
until(lambda: len(run.trace.cycles) == 2)
engine.resume(run)
until(lambda: len(run.trace.cycles) > 5)
engine.stop(run)
until(lambda: run.ended and engine.idle)
print(json.dumps({
    "alpha1": [row.alpha1 for row in run.trace.cycles[:2]],
    "state": run.state,
    "tokens": run.trace.run["totals"]["new_tokens"],
    "durations": spaces.DURATIONS,
    "idle": limits.idle_seconds,
    "lends": hardware.lends_gpu(),
    "shared": limits.shared,
    "remembered": engine.pairs.check(run.job.pair, None) == run.trace.run["drafter_check"],
}))
"""


def test_knobs_pause_step_and_stop_reach_a_forked_worker(tmp_path: Path) -> None:
    """On ZeroGPU an object changed in the parent stays unchanged for the run."""
    (tmp_path / "spaces.py").write_text(FAKE_SPACES)
    place = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "SPACES_ZERO_GPU": "true", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCENARIO],
        cwd=ROOT,
        env=os.environ | place,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["alpha1"] == [0.9, 0.25]
    assert seen["state"] == "stopped" and seen["tokens"] > 0
    assert seen["lends"] and seen["idle"] == hardware.SPACE_IDLE
    assert seen["shared"]
    assert seen["remembered"], "a drafter would be checked anew in every worker"
    assert seen["durations"] == [hardware.SPACE_SECONDS], "more tokens than a lent GPU has time for"


def test_a_short_run_asks_for_a_short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request longer than what is left of the quota is refused up front (60 s requested, 56 s left)."""
    asked = {}

    class Spaces:
        @staticmethod
        def GPU(decoder: object, duration: object) -> object:
            asked["duration"] = duration
            return decoder

    monkeypatch.setattr(hardware, "SPACES", Spaces)
    hardware.on_lent_gpu(lambda job, index: iter(()), Limits(max_seconds=40))
    duration = asked["duration"]
    assert callable(duration)
    assert duration(toy_job(max_new_tokens=20), 0) == 11
    assert duration(toy_job(max_new_tokens=2000), 0) == 40


def test_without_the_spaces_package_decoding_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "SPACES", None)

    def decoder(job: object, index: int) -> object:
        return iter(())

    assert hardware.on_lent_gpu(decoder, Limits()) is decoder  # type: ignore[arg-type]
    assert hardware.space_limits(Limits()) == Limits()


def test_a_page_is_shared_on_a_space_and_where_the_environment_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPACE_ID", raising=False)
    assert not hardware.space_limits(Limits()).shared
    assert hardware.space_limits(Limits(shared=True)).shared
    monkeypatch.setenv("SPACE_ID", "somebody/explorer")
    assert hardware.space_limits(Limits()) == Limits(shared=True)
    assert Limits.from_environment({"VIASD_SHARED": "1"}).shared
    assert not Limits.from_environment({"VIASD_SHARED": "0"}).shared
    with pytest.raises(SettingsError, match="VIASD_SHARED is 'yes'; give 1"):
        Limits.from_environment({"VIASD_SHARED": "yes"})

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from page import wiring
from page.engine import Engine
from page.runs import BATCH, Run, as_text
from page.server import reader_of
from page.session import Sessions
from page.wiring import stream
from page_toys import events, toy_job, until
from sample_traces import via_sd_trace
from viz.wire import trace_messages

PRIVATE = as_text({"kind": "status", "state": "done", "text": "private"})


def test_every_message_goes_over_the_wire_once_so_that_bytes_grow_linearly(
    make_engine: Callable[..., Engine],
) -> None:
    """A cumulative update would send the first token with every later one (gradio 4092)."""
    engine = make_engine()
    run = Run()
    engine.submit(run, toy_job(max_new_tokens=60))
    sent = 0
    numbers: list[int] = []
    for batch in stream(run):
        numbers += range(batch["from"], batch["seq"] + 1)
        sent += len(batch["packed"])
    assert numbers == list(range(1, run.total + 1))
    assert sent <= len(run.batch(0, 10**6)["packed"]) + 2 * len(numbers)


def test_many_cycles_between_two_flushes_arrive_in_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """One callback a yield is never assumed (gradio 7952)."""
    run = Run()
    run.publish(*({"kind": "status", "state": "running", "text": str(number)} for number in range(50)))
    batches = stream(run)
    assert len(events(next(batches))) == 50
    run.close("done", "over")
    assert [message["kind"] for message in events(next(batches))] == ["status", "end"]
    with pytest.raises(StopIteration):
        next(batches)


def test_a_run_that_stands_still_sends_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would cut a silent connection, and a vanished browser would never be noticed (gradio 9999)."""
    monkeypatch.setattr(wiring, "HEARTBEAT_S", 0.01)
    run = Run()
    batches = stream(run)
    beats = [next(batches) for _ in range(3)]
    assert [(beat["from"], beat["seq"], events(beat)) for beat in beats] == [(1, 0, [])] * 3


def test_a_slow_browser_is_not_flooded(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    naps: list[float] = []
    monkeypatch.setattr(wiring.time, "sleep", naps.append)
    for number, _ in zip(range(3), stream(run), strict=False):
        run.publish({"kind": "status", "state": "running", "text": str(number)})
    assert naps and all(0 < nap <= wiring.FLUSH_S for nap in naps)


def test_leaving_the_page_only_sets_a_flag(make_engine: Callable[..., Engine]) -> None:
    """Gradio closes a generator on its event loop: slow work there freezes every user (gradio 8503)."""
    engine = make_engine()
    run = Run()
    engine.submit(run, toy_job(max_new_tokens=4000))
    until(lambda: run.trace.cycles)
    slot = run.slot
    assert slot is not None
    began = time.perf_counter()
    engine.stop(run, "the page was closed")
    assert slot.control.stopped or run.ended
    assert time.perf_counter() - began < 1.0
    until(lambda: engine.idle)
    assert run.last_words == "the page was closed"


def test_a_browser_that_missed_messages_gets_them_by_number() -> None:
    sessions = Sessions(lambda run: None)
    run = Run([as_text(message) for message in trace_messages(via_sd_trace())])
    sessions.add("tab", run)
    fetch_since = reader_of(sessions)
    answer = fetch_since({"run": run.id, "last": 2})
    assert (answer["from"], answer["seq"]) == (3, run.total)
    assert events(answer) == trace_messages(via_sd_trace())[2:]


@pytest.mark.parametrize(
    "asked",
    [
        None,
        [],
        "x",
        {},
        {"run": "guess", "last": 0},
        {"run": ["x"], "last": 0},
        {"run": {"$ne": 1}, "last": 0},
    ],
)
def test_messages_of_a_run_are_only_for_who_knows_its_id(asked: object) -> None:
    sessions = Sessions(lambda run: None)
    sessions.add("tab", Run([PRIVATE]))
    assert "private" not in json.dumps(reader_of(sessions)(asked))


@pytest.mark.parametrize("last", [-1, 2, 10**30, 0.5, True, None, "0", [0]])
def test_a_nonsensical_position_is_refused_in_a_sentence(last: object) -> None:
    sessions = Sessions(lambda run: None)
    run = Run([PRIVATE])
    sessions.add("tab", run)
    assert "reload the page" in reader_of(sessions)({"run": run.id, "last": last})["error"]


def test_a_long_run_is_handed_over_in_bounded_pieces() -> None:
    run = Run([PRIVATE] * (2 * BATCH + 1))
    first = run.batch(0)
    assert len(events(first)) == BATCH and first["more"]
    assert "more" not in run.batch(2 * BATCH)

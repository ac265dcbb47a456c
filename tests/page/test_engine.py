from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import gradio as gr
import pytest

from page import runs
from page.catalog import Catalog
from page.engine import BusyError, Engine
from page.job import OWN
from page.limits import Limits
from page.runs import Run
from page_toys import events, held, messages, toy_job, until, until_cycles, until_ended
from viasd_core.errors import SettingsError, SourceError
from viasd_core.pair import ModelPair

MakeEngine = Callable[..., Engine]


def start(engine: Engine, **settings: Any) -> Run:
    run = Run()
    engine.submit(run, toy_job(**settings))
    return run


def place(run: Run) -> int | None:
    """Place in the queue the run was last told; 0 = next."""
    position: int | None = messages(run, "status")[-1].get("position")
    return position


def test_a_run_streams_every_cycle_and_ends_with_its_whole_trace(make_engine: MakeEngine) -> None:
    engine = make_engine()
    run = start(engine, max_new_tokens=24)
    until_ended(run)
    kinds = [message["kind"] for message in events(run.batch(0))]
    assert run.state == "done" and run.trace.finish == "length"
    assert kinds.count("cycle") == len(run.trace.cycles) > 1
    assert kinds.index("start") < kinds.index("cycle") and kinds[-1] == "end"
    assert run.trace.run["totals"]["new_tokens"] == 24
    assert until(lambda: engine.idle)


def test_a_turned_skip_ratio_moves_the_first_of_several_slim_verifiers(make_engine: MakeEngine) -> None:
    engine, run = make_engine(), Run()
    form = {"mask": "even", "tiers": "0.6,0.2", "max_new_tokens": 1000}
    engine.submit(run, Catalog(Limits()).job("the and", "tiny", "via-sd", OWN, form))
    until_cycles(run, 1)
    engine.turn_knob(run, "skip_ratio", 0.4)
    until(lambda: run.trace.cycles[-1].mask_id != run.trace.cycles[0].mask_id)
    engine.stop(run)
    until_ended(run)
    assert run.trace.run["settings"]["tiers"] == [0.6, 0.2]
    named = list(dict.fromkeys(row.mask_id for row in run.trace.cycles))
    assert [name.split(",") for name in named] == [["even:3", "even:1"], ["even:2", "even:1"]]


def test_two_users_never_decode_at_the_same_time_and_the_second_sees_its_place(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    first, second, third = (start(engine, max_new_tokens=4000) for _ in range(3))
    with held(first, engine):
        until(lambda: [place(second), place(third)] == [0, 1])
        assert not second.trace.cycles and not third.trace.cycles
        engine.stop(second)
        until(lambda: second.ended)
        until(lambda: place(third) == 0)
    until(lambda: third.trace.cycles)
    assert first.ended
    engine.stop(third)
    assert until(lambda: engine.idle)


def test_one_run_too_many_is_refused_in_a_sentence(make_engine: MakeEngine) -> None:
    engine = make_engine(max_waiting=1)
    first = start(engine, max_new_tokens=4000)
    with held(first, engine):
        until(lambda: first.state == "paused" and engine.waiting() == 0)
        start(engine, max_new_tokens=4000)
        with pytest.raises(BusyError, match="1 runs are waiting already"):
            start(engine)


def test_a_paused_run_stands_still_and_step_makes_exactly_one_cycle(make_engine: MakeEngine) -> None:
    engine = make_engine()
    run = start(engine, max_new_tokens=4000)
    engine.pause(run)
    until(lambda: messages(run, "start"))
    assert not run.wait(run.total, 0.1) and not run.trace.cycles
    for count in (1, 2, 3):
        engine.step(run)
        until_cycles(run, count)
        assert not until_more(run, count)
    engine.resume(run)
    until(lambda: len(run.trace.cycles) > 4)
    engine.stop(run)
    until_ended(run)
    assert [row.type for row in run.trace.events][:2] == ["pause", "step"]


def until_more(run: Run, count: int) -> bool:
    """Whether another cycle comes although none was asked for."""
    threading.Event().wait(0.1)
    return len(run.trace.cycles) > count


def test_stop_keeps_the_partial_trace_and_frees_the_slot(make_engine: MakeEngine) -> None:
    engine = make_engine()
    run = start(engine, max_new_tokens=4000)
    until(lambda: len(run.trace.cycles) >= 3)
    engine.stop(run)
    until_ended(run)
    assert run.state == "stopped" and run.trace.run["finish_reason"] == "cancelled"
    assert run.trace.run["token_ids"] == run.trace.token_ids != []
    assert run.trace.events[-1].type == "stop"
    until(lambda: engine.idle)
    until_ended(start(engine, max_new_tokens=4))


def test_a_knob_acts_from_the_next_cycle_and_is_reported_pending_then_applied(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    run = start(engine, max_new_tokens=4000, alpha1=0.9)
    engine.pause(run)
    until(lambda: messages(run, "start"))
    engine.step(run)
    until_cycles(run, 1)
    engine.turn_knob(run, "alpha1", 0.0)
    assert messages(run, "status")[-1]["pending"] == {"alpha1": 0.0}
    engine.step(run)
    until_cycles(run, 2)
    assert [row.alpha1 for row in run.trace.cycles] == [0.9, 0.0]
    until(lambda: messages(run, "status")[-1].get("pending") == {})
    change = next(row for row in run.trace.events if row.type == "param_change")
    assert (change.cycle, change.key, change.new) == (1, "alpha1", "0.0")
    engine.stop(run)


def test_the_line_about_applied_settings_gives_way_when_it_has_been_read(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood there for the rest of the run."""
    monkeypatch.setattr(runs, "APPLIED_S", 0.0)
    engine = make_engine()
    run = start(engine, max_new_tokens=4000, gamma=3)
    until_cycles(run, 1)
    engine.turn_knob(run, "gamma", 2)
    until(lambda: messages(run, "status")[-1]["text"] == "decoding" and len(messages(run, "status")) > 4)
    engine.stop(run)
    until_ended(run)
    texts = [message["text"] for message in messages(run, "status")]
    applied = next(index for index, text in enumerate(texts) if text.startswith("settings applied in cycle"))
    assert texts[applied - 1 : applied + 3] == [
        "gamma 2 acts from the next cycle",
        texts[applied],
        "decoding",
        "stopping at the end of this cycle",
    ]


def test_a_paused_run_keeps_saying_what_was_applied(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "APPLIED_S", 0.0)
    engine = make_engine()
    run = start(engine, max_new_tokens=4000)
    engine.pause(run)
    until(lambda: messages(run, "start"))
    engine.turn_knob(run, "gamma", 2)
    engine.step(run)
    until_cycles(run, 1)
    engine.turn_knob(run, "gamma", 3)
    engine.step(run)
    until(lambda: messages(run, "status")[-1]["text"] == "settings applied in cycle 1")
    engine.stop(run)
    until_ended(run)
    assert messages(run, "status")[-1]["text"].startswith("stopped; the")


def test_a_knob_turned_while_queued_is_in_the_settings_that_the_run_records(make_engine: MakeEngine) -> None:
    engine = make_engine()
    first = start(engine, max_new_tokens=4000)
    with held(first, engine):
        second = start(engine, max_new_tokens=4, alpha1=0.9)
        until(lambda: second.state == "queued")
        engine.turn_knob(second, "alpha1", 0.25)
    until(lambda: second.ended)
    assert second.trace.run["settings"]["alpha1"] == 0.25 == second.trace.cycles[0].alpha1


def test_a_knob_that_follows_another_one_is_called_auto(make_engine: MakeEngine) -> None:
    engine = make_engine()
    run = start(engine, max_new_tokens=4000)
    with held(run, engine):
        engine.turn_knob(run, "margin_scale", None)
        last = messages(run, "status")[-1]
        assert last["text"] == "margin_scale auto acts from the next cycle"
        assert last["pending"] == {"margin_scale": None}


def test_strict_refuses_a_temperature_that_is_turned_up_in_mid_run(make_engine: MakeEngine) -> None:
    engine = make_engine()
    run = start(engine, max_new_tokens=4000, strict=True)
    with held(run, engine), pytest.raises(SettingsError, match="strict needs temperature 0"):
        engine.turn_knob(run, "temperature", 0.7)


def test_a_paused_run_gives_its_slot_back_after_the_idle_limit_and_says_so(make_engine: MakeEngine) -> None:
    engine = make_engine(idle_seconds=0.2)
    run = start(engine, max_new_tokens=4000)
    engine.pause(run)
    until(lambda: run.batch(0) and run.ended)
    assert "paused for more than 0.2 s" in run.last_words
    until(lambda: engine.idle)


def test_a_run_that_nobody_watches_any_more_gives_its_slot_back(make_engine: MakeEngine) -> None:
    engine = make_engine(idle_seconds=0.2)
    run = start(engine, max_new_tokens=4000, gamma=1)
    until_ended(run)
    assert run.state == "stopped" and "nobody was watching" in run.last_words


def test_a_run_ends_at_the_time_limit_with_its_trace(make_engine: MakeEngine) -> None:
    engine = make_engine(max_seconds=0.2)
    run = start(engine, max_new_tokens=4000, gamma=1)
    until_ended(run)
    assert "ended after 0.2 s" in run.last_words and run.trace.cycles


def test_a_model_that_cannot_be_loaded_says_why_and_the_next_run_tries_again(
    make_engine: MakeEngine, pair: ModelPair
) -> None:
    attempts = []

    def load(preset: str) -> ModelPair:
        attempts.append(preset)
        if len(attempts) == 1:
            raise SourceError("toy is not in the cache; fetch it first")
        return pair

    engine = make_engine(load)
    first = start(engine)
    until(lambda: first.ended)
    assert (first.state, first.last_words) == ("error", "toy is not in the cache; fetch it first")
    second = start(engine, max_new_tokens=4)
    until(lambda: second.ended)
    assert second.state == "done" and len(attempts) == 2


def test_without_torch_a_run_says_that_recorded_runs_still_play(make_engine: MakeEngine) -> None:
    def load(preset: str) -> ModelPair:
        raise ImportError("No module named 'torch'")

    run = start(make_engine(load))
    until_ended(run)
    assert run.state == "error" and "recorded runs play without" in run.last_words


def test_a_model_is_loaded_once_for_all_runs_that_ask_while_it_loads(
    make_engine: MakeEngine, pair: ModelPair
) -> None:
    let_go, attempts = threading.Event(), []

    def load(preset: str) -> ModelPair:
        attempts.append(preset)
        let_go.wait(30)
        return pair

    engine = make_engine(load)
    runs = [start(engine, max_new_tokens=4) for _ in range(3)]
    assert {run.state for run in runs} == {"loading"}
    let_go.set()
    until(lambda: all(run.state == "done" for run in runs))
    assert attempts == ["toy"]


def test_stop_while_the_models_load_ends_the_run_at_once(make_engine: MakeEngine, pair: ModelPair) -> None:
    let_go = threading.Event()

    def load(preset: str) -> ModelPair:
        let_go.wait(30)
        return pair

    engine = make_engine(load)
    run = start(engine)
    engine.stop(run)
    until(lambda: run.ended and engine.idle)
    assert run.state == "stopped" and "nothing was decoded" in run.last_words
    let_go.set()


def test_an_engine_failure_is_shown_and_does_not_take_the_queue_with_it(make_engine: MakeEngine) -> None:
    class Broken:
        preset = None

        def __getattr__(self, name: str) -> object:
            raise RuntimeError("secret prompt in a message")

    engine = make_engine(lambda preset: Broken())
    for _ in range(2):
        run = start(engine)
        until_ended(run)
        assert run.state == "error" and "RuntimeError" in run.last_words
        assert "secret" not in run.last_words
    until(lambda: engine.idle)


def test_a_used_up_gpu_quota_is_told_in_its_own_words(make_engine: MakeEngine, pair: ModelPair) -> None:
    engine = make_engine()

    def refuse(job: object, index: int) -> Any:
        raise gr.Error("GPU quota exceeded: <a href='x'>60s requested vs. 56s left</a>")

    engine._decode = refuse
    run = start(engine)
    until_ended(run)
    assert run.last_words == "GPU quota exceeded: 60s requested vs. 56s left; recorded runs still play"


def test_a_prompt_longer_than_the_context_is_refused_in_place(make_engine: MakeEngine) -> None:
    engine = make_engine()
    run = Run()
    engine.submit(run, toy_job("x" * 9000))
    until_ended(run)
    assert run.state == "error" and "context" in run.last_words


def test_threads_are_back_to_baseline_after_twenty_runs_and_stops(make_engine: MakeEngine) -> None:
    engine = make_engine()
    start(engine, max_new_tokens=4)
    until(lambda: engine.idle)
    before = threading.active_count()
    for _ in range(20):
        run = start(engine, max_new_tokens=4000)
        until_cycles(run, 1)
        engine.stop(run)
        until_ended(run)
    until(lambda: engine.idle and threading.active_count() <= before)
    assert engine.idle and threading.active_count() <= before

"""Knobs turned during a run: the next cycle uses them, its row and the log say so; also across a fork."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest

from scripted import TableRunner, greedy_text, near, random_table, scripted_parts
from viasd_core.decode import decode
from viasd_core.errors import SettingsError
from viasd_core.live import Carrier, LiveSettings, LocalCarrier, SharedCarrier
from viasd_core.settings import Settings
from viasd_core.trace import CycleEvent, CycleRow, Trace
from viasd_core.trace_check import check

Q = random_table(6, 2, 700)
SLIM, DRAFTER = near(Q, 0.6, 701), near(Q, 0.5, 702)
START = Settings(mask="even", skip_ratio=0.4, temperature=1.0, max_new_tokens=400, gamma=4)
TURNS: dict[str, Any] = {
    "alpha1": 0.9, "alpha2": 0.7, "gamma": 2, "skip_ratio": 0.0, "temperature": 0.3, "mask": "11011"
}  # fmt: skip
FORK = multiprocessing.get_context("fork")


def parts() -> Any:
    return scripted_parts(TableRunner(Q, SLIM, n_layers=5), DRAFTER)


def values(row: CycleRow) -> dict[str, Any]:
    """A row's knobs; the mask by the name it was stored or given under."""
    numbers = {name: getattr(row, name) for name in TURNS if name != "mask"}
    return numbers | {"mask": row.mask_id.removeprefix("bits:")}


@pytest.mark.parametrize("carrier", [LocalCarrier, SharedCarrier])
@pytest.mark.parametrize("name", TURNS)
def test_a_knob_turned_between_cycles_is_used_by_the_next_one_and_logged(
    name: str, carrier: Callable[[], Carrier]
) -> None:
    live = LiveSettings(START, carrier())
    events = decode(parts(), [1], START, live)
    seen = [next(events) for _ in range(3)]
    version = live.update(**{name: TURNS[name]})
    seen += [next(events) for _ in range(2)]
    before, after = seen[2].cycle, seen[3].cycle
    assert values(before) == {knob: getattr(START, knob) for knob in TURNS} | {"mask": "even:2"}
    follows = {"mask": "even:0"} if name == "skip_ratio" else {}
    assert values(after) == values(before) | {name: TURNS[name]} | follows
    assert (before.param_version, after.param_version) == (0, version) and version == 1
    changes = [row for event in seen for row in event.events if row.type == "param_change"]
    assert [(row.cycle, row.key, row.old, row.new) for row in changes] == [
        (3, name, str(getattr(START, name)), str(TURNS[name]))
    ]


def test_new_alphas_move_the_gate_of_the_next_block() -> None:
    live = LiveSettings(START)
    events = decode(parts(), [1], START, live)
    first = next(events)
    live.update(alpha1=0.9, alpha2=0.8)
    second = next(events)
    assert {(row.thr1, row.thr2) for row in first.rows if row.region} == {(0.5, 0.3)}
    assert {(row.thr1, row.thr2) for row in second.rows if row.region} == {(0.9, 0.8)}


def test_a_new_gamma_bounds_the_next_block_and_moves_the_default_debt_cap() -> None:
    live = LiveSettings(START)
    events = decode(parts(), [1], START, live)
    assert next(events).cycle.drafted == 4
    live.update(gamma=7)
    assert next(events).cycle.drafted == 7


def test_temperature_zero_during_a_run_makes_the_rest_greedy() -> None:
    settings = Settings(method="sd", temperature=1.0, max_new_tokens=60)
    live = LiveSettings(settings)
    events = decode(parts(), [1], settings, live)
    trace = Trace()
    for _ in range(4):
        trace.add(next(events))
    live.update(temperature=0.0)
    turned = [1, *trace.token_ids]
    for event in events:
        trace.add(event)
    assert trace.token_ids[len(turned) - 1 :] == greedy_text(Q, turned, 61 - len(turned))


def test_a_new_skip_ratio_switches_the_mask_and_drops_the_rows_the_old_one_wrote() -> None:
    """n_s falls to n_q, q' re-feeds the debt with its next forward; the runner would refuse a stale row."""
    settings = START.with_(core_thresholds=(0.0, 0.0), debt_cap=0, final_audit=False)
    runner = TableRunner(Q, SLIM, n_layers=5)
    live = LiveSettings(settings)
    events = decode(scripted_parts(runner, DRAFTER), [1], settings, live)
    old = [next(events) for _ in range(3)][-1].cycle
    assert old.n_q == 0 and old.debt == old.kv_len - 1
    live.update(skip_ratio=0.2)
    event = next(events)
    assert event.cycle.mask_id == "even:1" != old.mask_id
    call = runner.log[-1]
    assert len(call.layers) == 4 and call.first == 0 and call.rows == old.kv_len + 4
    assert any(row.type == "note" and row.key == "mask" for row in event.events)


def test_a_mask_chosen_in_mid_run_is_the_next_cycles_and_ignores_the_skip_ratio_from_then_on() -> None:
    live = LiveSettings(START)
    events = decode(parts(), [1], START, live)
    assert next(events).cycle.mask_id == "even:2"
    live.update(mask="10111")
    assert next(events).cycle.mask_id == "bits:10111"
    live.update(skip_ratio=0.2)
    event = next(events)
    assert event.cycle.mask_id == "bits:10111"
    assert [row.new for row in event.events if row.type == "note"] == [
        "an explicit mask ignores the skip ratio"
    ]
    live.update(mask="even")
    assert next(events).cycle.mask_id == "even:1"


@pytest.mark.parametrize("mask", ["auto", "101", "00000", "none.json"])
def test_a_mask_that_cannot_be_had_in_mid_run_leaves_the_old_one_in_force(mask: str) -> None:
    live = LiveSettings(START)
    events = decode(parts(), [1], START, live)
    next(events)
    live.update(mask=mask)
    event = next(events)
    assert event.cycle.mask_id == "even:2" and event.cycle.committed
    (note,) = (row for row in event.events if row.type == "note")
    assert (note.key, note.old) == ("mask", "even:2") and "mask" in note.new


@pytest.mark.parametrize("slim_kv", ["shared", "own"])
def test_any_sequence_of_turned_knobs_leaves_a_sound_trace(slim_kv: str) -> None:
    """Runs in which every cycle has other knobs; the table runner checks every row any tier reads."""
    for seed in range(6):
        settings = START.with_(slim_kv=slim_kv, seed=seed, max_new_tokens=60)
        live, trace = LiveSettings(settings), Trace()
        trace.run.update(method="via-sd", settings=settings.as_dict(), prompt_tokens=1)
        for index, event in enumerate(decode(parts(), [seed % 6], settings, live)):
            trace.add(event)
            name = tuple(TURNS)[(index + seed) % len(TURNS)]
            live.update(**{name: TURNS[name] if index % 3 else getattr(START, name)})
        assert [problem for problem in check(trace) if "run.json" not in problem] == []
        assert {cycle.param_version for cycle in trace.cycles} == set(range(len(trace.cycles)))


def test_strict_greedy_text_survives_turned_knobs() -> None:
    settings = START.with_(strict=True, temperature=0.0, max_new_tokens=60)
    live, trace = LiveSettings(settings), Trace()
    ratios = (0.2, 0.4, 0.6, 0.0)
    for index, event in enumerate(decode(parts(), [2], settings, live)):
        trace.add(event)
        live.update(skip_ratio=ratios[index % 4], gamma=1 + index % 6, alpha1=(index % 10) / 10)
    assert trace.token_ids == greedy_text(Q, [2], 60)


def test_temperature_stays_refused_under_strict_and_nothing_changes() -> None:
    settings = START.with_(strict=True, temperature=0.0)
    live = LiveSettings(settings)
    with pytest.raises(SettingsError, match="strict needs temperature 0"):
        live.update(temperature=0.5, gamma=2)
    assert live.snapshot() == LiveSettings(settings).snapshot()


def _turn(live: LiveSettings, changes: dict[str, Any]) -> None:
    live.update(**changes)


def test_a_forked_process_turns_the_knobs_of_a_run_here() -> None:
    live = LiveSettings(START, SharedCarrier())
    events = decode(parts(), [1], START, live)
    next(events)
    child = FORK.Process(target=_turn, args=(live, {"gamma": 2, "alpha1": 0.75}))
    child.start()
    child.join(20)
    assert child.exitcode == 0
    row = next(events).cycle
    assert (row.gamma, row.alpha1, row.param_version) == (2, 0.75, 1)


def _decode_on_request(pipe: Connection, live: LiveSettings) -> None:
    """A worker: one cycle a request, its row sent back."""
    for event in decode(parts(), [1], START, live):
        pipe.send(event)
        if not pipe.recv():
            return


def test_knobs_turned_here_reach_a_forked_worker_at_its_next_cycle() -> None:
    live = LiveSettings(START, SharedCarrier())
    ours, theirs = FORK.Pipe()
    child = FORK.Process(target=_decode_on_request, args=(theirs, live))
    child.start()
    assert ours.poll(20)
    first: CycleEvent = ours.recv()
    live.update(**TURNS)
    ours.send(True)
    assert ours.poll(20)
    second: CycleEvent = ours.recv()
    ours.send(False)
    child.join(20)
    assert child.exitcode == 0
    assert first.cycle.param_version == 0 and second.cycle.param_version == 1
    assert values(second.cycle) == TURNS

from __future__ import annotations

from page.runs import Run
from page.session import KEPT_RUNS, Sessions


def ended() -> Run:
    return Run([])


def test_closing_a_tab_stops_its_run_and_forgets_everything() -> None:
    stopped: list[Run] = []
    sessions = Sessions(stopped.append)
    live, replay = Run(), ended()
    sessions.add("tab", replay)
    sessions.add("tab", live, live=True)
    folder = sessions.folder(replay)
    assert folder is not None and folder.is_dir()
    sessions.close("tab")
    assert stopped == [live]
    assert sessions.find(live.id) is None and sessions.find(replay.id) is None and len(sessions) == 0
    assert not folder.exists()


def test_the_buttons_of_one_tab_never_reach_the_run_of_another() -> None:
    sessions = Sessions(lambda run: None)
    mine, theirs = Run(), Run()
    sessions.add("mine", mine, live=True)
    sessions.add("theirs", theirs, live=True)
    assert sessions.live("mine") is mine and sessions.live("theirs") is theirs
    assert sessions.live("nobody") is None and sessions.live(None) is None


def test_an_ended_run_is_no_longer_acted_on() -> None:
    sessions = Sessions(lambda run: None)
    run = Run()
    sessions.add("tab", run, live=True)
    run.close("done", "over")
    assert sessions.live("tab") is None and sessions.find(run.id) is run


def test_memory_stays_bounded_over_many_runs_and_tabs() -> None:
    """Queue and session memory that only grows (gradio 13154, 11602)."""
    sessions = Sessions(lambda run: None, kept=4)
    runs = [ended() for _ in range(50)]
    for number, run in enumerate(runs):
        sessions.add(f"tab {number % 10}", run)
    assert len(sessions) == 4
    assert sum(sessions.find(run.id) is not None for run in runs) <= 4 * KEPT_RUNS
    for _ in range(50):
        sessions.add("tab 9", ended())
    assert sum(sessions.find(run.id) is not None for run in runs) <= 4 * KEPT_RUNS


def test_a_live_run_outlasts_the_cap_on_kept_runs() -> None:
    sessions = Sessions(lambda run: None)
    live = Run()
    sessions.add("tab", live, live=True)
    for _ in range(3 * KEPT_RUNS):
        sessions.add("tab", ended())
    assert sessions.live("tab") is live


def test_run_ids_cannot_be_guessed() -> None:
    ids = {Run().id for _ in range(100)}
    assert len(ids) == 100 and min(map(len, ids)) >= 24

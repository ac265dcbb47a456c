from __future__ import annotations

import resource
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from page.server import Page
from page_driver import Tab
from page_toys import until
from viasd_core.trace_check import check

Served = tuple[Page, str]
OpenTab = Callable[..., Tab]
MORE_MEMORY = 96 * 2**20


def test_a_fresh_tab_opens_on_a_recorded_run(tab: Tab) -> None:
    tab.wait("shown.tokens === 11 && shown.cycles === 4")
    assert tab.report()["counts"] == {"S": 6, "M": 1, "F": 1, "R": 1, "+": 1, "T": 1}
    assert tab.notice == ""


def test_text_on_screen_is_the_text_of_the_trace(tab: Tab, tmp_path: Path) -> None:
    tab.start(40)
    tab.stopped()
    shown = tab.report()
    trace = tab.exported(tmp_path)
    assert shown["state"] == "done" and shown["tokens"] == 40 == len(trace.token_ids)
    assert shown["text"] == trace.text
    assert check(trace) == []


def test_a_slider_moved_in_mid_run_is_applied_in_the_trace(tab: Tab, tmp_path: Path) -> None:
    tab.start()
    tab.number("gamma", 2)
    tab.number("temperature", 0.75)
    tab.wait("shown.text !== null && Object.keys(shown.pending).length === 0")
    cycles = tab.report()["cycles"]
    tab.wait(f"shown.cycles > {cycles + 3}")
    tab.press("stop")
    tab.stopped()
    trace = tab.exported(tmp_path)
    changes = {row.key: row for row in trace.events if row.type == "param_change"}
    assert {"gamma", "temperature"} <= set(changes)
    at = changes["gamma"].cycle
    assert trace.cycles[at - 1].gamma == 5 and trace.cycles[at].gamma == 2
    assert trace.cycles[-1].temperature == 0.75
    assert max(row.drafted for row in trace.cycles[at:]) <= 2


def test_a_slider_moved_while_paused_is_pending_until_the_next_cycle(tab: Tab) -> None:
    tab.start()
    tab.press("pause")
    tab.wait("shown.state === 'paused'")
    tab.number("gamma", 3)
    tab.wait("'gamma' in shown.pending")
    tab.press("step")
    tab.wait("!('gamma' in shown.pending)")
    expect(tab.page.locator(".viasd")).to_contain_text("applied")


def test_a_threshold_moved_to_zero_takes_effect(tab: Tab, tmp_path: Path) -> None:
    """A slider back at 0 fired no change (gradio 12832)."""
    tab.advanced()
    tab.choose("mask", "even")
    tab.number("skip_ratio", 0.4)
    tab.start(method="VIA-SD")
    tab.number("alpha2", 0)
    tab.number("alpha1", 0)
    cycles = tab.report()["cycles"]
    tab.wait(f"shown.cycles > {cycles + 3} && Object.keys(shown.pending).length === 0")
    tab.press("stop")
    tab.stopped()
    last = tab.exported(tmp_path).cycles[-1]
    assert (last.alpha1, last.alpha2) == (0.0, 0.0)


@pytest.mark.slow
def test_arrow_keys_on_a_slider_end_at_the_last_value(tab: Tab, tmp_path: Path) -> None:
    """The last event of a flood was dropped, or every step was queued (gradio 3204, 3443)."""
    tab.start()
    slider = tab.page.locator("#viasd-gamma input[type=range]")
    slider.focus()
    for _ in range(7):
        slider.press("ArrowRight")
    cycles = tab.report()["cycles"]
    tab.wait(f"shown.cycles > {cycles + 2} && Object.keys(shown.pending).length === 0")
    tab.press("stop")
    tab.stopped()
    assert tab.exported(tmp_path).cycles[-1].gamma == 12


def test_pause_stands_still_and_step_makes_one_cycle(tab: Tab) -> None:
    tab.start()
    tab.press("pause")
    tab.wait("shown.state === 'paused'")
    expect(tab.button("pause")).to_have_text("Resume")
    tab.page.wait_for_timeout(300)
    cycles = tab.report()["cycles"]
    for more in (1, 2):
        tab.press("step")
        tab.wait(f"shown.cycles === {cycles + more}")
        tab.page.wait_for_timeout(300)
        assert tab.report()["cycles"] == cycles + more
    tab.press("pause")
    tab.wait(f"shown.cycles > {cycles + 3}")
    expect(tab.button("pause")).to_have_text("Pause")


def test_stop_keeps_the_partial_trace_which_can_be_saved_at_once(tab: Tab, tmp_path: Path) -> None:
    """A download right after a stop was empty or stale (gradio 9190, 7860)."""
    tab.start()
    tab.press("stop")
    tab.stopped()
    shown = tab.report()
    trace = tab.exported(tmp_path)
    assert shown["state"] == "stopped" and trace.run["finish_reason"] == "cancelled"
    assert shown["text"] == trace.text and shown["tokens"] == len(trace.token_ids) > 0
    assert [row.type for row in trace.events] == ["stop"]


def test_a_saved_trace_opens_again_as_a_replay(tab: Tab, tmp_path: Path) -> None:
    tab.start(24)
    tab.stopped()
    text = tab.report()["text"]
    tab.exported(tmp_path)
    tab.page.reload()
    tab.wait("shown.ready && shown.tokens === 11")
    tab.page.locator("input[type=file][aria-label='Trace file']").set_input_files(tmp_path / "saved.zip")
    tab.wait("shown.replay && shown.tokens === 24")
    assert tab.report()["text"] == text


def test_clicking_a_token_pins_it_and_escape_lets_go(tab: Tab) -> None:
    tab.wait("shown.tokens === 11")
    tab.page.locator(".viasd .tokens .t", has_text="ants").first.click()
    tab.wait("shown.cursor.pinned && shown.cursor.cycle === 0")
    expect(tab.page.get_by_label("Inspector", exact=True)).to_contain_text("slim")
    tab.page.keyboard.press("Escape")
    tab.wait("!shown.cursor.pinned")


def test_the_page_can_be_driven_by_keyboard_alone(tab: Tab) -> None:
    """Invisible tab stops swallowed the focus (gradio 13635)."""
    tab.choose("method", "SD (two tiers")
    tab.number("max_new_tokens", 4000)
    tab.page.locator("#viasd-prompt textarea").focus()
    for _ in range(6):
        tab.page.keyboard.press("Tab")
        if tab.page.evaluate("document.activeElement.id") == "viasd-run":
            break
    tab.page.keyboard.press("Enter")
    tab.wait("shown.running && shown.cycles > 0")
    for name in ("pause", "step", "stop"):
        tab.page.keyboard.press("Tab")
        assert tab.page.evaluate("document.activeElement.id") == f"viasd-{name}"
    tab.page.keyboard.press("Enter")
    tab.stopped()


def test_the_page_stays_usable_while_a_run_streams(open_tab: OpenTab) -> None:
    """The interface locked up while a generator ran (gradio 6609)."""
    tab = open_tab(charts=True)
    tab.start()
    tab.advanced()
    expect(tab.page.locator("#viasd-gate")).to_be_visible()
    tab.number("gamma", 1)
    tab.wait("shown.running")
    tab.page.locator(".viasd .tokens .t").first.click()
    tab.wait("shown.cursor.pinned && shown.running")
    tab.press("stop")
    tab.stopped()


def test_what_is_shown_is_complete_when_the_run_has_ended(tab: Tab, site: Served) -> None:
    """The page went on streaming long after the server was done (gradio 6847)."""
    tab.start(200)
    tab.stopped()
    shown = tab.report()
    run = site[0].sessions.find(shown["run"])
    assert run is not None and shown["seq"] == run.total and shown["tokens"] == 200
    assert shown["duplicates"] == 0


def test_a_new_run_can_be_started_after_a_stop_again_and_again(tab: Tab, site: Served) -> None:
    """After a cancel the next run froze until the page was reloaded (gradio 11586)."""
    rounds(tab, site, 4)


def test_run_pressed_during_a_run_ends_it_and_starts_the_next(tab: Tab, site: Served) -> None:
    """By default Gradio drops a press of a button whose last press is still being answered."""
    tab.start()
    earlier = site[0].sessions.find(tab.report()["run"])
    assert earlier is not None and not earlier.ended
    tab.run()
    until(lambda: earlier.ended)
    assert earlier.last_words == "a new run was started in this tab"
    tab.wait("shown.running && shown.cycles > 2")
    tab.press("stop")
    tab.stopped()
    shown = tab.report()
    later = site[0].sessions.find(shown["run"])
    assert later is not None and later is not earlier
    assert shown["text"] == later.trace.text


def rounds(tab: Tab, site: Served, count: int) -> None:
    tab.start()
    tab.press("stop")
    tab.stopped()
    before, memory = footprint(site), resident()
    for _ in range(count):
        tab.run()
        tab.press("stop")
        tab.stopped()
        assert tab.report()["cycles"] > 0
    until(lambda: site[0].engine.idle)
    until(lambda: footprint(site) <= before)
    assert resident() - memory < MORE_MEMORY


def resident() -> int:
    """Bytes of memory this process, the server, holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def footprint(site: Served) -> tuple[int, int, int]:
    """Threads, and what Gradio keeps of events."""
    demo = site[0].demo
    ours = sum(thread.name.startswith(("engine", "load")) for thread in threading.enumerate())
    return ours, len(demo.app.iterators), sum(map(len, demo._queue.pending_event_ids_session.values()))


@pytest.mark.slow
def test_three_tabs_of_one_browser_all_work(open_tab: Callable[..., Tab]) -> None:
    """With about five tabs the app stalls without an error (gradio 8346); three must work."""
    first = open_tab()
    others = [Tab(first.page.context.new_page(), first.address) for _ in range(2)]
    for tab in (first, *others):
        tab.start(16)
        tab.stopped()
        assert tab.report()["tokens"] == 16
    assert not any(tab.problems for tab in others)


@pytest.mark.slow
def test_a_new_run_can_be_started_after_a_stop_fifty_times(tab: Tab, site: Served) -> None:
    rounds(tab, site, 50)

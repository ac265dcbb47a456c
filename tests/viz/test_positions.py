"""Acceptance by draft position as the browser shows it, and the drafter's self-check."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import sample_traces
from viasd_core.paths import PRESETS
from viasd_core.trace import CycleEvent, Trace
from viasd_core.trace_positions import acceptance_by_position
from viz import wire

RECORDED = sorted((PRESETS / "traces").glob("*.zip"))
MAKERS = [sample_traces.via_sd_trace, sample_traces.strict_trace, sample_traces.tree_trace]
HOSTILE = {
    "image": "<img src=x onerror=window.__hit=1>",
    "script": "</script><script>window.__hit=1</script>",
    "template": "${window.__hit=1} {{constructor.constructor('window.__hit=1')()}} `+(window.__hit=1)+`",
    "direction override": "abc\u202edcba\u2066x",
    "control": "a\x00b\x1b[31mred",
    "lone surrogate": "a\ud800b",
    "long": "x" * 10_000,
}
AGREEMENT = {"agreement": 0.8125, "positions": 128, "warning": None}


def lines(counts: list[dict[str, int]]) -> list[list[str]]:
    """The rows of the table as a reader sees them."""
    total = {key: sum(row[key] for row in counts) for key in ("examined", "accepted")}
    return [_line(str(row["position"]), row) for row in counts] + [_line("all", total)]


def _line(name: str, count: dict[str, int]) -> list[str]:
    accepted, examined = count["accepted"], count["examined"]
    if not examined:
        return [name, "\u2013", "none"]
    return [name, f"{100 * accepted / examined:.0f} %", f"{accepted} of {examined}"]


def shown(page: Page) -> list[list[str]]:
    found: list[list[str]] = page.evaluate(
        """[...document.querySelectorAll(".positions tbody tr, .positions tfoot tr")]
           .map((row) => [...row.children].map((cell) => cell.textContent))"""
    )
    return found


def until_shown(page: Page, expected: list[list[str]]) -> None:
    """Running figures are redrawn a few times a second."""
    expect(page.locator(".positions tfoot td").last).to_have_text(expected[-1][-1])
    expect(page.locator(".positions tbody tr")).to_have_count(len(expected) - 1)
    assert shown(page) == expected


def up_to(trace: Trace, cycle: int) -> Trace:
    return Trace(tokens=[row for row in trace.tokens if row.cycle <= cycle])


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_browser_counts_a_recorded_run_as_the_trace_does(
    page: Page, show: Callable[..., None], path: Path
) -> None:
    trace = Trace.load(path)
    show(page, trace)
    until_shown(page, lines(acceptance_by_position(trace)))


@pytest.mark.parametrize("make", MAKERS)
def test_a_live_run_is_counted_as_it_grows(page: Page, make: Callable[[], Trace]) -> None:
    messages = wire.trace_messages(make())
    page.evaluate("value => push(value)", wire.batch("r", 1, messages[:2]))
    until_shown(page, lines(acceptance_by_position(up_to(make(), 0))))
    page.evaluate("value => push(value)", wire.batch("r", 3, messages[2:-1]))
    until_shown(page, lines(acceptance_by_position(make())))


def test_scrubbing_counts_up_to_the_cycle(via_sd: Page) -> None:
    trace = sample_traces.via_sd_trace()
    via_sd.locator("canvas.strip").focus()
    via_sd.keyboard.press("Home")
    until_shown(via_sd, lines(acceptance_by_position(up_to(trace, 0))))
    via_sd.keyboard.press("ArrowRight")
    until_shown(via_sd, lines(acceptance_by_position(up_to(trace, 1))))
    via_sd.keyboard.press("End")
    until_shown(via_sd, lines(acceptance_by_position(trace)))


def test_before_it_was_taken_back_a_draft_counts_as_accepted(page: Page) -> None:
    rows = tuple(sample_traces.draft(0, slot, "abc"[slot], "accepted_slim", "A", slot) for slot in range(3))
    events = [
        CycleEvent(sample_traces.cycle_row(0, 3, 3, 7, region_a=3), rows),
        CycleEvent(
            sample_traces.cycle_row(1, 0, -1, 6, retracted=2),
            (sample_traces.drawn(1, 0, "B", "target", 1),),
            retracted=(2, 1),
            finish="length",
        ),
    ]
    messages = [wire.start_event({"method": "via-sd"}), *map(wire.encode_event, events), wire.end_event({})]
    page.evaluate("value => push(value)", wire.batch("r", 1, messages))
    until_shown(
        page,
        [["1", "100 %", "1 of 1"], ["2", "0 %", "0 of 1"], ["3", "0 %", "0 of 1"], ["all", "33 %", "1 of 3"]],
    )
    page.locator("canvas.strip").focus()
    page.keyboard.press("Home")
    until_shown(
        page,
        [
            ["1", "100 %", "1 of 1"],
            ["2", "100 %", "1 of 1"],
            ["3", "100 %", "1 of 1"],
            ["all", "100 %", "3 of 3"],
        ],
    )


def test_bars_have_the_length_of_their_share(
    open_page: Callable[..., Page], show: Callable[..., None]
) -> None:
    page = open_page(reduced_motion="reduce")
    show(page, sample_traces.via_sd_trace())
    until_shown(page, lines(acceptance_by_position(sample_traces.via_sd_trace())))
    share = """row => row.querySelector(".position-level").getBoundingClientRect().width
                      / row.querySelector(".position-track").getBoundingClientRect().width"""
    rows = page.locator(".positions tbody tr").all()
    assert [row.evaluate(share) for row in rows] == pytest.approx([1, 1, 1 / 3, 0], abs=0.02)


def test_the_bars_are_a_table_with_names_for_screen_readers(via_sd: Page) -> None:
    table = via_sd.get_by_role("table", name="Acceptance by draft position")
    expect(table.get_by_role("columnheader")).to_have_text(
        ["#position in the draft", "share accepted", "accepted of n"]
    )
    expect(table.get_by_role("rowheader")).to_have_text(["1", "2", "3", "4", "all"])
    region = via_sd.get_by_role("region", name="Acceptance by draft position")
    region.focus()
    assert region.evaluate("node => node === document.activeElement")


def test_a_readers_place_in_the_table_outlasts_a_running_decode(page: Page) -> None:
    messages = wire.trace_messages(sample_traces.via_sd_trace())
    page.evaluate("value => push(value)", wire.batch("r", 1, messages[:2]))
    expect(page.locator(".positions tbody tr")).to_have_count(3)
    page.evaluate("window.kept = [...document.querySelectorAll('.positions tbody tr')]")
    page.evaluate("value => push(value)", wire.batch("r", 3, messages[2:-1]))
    expect(page.locator(".positions tbody tr")).to_have_count(4)
    assert page.evaluate("window.kept.every((row) => row.isConnected)")


def test_without_drafts_there_is_a_sentence_and_no_table(page: Page, show: Callable[..., None]) -> None:
    expect(page.locator(".positions-block")).to_contain_text("No draft has been examined yet.")
    expect(page.locator(".positions")).to_be_hidden()
    trace = Trace()
    row = sample_traces.cycle_row(0, 0, 1, 5, full_forwards=1)
    trace.add(CycleEvent(row, (sample_traces.drawn(0, 0, "x", "target", 0),), finish="length"))
    show(page, sample_traces.finish_run(trace, "ar", {}))
    expect(page.locator(".positions-block")).to_contain_text("Plain decoding: nothing is drafted.")


def long_trace(gamma: int) -> Trace:
    """One cycle of the longest draft there is, kept but for its end."""
    trace = Trace()
    rows = tuple(
        sample_traces.draft(0, slot, "x", "accepted_slim", "A", slot)
        if slot < gamma - 1
        else sample_traces.draft(0, slot, "x", "rejected", "B", None)
        for slot in range(gamma)
    )
    last = sample_traces.drawn(0, gamma - 1, "y", "regenerated_slim", gamma - 1)
    counts = {"region_a": gamma - 1, "region_b": 1, "gamma": gamma}
    cycle = sample_traces.cycle_row(0, gamma, gamma, 4 + gamma, **counts)
    trace.add(CycleEvent(cycle, (*rows, last), finish="length"))
    return sample_traces.finish_run(trace, "via-sd", {})


def test_the_longest_draft_fits_a_phone(open_page: Callable[..., Page], show: Callable[..., None]) -> None:
    page = open_page(width=390, height=844)
    show(page, long_trace(64))
    until_shown(page, lines(acceptance_by_position(long_trace(64))))
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    cut = page.evaluate(
        """[...document.querySelectorAll(".positions th, .positions td")]
           .filter((cell) => !cell.querySelector(".sr") && cell.scrollWidth > cell.clientWidth + 1).length"""
    )
    assert cut == 0


def test_a_position_out_of_reach_does_not_stall_the_page(page: Page) -> None:
    trace = sample_traces.via_sd_trace()
    message = wire.trace_messages(trace)[:2]
    message[1]["rows"][0]["slot"] = 10**12
    page.evaluate("value => push(value)", wire.batch("r", 1, message))
    expect(page.locator(".positions tfoot td").last).to_have_text("1 of 2")


def checked(check: Any) -> Trace:
    trace = sample_traces.via_sd_trace()
    trace.run["drafter_check"] = check
    return trace


def test_agreement_is_a_quiet_fact_of_the_run(page: Page, show: Callable[..., None]) -> None:
    show(page, checked(AGREEMENT))
    expect(page.locator(".status .drafter-agreement")).to_have_text("drafter agreement 81 % of 128 positions")
    expect(page.locator(".drafter-warning")).to_be_empty()


def test_a_drafter_near_chance_is_a_visible_notice_from_the_start_of_a_live_run(page: Page) -> None:
    warning = (
        "the drafter agrees with the verifier at 2 of 128 positions; was it trained for another verifier?"
    )
    trace = checked({"agreement": 2 / 128, "positions": 128, "warning": warning})
    messages = wire.trace_messages(trace)
    page.evaluate("value => push(value)", wire.batch("r", 1, messages[:1]))
    notice = page.get_by_role("status").filter(has_text=warning)
    expect(notice).to_be_visible()
    page.evaluate("value => push(value)", wire.batch("r", 2, messages[1:]))
    expect(notice).to_be_in_viewport()
    page.evaluate("value => push(value)", wire.batch("next", 1, wire.trace_messages(checked(AGREEMENT))))
    expect(page.locator(".drafter-warning")).to_be_empty()


def test_the_notice_takes_no_room_while_it_is_empty(page: Page, show: Callable[..., None]) -> None:
    show(page, sample_traces.via_sd_trace())
    top = page.locator(".tiles").bounding_box()
    head = page.locator(".head").bounding_box()
    assert top is not None and head is not None
    assert top["y"] - (head["y"] + head["height"]) == pytest.approx(12, abs=1)


def test_a_saved_run_keeps_its_check(page: Page, show: Callable[..., None]) -> None:
    show(page, checked(AGREEMENT))
    assert '"agreement": 0.8125' in page.evaluate("__viasd.exportFiles()")["run.json"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_warning_is_inert(page: Page, show: Callable[..., None], name: str) -> None:
    show(page, checked({"agreement": 0.5, "positions": 8, "warning": HOSTILE[name]}))
    expect(page.locator(".drafter-warning")).not_to_be_empty()
    assert page.evaluate("window.__hit") is None
    expect(page.locator(".drafter-warning *")).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize(
    "check",
    [
        None,
        "80 %",
        7,
        [0.5],
        {},
        {"agreement": "0.5", "warning": ["x"], "positions": 3},
        {"agreement": 1.5, "warning": {"toString": "x"}},
        {"agreement": float("nan"), "warning": 1, "positions": -1},
        {"agreement": True, "warning": "  "},
    ],
)
def test_a_check_that_is_none_shows_nothing(page: Page, show: Callable[..., None], check: Any) -> None:
    show(page, checked(check))
    expect(page.locator(".drafter-agreement")).to_be_empty()
    expect(page.locator(".drafter-warning")).to_be_empty()

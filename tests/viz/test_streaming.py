"""A run as it arrives: batches, duplicates, gaps, retractions, and what follows the newest text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import sample_traces
import toys
from viasd_core.recording import encode_prompt, record
from viasd_core.settings import Settings
from viasd_core.trace import CycleEvent, EventRow, Trace
from viewer_site import Site
from viz import wire

PROMPT = "the man and the on"


@pytest.fixture(scope="module")
def strict_run() -> tuple[list[CycleEvent], Trace]:
    """A real strict run of a toy pair: what slim keeps too easily is taken back later."""
    pair = toys.toy_pair()
    settings = Settings(
        method="via-sd",
        max_new_tokens=60,
        strict=True,
        skip_ratio=0.4,
        mask="even",
        alpha1=0.2,
        alpha2=0.05,
        gamma=4,
    )
    events: list[CycleEvent] = []
    ids = encode_prompt(pair, PROMPT, raw=True)
    trace = record(pair, PROMPT, settings, prompt_ids=ids, on_event=events.append)
    assert any(event.retracted for event in events)
    return events, trace


def messages_of(run: tuple[list[CycleEvent], Trace]) -> list[dict[str, Any]]:
    events, trace = run
    opening = {key: trace.run[key] for key in ("run_id", "method", "prompt", "settings")}
    status = wire.status_event("running")
    return [status, wire.start_event(opening), *map(wire.encode_event, events), wire.end_event(trace.run)]


def push(page: Page, batch: dict[str, Any]) -> None:
    page.evaluate("value => push(value)", batch)


def state(page: Page) -> dict[str, Any]:
    names = [
        "run",
        "live",
        "seq",
        "running",
        "state",
        "tokens",
        "cycles",
        "counts",
        "text",
        "duplicates",
        "gaps",
        "error",
    ]
    return dict(
        page.evaluate("names => Object.fromEntries(names.map((name) => [name, __viasd[name]]))", names)
    )


def shown_text(page: Page) -> str:
    """The text as the reader sees it."""
    return str(page.locator(".tokens").evaluate("node => node.innerText"))


def test_a_streamed_run_ends_up_as_the_engine_recorded_it(
    page: Page, strict_run: tuple[list[CycleEvent], Trace]
) -> None:
    trace = strict_run[1]
    for number, message in enumerate(messages_of(strict_run), start=1):
        push(page, wire.batch("r", number, [message]))
    found = state(page)
    assert found["text"] == trace.text
    assert found["tokens"] == len(trace.token_ids)
    verdicts = {
        "S": "accepted_slim",
        "M": "regenerated_slim",
        "F": "accepted_full",
        "R": "rewritten_full",
        "T": "target",
    }
    counts = trace.summary()["counts"]
    assert {code: found["counts"][code] for code in verdicts} == {
        code: counts[verdict] for code, verdict in verdicts.items()
    }
    assert (found["gaps"], found["duplicates"], found["running"], found["live"]) == (0, 0, False, False)
    taken_back = sum(row.verdict == "retracted" for row in trace.tokens)
    expect(page.locator(".tokens .t.retracted")).to_have_count(taken_back)
    expect(page.locator(".tier-chips")).to_contain_text(f"taken back {taken_back}")


def test_a_run_says_that_it_runs_until_it_ends(
    page: Page, strict_run: tuple[list[CycleEvent], Trace]
) -> None:
    messages = messages_of(strict_run)
    push(page, wire.batch("r", 1, messages[:5]))
    assert state(page)["running"] is True
    expect(page.locator(".pill")).to_have_text("Running")
    push(page, wire.batch("r", 6, messages[5:]))
    assert state(page)["running"] is False
    expect(page.locator(".pill")).to_have_text("Done")


def test_the_same_batch_twice_counts_once(page: Page) -> None:
    messages = wire.trace_messages(sample_traces.via_sd_trace())
    for _ in range(3):
        push(page, wire.batch("r", 1, messages))
    found = state(page)
    assert (found["tokens"], found["duplicates"], found["seq"]) == (11, 2, len(messages))


def test_an_overlapping_batch_adds_only_what_is_new(page: Page) -> None:
    messages = wire.trace_messages(sample_traces.via_sd_trace())
    push(page, wire.batch("r", 1, messages[:4]))
    push(page, wire.batch("r", 2, messages[1:]))
    assert (state(page)["tokens"], state(page)["cycles"]) == (11, 4)


def test_a_gap_is_fetched_and_later_batches_wait_for_it(page: Page, site: Site) -> None:
    messages = wire.trace_messages(sample_traces.via_sd_trace())
    site.logs["r"] = messages
    push(page, wire.batch("r", 1, messages[:2]))
    page.evaluate(
        "batches => batches.forEach((batch) => push(batch))",
        [wire.batch("r", 4, messages[3:4]), wire.batch("r", 5, messages[4:])],
    )
    page.wait_for_function("__viasd.tokens === 11")
    assert site.asked == [{"run": "r", "last": 2}]
    found = state(page)
    assert (found["cycles"], found["gaps"], found["seq"], found["error"]) == (4, 1, len(messages), "")


def test_a_long_recording_is_fetched_page_by_page(page: Page, site: Site) -> None:
    site.limit = 2
    push(page, site.keep("r", sample_traces.via_sd_trace()))
    page.wait_for_function("__viasd.tokens === 11")
    assert [asked["last"] for asked in site.asked] == [0, 2, 4]


def test_a_run_that_the_server_forgot_says_so_in_place(page: Page) -> None:
    push(page, wire.opening("forgotten", 40))
    expect(page.locator(".error")).to_have_text("this run is no longer kept")


def test_an_empty_batch_and_a_value_of_no_use_change_nothing(page: Page) -> None:
    messages = wire.trace_messages(sample_traces.via_sd_trace())
    push(page, wire.batch("r", 1, messages))
    for value in (
        wire.batch("r", 7, []),
        None,
        "",
        {"run": "r"},
        {"run": 3, "from": 1, "seq": 1, "events": []},
    ):
        page.evaluate("value => push(value)", value)
    found = state(page)
    assert (found["tokens"], found["run"], found["duplicates"], found["gaps"]) == (11, "r", 0, 0)


def test_a_new_run_replaces_the_old_one(page: Page) -> None:
    push(page, wire.batch("one", 1, wire.trace_messages(sample_traces.via_sd_trace())))
    push(page, wire.batch("two", 1, [wire.status_event("queued", position=2)]))
    expect(page.locator(".status-words")).to_have_text("2 before you")
    assert (state(page)["run"], state(page)["tokens"]) == ("two", 0)
    expect(page.locator(".tokens .t")).to_have_count(0)


def test_late_batches_of_another_run_do_not_take_the_view_over(page: Page) -> None:
    messages = wire.trace_messages(sample_traces.via_sd_trace())
    push(page, wire.batch("one", 1, messages[:3]))
    push(page, wire.batch("two", 1, messages[:2]))
    push(page, wire.batch("one", 4, messages[3:]))
    assert state(page)["run"] == "two"
    push(page, wire.opening("one", len(messages), show=True))
    assert (state(page)["run"], state(page)["tokens"]) == ("one", 11)


def test_a_failed_run_says_why_and_keeps_what_it_made(page: Page) -> None:
    trace = sample_traces.via_sd_trace()
    messages = wire.trace_messages(trace)[:3]
    ending = [
        wire.status_event("error", "the device ran out of memory"),
        wire.end_event({**trace.run, "complete": False}),
    ]
    push(page, wire.batch("r", 1, [*messages, *ending]))
    expect(page.locator(".pill")).to_have_text("Failed")
    expect(page.locator(".status-words")).to_have_text("the device ran out of memory")
    assert state(page)["tokens"] == 6


def test_a_run_that_fails_before_its_first_token_is_not_blank(page: Page) -> None:
    push(
        page, wire.batch("r", 1, [wire.status_event("error", "the weights are missing"), wire.end_event({})])
    )
    expect(page.locator(".text-scroll .empty")).to_have_text("the weights are missing")


def test_a_moved_knob_is_pending_and_then_applied(page: Page) -> None:
    messages = wire.trace_messages(sample_traces.via_sd_trace())[:2]
    push(page, wire.batch("r", 1, [*messages, wire.status_event("running", pending={"alpha1": 0.3})]))
    expect(page.locator(".pending-knob")).to_have_text("α₁ 0.3 pending")
    change = EventRow(10, 1, "param_change", "alpha1", "0.5", "0.3")
    event = CycleEvent(sample_traces.cycle_row(1, 0, 0, 7, full_forwards=1), events=(change,))
    push(page, wire.batch("r", 4, [wire.encode_event(event)]))
    expect(page.locator(".pending-knob")).to_have_count(0)
    expect(page.locator(".strip-note")).to_contain_text("α₁ 0.5 → 0.3 applied @cycle 1")


def long_cycles(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [
        wire.encode_event(
            CycleEvent(
                sample_traces.cycle_row(number, 4, 4, 4 * number + 8, region_a=4),
                tuple(
                    sample_traces.draft(
                        number, slot, f" word{number}", "accepted_slim", "A", 4 * number + slot
                    )
                    for slot in range(4)
                ),
            )
        )
        for number in range(first, first + count)
    ]


AT_END = "box => box.scrollTop + box.clientHeight >= box.scrollHeight - 40"


def at_end(page: Page) -> bool:
    return bool(page.locator(".text-scroll").evaluate(AT_END))


def test_follow_keeps_the_newest_text_in_view_until_the_reader_scrolls_up(page: Page) -> None:
    push(page, wire.batch("r", 1, [wire.start_event({"method": "via-sd"}), *long_cycles(200)]))
    page.wait_for_function("__viasd.painted === 800")
    assert at_end(page)
    page.locator(".text-scroll").hover()
    page.mouse.wheel(0, -600)
    expect(page.locator(".jump")).to_be_visible()
    push(page, wire.batch("r", 202, long_cycles(30, 200)))
    expect(page.locator(".jump")).to_have_text("Jump to live (+120)")
    assert not at_end(page)
    page.locator(".jump").click()
    expect(page.locator(".jump")).to_be_hidden()
    page.wait_for_function(f"({AT_END})(document.querySelector('.text-scroll'))")


def test_screen_readers_hear_at_most_one_message_in_five_seconds(page: Page) -> None:
    page.evaluate(
        """() => { window.heard = []; const node = document.querySelector('.status [role=status]');
        new MutationObserver(() => heard.push(node.textContent)).observe(node, {childList: true}); }"""
    )
    for number in range(1, 21):
        push(page, wire.batch("r", number, [wire.status_event("loading", f"step {number}")]))
    page.wait_for_timeout(300)
    assert page.evaluate("heard.length") <= 1


def test_delay_from_cycle_to_paint_is_kept_for_measuring(page: Page) -> None:
    page.evaluate(
        "messages => push({run: 'r', from: 1, seq: messages.length, events: messages, t: Date.now() / 1000})",
        wire.trace_messages(sample_traces.via_sd_trace()),
    )
    page.wait_for_function("__viasd.latencies.length === 1")
    assert page.evaluate("__viasd.lastPaint > 0 && __viasd.latencies[0] > 0")


def test_shown_text_equals_decoded_text(page: Page, show: Callable[..., None]) -> None:
    trace = sample_traces.via_sd_trace()
    show(page, trace)
    assert shown_text(page).replace("⏎", "") == trace.text

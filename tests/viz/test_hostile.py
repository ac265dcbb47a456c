"""Text that wants to be more than text stays text, wherever the viewer shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from hostile_texts import CORPUS
from sample_traces import cycle_row, draft, drawn, finish_run
from viasd_core.trace import CycleEvent, EventRow, Trace


def hostile_trace(text: str) -> Trace:
    """The text as token, ghost, reason, mask name, knob, event and in every place of run.json."""
    data = text.encode("utf-8", "surrogatepass")
    rows = (
        draft(0, 0, "ok", "accepted_slim", "A", 0),
        replace(draft(0, 1, "x", "rejected", "B", None), text=text, data=data),
        replace(drawn(0, 1, "x", "regenerated_slim", 1), text=text, data=data),
    )
    events = (
        EventRow(1, 0, "param_change", text, text, text),
        EventRow(1, 0, "param_change", "alpha1", text, text),
        EventRow(2, 0, "note", text, text, text),
    )
    trace = Trace()
    cycle = cycle_row(0, 2, 2, 6, region_a=1, region_b=1, reason=text, mask_id=text)
    trace.add(CycleEvent(cycle, rows, events=events))
    trace.add(
        CycleEvent(cycle_row(1, 0, 1, 7, full_forwards=1), (drawn(1, 0, " end", "target", 2),), finish="eos")
    )
    run = finish_run(trace, "via-sd", {}).run
    run.update(prompt=text, preset=text, mask_id=text, models={text: text}, hardware={"gpu": text})
    return trace


@pytest.mark.parametrize("name", CORPUS)
def test_hostile_text_is_inert_in_every_view(
    open_page: Callable[..., Page], show: Callable[..., None], name: str
) -> None:
    page = open_page()
    before = page.evaluate(
        "document.querySelectorAll('.viasd img, script, .viasd a, .viasd iframe, .viasd style').length"
    )
    show(page, hostile_trace(CORPUS[name]))
    page.get_by_role("button", name="Rejected drafts").click()
    page.locator(".tokens .t.M").hover()
    expect(page.locator(".card")).to_be_visible()
    page.locator(".tokens .t.M").click()
    expect(page.locator(".inspector.pinned")).to_be_visible()
    page.locator("canvas.strip").hover()
    page.wait_for_timeout(50)
    assert page.evaluate("window.__hit") is None
    after = page.evaluate(
        "document.querySelectorAll('.viasd img, script, .viasd a, .viasd iframe, .viasd style').length"
    )
    assert after == before
    assert page.evaluate("Object.prototype.polluted === undefined && __viasd.error === ''")


def test_markup_is_read_as_its_characters(page: Page, show: Callable[..., None]) -> None:
    show(page, hostile_trace(CORPUS["image"]))
    expect(page.locator(".tokens .t.M")).to_have_text(CORPUS["image"])
    expect(page.locator(".prompt")).to_have_text(CORPUS["image"])


def test_characters_that_would_rearrange_or_vanish_are_made_visible(
    page: Page, show: Callable[..., None]
) -> None:
    show(page, hostile_trace(CORPUS["direction override"]))
    expect(page.locator(".tokens .t.M")).to_have_text("abc\u2039U+202E\u203adcba\u2039U+2066\u203ax")
    show(page, hostile_trace(CORPUS["null"]), "run-2")
    expect(page.locator(".tokens .t.M")).to_have_text("a␀b")
    show(page, hostile_trace(CORPUS["lone surrogate"]), "run-3")
    expect(page.locator(".tokens .t.M")).to_have_text("a\ufffdb")


def test_a_token_of_ten_thousand_characters_does_not_fill_the_page(
    page: Page, show: Callable[..., None]
) -> None:
    show(page, hostile_trace(CORPUS["long"]))
    expect(page.locator(".tokens .t.M")).to_contain_text("… (10000 characters)")
    assert len(page.evaluate("__viasd.text")) == 10_006
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize("name", ["plotly", "image", "entity"])
def test_hostile_knob_values_are_inert_in_the_charts(
    open_page: Callable[..., Page], show: Callable[..., None], name: str
) -> None:
    page = open_page(query="?charts")
    show(page, hostile_trace(CORPUS[name]))
    page.locator(".charts").scroll_into_view_if_needed()
    page.wait_for_selector(".charts .annotation-text")
    notes = page.locator(".charts .annotation-text")
    assert any(CORPUS[name][:20] in (text or "") for text in notes.all_text_contents())
    expect(page.locator(".charts a, .charts b, .charts img")).to_have_count(0)
    assert page.evaluate("window.__hit") is None

"""The run as a whole: replay, numbers that must hold, empty states, phone, theme, charts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

import sample_traces
from viasd_core.trace import DEFINITIONS, CycleEvent, Trace
from viewer_site import cursor, token
from viz import wire


def test_scrubbing_shows_the_text_up_to_the_cycle_and_its_numbers(via_sd: Page) -> None:
    strip = via_sd.locator("canvas.strip")
    strip.focus()
    via_sd.keyboard.press("Home")
    expect(via_sd.locator(".tokens")).to_have_text("Plants eat", use_inner_text=True)
    expect(via_sd.locator(".where")).to_have_text("cycle 1 of 4 · 3 tokens")
    expect(via_sd.locator(".tile").nth(1)).to_contain_text("3.00")
    expect(via_sd.locator(".chip.tier").nth(0)).to_contain_text("2 · 67 %")
    via_sd.keyboard.press("ArrowRight")
    expect(via_sd.locator(".cycle-panel h3")).to_have_text("Cycle 1")
    expect(strip).to_have_attribute(
        "aria-valuetext", "Cycle 1: 3 tokens (1 slim, 1 full, 1 rewritten) · α₁ 0.5 → 0.5 applied"
    )
    via_sd.keyboard.press("End")
    expect(via_sd.locator(".where")).to_have_text("cycle 4 of 4 · 11 tokens")


def test_dragging_over_the_strip_moves_the_head(via_sd: Page) -> None:
    box = via_sd.locator("canvas.strip").bounding_box()
    assert box is not None
    via_sd.mouse.move(box["x"] + 150, box["y"] + 30)
    via_sd.mouse.down()
    via_sd.mouse.move(box["x"] + 60, box["y"] + 30)
    via_sd.mouse.up()
    assert via_sd.evaluate("__viasd.head") == 1


def test_a_replay_plays_to_its_end_by_itself(via_sd: Page) -> None:
    via_sd.locator(".speed").select_option("8")
    via_sd.evaluate(
        "window.heads = []; window.addEventListener('viasd:cursor', () => heads.push(__viasd.head))"
    )
    via_sd.get_by_role("button", name="Play the recording").click()
    via_sd.wait_for_function("__viasd.head === 3 && window.heads.length >= 1")
    expect(via_sd.get_by_role("button", name="Play the recording")).to_be_visible()
    expect(via_sd.locator(".tokens")).to_contain_text("NA =1+1 so", use_inner_text=True)


def test_a_token_that_was_taken_back_stands_again_before_that_cycle(
    page: Page, show: Callable[..., None]
) -> None:
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
    page.wait_for_function("__viasd.painted === 4")
    expect(page.locator(".tokens .t.retracted")).to_have_count(2)
    page.locator("canvas.strip").focus()
    page.keyboard.press("Home")
    expect(page.locator(".tokens .t.S:visible")).to_have_count(3)
    expect(page.locator(".tokens .t.retracted")).to_have_count(0)


def test_numbers_carry_their_definition(via_sd: Page) -> None:
    tiles = via_sd.locator(".tile")
    assert tiles.nth(2).get_attribute("title") == DEFINITIONS["rejection_rate"]
    expect(tiles.nth(2)).to_contain_text("22.2 %")
    expect(tiles.nth(3)).to_contain_text("50.0 %")
    expect(tiles.nth(4)).to_contain_text("75.0 %")
    expect(via_sd.locator(".numbers")).to_contain_text("region A, kept by slim: 67 %")
    expect(via_sd.locator(".checks")).to_contain_text("Self-check: tiers sum to 11 = 11 tokens")


def test_a_trace_that_contradicts_itself_is_not_trusted(page: Page, show: Callable[..., None]) -> None:
    trace = sample_traces.via_sd_trace()
    trace.tokens.pop(1)
    show(page, trace)
    expect(page.locator(".checks.bad")).to_contain_text("Do not trust the colours of this run.")


def test_nothing_accepted_by_slim_says_why(page: Page, show: Callable[..., None]) -> None:
    trace = Trace()
    row = sample_traces.draft(0, 0, "x", "rejected", "C", None)
    drawn = sample_traces.drawn(0, 0, "y", "rewritten_full", 0)
    trace.add(
        CycleEvent(
            sample_traces.cycle_row(0, 1, 1, 5, region_c_rejected=1, full_forwards=1),
            (row, drawn),
            finish="length",
        )
    )
    show(page, sample_traces.finish_run(trace, "via-sd", {}))
    expect(page.locator(".warning")).to_contain_text("its best ratio was 0.10, below α₂ = 0.3")


def test_an_empty_viewer_says_what_to_do(page: Page) -> None:
    expect(page.locator(".text-scroll .empty")).to_have_text(
        "Nothing has run yet: press Run, choose a recorded run, or open a trace file."
    )
    expect(page.locator(".pill")).to_have_text("Ready")


def test_a_phone_gets_a_sheet_tabs_and_a_scrubber_that_stays(
    open_page: Callable[..., Page], show: Callable[..., None]
) -> None:
    page = open_page(width=390, height=844)
    show(page, sample_traces.via_sd_trace())
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    expect(page.locator(".inspector")).to_be_hidden()
    token(page, 5).click()
    sheet = page.locator(".detail").bounding_box()
    assert sheet is not None
    assert sheet["y"] + sheet["height"] == pytest.approx(844, abs=1)
    assert sheet["height"] <= 844 * 0.56
    # The token is brought above the sheet in the frame after.
    page.wait_for_function(
        "(node) => node.getBoundingClientRect().top"
        " < document.querySelector('.detail').getBoundingClientRect().top",
        arg=token(page, 5).element_handle(),
    )
    page.get_by_role("button", name="Unpin").click()
    expect(page.locator(".detail")).to_be_hidden()
    expect(page.locator(".charts")).to_be_hidden()
    page.get_by_role("tab", name="Charts").click()
    expect(page.locator(".charts")).to_be_visible()
    expect(page.locator(".numbers")).to_be_hidden()
    page.locator(".charts").scroll_into_view_if_needed()
    top = page.locator(".scrub").bounding_box()
    assert top is not None
    assert top["y"] >= 0


@pytest.mark.parametrize("dark", [False, True])
def test_the_viewer_follows_the_theme_of_the_page(page: Page, show: Callable[..., None], dark: bool) -> None:
    show(page, sample_traces.via_sd_trace())
    page.evaluate("dark => document.body.classList.toggle('dark', dark)", dark)
    page.wait_for_function(
        f"document.querySelector('.viasd').classList.contains('night') === {str(dark).lower()}"
    )
    ink = page.locator(".viasd").evaluate("node => getComputedStyle(node).color")
    assert ink == ("rgb(229, 231, 235)" if dark else "rgb(31, 41, 55)")


def test_without_a_page_theme_the_system_decides(open_page: Callable[..., Page]) -> None:
    page = open_page(color_scheme="dark")
    page.wait_for_function("document.querySelector('.viasd').classList.contains('night')")


def test_charts_draw_with_the_served_library_and_a_click_moves_the_cursor(
    open_page: Callable[..., Page], show: Callable[..., None]
) -> None:
    page = open_page(query="?charts")
    show(page, sample_traces.via_sd_trace())
    page.locator(".charts").scroll_into_view_if_needed()
    page.wait_for_selector(".charts .trace.bars .point")
    boxes = [node.bounding_box() for node in page.locator(".charts .chart").all()]
    assert all(box and box["height"] > 200 for box in boxes)
    place = page.locator(".charts .trace.bars").first.locator(".point").nth(1).bounding_box()
    assert place is not None
    page.mouse.click(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    page.wait_for_function("__viasd.cursor.pinned")
    assert cursor(page)["cycle"] == 1
    expect(page.locator(".charts .shapelayer path")).to_have_count(4)


def test_charts_that_cannot_be_loaded_say_so(via_sd: Page) -> None:
    via_sd.locator(".charts").scroll_into_view_if_needed()
    expect(via_sd.locator(".charts .empty")).to_contain_text("Charts need the chart library")

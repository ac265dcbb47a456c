"""Reading a run: card, inspector, cycle table, keyboard, chips, replay, phone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import sample_traces
from viasd_core.trace import DEFINITIONS, CycleEvent, Trace
from viz import wire


@pytest.fixture
def via_sd(page: Page, show: Callable[..., None]) -> Page:
    show(page, sample_traces.via_sd_trace())
    return page


def cursor(page: Page) -> dict[str, Any]:
    return dict(page.evaluate("__viasd.cursor"))


def token(page: Page, place: int) -> Any:
    """The span of an output token of the sample trace."""
    return page.locator(".tokens .t:not(.x)").nth(place)


def test_hovering_a_token_says_who_wrote_it_and_why(via_sd: Page) -> None:
    token(via_sd, 1).hover()
    card = via_sd.locator(".card")
    expect(card).to_contain_text("“ants”")
    expect(card).to_contain_text("accepted by slim")
    expect(card).to_contain_text("Slim ratio 0.800 ≥ 0.50: kept without asking the full verifier (region A).")
    expect(card).to_contain_text(".779 · .741 · \u2013")
    expect(card).to_contain_text("full verifier ranks it 3")
    via_sd.mouse.move(2, 2)
    expect(card).to_be_hidden()


def test_the_card_stays_inside_the_window(open_page: Callable[..., Page], show: Callable[..., None]) -> None:
    page = open_page(width=420, height=500)
    show(page, sample_traces.via_sd_trace())
    token(page, 9).hover()
    box = page.locator(".card").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 420
    assert box["y"] >= 0


def test_clicking_a_token_pins_it_with_its_cycle(via_sd: Page) -> None:
    token(via_sd, 5).click()
    expect(via_sd.locator(".inspector.pinned")).to_contain_text("Token 5")
    expect(via_sd.locator(".inspector")).to_contain_text("Drawn by the full verifier in place of the draft")
    expect(via_sd.locator(".cycle-panel h3")).to_have_text("Cycle 1")
    lines = via_sd.locator("table.cycle tbody tr")
    expect(lines).to_have_count(5)
    expect(lines.nth(1)).to_contain_text(
        "Slim ratio 0.100 < 0.30, so it went up: the full verifier kept it (region C)."
    )
    expect(lines.nth(2)).to_contain_text("the full verifier refused it (region C).")
    expect(lines.nth(3)).to_have_class("discarded dim")
    expect(lines.nth(4)).to_have_class("rewritten_full now")
    assert via_sd.locator(".tokens .t.cyc").count() == 5
    expect(via_sd.locator(".cycle-panel .phase-labels")).to_contain_text("slim 0.340 ms")
    expect(via_sd.locator(".cycle-note")).to_contain_text("Full verifier called: region C.")


def test_ratio_bars_carry_a_tick_at_each_threshold(via_sd: Page) -> None:
    token(via_sd, 0).click()
    bar = via_sd.locator("table.cycle tbody tr").nth(2).locator(".track")
    assert bar.locator(".level").evaluate("node => node.style.width") == "40%"
    assert bar.locator(".tick.one").evaluate("node => node.style.left") == "50%"
    assert bar.locator(".tick.two").evaluate("node => node.style.left") == "30%"
    expect(via_sd.locator("table.cycle tbody tr").nth(2)).to_contain_text("lies between 0.30 and 0.50")


def test_cycles_are_paged_from_the_inspector(via_sd: Page) -> None:
    token(via_sd, 0).click()
    back = via_sd.get_by_role("button", name="previous cycle", exact=False).last
    expect(back).to_be_disabled()
    via_sd.get_by_role("button", name="next cycle").last.click()
    expect(via_sd.locator(".cycle-panel h3")).to_have_text("Cycle 1")
    assert cursor(via_sd) == {"cycle": 1, "pos": 3, "pinned": True}


def test_a_token_that_is_not_in_the_text_can_be_inspected(via_sd: Page) -> None:
    assert "<eos>" not in via_sd.locator(".tokens").inner_text()
    via_sd.get_by_role("button", name="not in the text 1").click()
    expect(via_sd.locator(".inspector")).to_contain_text("“<eos>”")
    expect(via_sd.locator(".inspector")).to_contain_text("no: a special token")


def test_a_token_that_holds_part_of_a_character_can_be_inspected(via_sd: Page) -> None:
    part = via_sd.locator(".tokens .t.part")
    expect(part).to_have_count(1)
    part.click()
    expect(via_sd.locator(".inspector")).to_contain_text("bytes f0 9f")


def test_the_keyboard_walks_tokens_and_cycles(via_sd: Page) -> None:
    assert via_sd.locator(".tokens [tabindex]").count() == 1
    token(via_sd, 0).focus()
    via_sd.keyboard.press("ArrowRight")
    expect(via_sd.locator(".card")).to_contain_text("“ants”")
    via_sd.keyboard.press("Enter")
    assert cursor(via_sd) == {"cycle": 0, "pos": 1, "pinned": True}
    via_sd.keyboard.press("Shift+ArrowRight")
    assert cursor(via_sd) == {"cycle": 1, "pos": 3, "pinned": True}
    via_sd.keyboard.press("ArrowLeft")
    assert cursor(via_sd)["pos"] == 2
    via_sd.keyboard.press("End")
    assert cursor(via_sd)["pos"] == 9
    via_sd.keyboard.press("Home")
    assert cursor(via_sd)["pos"] == 0
    assert via_sd.locator(".tokens [tabindex]").count() == 1
    via_sd.keyboard.press("Escape")
    assert cursor(via_sd)["pinned"] is False
    expect(via_sd.locator(".inspector")).to_contain_text("Click a token")


def test_the_focused_token_is_named_for_screen_readers(via_sd: Page) -> None:
    token(via_sd, 2).click()
    expect(token(via_sd, 2)).to_have_attribute(
        "aria-label", "“· eat”, regenerated by slim".replace("· ", "·")
    )
    expect(via_sd.locator(".inspector [aria-live]")).to_contain_text("regenerated by slim")


def test_chips_count_the_tiers_and_take_one_out_of_the_marking(via_sd: Page) -> None:
    chips = via_sd.locator(".chip.tier")
    expect(chips.nth(0)).to_contain_text("6 · 55 %")
    for index in range(1, 6):
        expect(chips.nth(index)).to_contain_text("1 · 9 %")
    colour = "node => getComputedStyle(node).backgroundColor"
    painted = token(via_sd, 0).evaluate(colour)
    chips.nth(0).click()
    assert token(via_sd, 0).evaluate(colour) == "rgba(0, 0, 0, 0)"
    expect(chips.nth(0)).to_have_attribute("aria-pressed", "false")
    chips.nth(0).click()
    assert token(via_sd, 0).evaluate(colour) == painted
    chips.nth(3).click(modifiers=["Shift"])
    assert token(via_sd, 0).evaluate(colour) == "rgba(0, 0, 0, 0)"
    assert token(via_sd, 5).evaluate(colour) != "rgba(0, 0, 0, 0)"


def test_rejected_drafts_appear_on_request_and_are_not_copied(via_sd: Page) -> None:
    ghosts = via_sd.locator(".tokens .t.x")
    expect(ghosts).to_have_count(3)
    expect(ghosts.first).to_be_hidden()
    via_sd.get_by_role("button", name="Rejected drafts 3").click()
    expect(ghosts.first).to_be_visible()
    style = ghosts.first.evaluate(
        "node => [getComputedStyle(node).textDecorationLine, getComputedStyle(node).userSelect]"
    )
    assert style == ["line-through", "none"]


LINE_OF = """node => {
  const style = getComputedStyle(node);
  return [style.textDecorationLine, style.textDecorationStyle, style.fontWeight].join(" ");
}"""


def test_tiers_differ_without_colour(via_sd: Page) -> None:
    via_sd.get_by_role("button", name="Patterns only").click()
    lines = [token(via_sd, place).evaluate(LINE_OF) for place in (0, 2, 4, 5, 9)]
    assert len(set(lines)) == 5
    hues = token(via_sd, 5).evaluate("node => getComputedStyle(node).backgroundColor")
    assert hues == "rgba(0, 0, 0, 0)"


def test_repair_branches_are_marked_over_their_tier(page: Page, show: Callable[..., None]) -> None:
    show(page, sample_traces.tree_trace())
    assert page.locator(".tokens .t.F.rep").count() == 2
    assert page.locator(".tokens .t.rep1").count() == 1
    expect(page.locator(".tier-chips")).to_contain_text("⑂ repair 2")


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
    place = token(page, 5).bounding_box()
    assert place is not None
    assert place["y"] < sheet["y"]
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
    boxes = [node.bounding_box() for node in page.locator(".chart").all()]
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

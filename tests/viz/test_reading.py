"""Reading a run: card, inspector, cycle table, keyboard, chips."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

import sample_traces
from viewer_site import cursor, token


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


def test_with_several_slim_verifiers_a_token_says_which_one_settled_it(
    page: Page, show: Callable[..., None]
) -> None:
    show(page, sample_traces.tiered_trace())
    token(page, 1).hover()
    expect(page.locator(".card")).to_contain_text("slim verifier 1 of 2")
    token(page, 3).hover()
    expect(page.locator(".card")).to_contain_text("slim verifier 2 of 2")
    token(page, 4).hover()
    expect(page.locator(".card")).not_to_contain_text("of 2")


def test_the_card_stays_inside_the_window(open_page: Callable[..., Page], show: Callable[..., None]) -> None:
    page = open_page(width=420, height=500)
    show(page, sample_traces.via_sd_trace())
    token(page, 9).hover()
    expect(page.locator(".card")).to_be_visible()
    page.wait_for_function(
        """() => {
            const box = document.querySelector(".card").getBoundingClientRect();
            return box.width > 0 && box.left >= 0 && box.right <= 420 && box.top >= 0;
        }"""
    )
    assert page.locator(".card").inner_text() != ""


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
    expect(via_sd.locator(".tokens .t.cyc")).to_have_count(5)
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
    expect(via_sd.locator(".tokens [tabindex]")).to_have_count(1)
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
    expect(via_sd.locator(".tokens [tabindex]")).to_have_count(1)
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
    bare = "rgba(0, 0, 0, 0)"
    chips.nth(0).click()
    expect(token(via_sd, 0)).to_have_css("background-color", bare)
    expect(chips.nth(0)).to_have_attribute("aria-pressed", "false")
    chips.nth(0).click()
    expect(token(via_sd, 0)).to_have_css("background-color", painted)
    chips.nth(3).click(modifiers=["Shift"])
    expect(token(via_sd, 0)).to_have_css("background-color", bare)
    expect(token(via_sd, 5)).not_to_have_css("background-color", bare)


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
    expect(page.locator(".tokens .t.F.rep")).to_have_count(2)
    expect(page.locator(".tokens .t.rep1")).to_have_count(1)
    expect(page.locator(".tier-chips")).to_contain_text("Ψ repair 2")

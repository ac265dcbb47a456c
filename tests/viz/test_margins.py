"""The margins of a block as a strip under the cycle's table, by mouse and by keyboard."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

import sample_trees
from sample_trees import Block
from viasd_core.trace_check import check
from viewer_site import at_cycle, cursor
from viz import wire


def test_margins_stand_under_the_cycles_table_against_tau(cure: Page) -> None:
    at_cycle(cure, 1)
    strip = cure.locator(".margin-strip")
    expect(strip).to_have_attribute(
        "aria-label",
        "Margins of 4 drafted positions. Uncertain (below τ 1.00): 2 (0.25). Repaired: 2 (0.25).",
    )
    expect(strip.locator(".margin-bar")).to_have_count(4)
    expect(strip.locator(".margin-bar.below")).to_have_count(1)
    heights = [float(bar.get_attribute("height") or 0) for bar in strip.locator(".margin-bar").all()]
    assert heights[1] == pytest.approx(46 * 0.25 / 2)
    assert heights[0] == pytest.approx(46)
    strip.locator("[data-position='3'] .margin-bar").click()
    assert cursor(cure) == {"cycle": 1, "pos": 6, "pinned": True}
    expect(strip.locator(".margin-column.now")).to_have_attribute("data-position", "3")


def test_margins_are_walked_with_the_keyboard(cure: Page) -> None:
    at_cycle(cure, 1)
    strip = cure.locator(".margin-strip")
    expect(strip).to_have_attribute("role", "group")
    columns = strip.get_by_role("button")
    expect(columns).to_have_count(4)
    names = [column.get_attribute("aria-label") for column in columns.all()]
    assert names == [
        "position 1 · “·The” · margin 2.50",
        "position 2 · “·cat” · margin 0.25 · uncertain, repaired",
        "position 3 · “·sits” · margin 1.75",
        "position 4 · “·there” · margin 2.00",
    ]
    stops = cure.locator('.margins [tabindex="0"]')
    expect(stops).to_have_count(1)
    stops.focus()
    walked = []
    for key in ("ArrowLeft", "ArrowRight", "End", "ArrowRight", "Home", "ArrowRight", "ArrowRight"):
        cure.keyboard.press(key)
        expect(stops).to_have_count(1)
        expect(stops).to_be_focused()
        walked.append(stops.get_attribute("data-position"))
    assert walked == ["1", "2", "4", "4", "1", "2", "3"]
    before = cursor(cure)
    cure.keyboard.press("Enter")
    assert cursor(cure) == {"cycle": 1, "pos": 6, "pinned": True} != before
    expect(strip.locator(".margin-column.now")).to_have_attribute("data-position", "3")
    expect(stops).to_be_focused()  # the strip was drawn anew
    cure.keyboard.press("ArrowLeft")
    cure.keyboard.press(" ")
    assert cursor(cure) == {"cycle": 1, "pos": 5, "pinned": True}
    expect(stops).to_have_attribute("data-position", "2")


def test_a_certain_or_unrepaired_position_is_named_so(cure: Page) -> None:
    block = Block([" a", " b"], [0.5, 0.75], {1: [[" x"]]}, [" a", " b", " c"])
    trace = sample_trees.run_of([block])
    assert check(trace) == []
    cure.evaluate("value => push(value)", wire.batch("r", 1, wire.trace_messages(trace)))
    cure.wait_for_function("__viasd.run === 'r'")
    cure.locator(".tokens .t:not(.x)").first.click()
    expect(cure.locator(".margin-column").nth(1)).to_have_attribute(
        "aria-label", "position 2 · “·b” · margin 0.75 · uncertain, not repaired"
    )

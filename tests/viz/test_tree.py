"""The repair tree of a cycle on the page: what it says, how it is walked, and that it shares the cursor."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace

import pytest
from playwright.sync_api import Locator, Page, expect

import sample_traces
import sample_trees
from hostile_texts import CORPUS
from sample_trees import Block
from viasd_core.bundle_format import encode
from viasd_core.trace import Trace
from viasd_core.trace_check import check
from viewer_site import at_cycle, cursor
from viz import wire

TREE_TEXT = "[...document.querySelectorAll('.tree-node')].map((node) => node.getAttribute('aria-label'))"


def node(page: Page, text: str) -> Locator:
    """The first node of a token."""
    return page.locator(f'.tree-node[aria-label^="“·{text}”"]').first


def test_the_sample_runs_are_traces_without_contradictions() -> None:
    for trace in (sample_trees.cure_run(), sample_trees.run_of([sample_trees.block_of(5, 15, 90, 3, 1)])):
        assert check(trace) == []
    assert sample_trees.cure_run().summary()["repair"]["won"] == 2


@pytest.mark.parametrize(("margin", "count"), [(0.0, 5), (0.375, 4), (0.5, 3), (0.9, 1), (1.0, 1), (3.0, 1)])
def test_the_sample_trees_branch_as_the_paper_says(margin: float, count: int) -> None:
    assert sample_trees.branches_at(margin) == count


def test_the_winner_is_thick_the_kept_are_solid_and_the_uncertain_have_diamonds(cure: Page) -> None:
    at_cycle(cure, 1)
    width = "node => parseFloat(getComputedStyle(node).strokeWidth)"
    thin = cure.locator(".tree-edge:not(.best)").first.evaluate(width)
    expect(cure.locator(".tree-edge.best")).to_have_count(3)
    assert cure.locator(".tree-edge.best").first.evaluate(width) > 2 * thin
    dashes = "node => getComputedStyle(node.querySelector('rect')).strokeDasharray"
    assert node(cure, "dog").evaluate(dashes) == "none"
    assert node(cure, "cat").evaluate(dashes) != "none"
    expect(cure.locator(".tree-ufp:not(.hollow)").filter(visible=True)).to_have_count(
        1 + 1
    )  # and in the strip
    expect(cure.locator(".tree .tree-margin")).to_have_text("0.25")
    expect(cure.locator(".tree .tree-tag")).to_have_text(["1", "2"])


def test_a_cycle_without_a_repair_collapses_the_panel_to_a_sentence(cure: Page) -> None:
    expect(cure.locator(".tree-verdict")).to_have_text(
        "No repair in this cycle: the smallest margin, 1.50, is not below τ 1.00."
    )
    expect(cure.locator(".tree-body")).to_be_hidden()
    expect(cure.locator(".tree-pays")).to_be_visible()
    at_cycle(cure, 1)
    expect(cure.locator(".tree-body")).to_be_visible()


def test_a_cycle_without_a_tree_says_so(page: Page, show: Callable[..., None]) -> None:
    trace = sample_trees.cure_run()
    trace.tree = [row for row in trace.tree if row.cycle != 4]
    show(page, trace)
    expect(page.locator(".tree-verdict")).to_have_text("No tree in this cycle.")


def test_a_run_that_drafts_chains_has_no_tree_panel(via_sd: Page) -> None:
    expect(via_sd.locator(".tree-panel")).to_be_hidden()
    expect(via_sd.locator(".margins")).to_be_hidden()


def test_buttons_and_keys_go_from_repair_to_repair(cure: Page) -> None:
    back = cure.get_by_role("button", name="previous repair")
    forward = cure.get_by_role("button", name="next repair")
    expect(forward).to_be_disabled()
    back.click()
    assert cursor(cure) == {"cycle": 3, "pos": 22, "pinned": True}
    back.focus()
    cure.keyboard.press("p")
    assert cursor(cure)["cycle"] == 2
    cure.keyboard.press("p")
    assert cursor(cure) == {"cycle": 1, "pos": 5, "pinned": True}
    expect(back).to_be_disabled()
    cure.keyboard.press("p")
    assert cursor(cure)["cycle"] == 1
    cure.locator(".tokens .t:not(.x)").first.focus()
    cure.keyboard.press("n")
    assert cursor(cure)["cycle"] == 2


def test_the_next_repair_is_found_from_a_replayed_cycle_and_shows_its_text(cure: Page) -> None:
    cure.locator("canvas.strip").focus()
    cure.keyboard.press("Home")
    expect(cure.locator(".tree-where")).to_have_text("cycle 0 · 3 repairs in this run")
    cure.get_by_role("button", name="next repair").click()
    assert cursor(cure) == {"cycle": 1, "pos": 5, "pinned": True}
    expect(cure.locator(".tokens .t.sel")).to_have_text(" dog", use_inner_text=False)
    expect(cure.locator(".tokens .t.sel")).to_be_visible()


def test_letters_typed_into_a_field_do_not_move_the_tree(cure: Page) -> None:
    before = cursor(cure)
    cure.locator(".speed").focus()
    cure.keyboard.press("p")
    assert cursor(cure) == before


def test_a_click_on_a_node_goes_to_its_token_and_a_token_to_its_node(cure: Page) -> None:
    at_cycle(cure, 1)
    node(cure, "runs").click()
    assert cursor(cure) == {"cycle": 1, "pos": 6, "pinned": True}
    expect(cure.locator(".tokens .t.sel")).to_have_text(" runs")
    expect(cure.locator(".tree-node.now")).to_have_count(1)
    expect(cure.locator(".inspector")).to_contain_text("repair 1")
    cure.locator(".tokens").get_by_text("The", exact=True).click()
    now = cure.locator(".tree-node.now")
    expect(now).to_have_attribute("aria-current", "true")
    assert (now.get_attribute("aria-label") or "").startswith("“·The” #")
    cure.keyboard.press("Escape")
    expect(cure.locator(".tree-node.now")).to_have_count(0)


def test_a_node_that_is_not_in_the_text_goes_to_what_stands_there(cure: Page) -> None:
    at_cycle(cure, 1)
    node(cure, "cow").click()
    assert cursor(cure) == {"cycle": 1, "pos": 5, "pinned": True}
    expect(cure.locator(".tree-details")).to_contain_text("not accepted · the text has “·dog” here")
    assert (cure.locator(".tree-node.now").get_attribute("aria-label") or "").startswith("“·cow”")


def test_hover_and_focus_say_what_is_known_of_a_node(cure: Page) -> None:
    at_cycle(cure, 1)
    details = cure.locator(".tree-details")
    node(cure, "cat").hover()
    expect(details).to_have_text(
        f"“·cat” #{sample_trees.token_id(' cat')} · log p \u22120.200 (p .819) · margin 0.25, uncertain · "
        "branch 0 · position 2 · not accepted · the text has “·dog” here"
    )
    cure.locator(".tree-verdict").hover()
    expect(details).to_contain_text("“·The”")  # the pinned token's node
    node(cure, "dog").focus()
    expect(details).to_contain_text("repair branch 1 · position 2 · accepted, on the winning path")


def test_the_keyboard_walks_the_tree(cure: Page) -> None:
    at_cycle(cure, 1)
    expect(cure.locator('.tree-node[tabindex="0"]')).to_have_count(1)
    cure.locator('.tree-node[tabindex="0"]').focus()

    def stands_at() -> str:
        name = cure.evaluate("document.activeElement.getAttribute('aria-label')")
        return str(name).split("”")[0].strip("“·")

    walked = [stands_at()]
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp", "ArrowRight", "ArrowLeft",
                "ArrowLeft", "ArrowLeft", "End", "Home"):  # fmt: skip
        cure.keyboard.press(key)
        walked.append(stands_at())
    assert walked == ["The", "cat", "dog", "cow", "cow", "dog", "runs", "dog", "The", "The", "runs", "The"]
    expect(cure.locator('.tree-node[tabindex="0"]')).to_have_count(1)
    cure.keyboard.press("End")
    cure.keyboard.press("Enter")
    assert cursor(cure) == {"cycle": 1, "pos": 6, "pinned": True}


def test_the_first_token_of_a_repair_has_a_mark_wherever_it_stands(
    page: Page, show: Callable[..., None]
) -> None:
    block = Block([" a", " b"], [0.25, 2.0], {1: [["\n", " x"]]}, ["\n", " x", " end"])
    show(page, sample_trees.run_of([block, block]))
    expect(page.locator(".tokens .t.rep1")).to_have_count(2)
    expect(page.locator(".tokens .t.rep")).to_have_count(4)
    mark = page.locator(".tokens .t.rep1").first.evaluate(
        "node => getComputedStyle(node, '::before').content"
    )
    assert mark == '"Ψ⏎"'
    line = "node => getComputedStyle(node).textDecorationStyle"
    assert page.locator(".tokens .t.rep").first.evaluate(line) == "double"


@pytest.mark.parametrize("name", CORPUS)
def test_hostile_tokens_are_inert_in_the_tree(page: Page, show: Callable[..., None], name: str) -> None:
    text = CORPUS[name]
    block = Block([" a", text, " c"], [2.0, 0.5, 2.0], {2: [[text + "!", " x"]]}, [" a", text + "!", " end"])
    parts = ".viasd img, script, .viasd a, .viasd iframe, .viasd style"
    before = page.locator(parts).count()
    show(page, sample_trees.run_of([block]))
    page.locator(".tokens .t.rep1").click()
    page.locator(".tree-node").nth(1).hover()
    expect(page.locator(".tree-details")).to_contain_text("branch 0 · position 2")
    assert page.evaluate("window.__hit") is None
    expect(page.locator(parts)).to_have_count(before)
    names = page.evaluate(TREE_TEXT)
    assert len(names) == 5
    assert all(len(label) < 700 for label in names)


def test_a_hostile_tree_of_a_file_does_not_stall_the_page(page: Page) -> None:
    trace = sample_trees.cure_run()
    first = next(row for row in trace.tree if row.cycle == 1)
    circle = range(1000, 1450)
    trace.tree += [replace(first, node=index, parent=index, depth=10**9, branch=10**6) for index in circle]
    page.evaluate("value => push(value)", wire.batch("r", 1, wire.trace_messages(trace)))
    page.wait_for_function("__viasd.tokens === 31")
    for _ in range(3):  # one after the other: what a step shows may move the button
        page.get_by_role("button", name="previous repair").click()
    expect(page.locator(".tree-where")).to_contain_text("cycle 1")
    expect(page.locator(".tree-bill")).to_contain_text("450 rows hang nowhere or are too many to draw.")
    expect(page.locator(".tree-node")).to_have_count(9)


def as_files(trace: Trace) -> list[dict[str, object]]:
    """A bundle as a file chooser takes it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in encode(trace).items():
            archive.writestr(name, data)
    return [{"name": "run.zip", "mimeType": "application/zip", "buffer": packed.getvalue()}]


PANEL = """() => ({
  text: [...document.querySelectorAll(".tree-panel p, .tree-where, .margins text")]
    .map((node) => node.textContent),
  names: [...document.querySelectorAll(".tree-node")].map((node) => node.getAttribute("aria-label")),
  shape: new XMLSerializer().serializeToString(document.querySelector("svg.tree")),
})"""


def test_live_replay_and_file_show_the_same_tree(
    open_page: Callable[..., Page], show: Callable[..., None]
) -> None:
    trace = sample_trees.cure_run()
    live, replay, opened = open_page(), open_page(), open_page()
    messages = wire.trace_messages(trace)
    for number, message in enumerate(messages, 1):
        live.evaluate("value => push(value)", wire.batch("r", number, [message]))
    show(replay, trace)
    opened.locator("input[type=file]").set_input_files(as_files(trace))  # type: ignore[arg-type]
    found = []
    for page in (live, replay, opened):
        page.wait_for_function("__viasd.tokens === 31 && !__viasd.live")
        page.get_by_role("button", name="previous repair").click()
        expect(page.locator(".tree-where")).to_have_text("cycle 3 · repair 3 of 3")
        expect(page.locator(".tree-pays")).to_contain_text("6 extra tokens gained")
        found.append(page.evaluate(PANEL))
    assert found[0] == found[1] == found[2]
    assert len(found[0]["names"]) == 35


def test_new_cycles_leave_the_readers_place_in_the_tree_alone(open_page: Callable[..., Page]) -> None:
    page = open_page(width=800)
    sure = Block([" a", " b"], [2.0, 2.0], {}, [" a", " b", " c"])
    run = sample_trees.run_of([sample_trees.block_of(5, 15, 90, positions=3, right=1), sure])
    messages = wire.trace_messages(run)
    page.evaluate("value => push(value)", wire.batch("r", 1, messages[:2]))
    page.locator(".tokens .t.rep1").click()
    expect(page.locator(".tree-node.now")).to_be_visible()
    place = page.locator(".tree-scroll")
    assert place.evaluate("node => node.scrollLeft") > 0
    place.evaluate("node => { node.scrollLeft = 0; }")
    page.evaluate("value => push(value)", wire.batch("r", 3, messages[2:3]))
    expect(page.locator(".tree-note")).to_contain_text("median cycle without a repair")
    assert place.evaluate("node => node.scrollLeft") == 0
    expect(page.locator(".tree-node.now")).to_have_count(1)


@pytest.mark.parametrize("nodes", [8, 30, 90])
def test_a_tree_fits_a_phone_and_scrolls_inside_its_box(
    open_page: Callable[..., Page], show: Callable[..., None], nodes: int
) -> None:
    length = {8: 6, 30: 10, 90: 15}[nodes]
    block = sample_trees.block_of(5, length, nodes, positions=3, right=0)
    page = open_page(width=390, height=844, has_touch=True)
    show(page, sample_trees.run_of([block]))
    expect(page.locator(".tree-panel")).to_be_hidden()
    page.get_by_role("tab", name="Repair tree").click()
    expect(page.locator(".tree-node")).to_have_count(nodes)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    sizes = page.evaluate(
        """[...document.querySelectorAll(".tree-node rect")].map((rect) => rect.getBoundingClientRect())
           .map(({width, height}) => [width, height])"""
    )
    assert all(width >= 44 and height >= 24 for width, height in sizes)
    fonts = page.evaluate(
        """[...document.querySelectorAll(".tree text")]
           .map((text) => parseFloat(getComputedStyle(text).fontSize))"""
    )
    assert min(fonts) >= 11
    assert page.locator(".tree-scroll").evaluate("node => node.scrollWidth > node.clientWidth")
    page.locator(".tree-node.best.repair").first.tap()
    expect(page.locator(".detail")).to_be_hidden()  # the tree says itself what was picked
    assert cursor(page)["pinned"] is True
    expect(page.locator(".tree-details")).to_contain_text("repair branch")


def test_on_a_phone_a_token_leads_to_its_tree(
    open_page: Callable[..., Page], show: Callable[..., None]
) -> None:
    page = open_page(width=390, height=844)
    show(page, sample_trees.cure_run())
    page.locator(".tokens .t.rep1").first.click()
    expect(page.locator(".detail")).to_be_visible()
    page.get_by_role("button", name="Show the tree").click()
    expect(page.locator(".detail")).to_be_hidden()
    expect(page.locator(".tree-panel")).to_be_in_viewport()
    expect(page.locator(".tree-where")).to_have_text("cycle 1 · repair 1 of 3")
    assert json.dumps(cursor(page)) == json.dumps({"cycle": 1, "pos": 5, "pinned": True})


def test_a_phone_has_no_tree_tab_for_a_run_without_trees(
    open_page: Callable[..., Page], show: Callable[..., None]
) -> None:
    page = open_page(width=390, height=844)
    show(page, sample_trees.cure_run())
    page.get_by_role("tab", name="Repair tree").click()
    show(page, sample_traces.via_sd_trace(), "run-2")
    expect(page.get_by_role("tab", name="Repair tree")).to_be_hidden()
    expect(page.locator(".numbers")).to_be_visible()

"""The layer-mask search in the browser: streamed, looked at, and what the reader asks of it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from dimr_panel import (
    LAYERS,
    OpenPanel,
    centre,
    cheapest,
    curve,
    facts,
    found,
    held_out,
    points,
    press,
    report,
    scored,
    status,
)
from viewer_site import Site


def test_masks_arrive_while_the_search_runs_with_progress_and_time_left(
    open_panel: OpenPanel, follow: Callable[..., None], site: Site
) -> None:
    page, rows = open_panel(), scored()
    follow(page, [status("running", "scoring masks"), facts(), *rows[:20]])
    assert report(page)["state"] == "running"
    expect(page.locator(".dimr-panel")).to_contain_text("20 of 111 masks")
    expect(page.locator(".dimr-panel")).to_contain_text("at most 23 s left")
    site.searches["search-1"][1].extend(rows[20:])
    page.wait_for_function(f"__viasd_dimr.masks === {len(rows)}")
    site.searches["search-1"][1].append(status("stopped", "stopped"))
    page.wait_for_function("__viasd_dimr.state === 'stopped'")
    expect(page.locator(".dimr-panel")).to_contain_text("40 masks · 30 of the wanted size")
    asked = len(site.asked)
    page.wait_for_timeout(1500)
    assert len(site.asked) == asked, "an ended search is not asked for again"
    assert report(page)["best"] == cheapest(rows)["mask"]


def test_a_reloaded_tab_shows_its_search_again_and_another_tab_does_not(
    open_panel: OpenPanel, follow: Callable[..., None]
) -> None:
    page, rows = open_panel(), scored()
    follow(page, [status("running"), facts(), *rows])
    page.reload()
    page.wait_for_function(f"__viasd_dimr && __viasd_dimr.masks === {len(rows)}")
    other = open_panel()
    other.wait_for_timeout(300)
    assert report(other)["run"] is None


def test_a_resumed_search_starts_over_in_the_panel_and_holds_nothing_twice(
    open_panel: OpenPanel, follow: Callable[..., None], site: Site
) -> None:
    page, rows = open_panel(), scored()
    follow(page, [facts(), *rows[:25], status("stopped")])
    follow(page, [status("running"), facts(), *rows], epoch="b")
    assert report(page)["points"] == sum(row["step"] is not None for row in rows)
    site.searches["search-1"] = ("c", [facts(), *rows[:15], status("stopped")])
    page.wait_for_function("__viasd_dimr.masks === 15")


def test_a_search_that_fails_at_once_gives_way_to_the_one_before_it(
    open_panel: OpenPanel, follow: Callable[..., None], site: Site
) -> None:
    page, rows = open_panel(), scored()
    alert = page.get_by_role("alert")
    follow(page, [status("running"), facts(), *rows, status("done")])
    sentence = "a mask to lie inside has 4 layers and the verifier has 12"
    site.searches["search-2"] = ("a", [status("running"), status("error", sentence)])
    page.evaluate("value => push(value)", {"run": "search-2", "epoch": "a"})
    expect(alert).to_have_text(sentence)
    page.wait_for_function(f"__viasd_dimr.run === 'search-1' && __viasd_dimr.masks === {len(rows)}")
    assert report(page)["state"] == "done" and report(page)["best"] == cheapest(rows)["mask"]
    expect(alert).to_have_text(sentence)
    page.reload()
    page.wait_for_function(f"__viasd_dimr && __viasd_dimr.masks === {len(rows)}")


def test_a_search_that_fails_stays_where_it_is_the_first_or_has_masks_to_show(
    open_panel: OpenPanel, follow: Callable[..., None], site: Site
) -> None:
    page, rows = open_panel(), scored()
    follow(page, [status("running"), status("error", "no prompt fits")])
    page.wait_for_function("__viasd_dimr.state === 'error'")
    expect(page.locator(".dimr-panel")).to_contain_text("no prompt fits")
    follow(page, [status("running"), facts(), *rows, status("error", "lost")], run="search-2")
    page.wait_for_function("__viasd_dimr.state === 'error'")
    assert report(page)["run"] == "search-2" and report(page)["masks"] == len(rows)


def test_a_search_the_server_forgot_is_told_once_it_was_shown(
    open_panel: OpenPanel, follow: Callable[..., None], site: Site
) -> None:
    page = open_panel()
    follow(page, [status("running"), facts(), *scored()])
    site.searches.clear()
    expect(page.get_by_role("alert")).to_have_text("this search is no longer kept")
    expect(page.get_by_role("button", name="Search", exact=True)).to_be_enabled()
    assert report(page)["state"] == "stopped" and report(page)["masks"] == len(scored())


def test_a_tab_whose_search_is_gone_since_its_last_visit_is_ready_for_another(open_panel: OpenPanel) -> None:
    page = open_panel()
    page.evaluate("sessionStorage.setItem('viasd.search', 'gone')")
    page.reload()
    page.wait_for_function("__viasd_dimr && __viasd_dimr.run === null && __viasd_dimr.state === 'idle'")
    expect(page.get_by_role("button", name="Search", exact=True)).to_be_enabled()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_failed_search_is_told_of_also_where_the_one_before_it_is_gone(
    open_panel: OpenPanel, follow: Callable[..., None], site: Site
) -> None:
    page = open_panel()
    follow(page, [status("running"), facts(), *scored(), status("done")])
    del site.searches["search-1"]
    site.searches["search-2"] = ("a", [status("running"), status("error", "no prompt fits")])
    page.evaluate("value => push(value)", {"run": "search-2", "epoch": "a"})
    expect(page.get_by_role("alert")).to_have_text("no prompt fits")
    page.wait_for_function("__viasd_dimr.run === null && __viasd_dimr.state === 'idle'")
    expect(page.get_by_role("alert")).to_have_text("no prompt fits")
    expect(page.get_by_role("button", name="Search", exact=True)).to_be_enabled()


def test_a_point_shows_its_mask_and_a_mask_rings_its_point(
    open_panel: OpenPanel, follow: Callable[..., None]
) -> None:
    page, rows = open_panel(query="?charts"), scored()
    follow(page, [facts(), *rows, status("done")])
    best, third = cheapest(rows), cheapest(rows, 2)
    page.wait_for_function(f"__viasd_dimr.ring === {best['step']}")
    page.mouse.move(*centre(points(page).nth(4)))
    page.wait_for_function(f"__viasd_dimr.shown !== {best['mask']!r}")
    hovered = report(page)["shown"]
    assert report(page)["pinned"] is None
    assert [row["step"] for row in rows if row["mask"] == hovered] == [report(page)["ring"]]
    page.mouse.click(*centre(points(page).nth(4)))
    page.wait_for_function(f"__viasd_dimr.pinned === {hovered!r}")
    page.mouse.move(2, 2)
    assert page.locator(".mask-strip").get_attribute("data-mask") == hovered
    page.locator(".mask-row").nth(2).hover()
    page.wait_for_function(f"__viasd_dimr.shown === {third['mask']!r}")
    assert report(page)["ring"] == third["step"]
    page.locator(".mask-row").nth(2).click()
    page.mouse.move(2, 2)
    assert report(page)["pinned"] == third["mask"]
    expect(page.locator(".mask-row").nth(2)).to_have_attribute("aria-pressed", "true")


def test_random_and_bayesian_points_differ_in_shape(
    open_panel: OpenPanel, follow: Callable[..., None]
) -> None:
    page = open_panel(query="?charts")
    follow(page, [facts(), *scored(), status("done")])
    points(page).first.wait_for()
    traces = page.evaluate(
        """document.querySelector(".dimr-cost").data.map((one) => [one.name, one.mode, one.marker?.symbol])"""
    )
    symbols = {name: symbol for name, mode, symbol in traces if mode == "markers"}
    assert symbols["random"] != symbols["Bayesian"] != symbols["evenly spaced"]
    assert ["best so far", "lines"] in [one[:2] for one in traces]
    expect(page.locator(".dimr-plots .dimr-legend")).to_contain_text("Bayesian")


def test_the_keyboard_walks_through_the_points_and_escape_goes_back_to_the_best(
    open_panel: OpenPanel, follow: Callable[..., None]
) -> None:
    page, rows = open_panel(query="?charts"), scored()
    follow(page, [facts(), *rows, status("done")])
    slider = page.get_by_role("slider", name="Scored masks")
    points(page).first.wait_for()
    slider.focus()
    sized = [row for row in rows if row["step"] is not None]
    for key, step in (("Home", 0), ("ArrowRight", 1), ("PageUp", 11), ("ArrowLeft", 10), ("End", 29)):
        page.keyboard.press(key)
        assert report(page)["pinned"] == sized[step]["mask"]
        expect(slider).to_have_attribute("aria-valuenow", str(step))
    assert "keeps 8 of 12 layers" in (slider.get_attribute("aria-valuetext") or "")
    page.keyboard.press("Escape")
    assert report(page)["shown"] == cheapest(rows)["mask"]
    page.locator(".mask-row").nth(1).focus()
    assert report(page)["shown"] == cheapest(rows, 1)["mask"]


def test_the_heat_row_says_in_how_many_of_the_best_masks_a_layer_is_kept(
    open_panel: OpenPanel, follow: Callable[..., None]
) -> None:
    page, rows = open_panel(), scored()
    follow(page, [facts(), *rows, status("done")])
    best = [cheapest(rows, place)["mask"] for place in range(10)]
    for layer in (0, 5):
        kept = sum(mask[layer] == "1" for mask in best)
        page.locator(f".mask-heat [data-unit='{layer}']").hover()
        expect(page.locator(".masks")).to_contain_text(f"Layer {layer}: kept in {kept} of the 10 cheapest")
    expect(page.locator(".masks")).to_contain_text("its loss alone costs")


def test_a_mask_of_halves_is_told_and_drawn_by_attention_and_mlp(
    open_panel: OpenPanel, follow: Callable[..., None]
) -> None:
    page, rows = open_panel(), scored(halves=True)
    best = [cheapest(rows, place)["mask"] for place in range(10)]
    follow(page, [facts(granularity="sublayer"), *rows, status("done")])
    gone = [unit for unit, bit in enumerate(best[0]) if bit == "0"]
    whole = [unit // 2 for unit in gone if unit % 2 == 0 and unit + 1 in gone]
    parts = [
        ("all of", whole),
        ("the attention of", [unit // 2 for unit in gone if unit % 2 == 0 and unit // 2 not in whole]),
        ("the MLP of", [unit // 2 for unit in gone if unit % 2 and unit // 2 not in whole]),
    ]
    words = page.locator(".mask-words")
    expect(words).to_contain_text("keeps 20 of 24 halves of layers, skips ")
    for what, layers in parts:
        text = words.inner_text()
        assert (what in text) == bool(layers)
        named = text.partition(f"{what} ")[2].partition(" and ")[0].partition(", the")[0]
        assert [int(layer) for layer in re.findall(r"\d+", named)] == layers
    strip = page.locator(".mask-strip .layers:not(.ruler)")
    drawn = [
        line.evaluate("(line) => [...line.children].map((cell) => cell.matches('.kept'))")
        for line in strip.all()
    ]
    assert drawn == [[bit == "1" for bit in best[0][half::2]] for half in (0, 1)]
    assert [name.inner_text() for name in page.locator(".mask-strip .lane-name").all()][:2] == [
        "attention",
        "MLP",
    ]
    assert [mark.inner_text() for mark in page.locator(".mask-strip .ruler b").all()] == ["0", "5", "10"]
    for unit, name in ((10, "Attention of layer 5"), (11, "MLP of layer 5")):
        page.locator(f".mask-heat [data-unit='{unit}']").hover()
        kept = sum(mask[unit] == "1" for mask in best)
        expect(page.locator(".masks")).to_contain_text(
            f"{name}: kept in {kept} of the 10 cheapest masks; its loss"
        )
    tops = [page.locator(f".mask-heat [data-unit='{unit}']").bounding_box() for unit in (10, 11)]
    assert tops[0] and tops[1] and tops[0]["x"] == tops[1]["x"] and tops[0]["y"] < tops[1]["y"]
    expect(page.locator(".dimr-panel")).to_contain_text("4 of 24 halves of layers skipped")


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ("11111011111111", "keeps 13 of 14 halves of layers, skips the MLP of 2"),
        ("11001011111111", "skips all of 1 and the MLP of 2"),
        ("11010101001011", "skips all of 4, the attention of 1\u20133 and the MLP of 5"),
        ("1" * 14, "keeps 14 of 14 halves of layers, skips none"),
    ],
)
def test_words_of_a_mask_of_halves(
    open_panel: OpenPanel, follow: Callable[..., None], mask: str, words: str
) -> None:
    page = open_panel()
    follow(page, [facts(granularity="sublayer", layers=7), scored(1)[-1] | {"mask": mask}, status("done")])
    expect(page.locator(".mask-words")).to_contain_text(f"{words}.")


def test_the_judged_mask_stands_beside_others_of_its_size(
    open_panel: OpenPanel, follow: Callable[..., None]
) -> None:
    page, rows = open_panel(), scored()
    judged = held_out(cheapest(rows)["mask"])
    follow(page, [facts(), *rows, found(rows, None), status("stopped")])
    expect(page.get_by_label("Held-out numbers", exact=True)).to_contain_text("Not judged yet")
    follow(page, [facts(), *rows, found(rows, judged), status("done")], epoch="b")
    table = page.locator("table.held")
    expect(table.locator("tbody tr").nth(0)).to_contain_text("found")
    texts = [row.inner_text().split("\t") for row in table.locator("tbody tr").all()]
    assert texts[0] == ["found", "0.2500", "5", "87.5 %", "80.0 %", "15.0 %", "5.0 %"]
    assert [row[:2] for row in texts[1:3]] == [["even", "2.500"], ["contiguous", "1.500"]]
    assert texts[3][4:] == ["\u2013", "\u2013", "\u2013"]
    numbers = page.get_by_label("Held-out numbers", exact=True)
    for text in ("40 %", "30.0 %", "2.50 (speculative decoding: 2.75)", "1.25 times", "has no law"):
        expect(numbers).to_contain_text(text)


@pytest.mark.parametrize(
    ("speeds", "optimum", "sentence"),
    [
        ({1: 1.1, 4: 1.4, 8: 0.9}, 4 / LAYERS, "skipping 33% is predicted fastest"),
        ({1: 0.9, 4: 0.8, 8: 0.7}, None, "no skip ratio is predicted to beat speculative decoding"),
    ],
)
def test_the_r_curve_marks_the_optimum_or_says_that_there_is_none(
    open_panel: OpenPanel,
    follow: Callable[..., None],
    speeds: dict[int, float],
    optimum: float | None,
    sentence: str,
) -> None:
    page, rows = open_panel(query="?charts"), scored()
    judged = held_out(cheapest(rows)["mask"], curve=curve(speeds, optimum, sentence))
    follow(page, [facts(), *rows, found(rows, judged), status("done")])
    expect(page.locator(".dimr-curve-box")).to_contain_text(sentence)
    page.locator(".dimr-curve").scroll_into_view_if_needed()
    page.locator(".dimr-curve .scatterlayer .points path").first.wait_for()
    data = page.evaluate(
        """Object.fromEntries(document.querySelector(".dimr-curve").data.map(
             (one) => [one.name, [one.yaxis || "y", [...one.y], one.line?.dash || "solid"]]))"""
    )
    assert data["speed"] == ["y", list(speeds.values()), "solid"]
    calls = [round(0.2 + skipped / 20, 3) for skipped in speeds]
    assert data["cycles that call q"] == ["y2", calls, "dash"]
    axis = page.evaluate("document.querySelector('.dimr-curve').layout.yaxis2")
    assert (axis["side"], axis["overlaying"], axis["range"]) == ("right", "y", [0, 1.05])
    expect(page.locator(".dimr-curve-box")).to_contain_text("cycles that call q (right)")
    shapes = page.evaluate("document.querySelector('.dimr-curve').layout.shapes.map((one) => one.x0)")
    assert shapes == [0] if optimum is None else shapes == [0, pytest.approx(optimum)]
    page.mouse.move(*centre(page.locator(".dimr-curve .scatterlayer .points path").nth(1)))
    page.wait_for_function("__viasd_dimr.shown === '100001111111'")


def test_the_buttons_tell_the_page_what_is_asked_for(
    open_panel: OpenPanel, follow: Callable[..., None]
) -> None:
    page, rows = open_panel(), scored()
    press(page, "Search")
    assert page.evaluate("triggers") == [["dimr_start", {"search": ""}]]
    follow(page, [status("running"), facts(), *rows])
    for name in ("Search", "Resume", "Judge", "Save mask", "Keep for all runs"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_disabled()
    press(page, "Stop")
    page.locator(".mask-row").nth(3).click()
    press(page, "Use this mask")
    mask = {"search": "search-1", "mask": cheapest(rows, 3)["mask"]}
    assert page.evaluate("triggers.slice(-2)") == [["dimr_stop", {"search": "search-1"}], ["dimr_use", mask]]
    follow(page, [facts(), *rows, found(rows, None), status("stopped")], epoch="b")
    press(page, "Judge")
    assert page.evaluate("triggers.at(-1)") == ["dimr_resume", {"search": "search-1", "judge": True}]
    keep = page.get_by_role("button", name="Keep for all runs", exact=True)
    expect(keep).to_be_enabled()
    keep.click()
    assert page.evaluate("triggers.at(-1)") == ["dimr_keep", {"search": "search-1"}]


def test_keeping_a_mask_for_all_runs_is_off_with_its_reason_where_the_page_is_shared(
    open_panel: OpenPanel, follow: Callable[..., None]
) -> None:
    page, rows = open_panel(query="?refused"), scored()
    follow(page, [facts(), *rows, found(rows, None), status("done")])
    keep = page.get_by_role("button", name="Keep for all runs", exact=True)
    expect(keep).to_be_disabled()
    expect(keep).to_have_accessible_description("strangers use this page")
    expect(page.get_by_role("button", name="Save mask")).to_be_enabled()


@pytest.mark.parametrize("width", [390, pytest.param(1440, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out_and_every_control_has_a_name(
    open_panel: OpenPanel, follow: Callable[..., None], width: int, scheme: str
) -> None:
    page, rows = open_panel(width, "?charts", color_scheme=scheme, reduced_motion="reduce"), scored()
    judged = held_out(cheapest(rows)["mask"], curve=curve({1: 1.1, 4: 1.4}, 4 / LAYERS, "skipping 33%"))
    follow(page, [facts(), *rows, found(rows, judged), status("done")])
    points(page).first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    box = page.locator(".dimr-cost").bounding_box()
    assert box is not None and box["height"] > 200
    nameless = page.evaluate(
        """[...document.querySelectorAll("button, input, [role], [tabindex='0']")]
           .filter((node) => node.offsetParent && !(node.ariaLabel || node.textContent.trim()
                             || ["status", "alert"].includes(node.role)))
           .map((node) => node.outerHTML.slice(0, 80))"""
    )
    assert nameless == []

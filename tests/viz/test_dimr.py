"""The layer-mask search in the browser: streamed, read from a file, and what the reader does with it."""

from __future__ import annotations

import csv
import io
import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import sample_traces
from viasd_core.dimr.masks import read_mask
from viasd_core.tables import DIMR, read_table
from viasd_core.trace import DimrRow, Trace
from viewer_site import Site
from viz import wire

LAYERS = 12
HOSTILE = "<img src=x onerror=window.__hit=1>${window.__hit=1}{{x}}</script>"
IDENTITY = {"kind": "folder", "id": "toy", "sha256": "0" * 64, "layers": LAYERS}
OpenPanel = Callable[..., Page]


def scored(count: int = 30) -> list[dict[str, Any]]:
    """The messages of a search: every layer alone, the even mask, random ones and a Bayesian step in five."""
    drawn = random.Random(3)
    price = [drawn.random() + 0.1 for _ in range(LAYERS)]
    rows: list[dict[str, Any]] = []
    for layer in range(1, LAYERS - 1):
        mask = "".join("0" if place == layer else "1" for place in range(LAYERS))
        rows.append({"step": None, "method": "single", "mask": mask, "cost": price[layer], "best_cost": None})
    best = math.inf
    for step in range(count):
        gone = drawn.sample(range(1, LAYERS - 1), 4)
        mask = "".join("0" if place in gone else "1" for place in range(LAYERS))
        cost = sum(price[layer] for layer in gone)
        method = "even" if step == 0 else "bo" if step % 5 == 0 else "random"
        best = min(best, cost)
        rows.append({"step": step, "method": method, "mask": mask, "cost": cost, "best_cost": best})
    for number, row in enumerate(rows):
        accepted = row["step"] is not None and row["cost"] == row["best_cost"]
        row |= {"t_us": (number + 1) * 250_000, "accepted": accepted, "kind": "mask"}
    return rows


def facts(**more: Any) -> dict[str, Any]:
    planned = LAYERS - 2 + 101
    about = {"preset": "toy", "layers": LAYERS, "skipped": 4, "search": "dimr", "seed": 0, "window": 20}
    return {"kind": "search", "facts": about | {"planned": planned} | more}


def status(state: str, text: str = "") -> dict[str, Any]:
    return {"kind": "status", "state": state, "text": text}


def held_out(mask: str, **more: Any) -> dict[str, Any]:
    regions = {"A": 0.8, "B": 0.15, "C": 0.05}
    one = {"cost": 0.25, "block_cost": 5.0, "agreement": 0.875, "regions": regions, "positions": 80}
    guess = {"rho": 0.4, "committed": 2.5, "committed_by_sd": 2.75, "speed": 1.25}
    gain = {"value": None, "reason": "a lookup drafter has no law over the calibration texts"}
    others = {"even": one | {"cost": 2.5}, "contiguous": one | {"cost": 1.5}, "random": {"cost": 2.0}}
    return {
        **one, "mask": mask, "skip_ratio": 1 / 3, "r_eff": 0.3, "predicted": guess, "others": others,
        "tier_gain": gain, **more,
    }  # fmt: skip


def curve(speeds: dict[int, float], optimum: float | None, sentence: str) -> dict[str, Any]:
    points = [
        {
            "mask": "1" + "0" * skipped + "1" * (LAYERS - 1 - skipped),
            "skip_ratio": skipped / LAYERS,
            "cost": skipped / 10,
            "predicted": {"speed": speed},
        }
        for skipped, speed in speeds.items()
    ]
    return {"points": points, "optimum": optimum, "sentence": sentence}


def found(rows: list[dict[str, Any]], judged: dict[str, Any] | None) -> dict[str, Any]:
    best = next(row for row in reversed(rows) if row["accepted"])
    content = {
        "schema": "viasd-mask/1", "model": {"id": "toy", "sha256": "0" * 64}, "layers": LAYERS,
        "mask": best["mask"], "skip_ratio": 0.3333, "origin": "DIMR search, seed 0", "cost": best["cost"],
        "settings": {"score": {"window": 20}}, "held_out": judged, "complete": judged is not None,
    }  # fmt: skip
    return {"kind": "found", "found": content}


def dimr_rows(rows: list[dict[str, Any]]) -> list[DimrRow]:
    keys = ("step", "method", "cost", "best_cost", "mask", "t_us", "accepted")
    return [DimrRow(tau=20, **{key: row[key] for key in keys}) for row in rows if row["step"] is not None]


def searched_trace() -> Trace:
    trace = sample_traces.via_sd_trace()
    trace.dimr = dimr_rows(scored())
    return trace


@pytest.fixture
def open_panel(browser: Browser, site: Site) -> Iterator[OpenPanel]:
    """Opens the panel on a bare page; fails the test when a page reported an error."""
    pages: list[Page] = []
    problems: list[str] = []
    site.searches.clear()

    def open_one(width: int = 1280, query: str = "", **options: Any) -> Page:
        page = browser.new_page(viewport={"width": width, "height": 900}, **options)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(f"{site.url}panel{query}")
        page.wait_for_function("window.__viasd_dimr && window.__viasd_dimr.ready")
        pages.append(page)
        return page

    yield open_one
    for page in pages:
        page.close()
    assert problems == []


@pytest.fixture
def follow(site: Site) -> Callable[..., None]:
    """Has a panel follow a search with these messages, and waits until it holds them."""

    def show(page: Page, messages: list[dict[str, Any]], epoch: str = "a", run: str = "search-1") -> None:
        site.searches[run] = (epoch, messages)
        page.evaluate("value => push(value)", {"run": run, "epoch": epoch})
        masks = sum(message["kind"] == "mask" for message in messages)
        page.wait_for_function(f"__viasd_dimr.run === {run!r} && __viasd_dimr.masks === {masks}")

    return show


def report(page: Page) -> dict[str, Any]:
    shown: dict[str, Any] = page.evaluate("JSON.parse(JSON.stringify(__viasd_dimr))")
    return shown


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def points(page: Page) -> Locator:
    return page.locator(".dimr-cost .scatterlayer .points path")


def centre(point: Locator) -> tuple[float, float]:
    box = point.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def cheapest(rows: list[dict[str, Any]], place: int = 0) -> dict[str, Any]:
    sized = [row for row in rows if row["step"] is not None]
    return sorted(sized, key=lambda row: row["cost"])[place]


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


def test_a_search_the_server_forgot_is_told_once_it_was_shown(
    open_panel: OpenPanel, follow: Callable[..., None], site: Site
) -> None:
    page = open_panel()
    follow(page, [status("running"), facts(), *scored()])
    site.searches.clear()
    expect(page.get_by_role("alert")).to_have_text("this search is no longer kept")


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
    expect(page.locator(".dimr-legend")).to_contain_text("Bayesian")


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
        page.locator(f".mask-heat [data-layer='{layer}']").hover()
        expect(page.locator(".masks")).to_contain_text(f"Layer {layer}: kept in {kept} of the 10 cheapest")
    expect(page.locator(".masks")).to_contain_text("its loss alone costs")


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
    shapes = page.evaluate("document.querySelector('.dimr-curve').layout.shapes.map((one) => one.x0)")
    assert shapes == [0] if optimum is None else shapes == [0, pytest.approx(optimum)]
    page.mouse.move(*centre(page.locator(".dimr-curve .scatterlayer .points path").nth(1)))
    page.wait_for_function("__viasd_dimr.shown === '100001111111'")


def test_dimr_csv_is_what_the_core_reads_and_opens_again_to_the_same_plot(
    open_panel: OpenPanel, follow: Callable[..., None], tmp_path: Path
) -> None:
    page, rows = open_panel(query="?charts"), scored()
    follow(page, [facts(), *rows, status("done")])
    with page.expect_download() as download:
        press(page, "Save dimr.csv")
    path = tmp_path / "dimr.csv"
    download.value.save_as(path)
    text = path.read_text("utf-8")
    read, labels = read_table(DIMR, text, max_rows=1000)
    assert read == dimr_rows(rows) and len(labels) == 1
    assert next(csv.DictReader(io.StringIO(text)))["kept"] == "8"
    points(page).first.wait_for()
    drawn = "document.querySelector('.dimr-cost').data.map((one) => [one.name, [...one.x], [...one.y]])"
    before = page.evaluate(drawn)
    other = open_panel(query="?charts")
    other.get_by_label("Search file").set_input_files(path)
    other.wait_for_function("__viasd_dimr.file === 'dimr.csv'")
    points(other).first.wait_for()
    assert other.evaluate(drawn) == before
    expect(other.get_by_role("button", name="Resume")).to_be_disabled()


def test_the_saved_mask_file_serves_and_opens_with_all_that_was_scored_and_judged(
    open_panel: OpenPanel, follow: Callable[..., None], tmp_path: Path
) -> None:
    page, rows = open_panel(), scored()
    follow(page, [facts(), *rows, found(rows, held_out(cheapest(rows)["mask"])), status("done")])
    with page.expect_download() as download:
        press(page, "Save mask")
    assert download.value.suggested_filename == "viasd-mask-r33.json"
    path = tmp_path / "mask.json"
    download.value.save_as(path)
    assert read_mask(path, IDENTITY).bits == cheapest(rows)["mask"]
    history = [{key: value for key, value in row.items() if key != "kind"} for row in rows]
    assert json.loads(path.read_text("utf-8"))["history"] == history
    other = open_panel()
    other.get_by_label("Search file").set_input_files(path)
    other.wait_for_function(f"__viasd_dimr.masks === {len(rows)} && __viasd_dimr.judged")
    assert report(other)["best"] == cheapest(rows)["mask"]


def _mask_file(**changes: Any) -> str:
    content = found(scored(), None)["found"] | {"history": [], **changes}
    return json.dumps(content)


def _table(mask: str, cost: str = "0.5") -> str:
    header = "schema,run_id,step,method,cost,best_cost,mask,tau,t_us,accepted\n"
    return f"{header}viasd-trace/1,x,0,even,{cost},0.5,{mask},20,1,1\n"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("dimr.csv", _table(HOSTILE), "row 2 has no mask of"),
        ("dimr.csv", _table("101") + "viasd-trace/1,x,1,bo,1.0,0.5,10,20,1,0\n", "row 3 has no mask of 3"),
        ("dimr.csv", _table("101", "x"), 'cost is "x"'),
        ("dimr.csv", "", "is empty"),
        ("mask.json", "{", "not valid JSON"),
        ("mask.json", "[]", "viasd-mask/1"),
        ("mask.json", _mask_file(mask=HOSTILE), "holds no mask in 0 and 1"),
        ("mask.json", _mask_file(history=[{"mask": HOSTILE}]), "entry 1 in its history"),
        ("mask.json", _mask_file(history={}), "history that is no list"),
        ("trace.zip", "PK", "not"),
    ],
)
def test_a_file_that_cannot_be_right_is_refused_and_the_search_stays(
    open_panel: OpenPanel, follow: Callable[..., None], tmp_path: Path, name: str, content: str, sentence: str
) -> None:
    page, rows = open_panel(), scored()
    follow(page, [facts(), *rows, status("done")])
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    page.get_by_label("Search file").set_input_files(path)
    expect(page.get_by_role("alert")).to_contain_text(sentence)
    assert report(page)["masks"] == len(rows) and page.evaluate("window.__hit") is None


def test_hostile_words_in_a_file_are_inert(open_panel: OpenPanel, tmp_path: Path) -> None:
    page, rows = open_panel(query="?charts"), scored()
    judged = held_out(cheapest(rows)["mask"], curve=curve({4: 1.2}, 4 / LAYERS, HOSTILE))
    judged |= {"tier_gain": {"value": None, "reason": HOSTILE}, "predicted": {"rho": HOSTILE}}
    content = found(rows, judged)["found"] | {
        "origin": HOSTILE,
        "settings": HOSTILE,
        "history": [row | {"method": HOSTILE} for row in rows],
    }
    path = tmp_path / f"{HOSTILE.replace('/', '')}.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    page.get_by_label("Search file").set_input_files(path)
    page.wait_for_function("__viasd_dimr.judged")
    page.mouse.move(*centre(points(page).first))
    expect(page.locator(".dimr-curve-box")).to_contain_text("onerror")
    assert page.evaluate("window.__hit") is None
    assert page.locator(".viasd img, .viasd script").count() == 0


def test_the_buttons_tell_the_page_what_is_asked_for(
    open_panel: OpenPanel, follow: Callable[..., None]
) -> None:
    page, rows = open_panel(), scored()
    press(page, "Search")
    assert page.evaluate("triggers") == [["dimr_start", {"search": ""}]]
    follow(page, [status("running"), facts(), *rows])
    for name in ("Search", "Resume", "Judge", "Save mask"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_disabled()
    press(page, "Stop")
    page.locator(".mask-row").nth(3).click()
    press(page, "Use this mask")
    mask = {"search": "search-1", "mask": cheapest(rows, 3)["mask"]}
    assert page.evaluate("triggers.slice(-2)") == [["dimr_stop", {"search": "search-1"}], ["dimr_use", mask]]
    follow(page, [facts(), *rows, found(rows, None), status("stopped")], epoch="b")
    press(page, "Judge")
    assert page.evaluate("triggers.at(-1)") == ["dimr_resume", {"search": "search-1", "judge": True}]


@pytest.mark.parametrize("width", [390, 1440])
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


def test_a_trace_with_a_search_shows_it_below_the_run_and_one_without_does_not(
    open_page: Callable[..., Page], show: Callable[..., None]
) -> None:
    page, trace = open_page(query="?charts"), searched_trace()
    show(page, sample_traces.via_sd_trace())
    section = page.locator(".dimr-section")
    expect(section).to_be_hidden()
    show(page, trace, "run-2")
    expect(section).to_contain_text("How the layer mask was found")
    section.scroll_into_view_if_needed()
    points(page).first.wait_for()
    data = page.evaluate("document.querySelector('.dimr-cost').data.map((one) => [one.name, [...one.x]])")
    steps = {name: x for name, x in data}
    assert steps["Bayesian"] == [row.step for row in trace.dimr if row.method == "bo"]
    page.locator(".mask-row").first.click()
    expect(page.locator(".mask-strip")).to_have_attribute("data-mask", cheapest(scored())["mask"])


def test_an_opened_bundle_draws_the_search_it_holds(open_page: Callable[..., Page], tmp_path: Path) -> None:
    page, trace = open_page(), searched_trace()
    trace.save(tmp_path / "trace.zip")
    page.locator("input[type=file][aria-label='Trace file']").set_input_files(tmp_path / "trace.zip")
    expect(page.locator(".mask-row")).to_have_count(8)
    expect(page.locator(".mask-row").first).to_contain_text(f"step {cheapest(scored())['step']}")


def test_a_trace_whose_masks_are_none_says_so(
    open_page: Callable[..., Page], show: Callable[..., None]
) -> None:
    page, trace = open_page(), sample_traces.via_sd_trace()
    trace.dimr = [DimrRow(0, "even", 0.5, 0.5, HOSTILE, 20, 0, True)]
    assert wire.trace_messages(trace)[-1]["dimr"]
    show(page, trace)
    expect(page.locator(".dimr-section")).to_contain_text("row 2 has no mask")
    assert page.evaluate("window.__hit") is None

"""The layer-mask search in the browser, read from files and from the traces that hold one."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import sample_traces
from dimr_panel import (
    HOSTILE,
    IDENTITY,
    LAYERS,
    OpenPanel,
    centre,
    cheapest,
    curve,
    dimr_rows,
    facts,
    found,
    held_out,
    points,
    press,
    report,
    scored,
    searched_trace,
    status,
)
from viasd_core.dimr.masks import read_mask
from viasd_core.tables import DIMR, read_table
from viasd_core.trace import DimrRow
from viz import wire


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


def test_a_file_with_halves_of_layers_is_read_as_such_where_it_says_so(
    open_panel: OpenPanel, tmp_path: Path
) -> None:
    page, rows = open_panel(), scored(halves=True)
    path = tmp_path / "mask.json"
    history = [{key: value for key, value in row.items() if key != "kind"} for row in rows]
    path.write_text(json.dumps(found(rows, None)["found"] | {"history": history}), encoding="utf-8")
    page.get_by_label("Search file").set_input_files(path)
    expect(page.locator(".mask-words")).to_contain_text("keeps 20 of 24 halves of layers")
    with page.expect_download() as download:
        press(page, "Save mask")
    assert download.value.suggested_filename == "viasd-mask-r17-sublayer.json"
    trace = searched_trace()
    trace.dimr = dimr_rows(rows)
    trace.save(tmp_path / "trace.zip")
    page.get_by_label("Search file").set_input_files(tmp_path / "trace.zip")
    page.wait_for_function("__viasd_dimr.file === 'trace.zip'")
    expect(page.locator(".mask-words")).to_contain_text("keeps 20 of 24 halves of layers")
    with page.expect_download() as download:
        press(page, "Save dimr.csv")
    download.value.save_as(tmp_path / "dimr.csv")
    page.get_by_label("Search file").set_input_files(tmp_path / "dimr.csv")
    page.wait_for_function("__viasd_dimr.file === 'dimr.csv'")
    expect(page.locator(".mask-words")).to_contain_text("keeps 20 of 24 layers")
    expect(page.locator(".status-words")).to_contain_text("a digit taken as a layer")


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
        ("mask.json", _mask_file(layers=7), "not as long as its layers, or twice"),
        ("mask.json", _mask_file(layers="12"), "not as long as its layers, or twice"),
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
    expect(page.locator(".viasd img, .viasd script")).to_have_count(0)


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

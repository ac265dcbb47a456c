"""A layer-mask search on the real page: start, watch, touch, stop, use, save, open again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from page.examples import Example
from page.limits import Limits
from page.server import Page
from page_driver import Tab
from page_toys import endless_pair, serving, unhurried, until
from sample_traces import via_sd_trace
from viasd_core.trace_check import check

pytestmark = pytest.mark.slow  # minutes in a browser; tests/page and tests/viz hold the parts

Served = tuple[Page, str]
OpenTab = Callable[..., Tab]
LAYERS = 16


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A pair with layers enough to search, as slow as a real one."""
    path = tmp_path_factory.mktemp("traces") / "recorded.zip"
    via_sd_trace().save(path)
    pair = unhurried(endless_pair(layers=LAYERS))
    limits = Limits(idle_seconds=60, max_tokens=4000)
    with serving(lambda preset: pair, [Example("four cycles, every tier", path)], limits) as served:
        yield served


class MaskTab:
    """The layer-mask tab in a browser tab."""

    def __init__(self, tab: Tab) -> None:
        self.tab, self.page = tab, tab.page
        self.open()

    def open(self) -> None:
        self.page.get_by_role("tab", name="Layer mask").click()
        self.page.wait_for_function("window.__viasd_dimr && window.__viasd_dimr.ready")
        expect(self.page.locator("#viasd-dimr-steps input")).to_be_visible()

    def wait(self, condition: str) -> None:
        self.page.wait_for_function(f"() => ((shown) => {condition})(window.__viasd_dimr)")

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = self.page.evaluate("JSON.parse(JSON.stringify(window.__viasd_dimr))")
        return found

    def press(self, name: str) -> None:
        self.page.locator("#viasd-dimr").get_by_role("button", name=name, exact=True).click()

    def search(self, steps: int = 20_000) -> None:
        """Start a small search."""
        self.page.get_by_role("button", name="What masks are scored on").click()
        fields = {"skip_ratio": 0.4, "prompts": 2, "tokens": 4, "steps": steps, "patience": steps}
        for name, value in fields.items():
            self.tab.number(f"dimr-{name}", value)
        self.press("Search")
        self.wait("shown.run !== null")

    def stop(self) -> None:
        self.press("Stop")
        self.wait("['done', 'stopped'].includes(shown.state)")

    def dearest(self) -> tuple[float, float]:
        """Where on the screen the point of the largest cost is."""
        self.page.locator("#viasd-dimr .dimr-cost").scroll_into_view_if_needed()
        boxes = [
            point.bounding_box()
            for point in self.page.locator("#viasd-dimr .dimr-cost .scatterlayer .points path").all()
        ]
        top = min((box for box in boxes if box is not None), key=lambda box: box["y"])
        return top["x"] + top["width"] / 2, top["y"] + top["height"] / 2

    def saved(self, name: str, path: Path) -> Path:
        with self.page.expect_download() as download:
            self.press(name)
        download.value.save_as(path)
        return path


def test_a_search_is_watched_stopped_used_in_a_running_generation_saved_and_opened_again(
    open_tab: OpenTab, tmp_path: Path
) -> None:
    tab = open_tab(charts=True)
    masks = MaskTab(tab)
    masks.search()
    masks.wait("shown.points > 0")
    seen = masks.report()["points"]
    masks.wait(f"shown.points > {seen} + 2")
    masks.stop()
    assert masks.report()["state"] == "stopped"
    expect(tab.page.locator("#viasd-dimr")).to_contain_text("not judged yet")

    masks.wait("shown.ring !== null")
    place = masks.dearest()
    tab.page.mouse.move(*place)
    masks.wait("shown.shown !== shown.best")
    tab.page.mouse.click(*place)
    masks.wait("shown.pinned !== null")
    mask = masks.report()["pinned"]

    tab.page.get_by_role("tab", name="Run").click()
    tab.choose("mask", "even")
    tab.number("skip_ratio", 0.4)
    tab.start(method="VIA-SD")
    masks.open()
    masks.press("Use this mask")
    expect(tab.page.locator("#viasd-dimr-notice")).to_contain_text("from its next cycle")
    tab.page.get_by_role("tab", name="Run").click()
    cycles = tab.report()["cycles"]
    tab.wait(f"shown.cycles > {cycles + 3} && Object.keys(shown.pending).length === 0")
    tab.press("stop")
    tab.stopped()
    trace = tab.exported(tmp_path)
    assert check(trace) == []
    assert [trace.cycles[0].mask_id, trace.cycles[-1].mask_id] == ["even:6", f"bits:{mask}"]
    assert [row.mask for row in trace.dimr].count(mask) == 1
    tab.run()
    tab.press("stop")
    tab.stopped()
    expect(tab.page.locator(".viasd .run-words").first).to_contain_text(mask)

    masks.open()
    rows = masks.report()["points"]
    path = masks.saved("Save dimr.csv", tmp_path / "dimr.csv")
    other = MaskTab(open_tab())
    other.page.get_by_label("Search file").set_input_files(path)
    other.wait(f"shown.file === 'dimr.csv' && shown.points === {rows}")
    assert other.report()["best"] == masks.report()["best"]
    reader = open_tab()
    reader.page.get_by_label("Trace file").set_input_files(tmp_path / "saved.zip")
    reader.wait("shown.replay")
    expect(reader.page.locator(".dimr-section .mask-row").first).to_be_visible()


def test_a_reload_shows_the_search_again_and_another_tab_has_its_own(open_tab: OpenTab, site: Served) -> None:
    mine, theirs = MaskTab(open_tab()), MaskTab(open_tab())
    mine.search()
    mine.wait("shown.points > 2")
    run = mine.report()["run"]
    assert theirs.report()["run"] is None
    mine.page.reload()
    mine.tab.wait("shown.ready")
    mine.open()
    mine.wait("shown.points > 2")
    assert mine.report()["run"] == run and mine.report()["state"] == "running"
    theirs.search(steps=2)
    theirs.wait("shown.state === 'queued'")
    assert theirs.report()["points"] == 0
    mine.stop()
    theirs.wait("shown.state === 'done' && shown.judged")
    assert theirs.report()["points"] == 3 and theirs.report()["run"] != run
    until(lambda: site[0].engine.idle)


def test_the_tab_fits_a_phone_and_every_control_has_a_name(open_tab: OpenTab) -> None:
    masks = MaskTab(open_tab(390, 844))
    assert masks.page.evaluate("document.documentElement.scrollWidth") <= 390
    masks.page.get_by_role("button", name="Search", exact=True).click(trial=True)
    nameless = masks.page.evaluate(
        """[...document.querySelectorAll("button, input")]
        .filter((node) => node.offsetParent && !node.disabled && !(node.ariaLabel || node.textContent.trim()
                          || node.title || node.labels?.length || node.getAttribute("aria-labelledby")))
        .map((node) => node.outerHTML.slice(0, 120))"""
    )
    assert nameless == []

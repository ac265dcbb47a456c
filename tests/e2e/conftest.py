"""The real page on toy models in headless Chromium; every tab must stay free of script errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext

from page.examples import Example
from page.limits import Limits
from page.server import Page
from page_driver import Tab
from page_toys import HOSTILE, endless_pair, hostile_trace, serving, unhurried, until
from sample_traces import via_sd_trace

IDLE_S = 30.0
Served = tuple[Page, str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("traces")
    via_sd_trace().save(folder / "recorded.zip")
    hostile_trace().save(folder / "hostile.zip")
    pair = unhurried(endless_pair())
    shown = [
        Example("four cycles, every tier", folder / "recorded.zip"),
        Example(f"hostile {HOSTILE}", folder / "hostile.zip"),
    ]
    with serving(lambda preset: pair, shown, Limits(idle_seconds=IDLE_S, max_tokens=4000)) as served:
        yield served


@pytest.fixture
def open_tab(browser: Browser, site: Served) -> Iterator[Callable[..., Tab]]:
    """Open a tab in a browser context of its own, as another user would. Afterwards the slot must be free.

    Only a tab opened with `charts` gets the chart library: reading it costs a slow machine seconds a tab.
    """
    page, address = site
    tabs: list[tuple[BrowserContext, Tab]] = []

    def open_one(width: int = 1280, height: int = 900, query: str = "", charts: bool = False) -> Tab:
        context = browser.new_context(viewport={"width": width, "height": height}, accept_downloads=True)
        if not charts:
            context.route("**/plotly.min.js", lambda route: route.abort())
        tab = Tab(context.new_page(), address + query)
        tabs.append((context, tab))
        return tab

    yield open_one
    problems = [problem for _, tab in tabs for problem in tab.problems]
    for context, _ in tabs:
        context.close()
    until(lambda: page.engine.idle)
    assert problems == []


@pytest.fixture
def tab(open_tab: Callable[..., Tab]) -> Tab:
    return open_tab()

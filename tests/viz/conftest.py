"""One browser and one loopback site for the viewer's tests; every page must stay free of script errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

import sample_traces
import sample_trees
from dimr_panel import OpenPanel
from viasd_core.trace import Trace
from viewer_site import Site, serve


@pytest.fixture(scope="session")
def shared_site() -> Iterator[Site]:
    with serve() as site:
        yield site


@pytest.fixture
def site(shared_site: Site) -> Site:
    shared_site.logs.clear()
    shared_site.asked.clear()
    shared_site.limit = 2000
    return shared_site


@contextmanager
def watched(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages at an address, ready by `ready`; none may have reported an error or opened a dialog."""
    pages: list[Page] = []
    problems: list[str] = []

    def open_at(url: str, ready: str, width: int = 1280, height: int = 900, **options: Any) -> Page:
        page = browser.new_page(viewport={"width": width, "height": height}, **options)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(f"a dialog opened: {dialog.message}"))
        page.goto(url)
        page.wait_for_function(ready)
        pages.append(page)
        return page

    yield open_at
    for page in pages:
        page.close()
    assert problems == []


@pytest.fixture
def open_page(browser: Browser, site: Site) -> Iterator[Callable[..., Page]]:
    """Opens pages with the viewer mounted; fails the test when a page reported an error."""
    with watched(browser) as open_at:
        yield lambda width=1280, query="", **options: open_at(
            site.url + query, "window.__viasd && window.__viasd.ready", width, **options
        )


@pytest.fixture
def page(open_page: Callable[..., Page]) -> Page:
    return open_page()


@pytest.fixture
def show(site: Site) -> Callable[[Page, Trace], None]:
    """Shows a recorded trace and waits until all of it is painted."""

    def show_trace(page: Page, trace: Trace, run_id: str = "run-1") -> None:
        page.evaluate("value => push(value)", site.keep(run_id, trace))
        rows = len(trace.tokens)
        page.wait_for_function(f"__viasd.run === {run_id!r} && __viasd.painted === {rows} && !__viasd.live")

    return show_trace


@pytest.fixture
def via_sd(page: Page, show: Callable[..., None]) -> Page:
    """A page that shows the sample run with every tier."""
    show(page, sample_traces.via_sd_trace())
    return page


@pytest.fixture
def cure(page: Page, show: Callable[..., None]) -> Page:
    """A page that shows the sample run: repairs in cycles 1 (wins), 2 (loses) and 3 (wins)."""
    show(page, sample_trees.cure_run())
    return page


@pytest.fixture
def open_panel(browser: Browser, site: Site) -> Iterator[OpenPanel]:
    """Opens the panel on a bare page; fails the test when a page reported an error."""
    site.searches.clear()
    with watched(browser) as open_at:
        yield lambda width=1280, query="", **options: open_at(
            f"{site.url}panel{query}", "window.__viasd_dimr && window.__viasd_dimr.ready", width, **options
        )


@pytest.fixture
def follow(site: Site) -> Callable[..., None]:
    """Has a panel follow a search with these messages, and waits until it holds them."""

    def show(page: Page, messages: list[dict[str, Any]], epoch: str = "a", run: str = "search-1") -> None:
        site.searches[run] = (epoch, messages)
        page.evaluate("value => push(value)", {"run": run, "epoch": epoch})
        masks = sum(message["kind"] == "mask" for message in messages)
        page.wait_for_function(f"__viasd_dimr.run === {run!r} && __viasd_dimr.masks === {masks}")

    return show

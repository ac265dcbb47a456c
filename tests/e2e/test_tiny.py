"""The page on the default preset's real weights, which `make setup` brings."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from page.examples import examples
from page.pairs import load_preset_pair
from page_driver import Tab
from page_toys import serving, until
from viasd_core.trace_check import check


@pytest.mark.usefixtures("real_cache")
def test_the_default_pair_decodes_on_the_page_from_first_click_to_saved_trace(
    browser: Browser, tmp_path: Path
) -> None:
    with serving(load_preset_pair, examples()) as (page, address):
        tab = Tab(browser.new_page(accept_downloads=True), address)
        tab.wait("shown.tokens > 50 && shown.cycles > 10")
        recorded = tab.report()["run"]
        tab.number("max_new_tokens", 16)
        tab.press("run")
        tab.wait(f"shown.run !== {recorded!r} && shown.state === 'done' && !shown.running")
        trace = tab.exported(tmp_path)
        assert (trace.run["preset"], trace.run["method"]) == ("tiny", "via-sd")
        assert trace.run["prompt"] == "Explain photosynthesis to a child."
        assert tab.report()["text"] == trace.text and trace.text.strip()
        assert check(trace) == []
        assert tab.problems == []
        tab.page.close()
        until(lambda: page.engine.idle)

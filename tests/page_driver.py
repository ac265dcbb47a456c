"""A browser tab with the page in it, as a user sees and touches it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import expect

from viasd_core.trace import Trace

TIMEOUT_MS = 60_000
expect.set_options(timeout=TIMEOUT_MS)  # a loaded machine is slow, not wrong
AT_REST = "!['queued', 'loading', 'running'].includes(shown.state)"
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Tab:
    """Waits by what the viewer reports in `window.__viasd`, never by time."""

    def __init__(self, page: BrowserPage, address: str) -> None:
        self.page, self.address = page, address
        self.problems: list[str] = []
        page.set_default_timeout(TIMEOUT_MS)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", lambda dialog: self.problems.append(f"a dialog opened: {dialog.message}"))
        page.goto(address)
        self.wait("shown.ready && shown.run")  # with the recorded run that a new tab begins with
        expect(self.button("run")).to_be_enabled()

    def wait(self, condition: str) -> None:
        """Until a JavaScript condition on `shown`, the viewer's report, holds."""
        self.page.wait_for_function(f"() => ((shown) => shown && ({condition}))(window.__viasd)")

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = self.page.evaluate("JSON.parse(JSON.stringify(window.__viasd))")
        return found

    def button(self, name: str) -> Any:
        return self.page.locator(f"#viasd-{name}")

    def press(self, name: str) -> None:
        self.button(name).click()

    def choose(self, name: str, label: str) -> None:
        """An entry of a dropdown by the start of its words."""
        field = self.page.locator(f"#viasd-{name} input")
        field.click()
        self.page.get_by_role("option", name=label).first.click()

    def number(self, name: str, value: object) -> None:
        """Type into a number field, or into the number box of a slider."""
        field = self.page.locator(f"#viasd-{name} input[type=number]")
        field.fill(str(value))
        field.press("Tab")

    def prompt(self, text: str) -> None:
        self.page.locator("#viasd-prompt textarea").fill(text)

    def advanced(self) -> None:
        self.page.get_by_role("button", name="Advanced").click()

    @property
    def notice(self) -> str:
        return self.page.locator("#viasd-notice .viasd-notice").inner_text()

    def start(self, tokens: int = 4000, method: str = "SD (two tiers, lossless)") -> None:
        """Press Run with a method that toy models can serve, and wait for the run's first cycle."""
        self.choose("method", method)
        self.number("max_new_tokens", tokens)
        self.run()

    def run(self) -> None:
        before = self.report()["run"]
        self.press("run")
        self.wait(f"shown.run !== {before!r} && (shown.cycles > 0 || {AT_REST})")

    def stopped(self) -> None:
        self.wait("['done', 'stopped', 'error'].includes(shown.state) && !shown.running")

    def exported(self, folder: Path) -> Trace:
        """The whole trace as the Save menu writes it."""
        self.page.get_by_label("Save the trace").click()
        with self.page.expect_download() as download:
            self.page.get_by_role("menuitem", name="Whole trace").click()
        path = folder / "saved.zip"
        download.value.save_as(path)
        return Trace.load(path)

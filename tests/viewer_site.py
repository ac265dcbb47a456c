"""The viewer on a bare page: a stand-in for the component that mounts it, served over loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from playwright.sync_api import Locator, Page, expect
from plotly.offline import get_plotlyjs

from viasd_core.trace import Trace
from viz import viewer, wire

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>viewer</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body {{ margin: 0; padding: 16px; background: #fff; }} body.dark {{ background: #0b0f19; }}</style>
<style>{style}</style></head><body><div id="host">{template}</div>
<script src="{mount}"></script></body></html>"""

MOUNT = """
window.triggers = [];
window.props = {
  value: null, plotly_url: location.search === "?charts" ? "plotly.min.js" : "",
  keep_refused: location.search === "?refused" ? "strangers use this page" : "",
};
const watchers = [];
window.push = (value) => { props.value = value; for (const callback of watchers) callback(); };
const server = {fetch_since: async (asked) => {
  const reply = await fetch("fetch_since", {method: "POST", body: JSON.stringify(asked)});
  return reply.json();
}};
new Function("element", "trigger", "props", "server", "watch", SCRIPT)(
  document.getElementById("host"), (name, data) => triggers.push([name, data]), props, server,
  (name, callback) => watchers.push(callback));
"""


class Site:
    """Serves the viewer (charts at `?charts`) and, at `panel`, the layer-mask panel (that of a shared page at
    `?refused`); answers fetch_since from `logs`, run id -> messages, and from `searches`, id -> (epoch,
    messages).
    """

    def __init__(self) -> None:
        self.logs: dict[str, list[dict[str, Any]]] = {}
        self.searches: dict[str, tuple[str, list[dict[str, Any]]]] = {}
        self.asked: list[dict[str, Any]] = []
        self.limit = 2000
        self.url = ""

    def fetch_since(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(asked)
        if "epoch" in asked:
            return self.search_since(asked)
        log = self.logs.get(asked["run"])
        if log is None:
            return {"error": "this run is no longer kept"}
        last = asked["last"]
        found = log[last : last + self.limit]
        more = {"more": True} if last + len(found) < len(log) else {}
        return wire.batch(asked["run"], last + 1, found, **more)

    def search_since(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["run"] not in self.searches:
            return {"error": "this search is no longer kept"}
        epoch, log = self.searches[asked["run"]]
        last = asked["last"] if asked["epoch"] == epoch else 0
        return wire.batch(asked["run"], last + 1, log[last:], epoch=epoch)

    def keep(self, run_id: str, trace: Trace) -> dict[str, Any]:
        """Store a trace's messages; returns the value that opens it."""
        self.logs[run_id] = wire.trace_messages(trace)
        return wire.opening(run_id, len(self.logs[run_id]), show=True)


@contextmanager
def serve() -> Iterator[Site]:
    site = Site()
    parts = {
        "/": (viewer.template(), viewer.script(), "mount.js"),
        "/panel": (viewer.dimr_template(), viewer.script(viewer.DIMR_ENTRY), "mount_panel.js"),
    }
    files: dict[str, tuple[str, bytes]] = {}
    for path, (template, script, mount) in parts.items():
        page = PAGE.format(style=viewer.style(), template=template, mount=mount)
        files[path] = ("text/html; charset=utf-8", page.encode())
        files[f"/{mount}"] = ("text/javascript", f"const SCRIPT = {json.dumps(script)};\n{MOUNT}".encode())
    files |= {
        "/plotly.min.js": ("text/javascript", get_plotlyjs().encode()),
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = files.get(self.path.partition("?")[0])
            self.answer(200 if found else 404, *(found or ("text/plain", b"")))

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(200, "application/json", json.dumps(site.fetch_since(asked)).encode())

        def answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    site.url = f"http://127.0.0.1:{httpd.server_port}/"
    try:
        yield site
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


def cursor(page: Page) -> dict[str, Any]:
    """Where the viewer stands: cycle, place of the token in the output, pinned or not."""
    return dict(page.evaluate("__viasd.cursor"))


def at_cycle(page: Page, number: int) -> None:
    """Pin a cycle through the text."""
    page.locator(".tokens .t:not(.x)").first.click()
    for _ in range(number):
        page.get_by_role("button", name="next cycle").last.click()
    expect(page.locator(".cycle-panel h3")).to_have_text(f"Cycle {number}")


def token(page: Page, place: int) -> Locator:
    """The span of an output token of a trace without repairs and retractions."""
    return page.locator(".tokens .t:not(.x)").nth(place)

"""How fast the whole page is: `python benchmarks/page.py [--tokens 10000] [--out FILE.json]`. Needs Chromium.

Opens a long recorded run, then streams the same run through the live path, and prints the time until every
token is painted, the browser's longest task, and the delay from a cycle to its paint. Aims: 10,000 tokens
under 3 s, longest task under 200 ms, 95 % of the delays under 150 ms. It is a measurement, not a test.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from playwright.sync_api import Page, sync_playwright

from page.decoder import Step
from page.examples import Example, examples, messages_of
from page.job import Job
from page.limits import Limits
from page.server import close, launch, make_page
from viasd_core.trace import CycleEvent, Trace

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
AIMS = {"replay_s": 3.0, "stream_s": 3.0, "longest_task_ms": 200.0, "delay_p95_ms": 150.0}
WATCH_TASKS = """
window.tasks = [];
new PerformanceObserver((list) => { for (const entry of list.getEntries()) tasks.push(entry.duration); })
  .observe({entryTypes: ["longtask"]});
"""


def long_trace(tokens: int) -> Trace:
    """A recorded run repeated until it has so many tokens."""
    source = Trace.load(examples()[0].path)
    rows = {
        cycle.cycle: [row for row in source.tokens if row.cycle == cycle.cycle] for cycle in source.cycles
    }
    grown, out = Trace(run=dict(source.run)), 0
    while out < tokens:
        for cycle in source.cycles:
            number, moved = len(grown.cycles), []
            for row in rows[cycle.cycle]:
                moved.append(
                    replace(row, cycle=number, out_pos=out if row.emitted else None, audit_cycle=None)
                )
                out += row.emitted
            kept = sum(row.emitted for row in moved)
            grown.add(CycleEvent(replace(cycle, cycle=number, committed=kept, retracted=0), tuple(moved)))
    grown.finish = "length"
    grown.run |= {
        "token_ids": grown.token_ids,
        "text": grown.text,
        "totals": grown.summary(),
        "finish_reason": "length",
        "complete": True,
    }
    return grown


def events_of(trace: Trace) -> list[CycleEvent]:
    rows: dict[int, list[Any]] = {}
    for row in trace.tokens:
        rows.setdefault(row.cycle, []).append(row)
    return [CycleEvent(cycle, tuple(rows.get(cycle.cycle, ()))) for cycle in trace.cycles]


def player(trace: Trace, seconds: float) -> Any:
    """A decoder that plays the trace's cycles, spread over so many seconds."""
    events = events_of(trace)

    def decode(job: Job, index: int) -> Iterator[Step]:
        yield "start", {key: trace.run[key] for key in trace.run if key not in ("totals", "text")}, 0.0
        began = time.perf_counter()
        for number, event in enumerate(events, 1):
            due = began + seconds * number / len(events)
            time.sleep(max(0.0, due - time.perf_counter()))
            yield "cycle", replace(event, finish="length" if number == len(events) else None), number * 1e-3
        yield "end", None, seconds

    return decode


def open_page(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_function("() => window.__viasd && window.__viasd.ready")
    page.evaluate(WATCH_TASKS)
    page.wait_for_timeout(1000)
    page.evaluate("() => { window.tasks.length = 0; }")


def painted(page: Page, tokens: int) -> None:
    page.wait_for_function(f"() => window.__viasd.tokens >= {tokens} && window.__viasd.painted >= {tokens}")


def choose_recorded(page: Page, title: str) -> None:
    page.locator("#viasd-example input").click()
    page.get_by_role("option", name=title).first.click()


def measure(page: Page, address: str, trace: Trace, engine: Any, seconds: float) -> dict[str, float]:
    shown = sum(row.shown for row in trace.emitted)
    open_page(page, address)
    began = time.perf_counter()
    choose_recorded(page, "long run")
    painted(page, shown)
    result = {"replay_s": time.perf_counter() - began}  # after reading the bundle, which `messages_of` keeps
    result["replay_longest_task_ms"] = max(page.evaluate("() => window.tasks"), default=0.0)
    open_page(page, address)
    engine._decode = player(trace, 0.0)
    began = time.perf_counter()
    page.locator("#viasd-run").click()
    page.wait_for_function("() => window.__viasd.state === 'done' && !window.__viasd.running")
    painted(page, shown)
    result["stream_s"] = time.perf_counter() - began
    open_page(page, address)
    engine._decode = player(trace, seconds)
    page.locator("#viasd-run").click()
    page.wait_for_function("() => window.__viasd.running")
    page.wait_for_function("() => window.__viasd.state === 'done'", timeout=(seconds + 60) * 1000)
    painted(page, shown)
    delays = sorted(page.evaluate("() => window.__viasd.latencies"))
    result["delay_p50_ms"], result["delay_p95_ms"] = (
        delays[int(share * (len(delays) - 1))] for share in (0.5, 0.95)
    )
    result["longest_task_ms"] = max(page.evaluate("() => window.tasks"), default=0.0)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the page in headless Chromium.")
    parser.add_argument("--tokens", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=30.0, help="length of the paced stream")
    parser.add_argument("--out", help="also write the numbers here")
    args = parser.parse_args()
    trace = long_trace(args.tokens)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "long.zip"
        trace.save(path)
        shown = [*examples()[:1], Example("long run", path)]
        messages_of(path)
        made = make_page(Limits(max_tokens=10**6), loader=lambda preset: object(), shown=shown)
        _, address, _ = launch(made, block=False)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(180_000)
        numbers = measure(page, address, trace, made.engine, args.seconds)
        browser.close()
        close(made)
    for name, value in numbers.items():
        aim = AIMS.get(name)
        verdict = "" if aim is None else f"   aim {aim:g}: {'met' if value <= aim else 'missed'}"
        print(f"{name:24} {value:8.2f}{verdict}")
    if args.out:
        facts = {"tokens": args.tokens, "machine": platform.machine(), "python": platform.python_version()}
        Path(args.out).write_text(json.dumps(facts | numbers, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

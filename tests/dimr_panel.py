"""Made-up layer-mask searches, and where a panel shows them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator, Page

import sample_traces
from viasd_core.trace import DimrRow, Trace

LAYERS = 12
HOSTILE = "<img src=x onerror=window.__hit=1>${window.__hit=1}{{x}}</script>"
IDENTITY = {"kind": "folder", "id": "toy", "sha256": "0" * 64, "layers": LAYERS}
OpenPanel = Callable[..., Page]


def scored(count: int = 30, *, halves: bool = False) -> list[dict[str, Any]]:
    """The messages of a search: every unit alone, the even mask, random ones and a Bayesian step in five."""
    drawn = random.Random(3)
    units, ends = (2 * LAYERS, 2) if halves else (LAYERS, 1)
    price = [drawn.random() + 0.1 for _ in range(units)]
    rows: list[dict[str, Any]] = []
    for unit in range(ends, units - ends):
        mask = "".join("0" if place == unit else "1" for place in range(units))
        rows.append({"step": None, "method": "single", "mask": mask, "cost": price[unit], "best_cost": None})
    best = math.inf
    for step in range(count):
        gone = drawn.sample(range(ends, units - ends), 4)
        mask = "".join("0" if place in gone else "1" for place in range(units))
        cost = sum(price[unit] for unit in gone)
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
            "predicted": {"speed": speed, "rho": round(0.2 + skipped / 20, 3)},
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
    trace.run |= {"n_layers": LAYERS}
    return trace


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

"""The public endpoint of the layer-mask search, for `gradio_client` and plain HTTP: what `dimr` does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from viasd_core.errors import ViasdError

from .api import REPORT_S
from .dimr_form import DEFAULTS
from .dimr_runs import SearchRun
from .dimr_tab import SearchWiring
from .job import OWN
from .options import one_of
from .wiring import stream


class SearchApi:
    """Handlers of the public endpoint."""

    def __init__(self, searching: SearchWiring) -> None:
        self.searching = searching

    def connect(self) -> None:
        """Register the endpoint in the current Blocks."""
        gr.api(self.dimr_search, api_name="dimr_search", concurrency_limit=None)

    def dimr_search(
        self,
        preset: str = "",
        skip_ratio: float | None = None,
        search: str = "dimr",
        steps: int = DEFAULTS["steps"],
        theta: int = DEFAULTS["theta"],
        patience: int = DEFAULTS["patience"],
        window: int = 0,
        seed: int = 0,
        prompts: int = DEFAULTS["prompts"],
        tokens: int = DEFAULTS["tokens"],
        curve: bool = False,
        drafter: str = OWN,
        granularity: str = DEFAULTS["granularity"],
        own: str = "",
        rho: float = DEFAULTS["rho"],
        alpha: float = DEFAULTS["alpha"],
        beta: float = 0,
        phi: str = DEFAULTS["phi"],
        ends: bool = False,
        inside: str = "",
    ) -> Iterator[dict[str, Any]]:
        """Search which layers the slim verifier should skip, in the page's queue, behind runs that decode.

        Yields what is known so far; the last answer holds the mask file (`mask_file`) with its held-out
        numbers. `generate` takes the mask's string of 0 and 1 as `mask`. `granularity` is layer or sublayer:
        a mask of sub-layers has two digits a layer, attention and MLP. `own` are prompts, one a line, instead
        of the pair's; `beta` 0 is 1 - alpha; `inside` is a mask all of whose skipped layers are skipped too.
        """
        catalog, engine = self.searching.catalog, self.searching.engine
        values = {
            "search": search,
            "skip_ratio": skip_ratio,
            "granularity": granularity,
            "steps": steps,
            "theta": theta,
            "patience": patience,
            "window": window,
            "seed": seed,
            "prompts": prompts,
            "tokens": tokens,
            "own": own,
            "rho": rho,
            "alpha": alpha,
            "beta": beta,
            "phi": phi,
            "ends": ends,
            "inside": inside,
            "curve": curve,
        }
        try:
            name = one_of("preset", catalog.first if preset == "" else preset, catalog.presets)
            if skip_ratio is None:
                values["skip_ratio"] = catalog.defaults(name)["skip_ratio"]
            run = self.searching.new(name, drafter, values)
            self.searching.submit(run)
        except ViasdError as error:
            raise gr.Error(str(error), print_exception=False) from error
        try:
            for _ in stream(run, REPORT_S):
                yield report(run)
        finally:
            engine.stop(run, "the caller went away")


def report(run: SearchRun) -> dict[str, Any]:
    """A search's state and best mask so far and, once it has ended, its mask file."""
    seen = list(run.seen)
    answer: dict[str, Any] = {
        "state": run.state,
        "evaluations": len(seen),
        "planned": run.facts.get("planned"),
    }
    if best := next((row for row in reversed(seen) if row["accepted"]), None):
        answer |= {"mask": best["mask"], "cost": best["cost"]}
    if not run.ended:
        return answer
    answer |= {"message": run.last_words, "complete": run.complete}
    return answer | ({"mask_file": run.found | {"history": seen}} if run.found else {})

"""What stands behind the layer-mask tab, for tests without a browser."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from page.catalog import Catalog
from page.dimr_form import DEFAULTS
from page.dimr_runs import Searches, SearchRun
from page.dimr_tab import SearchWiring
from page.engine import Engine
from page.job import OWN
from page.limits import Limits
from page.runs import Run
from page.session import Sessions
from page_toys import toy_job
from viasd_core.pair import ModelPair

QUICK = {"skip_ratio": 0.4, "steps": 8, "theta": 3, "prompts": 3, "tokens": 6}
ENDLESS = {**QUICK, "steps": 100_000, "patience": 100_000, "skip_ratio": 0.5}
LAYERS = 16
ME, THEM = SimpleNamespace(session_hash="me"), SimpleNamespace(session_hash="them")
Make = Callable[..., "Desk"]


class Desk:
    """What stands behind the tab, without a browser."""

    def __init__(self, engine: Engine, pair: ModelPair, *, shared: bool = False) -> None:
        self.engine, self.pair = engine, pair
        self.sessions = Sessions(engine.stop)
        self.searches = Searches()
        self.catalog = Catalog(Limits(shared=shared))
        self.wiring = SearchWiring(engine, self.sessions, self.searches, self.catalog)

    def event(self, run: SearchRun | None = None, **more: Any) -> Any:
        return SimpleNamespace(search=run.id if run else "", **more)

    def form(self, **values: Any) -> list[Any]:
        return list((DEFAULTS | QUICK | values).values())

    def search(self, **values: Any) -> SearchRun:
        value, notice = self.wiring.start(self.event(), "tiny", OWN, *self.form(**values))
        assert notice["text"] == ""
        return self.found(value["run"])

    def found(self, search_id: str) -> SearchRun:
        run = self.searches.find(search_id)
        assert run is not None
        return run

    def resume(self, run: SearchRun, *, judge: bool = False, **values: Any) -> SearchRun:
        _, notice = self.wiring.resume(self.event(run, judge=judge), *self.form(**values))
        assert notice["text"] == ""
        return self.found(run.id)

    def decode(self, **settings: Any) -> Run:
        run = Run()
        self.engine.submit(run, toy_job(**settings))
        return run

    def keep(self, run: SearchRun | None) -> dict[str, str]:
        return self.wiring.keep(self.event(run))

    def use(self, mask: str, run: SearchRun | None, who: Any = ME, preset: str = "tiny") -> Any:
        return self.wiring.use(self.event(run, mask=mask), who, preset, "auto")

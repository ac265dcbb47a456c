"""The layer-mask tab: its form, and what happens when something on it is touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr

from viasd_core.errors import MaskError, SettingsError, ViasdError
from viz.viewer import dimr_template
from viz.wire import Message

from .assets import dimr_script
from .catalog import Catalog
from .dimr_form import DEFAULTS, LATER, SEARCH_BY_NAME, SEARCH_OPTIONS, read_for, read_search, unused_by
from .dimr_runs import Searches, SearchRun
from .engine import Engine
from .forms import control, notice_line, viewer_panel
from .job import Job, PairKey
from .options import MASK_CHOICES, is_bits, one_of
from .runs import Run
from .session import Sessions

GONE = "this search is no longer kept here; start it again, or open a saved file"
NOT_KEPT = "this page is shared: a mask kept here would change other people's runs; save it instead"
SHARED_TOKENS = 8192  # of all continuations: their hidden states are held in memory
SHOWN_BITS = 12  # of a mask in the menu


@dataclass(frozen=True)
class SearchParts:
    """Components of the tab that have behaviour; `controls` by option name."""

    controls: dict[str, Any]
    notice: gr.HTML
    panel: gr.HTML

    @property
    def form(self) -> list[Any]:
        return [self.controls[option.name] for option in SEARCH_OPTIONS]


def build(catalog: Catalog, fetch_since: Callable[..., Any]) -> SearchParts:
    """Lay the tab out inside the current Blocks."""
    gr.Markdown(
        "Which layers should the slim verifier skip? A search scores masks on the full verifier's own "
        "continuations. It runs on the model pair of the side panel, and lets decoding runs go first.",
        elem_id="viasd-dimr-about",
    )
    values = DEFAULTS | {"skip_ratio": catalog.defaults(catalog.first)["skip_ratio"]}
    controls: dict[str, Any] = {}

    def row(*names: str) -> None:
        with gr.Row(elem_classes="viasd-dimr-row"):
            for name in names:
                option = SEARCH_BY_NAME[name]
                width = 110 if option.kind == "number" else 220  # on a phone words need the whole line
                controls[name] = control(option, values[name], elem_id=f"viasd-dimr-{name}", min_width=width)

    row("search", "granularity", "skip_ratio")
    row("steps", "theta", "patience", "seed")
    with gr.Accordion("What masks are scored on", open=False):
        row("own")
        row("window", "rho", "prompts", "tokens")
        row("alpha", "beta", "phi")
    with gr.Accordion("Which masks may be found", open=False):
        row("inside")
        row("ends")
    controls["curve"] = control(SEARCH_BY_NAME["curve"], values["curve"], elem_id="viasd-dimr-curve")
    notice = notice_line("viasd-dimr-notice")
    refused = NOT_KEPT if catalog.limits.shared else ""
    panel = viewer_panel(dimr_template(), dimr_script(), "viasd-dimr", fetch_since, keep_refused=refused)
    return SearchParts(controls, notice, panel)


def words(text: str = "", level: str = "info") -> dict[str, str]:
    return {"text": text, "level": level}


class SearchWiring:
    """Event handlers of the tab; all answer at once."""

    def __init__(self, engine: Engine, sessions: Sessions, searches: Searches, catalog: Catalog) -> None:
        self.engine, self.sessions, self.searches, self.catalog = engine, sessions, searches, catalog

    def connect(self, parts: SearchParts, preset: Any, drafter: Any, mask: Any) -> None:
        """`preset`, `drafter` and `mask` are the page's own menus."""
        quick: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "queue": False}
        panel, answer = parts.panel, [parts.panel, parts.notice]
        panel.dimr_start(self.start, [preset, drafter, *parts.form], answer, **quick)
        panel.dimr_resume(self.resume, parts.form, answer, **quick)
        panel.dimr_stop(self.stop, None, parts.notice, **quick)
        panel.dimr_keep(self.keep, None, parts.notice, **quick)
        panel.dimr_use(self.use, [preset, mask], [mask, parts.notice], **quick)
        kind = parts.controls["search"]
        others = [parts.controls[option.name] for option in SEARCH_OPTIONS[1:]]
        kind.input(self.kind_chosen, kind, others, **quick)
        preset.input(self.preset_chosen, preset, [parts.controls["skip_ratio"], mask], **quick)

    def start(self, event: gr.EventData, preset: object, drafter: object, *form: Any) -> tuple[Any, Any]:
        """A new search on the page's current pair."""
        try:
            if (running := self._search(event)) is not None and not running.ended:
                raise SettingsError("a search is running here already; stop it first")
            return self.submit(self.new(preset, drafter, _named(form))), words()
        except ViasdError as error:
            return gr.skip(), words(str(error), "error")

    def new(self, preset: object, drafter: object, values: dict[str, Any]) -> SearchRun:
        """Raises SettingsError, DataError."""
        asked = read_search(values)
        if self.catalog.limits.shared and asked["prompts"] * asked["tokens"] > SHARED_TOKENS:
            product = asked["prompts"] * asked["tokens"]
            raise SettingsError(
                f"prompts times tokens is {product}; this page is shared, at most {SHARED_TOKENS} go"
            )
        name = one_of("preset", preset, self.catalog.presets)
        word = one_of("drafter", drafter, self.catalog.drafters(name))
        return self.searches.new(PairKey(self.catalog.given(name), word), asked)

    def submit(self, run: SearchRun) -> dict[str, Any]:
        """Queue the search; the panel's value that shows it. Raises BusyError."""
        assert run.job is not None
        self.engine.submit(run, run.job)
        self.searches.keep(run)
        return {"run": run.id, "epoch": run.epoch}

    def resume(self, event: gr.EventData, *form: Any) -> tuple[Any, Any]:
        """Go on where a search ended, with the form's steps, patience and curve; or only judge its mask."""
        try:
            old = self._search(event)
            if old is None:
                raise SettingsError(GONE)
            if not old.ended:
                raise SettingsError("the search is still running; stop it first")
            assert old.job is not None and not isinstance(old.job, Job)
            kind = old.job.asked["search"]
            changes = read_for(kind, LATER, _named(form))
            if getattr(event, "judge", False) is True and not unused_by(kind, "steps"):
                changes["steps"] = max(1, old.steps)
            return self.submit(self.searches.again(old, **changes)), words()
        except ViasdError as error:
            return gr.skip(), words(str(error), "error")

    def stop(self, event: gr.EventData) -> dict[str, str]:
        run = self._search(event)
        if run is None or run.ended:
            return words("no search is running here")
        self.engine.stop(run)
        return words()

    def keep(self, event: gr.EventData) -> dict[str, str]:
        """Store the mask of a search that ran here in the user's mask folder."""
        try:
            if self.catalog.limits.shared:
                raise SettingsError(NOT_KEPT)
            run = self._search(event)
            if run is None:
                raise SettingsError(GONE)
            if not run.ended or run.found is None:
                raise SettingsError("the search has no mask to keep before it has ended; stop it, or wait")
            path, replaced = self.searches.store(run)
        except ViasdError as error:
            return words(str(error), "error")
        before = ", in place of the one that was there" if replaced else ""
        return words(f"kept as {path.name} in the user's mask folder{before}; the next runs find it")

    def use(self, event: gr.EventData, request: gr.Request, preset: str, chosen: str) -> tuple[Any, Any]:
        """Take a mask for the run that is under way, from its next cycle, and for the tab's next runs."""
        mask, run = getattr(event, "mask", None), self._search(event)
        try:
            if not is_bits(mask) or "1" not in mask:
                raise MaskError("that is no layer mask; choose one of the search's")
            if run is not None:
                assert run.job is not None
                if run.job.pair.preset != self.catalog.given(preset):
                    raise MaskError(
                        f"the mask is for {run.facts.get('preset')}; choose that model pair first"
                    )
                self.sessions.remember_search(str(request.session_hash), run.rows())
            said = self._turn(self.sessions.live(request.session_hash), mask, run)
        except ViasdError as error:
            return gr.skip(), words(str(error), "error")
        units = "halves of layers" if run and run.facts.get("granularity") == "sublayer" else ""
        menu = gr.update(choices=[*MASK_CHOICES, (in_words(mask, units), mask)], value=mask)
        return menu, words(said)

    def _turn(self, live: Run | None, mask: str, search: SearchRun | None) -> str:
        """Give the mask to a run; says what that does. Raises MaskError, SettingsError."""
        if live is None or live.job is None or not isinstance(live.job, Job):
            return "the next VIA-SD runs of this tab skip these layers"
        if live.job.settings.method != "via-sd":
            return f"the next VIA-SD runs skip these layers; the present one is {live.job.settings.method}"
        layers = live.trace.run.get("n_layers")
        if layers is not None and len(mask) not in (layers, 2 * layers):
            raise MaskError(
                f"the mask has {len(mask)} digits, the running model {layers} layers; use a mask of its own"
            )
        if search is not None:
            live.trace.dimr = search.rows()
        self.engine.turn_knob(live, "mask", mask)
        return "the running generation skips these layers from its next cycle, and so do the next runs"

    def kind_chosen(self, kind: str) -> list[Any]:
        """Disable what the chosen search does not use."""
        return [
            gr.update(
                interactive=not unused_by(kind, option.name),
                info=f"not used by {kind}" if unused_by(kind, option.name) else option.info or None,
            )
            for option in SEARCH_OPTIONS[1:]
        ]

    def preset_chosen(self, preset: str) -> tuple[Any, Any]:
        """The pair's own skip ratio; a mask of another pair leaves the menu."""
        return self.catalog.defaults(preset)["skip_ratio"], gr.update(choices=list(MASK_CHOICES))

    def _search(self, event: gr.EventData) -> SearchRun | None:
        return self.searches.find(getattr(event, "search", None))


def _named(form: tuple[Any, ...]) -> dict[str, Any]:
    return {option.name: value for option, value in zip(SEARCH_OPTIONS, form, strict=True)}


def in_words(mask: str, units: str = "") -> str:
    """A searched mask in the menu; `units` says what its digits are, where that is not a layer each."""
    more = "…" if len(mask) > SHOWN_BITS else ""
    skipped = " ".join(filter(None, [f"{mask.count('0')} of {len(mask)}", units]))
    return f"from a search: skips {skipped} ({mask[:SHOWN_BITS]}{more})"


def reader_of(searches: Searches) -> Callable[[Any], Message]:
    """The panel's way to ask for messages it has not got. Its argument comes raw from a browser."""

    def fetch_since(asked: Any) -> Message:
        asked = asked if isinstance(asked, dict) else {}
        run, last = searches.find(asked.get("run")), asked.get("last")
        if run is None:
            return {"error": GONE}
        whole = isinstance(last, int) and not isinstance(last, bool) and 0 <= last <= run.total
        return run.batch(last if whole and asked.get("epoch") == run.epoch else 0)

    return fetch_since

"""What happens when something on the page is touched."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import gradio as gr

from viasd_core.errors import ViasdError
from viz.wire import opening

from .assets import narrow_script
from .catalog import Catalog
from .engine import Engine
from .examples import Example, messages_of
from .job import OWN
from .layout import Parts, drafter_menu
from .options import BY_NAME, LIVE, OPTIONS
from .runs import Run
from .session import Sessions

FLUSH_S = 1 / 12  # a browser is sent at most this many batches a second
HEARTBEAT_S = 1.0  # an empty batch when nothing happens, so that a vanished browser is noticed
NO_RUN = "nothing is running; press Run first"
NO_TORCH = "torch is not installed here, so nothing can be decoded; recorded runs play without it"


def buttons(live: bool, pause: str = "Pause") -> list[Any]:
    """Pause, Step and Stop: they act on a run, so without one they are off."""
    return [
        gr.update(value=pause, interactive=live),
        gr.update(interactive=live),
        gr.update(interactive=live),
    ]


def unchanged() -> list[Any]:
    return [gr.skip(), gr.skip(), gr.skip()]


def notice(text: str = "", level: str = "info") -> dict[str, str]:
    return {"text": text, "level": level}


class Wiring:
    """Event handlers. They answer at once; only `start` streams."""

    def __init__(self, engine: Engine, sessions: Sessions, catalog: Catalog, shown: list[Example]) -> None:
        self.engine, self.sessions, self.catalog, self.examples = engine, sessions, catalog, shown

    def connect(self, demo: gr.Blocks, parts: Parts) -> None:
        private: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
        quick: dict[str, Any] = {**private, "queue": False}
        transport = [parts.pause, parts.step, parts.stop]
        demo.load(self.opened, parts.example, [parts.viewer, parts.notice], **quick)
        demo.load(None, js=narrow_script())
        demo.unload(self.closed)
        parts.run.click(
            self.start,
            parts.form,
            [parts.viewer, parts.notice, *transport],
            concurrency_limit=None,
            trigger_mode="multiple",  # "once" drops a press while the last words of a run are on their way
            **private,
        )
        parts.pause.click(self.pause, None, [parts.notice, *transport], **quick)
        parts.step.click(self.step, None, [parts.notice, *transport], **quick)
        parts.stop.click(self.stop, None, [parts.notice, *transport], **quick)
        parts.example.input(self.open_example, parts.example, [parts.viewer, parts.notice], **quick)
        rule = [parts.method, parts.controls["strict"], parts.controls["temperature"]]
        last_wins: dict[str, Any] = {**quick, "trigger_mode": "always_last"}
        for option in LIVE:
            slider = parts.controls[option.name]
            slider.input(self.knob(option.name), [slider, *rule], parts.form_notice, **last_wins)
        parts.controls["strict"].input(self.check_strict, rule, parts.form_notice, **last_wins)
        tiers = parts.controls["tiers"]
        named = [parts.preset, parts.method, tiers, parts.controls["mask"], parts.controls["rule_c"]]
        gr.on([tiers.blur, tiers.submit], self.check_tiers, named, parts.form_notice, **last_wins)
        controls = [parts.controls[option.name] for option in OPTIONS]
        parts.method.input(self.method_chosen, parts.method, [parts.drafter, *controls], **quick)
        chosen = [parts.prompt, parts.method, parts.notice, parts.drafter, *controls]
        parts.preset.input(self.preset_chosen, parts.preset, chosen, **quick)

    # -- opening and closing the tab

    def opened(self, index: int | None, request: gr.Request) -> tuple[Any, dict[str, str]]:
        """A fresh tab shows a recorded run, and says so when nothing else is possible."""
        viewer, problem = self._recorded(index, request, fresh=True)
        if find_spec("torch") is None:
            problem = notice(NO_TORCH)
        return viewer, problem

    def closed(self, request: gr.Request) -> None:
        self.sessions.close(request.session_hash)

    def open_example(self, index: int | None, request: gr.Request) -> tuple[Any, dict[str, str]]:
        """Show a recorded run; a live run goes on behind it."""
        return self._recorded(index, request, show=True)

    def _recorded(self, index: int | None, request: gr.Request, **shown: bool) -> tuple[Any, dict[str, str]]:
        if index is None or not 0 <= index < len(self.examples):
            return gr.skip(), notice()
        try:
            trace, messages = messages_of(self.examples[index].path)
        except ViasdError as error:
            return gr.skip(), notice(str(error), "error")
        run = Run(messages)
        run.trace = trace
        self.sessions.add(str(request.session_hash), run)
        return opening(run.id, run.total, **shown), notice()

    # -- the run

    def start(self, request: gr.Request, *form: Any) -> Iterator[tuple[Any, ...]]:
        """Decode, and stream the viewer's batches until the run has ended."""
        owner = str(request.session_hash)
        prompt, preset, method, drafter, *values = form
        run = Run()
        try:
            named = {option.name: value for option, value in zip(OPTIONS, values, strict=True)}
            job = self.catalog.job(prompt, preset, method, drafter, named)
            if (earlier := self.sessions.live(owner)) is not None:
                self.engine.stop(earlier, "a new run was started in this tab")
            self.engine.submit(run, job)
        except ViasdError as error:
            yield gr.skip(), notice(str(error), "error"), *unchanged()
            return
        run.trace.dimr = self.sessions.searched(owner, job.settings.mask)
        self.sessions.add(owner, run, live=True)
        more = [notice(), *buttons(True)]
        try:
            for batch in stream(run):
                yield batch, *more
                more = [gr.skip(), *unchanged()]
        finally:
            self.engine.stop(run, "the page was closed")
        replaced = self.sessions.live(owner) is not None  # the buttons are another run's by now
        yield gr.skip(), gr.skip(), *(unchanged() if replaced else buttons(False))

    def pause(self, request: gr.Request) -> list[Any]:
        """Pause, or go on."""
        run = self.sessions.live(request.session_hash)
        if run is None or run.slot is None:
            return [notice(NO_RUN), *buttons(False)]
        if run.slot.control.paused:
            self.engine.resume(run)
            return [notice(), *buttons(True)]
        self.engine.pause(run)
        return [notice(), *buttons(True, "Resume")]

    def step(self, request: gr.Request) -> list[Any]:
        run = self.sessions.live(request.session_hash)
        if run is None:
            return [notice(NO_RUN), *buttons(False)]
        self.engine.step(run)
        return [notice(), *buttons(True, "Resume")]

    def stop(self, request: gr.Request) -> list[Any]:
        run = self.sessions.live(request.session_hash)
        if run is None:
            return [notice(NO_RUN), *buttons(False)]
        self.engine.stop(run)
        return [notice(), *buttons(False)]

    # -- settings

    def knob(self, name: str) -> Any:
        """A handler of its own for each slider, so that none waits for another."""

        def turn(value: float, method: str, strict: bool, temperature: float, request: gr.Request) -> Any:
            run = self.sessions.live(request.session_hash)
            if run is None:
                return self.check_strict(method, strict, temperature)
            try:
                self.engine.turn_knob(run, name, BY_NAME[name].read(value))
            except ViasdError as error:
                return notice(str(error), "error")
            return notice()

        return turn

    def check_strict(self, method: str, strict: bool, temperature: float) -> dict[str, str]:
        return self._check(self.catalog.first, method, strict=strict, temperature=temperature)

    def check_tiers(self, preset: str, method: str, tiers: str, mask: str, rule_c: str) -> dict[str, str]:
        return self._check(preset, method, tiers=tiers, mask=mask, rule_c=rule_c)

    def _check(self, preset: str, method: str, **values: Any) -> dict[str, str]:
        """Say at once what Run would refuse."""
        try:
            self.catalog.settings(preset, method, values)
        except ViasdError as error:
            return notice(str(error), "error")
        return notice()

    def method_chosen(self, method: str) -> list[Any]:
        """Enable what the method uses; the rest says why it is off, or is not shown."""
        drafter = gr.update(
            interactive=method != "ar", info="not used by ar: nothing is drafted" if method == "ar" else None
        )
        return [
            drafter,
            *(
                gr.update(
                    interactive=option.used_by(method),
                    info=option.info_for(method) or None,
                    visible=option.shown_with(method),
                )
                for option in OPTIONS
            ),
        ]

    def preset_chosen(self, preset: str) -> list[Any]:
        """The pair's own method, settings, drafter and prompt."""
        found = self.catalog.presets[preset]
        values = self.catalog.defaults(preset)
        drafter, *controls = self.method_chosen(found.method)
        drafter |= {"choices": drafter_menu(self.catalog, preset), "value": OWN}
        for option, update in zip(OPTIONS, controls, strict=True):
            update["value"] = option.shown(values[option.name])
        return [self.catalog.prompt(preset), found.method, notice(found.description), drafter, *controls]


def stream(run: Run, every: float = FLUSH_S) -> Iterator[dict[str, Any]]:
    """The run's messages in batches `every` so many seconds, and an empty one while nothing happens."""
    last = 0
    while True:
        run.wait(last, HEARTBEAT_S)
        sent = time.monotonic()
        batch = run.batch(last)
        last = batch["seq"]
        yield batch
        if run.ended and last == run.total:
            return
        time.sleep(max(0.0, every - (time.monotonic() - sent)))

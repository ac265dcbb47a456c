"""The public API: generate, export and list, for `gradio_client` and plain HTTP. Inputs are checked here."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Iterator
from typing import Any

import gradio as gr

from viasd_core.cli.generate import as_json
from viasd_core.errors import SettingsError, TraceError, ViasdError
from viasd_core.method_options import METHOD_OPTIONS, METHODS, check_drafter, refuse_unused
from viasd_core.settings import refuse_idle

from .catalog import Catalog
from .engine import Engine
from .examples import Example
from .job import OWN
from .options import BY_NAME, LIVE, OPTIONS, one_of
from .runs import Run
from .session import Sessions
from .wiring import stream

REPORT_S = 0.5  # between two reports of a running generation


class Api:
    """Handlers of the public endpoints."""

    def __init__(self, engine: Engine, sessions: Sessions, catalog: Catalog, shown: list[Example]) -> None:
        self.engine, self.sessions, self.catalog, self.examples = engine, sessions, catalog, shown

    def connect(self) -> None:
        """Register the endpoints in the current Blocks."""
        gr.api(self.generate, api_name="generate", concurrency_limit=None)
        gr.api(self.export, api_name="export", queue=False)
        gr.api(self.list, api_name="list", queue=False)

    def generate(
        self,
        request: gr.Request,
        prompt: str,
        preset: str = "",
        method: str = "",
        drafter: str = OWN,
        max_new_tokens: int = 64,
        temperature: float = 0.0,
        seed: int = 0,
        alpha1: float | None = None,
        alpha2: float | None = None,
        gamma: int | None = None,
        skip_ratio: float | None = None,
        strict: bool = False,
        mask: str | None = None,
        more: dict[str, Any] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Decode a prompt with the whole page's queue. Yields what is known so far; the last is complete.

        Settings left out are the preset's, as is an empty method; `drafter` is one that `list` names for the
        preset; `mask` is auto, even or a string of 0 and 1; `more` holds any further settings that `list`
        names for the method, such as {"tiers": "0.4,0.2"} for two slim verifiers, the weaker one first.
        `run` in the answer is the id that `export` takes.
        """
        given = {
            "alpha1": alpha1,
            "alpha2": alpha2,
            "gamma": gamma,
            "skip_ratio": skip_ratio,
            "strict": None if strict is False else strict,
            "mask": mask,
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        run = Run()
        try:
            preset = one_of("preset", self.catalog.first if preset == "" else preset, self.catalog.presets)
            if method == "":
                method = self.catalog.presets[preset].method
            chosen |= further(more, {*given, "max_new_tokens", "temperature", "seed"})
            fields = set(chosen)
            chosen = by_control(method, chosen)
            wanted = min(BY_NAME["max_new_tokens"].read(max_new_tokens), self.catalog.limits.max_tokens)
            values = chosen | {"max_new_tokens": wanted, "temperature": temperature, "seed": seed}
            job = self.catalog.job(prompt, preset, method, drafter, values)
            if job.settings.slim_tiers and skip_ratio is not None:
                raise SettingsError("skip_ratio and tiers contradict each other; give the ratios to tiers")
            refuse_idle(job.settings, fields)
            check_drafter(job.settings.method, self.catalog.drafter_kind(preset, drafter), fields)
            self.engine.submit(run, job)
        except ViasdError as error:
            raise gr.Error(str(error), print_exception=False) from error
        self.sessions.add(str(request.session_hash), run)
        try:
            for _ in stream(run, REPORT_S):
                yield report(run)
        finally:
            self.engine.stop(run, "the caller went away")

    def export(self, run: str) -> dict[str, Any]:
        """The trace bundle (zip) of one of your runs, also of one that was stopped."""
        found = self.sessions.find(run)
        folder = self.sessions.folder(found) if found else None
        if found is None or folder is None:
            raise gr.Error(
                "there is no such run; give an id that generate answered with in this session",
                print_exception=False,
            )
        if not found.trace.cycles or not found.ended:
            raise gr.Error(
                "the run holds no finished trace yet; wait until it has ended", print_exception=False
            )
        path = folder / "viasd-trace.zip"
        try:
            found.trace.save(path)
        except TraceError as error:
            raise gr.Error(str(error), print_exception=False) from error
        return {"path": str(path), "meta": {"_type": "gradio.FileData"}}

    def list(self) -> dict[str, Any]:
        """Presets, methods with their settings, drafters that fit each preset, caps and recorded runs."""
        return {
            "presets": {name: preset.description for name, preset in self.catalog.presets.items()},
            "methods": {name: sorted(METHOD_OPTIONS[name]) for name in METHODS},
            "drafters": {name: self.catalog.drafters(name) for name in self.catalog.presets},
            "live": [option.name for option in LIVE],
            "max_new_tokens": self.catalog.limits.max_tokens,
            "max_prompt": self.catalog.limits.max_prompt,
            "recorded": [item.title for item in self.examples],
        }


def further(more: object, named: Collection[str]) -> dict[str, Any]:
    """Settings of a caller's mapping; those in `named` have arguments of their own. Raises SettingsError."""
    if more is None:
        return {}
    if not isinstance(more, dict):
        raise SettingsError(f"more is {reprlib.repr(more)}; give a mapping of settings")
    known = [field for field in dict.fromkeys(option.field for option in OPTIONS) if field not in named]
    return {one_of("further setting", name, known): value for name, value in more.items()}


def by_control(method: object, fields: dict[str, Any]) -> dict[str, Any]:
    """Settings by field as the form has them, by control. Raises SettingsError for one the method ignores."""
    if not isinstance(method, str) or method not in METHODS:
        return {}  # refused with the job
    refuse_unused(method, set(fields))
    used = [option for option in OPTIONS if option.field in fields and option.used_by(method)]
    return {option.name: fields[option.field] for option in used}


def report(run: Run) -> dict[str, Any]:
    """A run's state and, once it has ended, its result."""
    trace = run.trace
    answer: dict[str, Any] = {
        "run": run.id,
        "state": run.state,
        "new_tokens": sum(row.committed for row in list(trace.cycles)),
    }
    if not run.ended:
        return answer
    answer["message"] = run.last_words
    if not trace.cycles:
        return answer
    result = as_json(trace, None)
    del result["trace"]  # `export` gives it
    return answer | result

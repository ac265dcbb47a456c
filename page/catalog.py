"""What the page offers: presets by name, and a job read from a form or an API call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from viasd_core.errors import PromptError, SettingsError
from viasd_core.presets import Preset, load_preset, preset_names
from viasd_core.settings import COMMON_OPTIONS, METHOD_OPTIONS, METHODS, Settings

from .job import Job, PairKey
from .limits import Limits
from .options import OPTIONS

DRAFTERS = ("preset", "lookup", "layer-skip")
FIRST_PROMPT = "Write three sentences about rivers."


class Catalog:
    """The shipped presets, and one more when the page was started with a preset file."""

    def __init__(self, limits: Limits, first: str = "tiny", max_new_tokens: int | None = None) -> None:
        self.limits = limits
        self.presets: dict[str, Preset] = {name: load_preset(name) for name in preset_names()}
        self._given = {name: name for name in self.presets}
        opened = load_preset(first)
        if first not in self.presets:
            opened_name = Path(first).stem if Path(first).stem not in self.presets else first
            self.presets[opened_name], self._given[opened_name] = opened, first
            first = opened_name
        self.first = first
        self.first_tokens = min(max_new_tokens or 128, limits.max_tokens)

    def defaults(self, preset: str) -> dict[str, Any]:
        """Value of every option for a preset: its own, else the engine's."""
        values = {option.name: getattr(Settings(), option.name) for option in OPTIONS}
        values |= {name: value for name, value in self.presets[preset].settings.items() if name in values}
        return values | {"max_new_tokens": self.first_tokens}

    def prompt(self, preset: str) -> str:
        """The first of the preset's own prompts."""
        return next(iter(self.presets[preset].prompts), FIRST_PROMPT)

    def source(self, preset: str) -> str:
        """What the loader is given: a shipped name, or the file it was opened with. Raises SettingsError."""
        if preset not in self._given:
            raise SettingsError(f"there is no preset {preset!r}; choose one of {', '.join(self._given)}")
        return self._given[preset]

    def job(self, prompt: object, preset: str, method: str, drafter: str, values: Mapping[str, Any]) -> Job:
        """A checked job. Values of options the method does not use are left out.

        Raises SettingsError for a bad value, PromptError for an empty or overlong prompt.
        """
        if not isinstance(prompt, str) or not prompt.strip():
            raise PromptError("the prompt is empty; write something to continue from")
        if len(prompt) > self.limits.max_prompt:
            raise PromptError(
                f"the prompt has {len(prompt)} characters, {self.limits.max_prompt} fit; shorten it"
            )
        if drafter not in DRAFTERS:
            raise SettingsError(f"there is no drafter {drafter!r}; choose one of {', '.join(DRAFTERS)}")
        source = self.source(preset)
        return Job(PairKey(source, drafter), prompt, self.settings(preset, method, values))

    def settings(self, preset: str, method: str, values: Mapping[str, Any]) -> Settings:
        """Checked settings of a form. Raises SettingsError."""
        if method not in METHODS:
            raise SettingsError(f"there is no method {method!r}; choose one of {', '.join(METHODS)}")
        used = COMMON_OPTIONS | METHOD_OPTIONS[method]
        chosen = {
            option.name: option.read(values[option.name]) for option in OPTIONS if option.name in values
        }
        merged = {name: value for name, value in (self.defaults(preset) | chosen).items() if name in used}
        wanted = merged["max_new_tokens"]
        if isinstance(wanted, int) and wanted > self.limits.max_tokens:
            raise SettingsError(
                f"max new tokens is {wanted}; this page makes at most {self.limits.max_tokens} a run"
            )
        return Settings(method=method, **merged)

"""What the page offers: presets by name, and a job read from a form or an API call."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from viasd_core.errors import PromptError, SettingsError
from viasd_core.method_options import METHODS
from viasd_core.presets import Preset, drafter_choices, load_preset, parse_drafter, preset_names
from viasd_core.settings import Settings
from viasd_core.tier_names import VIA_SD_TIERS

from .job import OWN, Job, PairKey
from .limits import Limits
from .options import OPTIONS, is_bits, one_of

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

    def given(self, preset: str) -> str:
        """What a preset is loaded by: its name, or its file."""
        return self._given[preset]

    def defaults(self, preset: str) -> dict[str, Any]:
        """Value of every option for a preset: its own, else the engine's."""
        own = asdict(Settings()) | self.presets[preset].settings
        values = {option.name: own[option.field] for option in OPTIONS}
        if values["tiers"] == VIA_SD_TIERS:  # of a preset for CURE
            values["tiers"] = ()
        else:
            values["tree_tiers"] = ()
        return values | {"max_new_tokens": self.first_tokens}

    def prompt(self, preset: str) -> str:
        """The first of the preset's own prompts."""
        return next(iter(self.presets[preset].prompts), FIRST_PROMPT)

    def drafters(self, preset: str) -> list[str]:
        """Words of the drafters that fit a preset's verifier: `preset` for its own, then the named ones."""
        return [OWN, *drafter_choices(self.presets[preset])]

    def own_drafter(self, preset: str) -> str:
        """Which of the named drafters is the preset's own; empty when none is."""
        own = self.presets[preset].drafter
        for word in drafter_choices(self.presets[preset]):
            spec = parse_drafter(word)
            if spec == own or (spec.kind == own.kind and own.source is None):
                return word
        return ""

    def drafter_kind(self, preset: str, drafter: str) -> str:
        """What a word of `drafters` stands for: none, lookup, layer-skip or model."""
        return self.presets[preset].drafter.kind if drafter == OWN else parse_drafter(drafter).kind

    def job(
        self, prompt: object, preset: object, method: object, drafter: object, values: Mapping[str, Any]
    ) -> Job:
        """A checked job; anything may be given. Values of options the method does not use are left out.

        Raises SettingsError for a bad value, PromptError for an empty or overlong prompt.
        """
        if not isinstance(prompt, str):
            raise PromptError(f"the prompt is {reprlib.repr(prompt)}; give text")
        if not prompt.strip():
            raise PromptError("the prompt is empty; write something to continue from")
        if len(prompt) > self.limits.max_prompt:
            raise PromptError(
                f"the prompt has {len(prompt)} characters, {self.limits.max_prompt} fit; shorten it"
            )
        preset = one_of("preset", preset, self.presets)
        drafter = one_of("drafter", drafter, self.drafters(preset))
        settings = self.settings(preset, method, values)
        return Job(PairKey(self._given[preset], drafter), prompt, settings)

    def settings(self, preset: str, method: object, values: Mapping[str, Any]) -> Settings:
        """Checked settings of a form. Raises SettingsError."""
        method = one_of("method", method, METHODS)
        chosen = {
            option.name: option.read(values[option.name]) for option in OPTIONS if option.name in values
        }
        known = self.defaults(preset) | chosen
        merged = {option.field: known[option.name] for option in OPTIONS if option.used_by(method)}
        if method == "via-sd":
            self._check_tiers(preset, merged["tiers"])
        wanted = merged["max_new_tokens"]
        if isinstance(wanted, int) and wanted > self.limits.max_tokens:
            raise SettingsError(
                f"max new tokens is {wanted}; this page makes at most {self.limits.max_tokens} a run"
            )
        return Settings(method=method, **merged)

    def _check_tiers(self, preset: str, tiers: Sequence[float | str]) -> None:
        """The page loads no model and reads no file that its preset does not name, whoever asks. Raises
        SettingsError.
        """
        own = self.presets[preset].settings.get("tiers", ())
        for tier in tiers:
            if isinstance(tier, str) and not is_bits(tier) and tier not in own:
                raise SettingsError(
                    f"tiers names {reprlib.repr(tier)}, which this page does not offer; give skip ratios as "
                    "in 0.5,0.2, masks of 0 and 1, or what the preset names"
                )

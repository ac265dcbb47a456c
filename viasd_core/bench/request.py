"""What a benchmark is asked to do, checked before anything is loaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import DataError, SettingsError
from ..method_options import COMMON_OPTIONS, METHOD_OPTIONS, METHODS
from ..settings import Settings
from ..tier_names import parse_tiers, public_tier
from .results import BASE, read_result

BASELINES = ("hf", "hf-assisted", "hf-lookup")


@dataclass(frozen=True)
class Request:
    """What to measure. `overrides` are Settings values in place of the preset's. Raises SettingsError,
    DataError."""

    preset: str
    methods: tuple[str, ...]
    data: Path
    out: Path
    traces: Path | None = None  # a folder for a bundle of every prompt and traced method
    baselines: tuple[str, ...] = ()
    task: str | None = None
    limit: int | None = None
    max_new_tokens: int = 128
    repeats: int = 3
    best_gamma: bool = False
    tracing_cost: bool = False
    raw: bool = False
    overrides: dict[str, Any] = field(default_factory=dict)
    verifier: str | None = None
    drafter: str | None = None
    more_drafters: tuple[str, ...] = ()  # the drafting methods are measured with each of these as well
    ablations: bool = False  # cure is measured without branch 0, without resynchronisation and without both
    skip_ratios: tuple[float, ...] = ()  # via-sd is measured at each of these as well
    tiers: tuple[str, ...] = ()  # via-sd is measured with each of these tiers as well, `0.6,0.45` for one
    dtype: str = "auto"
    device: str = "auto"

    def __post_init__(self) -> None:
        _check_names("--methods", self.methods, METHODS)
        _check_names("--baselines", self.baselines, BASELINES)
        for flag, value in (("--limit", self.limit), ("--repeats", self.repeats)):
            if value is not None and value < 1:
                raise SettingsError(f"{flag} is {value}; give a whole number of at least 1")
        if not self.methods:
            raise SettingsError(f"--methods is empty; name at least one of {', '.join(METHODS)}")
        if self.tracing_cost and "via-sd" not in self.methods:
            raise SettingsError("--tracing-cost measures via-sd; add via-sd to --methods")
        if self.ablations and "cure" not in self.methods:
            raise SettingsError("--ablations takes parts of cure away; add cure to --methods")
        for flag, given in (("--skip-ratios", self.skip_ratios), ("--tiers", self.tiers)):
            if given and "via-sd" not in self.methods:
                raise SettingsError(f"{flag} is about via-sd; add via-sd to --methods")
        variants = [Settings(skip_ratio=ratio) for ratio in self.skip_ratios]
        variants += [Settings(tiers=parse_tiers(tiers)) for tiers in self.tiers]
        _check_apart("--skip-ratios and --tiers ask", [variant_label(settings) for settings in variants])
        if self.more_drafters and set(self.methods) <= {BASE}:
            raise SettingsError("--more-drafters needs a method that drafts; add sd or via-sd to --methods")
        _check_apart("--more-drafters asks", [drafter_label(drafter) for drafter in self.more_drafters])
        if self.best_gamma and not any("gamma" in METHOD_OPTIONS[method] for method in self.methods):
            raise SettingsError("--best-gamma needs a method that drafts; add sd or via-sd to --methods")
        _refuse_unused(self.methods, self.overrides)
        _check_writable(self.out, self.data)
        if self.traces is not None:
            _check_folder(self.traces, self.out)

    @property
    def all_methods(self) -> tuple[str, ...]:
        """The methods asked for, with plain decoding added in front where it was left out."""
        return self.methods if BASE in self.methods else (BASE, *self.methods)


def split_names(text: str) -> tuple[str, ...]:
    """`"ar, sd"` -> ("ar", "sd")."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _check_names(flag: str, given: Sequence[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise SettingsError(f"{flag} names {name!r}, which is unknown; choose from {', '.join(known)}")
        if given.count(name) > 1:
            raise SettingsError(f"{flag} names {name!r} more than once; name it once")


def variant_label(settings: Settings) -> str:
    """What VIA-SD with another skip ratio or other tiers is called; no folders of this machine in it."""
    if not settings.tiers:
        return f"via-sd, r {settings.skip_ratio:g}"
    return "via-sd, tiers " + ",".join(str(public_tier(tier)) for tier in settings.tiers)


def drafter_label(drafter: str) -> str:
    """What a further drafter is called: results are shared, so no folders of this machine."""
    return drafter.rstrip("/").rsplit("/", 1)[-1]


def _check_apart(asking: str, labels: Sequence[str]) -> None:
    """Two lanes of one name would be taken for one."""
    for label in labels:
        if labels.count(label) > 1:
            raise SettingsError(f"{asking} twice for what results would call {label!r}; ask for it once")


def _refuse_unused(methods: Sequence[str], overrides: dict[str, Any]) -> None:
    used = COMMON_OPTIONS.union(*(METHOD_OPTIONS[method] for method in methods))
    for name in overrides:
        if name not in used:
            flag = "--" + name.replace("_", "-")
            raise SettingsError(
                f"{flag} is not used by {', '.join(methods)}; remove it or add a method that uses it"
            )


def _check_writable(out: Path, data: Path) -> None:
    """Find out before the measurement that its result cannot be kept, or would replace something else."""
    folder = out.parent
    if not folder.is_dir():
        raise DataError(f"--out {out}: the folder {folder} does not exist; make it or give another path")
    if out.is_dir() or not os.access(folder, os.W_OK):
        raise DataError(
            f"--out {out} cannot be written; give the path of a file in a folder you can write to"
        )
    if out.resolve() == data.resolve():
        raise DataError(f"--out {out} is the file of prompts; give another path for the result")
    if out.exists():
        _check_result(out)


def _check_folder(traces: Path, out: Path) -> None:
    """Traces of two benchmarks in one folder would be taken for one. It is made when the first is kept."""
    if traces.resolve() == out.resolve():
        raise DataError(f"--traces {traces} is the file of --out as well; give a folder of its own")
    try:
        free = not any(traces.iterdir()) if traces.exists() else traces.parent.is_dir()
    except OSError as error:
        raise DataError(f"--traces {traces} cannot be used ({error.strerror}); give a new folder") from error
    if not free:
        why = "is not empty" if traces.exists() else "lies in a folder that does not exist"
        raise DataError(f"--traces {traces} {why}; give a new folder")
    if not os.access(traces if traces.exists() else traces.parent, os.W_OK):
        raise DataError(f"--traces {traces} cannot be written; give a folder you can write to")


def _check_result(out: Path) -> None:
    """Only an older result may be replaced."""
    try:
        known = out.is_file() and (out.stat().st_size == 0 or read_result(out))
    except DataError:
        known = False
    if not known:
        raise DataError(
            f"--out {out} is a file that is not a benchmark result; it is left alone, give another path"
        )

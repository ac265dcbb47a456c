"""Presets: a verifier, a drafter and the settings that suit them, read from YAML.

A preset file has the keys verifier and drafter, and may have description, method, settings, masks,
prompts and chat.
The project's own lie in presets/pairs; a user's file is given by its path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from .errors import SettingsError
from .method_options import METHODS
from .paths import PRESETS
from .settings import Settings
from .sources import Source, parse_source

DrafterKind = Literal["none", "lookup", "layer-skip", "model"]
CacheKind = Literal["nested", "own"]
DRAFTER_KEYS: dict[str, set[str]] = {
    "none": set(),
    "lookup": set(),
    "layer-skip": {"skip_ratio", "cache"},
    "model": {"source"},
}
PRESET_KEYS = ("description", "verifier", "drafter", "method", "settings", "masks", "prompts", "chat")
DEFAULT_METHOD = "via-sd"  # of a preset that names none
DEFAULT_SKIP = 0.4  # of a layer-skip drafter whose preset names none


@dataclass(frozen=True)
class DrafterSpec:
    """What drafts: nothing, prompt lookup, the verifier with layers skipped, or a model of its own."""

    kind: DrafterKind
    skip_ratio: float | None = None  # layer-skip: share of the verifier's layers left out
    cache: CacheKind | None = None  # layer-skip: in the verifier's KV slots, or slots of its own
    source: Source | None = None  # model


@dataclass(frozen=True)
class Preset:
    """One model pair with its defaults. `settings` holds keyword arguments of `Settings`."""

    name: str
    verifier: Source
    drafter: DrafterSpec
    description: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    masks: tuple[Path, ...] = ()  # stored layer masks that fit the verifier
    prompts: tuple[str, ...] = ()  # for calibration and demonstration
    chat: bool = True  # wrap prompts in the verifier's chat template; False: raw text
    method: str = DEFAULT_METHOD  # what runs where none is asked for


def preset_names() -> list[str]:
    """Names of the presets that ship with the project."""
    return sorted(path.stem for path in (PRESETS / "pairs").glob("*.yaml"))


def load_preset(given: str | Path) -> Preset:
    """A preset by name, or from a YAML file. Raises SettingsError, and SourceError for a bad source in it."""
    text = str(given)
    if not text.endswith((".yaml", ".yml")):
        if text not in preset_names():
            known = ", ".join(preset_names())
            raise SettingsError(f"there is no preset {text!r}; choose one of {known}, or give a .yaml file")
        given = PRESETS / "pairs" / f"{text}.yaml"
    path = Path(given)
    content = read_yaml(path)
    refuse_unknown(content, set(PRESET_KEYS), f"preset {path}")
    for key in ("verifier", "drafter"):
        if key not in content:
            raise SettingsError(f"preset {path} has no {key!r}; every preset names a verifier and a drafter")
    typed = {"description": str, "settings": dict, "masks": list, "prompts": str, "chat": bool}
    for key, kind in typed.items():
        if not isinstance(content.get(key, kind()), kind):
            raise SettingsError(
                f"{key!r} in preset {path} must be of type {kind.__name__}; got {content[key]!r}"
            )
    method = content.get("method", DEFAULT_METHOD)
    if method not in METHODS:
        raise SettingsError(f"preset {path} names the method {method!r}; choose one of {', '.join(METHODS)}")
    return Preset(
        name=path.stem,
        verifier=parse_source(as_source(content["verifier"], f"verifier of preset {path}"), path.parent),
        drafter=parse_drafter(content["drafter"], path.parent),
        description=" ".join(content.get("description", "").split()),
        settings=check_settings(content.get("settings", {}), path),
        masks=tuple(find_file(name, "masks", ".json", path) for name in content.get("masks", [])),
        prompts=load_prompts(content["prompts"], path) if "prompts" in content else (),
        chat=content.get("chat", True),
        method=method,
    )


def parse_drafter(given: object, base: Path | None = None) -> DrafterSpec:
    """A drafter from a preset's mapping with the key `kind`, or from a word or source on the command line.

    Words are none, lookup, layer-skip and the names of shipped trained drafters; other text is a source of a
    draft model or a trained drafter. Raises SettingsError, SourceError.
    """
    if isinstance(given, str) and given in shipped_drafters():
        return DrafterSpec("model", source=Source("folder", str(PRESETS / "drafters" / given)))
    if isinstance(given, str):
        given = (
            {"kind": given}
            if given in DRAFTER_KEYS and given != "model"
            else {"kind": "model", "source": given}
        )
    if not isinstance(given, Mapping) or str(given.get("kind")) not in DRAFTER_KEYS:
        raise SettingsError(f"a drafter needs a kind, one of {', '.join(DRAFTER_KEYS)}; got {given!r}")
    kind: DrafterKind = given["kind"]
    refuse_unknown(given, DRAFTER_KEYS[kind] | {"kind"}, f"a {kind} drafter")
    if kind == "model":
        return DrafterSpec(kind, source=parse_source(as_source(given.get("source"), "a model drafter"), base))
    if kind != "layer-skip":
        return DrafterSpec(kind)
    ratio, cache = given.get("skip_ratio", DEFAULT_SKIP), given.get("cache", "nested")
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio < 1:
        raise SettingsError(f"skip_ratio of a layer-skip drafter must lie between 0 and 1; got {ratio!r}")
    if cache not in get_args(CacheKind):
        raise SettingsError(f"cache of a layer-skip drafter must be nested or own; got {cache!r}")
    return DrafterSpec(kind, skip_ratio=float(ratio), cache=cache)


def shipped_drafters() -> list[str]:
    """Names of the trained drafters in presets/drafters."""
    return sorted(path.parent.name for path in (PRESETS / "drafters").glob("*/config.json"))


def shipped_config(name: str) -> dict[str, Any]:
    """config.json of a shipped drafter."""
    config: dict[str, Any] = json.loads((PRESETS / "drafters" / name / "config.json").read_text("utf-8"))
    return config


def drafter_choices(preset: Preset) -> list[str]:
    """What `parse_drafter` takes for this preset's verifier: words that need no weights, and every shipped
    drafter that was trained for it.
    """
    fitting = []
    for name in shipped_drafters():
        made_for = shipped_config(name).get("trained_for", {})
        if made_for.get("id") == str(preset.verifier) or (
            preset.verifier.sha256 and made_for.get("sha256") == preset.verifier.sha256
        ):
            fitting.append(name)
    return ["lookup", "layer-skip", *fitting]


def as_source(given: object, what: str) -> str | Mapping[str, Any]:
    """Text or a mapping, as `parse_source` takes. Raises SettingsError."""
    if isinstance(given, str | Mapping):
        return given
    raise SettingsError(
        f"{what} needs a source: text or a mapping with hub, folder, gguf or wheel; got {given!r}"
    )


def check_settings(settings: dict[str, Any], path: Path) -> dict[str, Any]:
    """Refuse names and values that `Settings` would not take. Raises SettingsError."""
    refuse_unknown(settings, set(Settings.__dataclass_fields__), f"settings of preset {path}")
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()
    }
    Settings(**values)
    return values


def load_prompts(name: str, preset: Path) -> tuple[str, ...]:
    """The prompts of a file in presets/prompts, or beside the preset. Raises SettingsError."""
    path = find_file(name, "prompts", ".yaml", preset)
    content = read_yaml(path)
    refuse_unknown(content, {"description", "prompts"}, f"prompt file {path}")
    prompts = content.get("prompts")
    if (
        not isinstance(prompts, list)
        or not prompts
        or not all(isinstance(text, str) and text for text in prompts)
    ):
        raise SettingsError(f"prompt file {path} needs a list of texts under 'prompts'")
    return tuple(prompts)


def find_file(name: object, kind: str, suffix: str, preset: Path) -> Path:
    """`name` in presets/<kind>, or with its suffix a path relative to the preset. Raises SettingsError."""
    text = str(name)
    path = preset.parent / text if text.endswith(suffix) else PRESETS / kind / f"{text}{suffix}"
    if not path.is_file():
        raise SettingsError(f"preset {preset} names {kind} {text!r}, but there is no file {path}")
    return path


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file's mapping. Raises SettingsError."""
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}; give the path of a YAML file") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise SettingsError(f"{path} is not valid YAML{where}; correct it") from error
    if not isinstance(content, dict):
        raise SettingsError(f"{path} must hold a mapping of keys to values")
    return content


def refuse_unknown(given: Mapping[Any, Any], known: set[str], what: str) -> None:
    """Raises SettingsError for keys that would otherwise be ignored."""
    unknown = sorted(str(key) for key in set(given) - known)
    if unknown:
        raise SettingsError(f"{what}: unknown key {', '.join(unknown)}; known are {', '.join(sorted(known))}")

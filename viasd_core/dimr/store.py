"""Mask files (`viasd-mask/1`): the mask, whose it is, how it was found and what it is worth."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..atomic import replace_file
from ..errors import MaskError
from ..paths import mask_folder
from ..sources import public_identity
from .masks import SCHEMA, fits
from .search import Observation


def default_path(identity: Mapping[str, Any], mask_ratio: float, granularity: str = "layer") -> Path:
    """In the user's folder, named after the model, the skip ratio and, of sub-layers, the granularity."""
    name = re.sub(r"[^a-z0-9.]+", "-", Path(str(public_identity(identity)["id"])).name.lower()).strip("-.")
    halves = "-sublayer" if granularity == "sublayer" else ""
    return mask_folder() / f"{name or 'model'}-r{round(mask_ratio * 100):02d}{halves}.json"


def check_target(path: Path) -> None:
    """Refuse to overwrite what is no mask file, and a folder that cannot be written. Raises MaskError."""
    if path.suffix != ".json":
        raise MaskError(f"--out {path} must end in .json, as every mask file does")
    if path.is_dir():
        raise MaskError(f"--out {path} is a folder; give a file name in it")
    if path.exists():
        try:
            content = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            content = None
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise MaskError(f"{path} exists and is not a mask file; move it, or give another --out")


def set_aside(path: Path) -> Path:
    """Where a mask goes that must not take the place of `path`: a folder where no run looks by itself."""
    return path.parent / "set-aside" / path.name


def precedence(path: Path, content: Mapping[str, Any], identity: Mapping[str, Any]) -> str:
    """Why the mask file at `path` is to be preferred to what a search ends with, `content`, or "".

    Of two masks of one size and inside the same other ones a finished search's yields to no unfinished one, a
    judged one to none that is not, and of two judged ones that were scored alike the one of lower held-out
    cost is preferred. A file that is damaged or for another model yields.
    """
    try:
        old = json.loads(path.read_text("utf-8"))
        old_judged = old["held_out"] is not None
        old_cost = float(old["held_out"]["cost"]) if old_judged else 0.0
        whole = fits(old, dict(identity)) and old["complete"] and _size(old) == _size(content)
        alike = old["settings"]["score"] == json.loads(json.dumps(content["settings"]["score"]))
    except (OSError, ArithmeticError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ""
    judged = content["held_out"] is not None
    if whole and (content["complete"], judged) < (True, old_judged):
        return "its search came to an end and this one did not"
    if whole and judged and old_judged and alike and old_cost < content["held_out"]["cost"]:
        return f"it costs less on held-out texts, {old_cost:.4f} against {content['held_out']['cost']:.4f}"
    return ""


def _size(content: Mapping[str, Any]) -> tuple[Any, ...]:
    return content["skip_ratio"], content.get("granularity", "layer"), content["settings"].get("inside", [])


def mask_content(
    identity: Mapping[str, Any],
    best: Observation,
    n_layers: int,
    granularity: str,
    *,
    settings: Mapping[str, Any],
    history: Sequence[Observation],
    complete: bool,
    held_out: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What a mask file holds. `model` names it by hub id and revision, or by its files' hash."""
    known = public_identity(identity)
    ratio = best.mask.count("0") / len(best.mask)
    return {
        "schema": SCHEMA,
        "model": {key: known[key] for key in ("id", "revision", "sha256") if known.get(key) is not None},
        "layers": n_layers,
        "granularity": granularity,
        "mask": best.mask,
        "skip_ratio": round(ratio, 4),
        "origin": origin(settings, len(history), complete),
        "cost": best.cost,
        "settings": dict(settings),
        "held_out": dict(held_out) if held_out is not None else None,
        "complete": complete,
        "history": [asdict(seen) for seen in history],
    }


def origin(settings: Mapping[str, Any], evaluations: int, complete: bool) -> str:
    """How the mask was found, in one line for listings."""
    names = {
        "dimr": "DIMR search (random with Bayesian steps)",
        "random": "random search",
        "greedy": "greedy removal",
    }
    search, score = settings["search"], settings["score"]
    stopped = "" if complete else ", stopped early"
    return (
        f"{names[search['kind']]}, seed {search['seed']}, {evaluations} evaluations{stopped}; "
        f"{score['slim_kv']} KV, windows of {score['window']} rows"
    )


def save_mask(path: Path, content: Mapping[str, Any]) -> None:
    """Write a mask file, whole or not at all. Raises MaskError."""
    text = _compact(content)
    try:
        replace_file(path, lambda place: place.write_text(text, encoding="utf-8"))
    except OSError as error:
        raise MaskError(f"the mask cannot be written to {path}: {error.strerror or error}") from None


def _compact(content: Mapping[str, Any]) -> str:
    """Indented JSON, with one line an observation."""
    head = json.dumps({key: value for key, value in content.items() if key != "history"}, indent=2)
    history = ",\n".join("    " + json.dumps(seen) for seen in content["history"])
    return f'{head.removesuffix("}").rstrip()},\n  "history": [\n{history}\n  ]\n}}\n'

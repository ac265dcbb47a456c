"""`list presets|methods|masks|drafters`: what a run can be given, read from data files without torch."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import MaskError
from ..method_options import METHOD_OPTIONS, METHODS
from ..paths import PRESETS, mask_folder
from ..presets import DRAFTER_KEYS, load_preset, preset_names, shipped_config, shipped_drafters
from ..terminal import printable

METHOD_TEXT = {
    "ar": "plain decoding, one token a forward of the full verifier",
    "sd": "lossless speculative decoding: draft, then one forward of the full verifier",
    "lossy-sd": "speculative decoding with relaxed acceptance (alpha, beta)",
    "block": "a block drafter's single path, verified in one forward (CURE's Parallel)",
    "cure": "the block with repaired branches where it is unsure, verified as one tree",
    "eagle2": "EAGLE-2's dynamic trees over an EAGLE-3 drafter",
    "via-sd": "three tiers: the slim verifier judges every draft, the full verifier only what it defers",
}
DRAFTER_TEXT = {
    "none": "no drafter: plain decoding only",
    "lookup": "prompt lookup: copies what followed the same words earlier in the text",
    "layer-skip": "the verifier itself with layers skipped",
    "model": "a causal model with the verifier's vocabulary, given as hub id, folder, GGUF file or wheel",
}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("list", help="list presets, methods, masks or drafters")
    parser.add_argument("what", choices=tuple(LISTS), metavar="|".join(LISTS))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    rows = LISTS[args.what]()
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        print(printable(f"{name:<{width}}  {text}".rstrip()))
    return 0


def presets() -> list[tuple[str, str]]:
    found = [load_preset(name) for name in preset_names()]
    return [
        (preset.name, f"{preset.verifier}, drafter {preset.drafter.kind}; {preset.description}")
        for preset in found
    ]


def methods() -> list[tuple[str, str]]:
    rows = []
    for name in METHODS:
        options = ", ".join(sorted(METHOD_OPTIONS[name])) or "none of its own"
        rows.append((name, f"{METHOD_TEXT[name]}; settings: {options}"))
    return rows


def masks() -> list[tuple[str, str]]:
    """Shipped masks, then the user's own."""
    folders = (PRESETS / "masks", mask_folder())
    return [(path.stem, _describe_mask(path)) for folder in folders for path in sorted(folder.glob("*.json"))]


def _describe_mask(path: Path) -> str:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        mask, model = stored["mask"], stored["model"]["id"]
        skipped = mask.count("0")
        units = "halves of layers" if stored.get("granularity") == "sublayer" else "layers"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise MaskError(f"the mask file {path} cannot be read: {error}; restore or remove it") from error
    return (
        f"{mask}  skips {skipped} of {len(mask)} {units} of {model}; {stored.get('origin', 'origin unknown')}"
    )


def drafters() -> list[tuple[str, str]]:
    shipped = [(name, _describe_drafter(shipped_config(name))) for name in shipped_drafters()]
    return [(kind, DRAFTER_TEXT[kind]) for kind in DRAFTER_KEYS] + shipped


def _describe_drafter(config: dict[str, Any]) -> str:
    made_for = config.get("trained_for", {}).get("id", "a verifier it does not name")
    manner = "a block in parallel" if "block_size" in config else "token by token"
    return f"trained, drafts {manner}, layers: {config.get('num_hidden_layers')}; for {made_for}"


LISTS: dict[str, Callable[[], list[tuple[str, str]]]] = {
    "presets": presets,
    "methods": methods,
    "masks": masks,
    "drafters": drafters,
}

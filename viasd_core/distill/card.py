"""What a finished drafter consists of: config.json, model.safetensors and a card that tells its making."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from ..atomic import replace_file
from ..errors import DataError
from ..terminal import printable
from .objective import Objective
from .train import STATE

STORED = torch.bfloat16
OURS = ("config.json", "model.safetensors", "README.md")


def refuse_foreign(folder: Path) -> None:
    """Raises DataError for an --out whose files a drafter would replace, unless a training goes on there."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"--out {folder} is a file; give the folder that the drafter shall be written to")
    there = [name for name in OURS if (folder / name).exists()]
    if there and not (folder / STATE).exists():
        raise DataError(
            f"--out {folder} holds {' and '.join(there)} already, and no {STATE} to go on from; give another "
            "folder"
        )


def write_drafter(folder: Path, objective: Objective, trained_for: dict[str, Any]) -> None:
    """Write the drafter's two files; weights in bfloat16. Raises OSError; what was there then stays."""
    weights = {name: value.to(STORED).contiguous() for name, value in objective.weights().items()}
    weights |= objective.extra_tensors()
    config = objective.config() | {"trained_for": trained_for}
    content = save(weights, {"format": "pt"})
    replace_file(folder / "model.safetensors", lambda place: place.write_bytes(content))
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    replace_file(folder / "config.json", lambda place: place.write_text(text, "utf-8"))


def write_card(folder: Path, facts: dict[str, Any]) -> None:
    """README.md from `facts`: name, kind, verifier, command, data, prompts, tokens, settings, steps,
    best_step, held_out, held_out_answers, parameters, minutes, hardware.
    """
    held_out = facts["held_out"]
    positions = range(1, len(held_out["agree"]) + 1)
    lines = [
        f"# {plain(facts['name'])}",
        "",
        f"A drafter of kind `{facts['kind']}` for {plain(facts['verifier'])}, made by",
        "",
        "```",
        printable(facts["command"]),
        "```",
        "",
        f"- Trained weights: {facts['parameters']:,} (bfloat16); embedding and head are the verifier's.",
        f"- Data: {facts['tokens']:,} tokens that the verifier wrote in answer to {facts['prompts']:,} "
        f"prompts of {plain(', '.join(facts['data']))}; every 32nd prompt was held out, and the figures are "
        f"of {facts['held_out_answers']:,} such answers.",
        f"- Training: {facts['steps']:,} steps, best held-out figures at step {facts['best_step']:,}; "
        f"{facts['minutes']:.1f} minutes on {facts['hardware']}.",
        *gone_on(facts["settings"].get("start")),
        "- Settings: " + plain(", ".join(f"{key} {value}" for key, value in facts["settings"].items())) + ".",
        "",
        "Held-out acceptance by draft position (the first choice agrees with the verifier's; overlap is the",
        "chance that a sampled draft is accepted at temperature 1):",
        "",
        "| position | " + " | ".join(str(place) for place in positions) + " |",
        "|---|" + "---|" * len(positions),
        "| agree | " + " | ".join(f"{share:.3f}" for share in held_out["agree"]) + " |",
        "| overlap | " + " | ".join(f"{share:.3f}" for share in held_out["overlap"]) + " |",
        "| predictions | " + " | ".join(f"{rows:,.0f}" for rows in held_out["rows"]) + " |",
        "",
    ]
    replace_file(folder / "README.md", lambda place: place.write_text("\n".join(lines), "utf-8"))


def plain(text: str) -> str:
    """Names of files and folders are anybody's: one line, and no markup of the card."""
    return html.escape(printable(text), quote=False)


def gone_on(start: str | None) -> list[str]:
    """What the card says of a drafter that another one was the start of."""
    if not start:
        return []
    return [
        f"- Gone on from the drafter {plain(start)}. What is held out is told by a prompt's place among all: "
        "where that drafter saw other prompts or another seed, it may have been trained on some of it."
    ]

"""Going on from a drafter that was made before: its weights, its ids and its shape in place of fresh ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ..drafters.borrowed import from_offsets
from ..drafters.checkpoints import Checkpoint
from ..errors import DataError, SettingsError
from ..presets import PRESETS, shipped_drafters
from .objective import Objective

ABOUT = ("trained_for", "architectures")  # told apart from the shape


@dataclass(frozen=True)
class Start:
    """A finished drafter on disk, read whole. `digest` tells its weights from others."""

    name: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    digest: str

    @property
    def origins(self) -> tuple[int, ...]:
        return tuple(self.config.get("initialised_from_layers") or ())

    @property
    def mask_token(self) -> int | None:
        """The id whose embedding stands for what is not known yet, of a block drafter."""
        found = (self.config.get("dflash_config") or {}).get("mask_token_id")
        return None if found is None else int(found)

    def draft_ids(self, vocab_size: int) -> Tensor:
        """Raises SourceError."""
        return from_offsets(Checkpoint(self.name, Path(), self.config, {}), self.tensors["d2t"], vocab_size)


def read_start(given: str) -> Start:
    """A shipped drafter by name, or a folder that `distill` wrote. Raises DataError."""
    folder = PRESETS / "drafters" / given if given in shipped_drafters() else Path(given)
    path = folder / "model.safetensors"
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        content = path.read_bytes()
        tensors = load_file(path)
    except (OSError, ValueError, SafetensorError) as error:
        raise DataError(f"--start {given} is no drafter that distill made: {error}") from error
    if not isinstance(config, dict) or "trained_for" not in config or "d2t" not in tensors:
        raise DataError(f"--start {given} is no drafter that distill made; name the folder of one")
    return Start(folder.name, config, tensors, hashlib.sha256(content).hexdigest())


def refuse_another_verifier(start: Start, verifier: Mapping[str, Any]) -> None:
    """Raises SettingsError for a drafter whose verifier was another."""
    theirs = start.config["trained_for"]
    told = {key for key in ("id", "sha256", "revision") if theirs.get(key) and verifier.get(key)}
    if any(theirs[key] != verifier[key] for key in told):
        raise SettingsError(
            f"--start {start.name} was trained for {theirs.get('id')}, and the verifier is {verifier['id']}; "
            "leave --start out"
        )


def take_up(objective: Objective, start: Start) -> None:
    """Give a fresh objective the drafter's weights. Raises SettingsError where its shape is another."""
    ours, theirs = (
        {key: value for key, value in config.items() if key not in ABOUT}
        for config in (json.loads(json.dumps(objective.config())), start.config)
    )
    different = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
    if different or objective.config()["architectures"] != start.config.get("architectures"):
        raise SettingsError(
            f"--start {start.name} is a drafter of another shape: it differs in "
            f"{', '.join(different) or 'kind'}; give the settings on its card"
        )
    with torch.no_grad():
        objective.take({name: tensor.float() for name, tensor in start.tensors.items() if name != "d2t"})

"""Going on from a drafter that was made before: its weights, its ids and its shape in place of fresh ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ..drafters.borrowed import ARCHITECTURE as AR
from ..drafters.borrowed import from_offsets
from ..drafters.checkpoints import Target
from ..drafters.dflash import ARCHITECTURE as BLOCK
from ..drafters.eagle import AUX_LAYERS
from ..errors import DataError, SettingsError
from ..presets import PRESETS, shipped_drafters
from .eagle import ARCHITECTURE as EAGLE
from .objective import Objective
from .request import Request

KINDS = {AR: "ar", EAGLE: "eagle", BLOCK: "block"}


@dataclass(frozen=True)
class Start:
    """A finished drafter on disk, read whole. `digest` tells its weights from others."""

    name: str
    folder: Path
    kind: str
    trained_for: Mapping[str, Any]
    origins: tuple[int, ...]
    taps: tuple[int, ...]  # none for kind ar
    slots: int  # of a block drafter, as the next two
    domino: tuple[int, ...]
    mask_token: int | None
    tensors: Mapping[str, Tensor]
    digest: str

    def shaping(self, request: Request) -> Request:
        """The request with this drafter's shape. Raises SettingsError for another kind."""
        if request.kind != self.kind:
            raise SettingsError(f"--start {self.name} is of kind {self.kind}; give --kind {self.kind}")
        shape: dict[str, Any] = {"origins": self.origins, "draft_vocab": len(self.tensors["d2t"])}
        if self.taps:
            shape["taps"] = len(self.taps)
        if self.kind == "block":
            shape |= {"slots": self.slots, "domino": self.domino}
        return replace(request, layers=0, **shape)

    def draft_ids(self, vocab_size: int) -> Tensor:
        """Raises SourceError."""
        return from_offsets(self.name, self.tensors["d2t"], vocab_size)

    def refuse_for(self, verifier: Mapping[str, Any], target: Target) -> None:
        """Raises SettingsError, SourceError where the drafter's verifier was another."""
        vocab_size, layers = target.runner.vocab_size, target.runner.n_layers
        ours, theirs = ({key: told.get(key) for key in PROOFS} for told in (verifier, self.trained_for))
        sure = [key for key in PROOFS[:-1] if ours[key] and theirs[key]] or ["id"]
        if any(ours[key] != theirs[key] for key in sure):
            proof = "" if sure == ["id"] else f" with another {sure[0]}"
            raise SettingsError(
                f"--start {self.name} was trained for {theirs['id']}{proof}, and the verifier is "
                f"{ours['id']}; leave --start out"
            )
        self.draft_ids(vocab_size)
        if self.mask_token is not None and not 0 <= self.mask_token < vocab_size:
            raise SettingsError(f"--start {self.name} names an id {self.mask_token} that the verifier lacks")
        if len(set(self.taps)) < len(self.taps) or not all(0 <= layer < layers for layer in self.taps):
            raise SettingsError(
                f"--start {self.name} reads behind layers {list(self.taps)}, which must be different ones of "
                f"the verifier's {layers}, counted from 0"
            )

    def refuse_shape(self, objective: Objective) -> None:
        """Raises SettingsError where the tensors are not those of a fresh objective."""
        ours, theirs = (
            {name: tuple(tensor.shape) for name, tensor in tensors.items() if name != "d2t"}
            for tensors in (objective.weights(), self.tensors)
        )
        different = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
        if different:
            raise SettingsError(
                f"--start {self.name} does not hold the tensors its config asks for: {different[0]} differs"
            )

    def lend(self, objective: Objective) -> None:
        """Give a fresh objective, of the shape that `refuse_shape` looks at, the drafter's weights."""
        with torch.no_grad():
            objective.take({name: self.tensors[name].float() for name in objective.weights()})


PROOFS = ("sha256", "revision", "id")  # what tells one verifier from another, the surest first


def read_start(given: str) -> Start:
    """A shipped drafter by name, or a folder that `distill` wrote. Raises DataError."""
    if not given:
        raise DataError(
            f"--start is empty; name the folder of a drafter, or {' or '.join(shipped_drafters())}"
        )
    folder = PRESETS / "drafters" / given if given in shipped_drafters() else Path(given)
    path = folder / "model.safetensors"
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        content = path.read_bytes()
        tensors = load_file(path)
        block = config.get("dflash_config") or {}
        taps = (config.get("eagle_config") or {}).get(AUX_LAYERS) or block.get("target_layer_ids") or ()
        if not tensors["d2t"].dim() == 1 or not config["trained_for"]["id"]:
            raise ValueError("its d2t or its verifier is not told")
        refuse_damage(tensors)
        return Start(
            folder.resolve().name,
            folder.resolve(),
            KINDS[config["architectures"][0]],
            dict(config["trained_for"]),
            tuple(map(whole, config["initialised_from_layers"])),
            tuple(map(whole, taps)),
            whole(config.get("block_size", 0)),
            domino_of(block, tensors),
            whole(block["mask_token_id"]) if "mask_token_id" in block else None,
            tensors,
            hashlib.sha256(content).hexdigest(),
        )
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, SafetensorError) as error:
        raise DataError(
            f"--start {given} is no drafter that distill made ({reason(error)}); name the folder of one, or "
            f"{' or '.join(shipped_drafters())}"
        ) from error


def domino_of(block: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[int, ...]:
    """State and rank of a block drafter's causal correction, none where it has none. Raises KeyError,
    IndexError.
    """
    if block.get("projector_type") != "domino":
        return ()
    return tensors["domino.gru.weight_hh_l0"].shape[1], tensors["domino.up.weight"].shape[1]


def refuse_damage(tensors: Mapping[str, Tensor]) -> None:
    """Raises ValueError for a tensor that no training leaves behind."""
    for name, tensor in tensors.items():
        kind = "whole numbers" if name == "d2t" else "floating-point numbers"
        whole_ones = not tensor.is_floating_point() and tensor.dtype != torch.bool
        if whole_ones != (name == "d2t"):
            raise ValueError(f"its tensor {name} holds {tensor.dtype}, not {kind}")
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"its tensor {name} is not finite")


def reason(error: Exception) -> str:
    """What an exception of a reader means to a person."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror.lower()}: {error.filename}"
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error)


def whole(value: Any) -> int:
    """A whole number of a config that anybody may have edited. Raises TypeError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no whole number")
    return value

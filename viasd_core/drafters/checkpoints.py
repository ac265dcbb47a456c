"""Trained drafters on disk: a folder with config.json and *.safetensors, and whether it fits the verifier.

Each format is a module with `fits(config)` and `load(checkpoint, target)`. Every format borrows something
from the verifier (embedding, head, features), so a checkpoint is only ever loaded together with its target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ..errors import PairError, SourceError
from ..layers import BlockRunner
from ..verifier import Verifier
from .base import Drafter


@dataclass(frozen=True)
class Target:
    """What a drafter borrows from the verifier, and what it has to match."""

    name: str
    runner: BlockRunner
    config: Any  # the verifier's Hugging Face config

    @property
    def embedding(self) -> Tensor:
        """[V, H]"""
        weight: Tensor = self.runner.body.embed_tokens.weight
        return weight

    @property
    def head(self) -> Any:
        """The output head, an nn.Linear or a CappedHead: [.., H] to [.., V or a little more]."""
        return self.runner.head


@dataclass(frozen=True)
class Trained:
    """A loaded drafter. `taps` are the verifier layers whose outputs it reads; `make` starts a run's own."""

    kind: str  # ar | dflash | dflash2 | eagle3 | dart | medusa
    taps: tuple[int, ...]
    make: Callable[[Verifier, int], Drafter]
    module: nn.Module
    known_prefix: bool = False  # blocks: trained with real tokens, not only masks, behind the anchor


@dataclass(frozen=True)
class Checkpoint:
    """An opened folder: its config and the shape of every tensor in its safetensors files."""

    name: str  # as users know it: hub id or folder name
    folder: Path
    config: Mapping[str, Any]
    files: Mapping[str, Path]  # tensor name -> file that holds it

    def need(self, key: str, kind: type | tuple[type, ...] = int) -> Any:
        """A config value of the type it must have. Raises SourceError."""
        value = self.config.get(key)
        if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
            raise SourceError(f"config.json of {self.name} has no usable {key!r}; got {value!r}")
        return value

    def read(self, name: str) -> Tensor:
        """One tensor. Raises SourceError when it is missing or damaged."""
        if name not in self.files:
            raise SourceError(f"{self.name} is incomplete: it has no tensor {name!r}; fetch it again")
        try:
            with safe_open(self.files[name], "pt") as file:
                tensor: Tensor = file.get_tensor(name)
                return tensor
        except (SafetensorError, OSError) as error:
            raise SourceError(f"{self.files[name].name} of {self.name} cannot be read: {error}") from error

    def fill(self, module: nn.Module, target: Target, *, ignore: tuple[str, ...] = ()) -> None:
        """Copy the tensors into `module`, in the verifier's dtype and on its device, ready to run.

        Tensors whose name starts with one of `ignore` may lie in the file unused. Raises SourceError for a
        tensor that is missing, left over or of another shape.
        """
        wanted = dict(module.state_dict())
        extra = [name for name in self.files if name not in wanted and not name.startswith(ignore or ("\0",))]
        if extra:
            raise SourceError(
                f"{self.name} has {len(extra)} tensors that its format does not know: {min(extra)}"
            )
        for name, place in wanted.items():
            tensor = self.read(name)
            if tensor.shape != place.shape:
                raise SourceError(
                    f"{self.name}: tensor {name!r} has shape {list(tensor.shape)}, its config asks for "
                    f"{list(place.shape)}"
                )
            if not tensor.is_floating_point() or not bool(torch.isfinite(tensor.float()).all()):
                raise SourceError(
                    f"{self.name}: tensor {name!r} holds what is no finite number; fetch it again"
                )
            with torch.no_grad():
                place.copy_(tensor)
        module.to(target.runner.device).eval()
        for parameter in module.parameters():  # not buffers: rotary frequencies stay in float32
            parameter.requires_grad_(False)
            parameter.data = parameter.data.to(target.runner.dtype)


def check_equal(checkpoint: Checkpoint, target: Target, what: str, theirs: object, ours: object) -> None:
    """Refuse a drafter made for another verifier. Raises PairError."""
    if theirs != ours:
        raise PairError(
            f"drafter {checkpoint.name} was trained for a verifier with {what} {theirs}, and {target.name} "
            f"has {ours}; use the drafter made for this verifier"
        )

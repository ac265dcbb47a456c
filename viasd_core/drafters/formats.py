"""The formats of trained drafters: which one a config.json describes, and opening a folder of it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..errors import PairError, SourceError

if TYPE_CHECKING:
    from ..sources import Weights
    from .checkpoints import Target, Trained

FORMATS = ("borrowed", "block", "dart", "eagle", "medusa")  # modules with `fits` and `load`


def trained_format(config: Mapping[str, Any]) -> ModuleType | None:
    """The module that reads a drafter with this config.json; None for an ordinary model."""
    for name in FORMATS:
        module = import_module(f"{__package__}.{name}")
        if module.fits(config):
            return module
    return None


def load_trained(weights: Weights, config: Mapping[str, Any], target: Target) -> Trained:
    """The trained drafter with this config.json, for `target`.

    Raises PairError (made for another verifier), SourceError (damaged).
    """
    from safetensors import SafetensorError, safe_open

    from .checkpoints import Checkpoint

    module = trained_format(config)
    name = str(weights.identity["id"]).rstrip("/").rsplit("/", 1)[-1]
    if module is None:
        raise PairError(f"{name} is not a trained drafter of a known format")
    files = {}
    for path in sorted(weights.folder.glob("*.safetensors")):
        try:
            with safe_open(path, "pt") as file:
                files.update(dict.fromkeys(file.keys(), path))
        except (SafetensorError, OSError) as error:
            raise SourceError(f"{path.name} of drafter {name} cannot be read: {error}") from error
    trained: Trained = module.load(Checkpoint(name, weights.folder, config, files), target)
    return trained

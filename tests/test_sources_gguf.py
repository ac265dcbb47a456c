"""GGUF files: converted once, whole or not at all, and refused in one sentence when they are damaged."""

from __future__ import annotations

import errno
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from gguf_toys import ARCHITECTURES, TEMPLATE, write_gguf
from toys import EOS_ID, toy_model, toy_tokenizer
from viasd_core import gguf_files
from viasd_core.errors import SourceError
from viasd_core.paths import cache_root
from viasd_core.sources import LoadedModel, load_model, parse_source, resolve

IDS = torch.tensor([[5, 90, 17, 201, 44]])


def load(path: Path) -> LoadedModel:
    return load_model(resolve(parse_source(str(path))), "float32", "cpu")


@pytest.fixture
def original() -> PreTrainedModel:
    return toy_model(dtype=torch.float32)


@pytest.fixture
def file(tmp_path: Path, original: PreTrainedModel) -> Path:
    path = tmp_path / "toy.gguf"
    write_gguf(path, original)
    return path


@pytest.mark.parametrize("family", ARCHITECTURES)
@pytest.mark.parametrize("tied", [False, True])
def test_a_float_file_loads_as_the_model_it_was_written_from(family: str, tied: bool, tmp_path: Path) -> None:
    model = toy_model(family, dtype=torch.float32, tie_word_embeddings=tied)
    write_gguf(tmp_path / "toy.gguf", model)
    loaded = load(tmp_path / "toy.gguf")
    assert torch.equal(loaded.model(IDS).logits, model(IDS).logits)
    assert loaded.model.config.tie_word_embeddings is tied
    assert (loaded.n_layers, loaded.n_ctx, loaded.eos_ids) == (5, 512, {EOS_ID})


def test_heads_wider_than_hidden_over_heads_keep_their_width(tmp_path: Path) -> None:
    model = toy_model(dtype=torch.float32, head_dim=16)
    write_gguf(tmp_path / "toy.gguf", model)
    assert torch.equal(load(tmp_path / "toy.gguf").model(IDS).logits, model(IDS).logits)


def test_a_quantised_file_loads_as_the_numbers_it_encodes(tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType.Q8_0
    model = toy_model(dtype=torch.float32, intermediate_size=64)
    write_gguf(tmp_path / "toy.gguf", model, quantisation=kind)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            coded = gguf.dequantize(gguf.quantize(parameter.numpy(), kind), kind)
            parameter.copy_(torch.from_numpy(coded))
    loaded = load(tmp_path / "toy.gguf")
    assert torch.equal(loaded.model(IDS).logits, model(IDS).logits)
    assert not hasattr(loaded.model.config, "quantization_config")


def test_the_tokenizer_and_its_chat_template_come_along(file: Path) -> None:
    tokenizer = load(file).tokenizer
    text = "the 👩‍👩‍👧 한국어 עברית\x00 and\n"
    assert tokenizer(text).input_ids == toy_tokenizer()(text).input_ids
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert tokenizer.chat_template == TEMPLATE


def test_the_second_load_converts_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(file)

    def fail(*_: Any) -> None:
        raise AssertionError("converted again")

    monkeypatch.setattr(gguf_files, "write_folder", fail)
    monkeypatch.setattr(gguf_files, "open_gguf", fail)
    second = load(file)
    assert second.identity == first.identity
    assert torch.equal(second.model(IDS).logits, first.model(IDS).logits)


def test_a_file_changed_in_place_is_converted_anew(file: Path) -> None:
    before = load(file).identity
    model = toy_model(dtype=torch.float32, seed=3)
    write_gguf(file, model)
    after = load(file)
    assert after.identity["sha256"] != before["sha256"]
    assert torch.equal(after.model(IDS).logits, model(IDS).logits)


@pytest.mark.parametrize("keep", [0.999, 0.9, 0.5, 0.02, 0.001])
def test_a_truncated_file_is_refused_wherever_it_ends(keep: float, file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(SourceError, match="is cut short or damaged"):
        load(file)
    assert not list((cache_root() / "converted").glob("*"))


@pytest.mark.parametrize("content", [b"", b"GG", b"PK\x03\x04 a zip", b'{"a": 1}'])
def test_a_foreign_file_is_refused(content: bytes, file: Path) -> None:
    file.write_bytes(content)
    with pytest.raises(SourceError, match="is not a GGUF file"):
        load(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"cannot read .*none\.gguf: No such file"):
        load(tmp_path / "none.gguf")


def test_another_architecture_is_refused_before_converting(file: Path, original: PreTrainedModel) -> None:
    write_gguf(file, original, architecture="gemma2")
    with pytest.raises(SourceError, match=r"architecture 'gemma2', .*llama, mistral, qwen2, qwen3"):
        load(file)


def test_scaled_rotary_frequencies_are_refused_not_dropped(file: Path, original: PreTrainedModel) -> None:
    write_gguf(file, original, extra={"rope_freqs.weight": np.ones(4, dtype=np.float32)})
    with pytest.raises(SourceError, match="scales its rotary frequencies"):
        load(file)


def test_a_file_that_lacks_a_tensor_is_refused_not_filled_with_noise(
    file: Path, original: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = original.state_dict()
    del state["model.layers.1.self_attn.v_proj.weight"]
    monkeypatch.setattr(original, "state_dict", lambda: state)
    write_gguf(file, original)
    with pytest.raises(SourceError, match=r"1 of the weights .*layers\.1\.self_attn\.v_proj"):
        load(file)
    assert not [path for path in (cache_root() / "converted").iterdir() if path.suffix != ".lock"]


@pytest.mark.parametrize(
    "interruption", [KeyboardInterrupt, OSError(errno.ENOSPC, "No space left on device")]
)
def test_an_interrupted_conversion_leaves_nothing_and_the_next_one_works(
    interruption: Any, file: Path, original: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(model: Any, path: Path) -> None:
        path.write_bytes(b"half")
        raise interruption

    with monkeypatch.context() as patch:
        patch.setattr(gguf_files, "save_weights", stop)
        with pytest.raises((KeyboardInterrupt, SourceError)) as caught:
            load(file)
    if isinstance(interruption, OSError):
        assert "is full; free some space" in str(caught.value)
    assert not [path for path in (cache_root() / "converted").iterdir() if path.suffix != ".lock"]
    assert torch.equal(load(file).model(IDS).logits, original(IDS).logits)


def test_what_a_killed_conversion_left_behind_is_removed(file: Path) -> None:
    digest = load(file).identity["sha256"]
    folder = gguf_files.converted_folder(digest)
    folder.rename(folder.with_name(f"{digest}.partial"))
    (folder.with_name(f"{digest}.partial") / "stray").write_bytes(b"half")
    load(file)
    assert not folder.with_name(f"{digest}.partial").exists()
    assert not (folder / "stray").exists()


def test_too_little_room_is_said_before_converting(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2_000_000, 1_000_000, 1_000_000))
    with pytest.raises(SourceError, match=r"needs 0\.1 GB in .*, which has 0\.0; .* VIASD_CACHE"):
        load(file)


def test_a_cache_that_cannot_be_written_is_said(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("a file where the cache should be", "utf-8")
    monkeypatch.setenv("VIASD_CACHE", str(tmp_path / "taken"))
    with pytest.raises(SourceError, match=r"cannot write to the cache .*Not a directory"):
        load(file)

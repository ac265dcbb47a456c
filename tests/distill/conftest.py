"""A toy verifier with prompts, and a finished drafter of each kind."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import torch

from distill.command_toys import KINDS, Command, arguments
from toys import toy_model, toy_tokenizer
from viasd_core.cli.main import main


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with toy.yaml, its verifier, and prompts.jsonl."""
    folder = tmp_path_factory.mktemp("toy")
    toy_model(layers=8, dtype=torch.float32).save_pretrained(folder / "verifier")
    toy_tokenizer().save_pretrained(folder / "verifier")
    preset = "verifier: {folder: verifier}\ndrafter: {kind: none}\n"
    (folder / "toy.yaml").write_text(preset)
    prompts = [{"prompt": f"Count {number} to {number * 7} in words."} for number in range(40)]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    return folder


@pytest.fixture(scope="module")
def finished(place: Path) -> dict[str, Path]:
    """A drafter of each kind from an uninterrupted run; they share the answers in ar/answers."""
    folders = {kind: place / kind for kind in KINDS}
    for kind, out in folders.items():
        with redirect_stdout(StringIO()) as printed:
            made = main(arguments(place, out, kind, "--answers", str(place / "ar" / "answers"), "--json"))
        assert made == 0
        (out / "facts.json").write_text(printed.getvalue().splitlines()[-1])
    return folders


@pytest.fixture
def distill(place: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    def command(out: Path, kind: str, *more: str) -> int:
        capsys.readouterr()
        return main(arguments(place, out, kind, *more))

    return command

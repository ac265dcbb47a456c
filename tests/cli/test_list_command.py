"""`python -m viasd_core list ...` reads presets, masks and drafters without torch."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from viasd_core import presets
from viasd_core.cli import listing
from viasd_core.cli import main as main_module
from viasd_core.cli.main import main
from viasd_core.method_options import METHODS

Captured = pytest.CaptureFixture[str]


def test_list_presets_names_the_default_preset(capsys: Captured) -> None:
    assert main(["list", "presets"]) == 0
    assert re.search(r"^tiny +\S.*drafter", capsys.readouterr().out, re.MULTILINE)


def test_list_methods_names_every_method_with_its_settings(capsys: Captured) -> None:
    assert main(["list", "methods"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()] == list(METHODS)
    assert "alpha1" in out.splitlines()[METHODS.index("via-sd")]


def test_list_masks_counts_skipped_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    (tmp_path / "masks").mkdir()
    (tmp_path / "masks" / "toy-r50.json").write_text(
        json.dumps({"mask": "1001", "model": {"id": "toy"}, "origin": "random"})
    )
    monkeypatch.setattr(listing, "PRESETS", tmp_path)
    assert main(["list", "masks"]) == 0
    assert capsys.readouterr().out == "toy-r50  1001  skips 2 of 4 layers of toy; random\n"


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"mask": 5, "model": {"id": "x"}}', '{"mask": "1", "model": 3}']
)
def test_unreadable_mask_file_is_one_error_line(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    (tmp_path / "masks").mkdir()
    (tmp_path / "masks" / "broken.json").write_text(content)
    monkeypatch.setattr(listing, "PRESETS", tmp_path)
    assert main(["list", "masks"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("error: the mask file") and "broken.json" in err


def test_list_drafters_names_kinds_and_trained_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    folder = tmp_path / "drafters" / "toy-block"
    folder.mkdir(parents=True)
    config = {"block_size": 8, "num_hidden_layers": 3, "trained_for": {"id": "org/toy"}}
    (folder / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr(presets, "PRESETS", tmp_path)
    assert main(["list", "drafters"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["none", "lookup", "layer-skip", "model", "toy-block"]
    assert "a block in parallel, layers: 3; for org/toy" in lines[-1]


def test_every_command_of_the_parser_has_a_help_page(capsys: Captured) -> None:
    for module in main_module.command_modules():
        assert callable(module.add_parser)
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert {"trace", "list"} <= set(capsys.readouterr().out.split())

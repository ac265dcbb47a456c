"""Where `dimr` puts a mask when nobody says, and which of two masks runs find."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import viasd_core.pair
from dimr.command_toys import PAIR, SEARCH, SHORT, Command, held_out_cost, last
from viasd_core.cli.main import main
from viasd_core.dimr.masks import SCHEMA, MaskStore
from viasd_core.dimr.store import precedence
from viasd_core.parts import parts_of
from viasd_core.paths import mask_folder


def test_without_out_the_mask_lies_where_every_run_looks(
    dimr: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dimr(*SEARCH) == 0
    out = mask_folder() / "toy-r38.json"
    assert str(out) in capsys.readouterr().out
    parts = parts_of(PAIR)
    assert parts.masks is not None
    assert parts.masks.choose("auto", 0.3).name == "toy-r38"
    assert main(["list", "masks"]) == 0
    assert "toy-r38" in capsys.readouterr().out


def test_without_out_a_better_mask_of_that_ratio_keeps_its_place(
    dimr: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever of two searches is made first, runs find the mask of lower held-out cost."""
    out = mask_folder() / "toy-r38.json"
    aside = out.parent / "set-aside" / out.name
    assert dimr(*SHORT) == 0
    poor = out.read_text("utf-8")
    assert dimr(*SEARCH) == 0
    good = out.read_text("utf-8")
    assert held_out_cost(out) < json.loads(poor)["held_out"]["cost"] and not aside.exists()
    capsys.readouterr()
    assert dimr(*SHORT, "--json") == 0
    found = last(capsys)
    assert out.read_text("utf-8") == good and found["out"] == str(aside)
    assert f"{out} stays the mask that runs find: it costs less on held-out texts" in found["aside"]
    assert json.loads(aside.read_text("utf-8"))["mask"] == json.loads(poor)["mask"]
    parts = parts_of(PAIR)
    assert parts.masks is not None
    assert parts.masks.choose("auto", 0.38).bits == json.loads(good)["mask"]
    assert dimr(*SHORT) == 0
    assert "stays the mask that runs find" in capsys.readouterr().out
    assert dimr(*SHORT, "--out", str(out)) == 0  # asked for by name
    assert json.loads(out.read_text("utf-8"))["mask"] == json.loads(poor)["mask"]


def test_without_out_a_finished_mask_does_not_yield_to_an_interrupted_search(
    dimr: Command, interrupt: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    out = mask_folder() / "toy-r38.json"
    aside = out.parent / "set-aside" / out.name
    assert dimr(*SHORT) == 0
    poor = out.read_text("utf-8")
    interrupt(12)
    assert dimr(*SEARCH) == 130
    printed = capsys.readouterr()
    assert out.read_text("utf-8") == poor and json.loads(aside.read_text("utf-8"))["complete"] is False
    assert str(aside) in printed.err and "its search came to an end and this one did not" in printed.out
    interrupt(-1)
    assert dimr(*SEARCH, "--resume") == 0  # now it is the better one, and the unfinished file is gone
    assert held_out_cost(out) < json.loads(poor)["held_out"]["cost"] and not aside.exists()


def test_without_out_a_worse_mask_does_not_hide_one_that_came_with_the_preset(
    dimr: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = tmp_path / "shipped.json"
    assert dimr(*SEARCH, "--out", str(shipped)) == 0
    pair = replace(PAIR, preset=replace(PAIR.preset, masks=(shipped,)))
    monkeypatch.setattr(viasd_core.pair, "load_pair", lambda *_, **__: pair)
    capsys.readouterr()
    assert dimr(*SHORT, "--json") == 0
    found = last(capsys)
    assert f"{shipped} stays the mask that runs find: it costs less" in found["aside"]
    assert not (mask_folder() / "toy-r38.json").exists() and Path(found["out"]).parent.name == "set-aside"


@pytest.mark.parametrize(
    ("old", "said", "yields_to_an_unfinished_one"),
    [
        ({}, "costs less on held-out texts, 0.1000 against 0.2000", False),
        ({"held_out": None}, "", False),
        ({"held_out": {"cost": 0.3}}, "", False),
        ({"complete": False, "held_out": None}, "", True),
        ({"settings": {"score": {"window": 8}}}, "", False),
        ({"skip_ratio": 0.4}, "", True),
        ({"granularity": "sublayer"}, "", True),
        ({"settings": {"score": {"window": 4}, "inside": [3]}}, "", True),
        ({"held_out": {"cost": 10**400}}, "", True),
        ({"layers": 9}, "", True),
        ({"model": {"id": "toy", "sha256": "1" * 64}}, "", True),
        ({"held_out": {}}, "", True),
    ],
)
def test_which_masks_keep_their_place(
    old: dict[str, Any], said: str, yields_to_an_unfinished_one: bool, tmp_path: Path
) -> None:
    identity = PAIR.verifier.identity
    new = {
        "model": {"id": "toy", "sha256": "0" * 64},
        "layers": 8,
        "skip_ratio": 0.375,
        "settings": {"score": {"window": 4}},
        "complete": True,
        "held_out": {"cost": 0.2},
    }
    path = tmp_path / "m.json"
    assert precedence(path, new, identity) == ""
    path.write_text(json.dumps(new | {"held_out": {"cost": 0.1}} | old))
    found = precedence(path, new, identity)
    assert said in found and bool(said) == bool(found)
    cut = precedence(path, new | {"complete": False, "held_out": None}, identity)
    assert (cut == "") == yields_to_an_unfinished_one


def test_an_own_mask_counts_before_a_shipped_one_of_the_same_ratio(tmp_path: Path) -> None:
    for folder, bits in (("own", "10111"), ("shipped", "11101")):
        (tmp_path / folder).mkdir()
        content = {"schema": SCHEMA, "mask": bits, "layers": 5, "model": {"sha256": "0" * 64}}
        (tmp_path / folder / "m.json").write_text(json.dumps(content))
    files = [tmp_path / "own" / "m.json", tmp_path / "shipped" / "m.json"]
    identity = {"kind": "folder", "sha256": "0" * 64, "layers": 5}
    assert MaskStore(files, identity).nearest(0.2).bits == "10111"

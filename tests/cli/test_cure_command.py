"""`generate` and `bench` with methods that verify blocks and trees, on a verifier and drafter from disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drafters.checkpoint_files import eagle, saved, target_of
from drafters.own_files import block_parts
from toys import toy_model, toy_pair, toy_tokenizer
from viasd_core.cli.main import main
from viasd_core.trace import Trace


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A verifier, a block drafter, an EAGLE-3 drafter and a preset."""
    home = tmp_path_factory.mktemp("models")
    toy_model(layers=8).save_pretrained(home / "verifier")
    toy_tokenizer().save_pretrained(home / "verifier")
    target = target_of(toy_pair(drafter="none", layers=8))
    saved(home / "block", *block_parts(target.config, (1, 3, 5), seed=8))
    eagle(home / "eagle", target.config)
    block, tree = (next((home / name).rglob("config.json")).parent for name in ("block", "eagle"))
    (home / "pair.yaml").write_text(
        f"verifier: {{folder: verifier}}\nchat: false\ndrafter: {{kind: model, source: {{folder: {block}}}}}"
    )
    (home / "tree.txt").write_text(str(tree))
    (home / "prompts.jsonl").write_text(json.dumps({"prompt": "the answer and the other one"}))
    return home


def generate(home: Path, *arguments: str) -> int:
    fixed = ("--preset", str(home / "pair.yaml"), "--prompt", "the and", "--dtype", "float64")
    return main(["generate", *fixed, "--max-new-tokens", "12", "--device", "cpu", *arguments])


def object_of(home: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert generate(home, *arguments, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


TREES = ("--tau-margin", "3", "--max-positions", "2", "--v-max", "40", "--b-max", "3", "--beam", "4")
VIA = ("--tiers", "via-sd", "--mask", "11011101", "--strict")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--method", "block"),
        ("--method", "cure", *TREES, "--margin-scale", "2", "--suffix", "S1"),
        ("--method", "cure", *TREES, "--no-branch0"),
        ("--method", "cure", *TREES, "--no-resync"),
        ("--method", "cure", *TREES, *VIA),
    ],
    ids=" ".join,
)
def test_every_form_says_what_plain_decoding_says_and_keeps_a_sound_trace(
    arguments: tuple[str, ...], home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = object_of(home, capsys, "--method", "ar")
    out = tmp_path / "t.zip"
    found = object_of(home, capsys, *arguments, "--trace", str(out))
    assert found["token_ids"] == plain["token_ids"]
    assert main(["trace", "check", str(out)]) == 0
    repair = found["repair"]
    assert (repair["tried"] > 0) == ("cure" in arguments)
    assert repair["nodes"] == len(Trace.load(out).tree)


def test_a_measured_suffix_is_a_note_and_a_fact_of_the_run(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The random drafter's config says nothing of known prefixes, as published ones do not."""
    out = tmp_path / "t.zip"
    assert generate(home, "--method", "cure", "--json", "--trace", str(out)) == 0
    printed = capsys.readouterr()
    run = Trace.load(out).run
    choice = run["suffix_choice"]["choice"]
    assert f"note: suffix {choice} was chosen by measurement" in printed.err
    assert (
        run["settings"]["suffix"] == choice == json.loads(printed.out.splitlines()[-1])["settings"]["suffix"]
    )
    assert run["drafter_check"]["positions"] > 0
    assert main(["trace", "check", str(out)]) == 0


def test_a_named_suffix_and_a_drafter_that_knows_prefixes_need_no_measurement(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = target_of(toy_pair(drafter="none", layers=8))
    config, tensors = block_parts(target.config, (1, 3, 5), seed=8)
    special = config["dflash_config"] | {"known_prefix": True}
    saved(tmp_path / "knows", config | {"dflash_config": special}, tensors)
    forms = {
        ("--suffix", "S1"): ("S1", None),
        ("--drafter", str(tmp_path / "knows")): ("S2", {"choice": "S2", "known_prefix": True}),
    }
    for arguments, (suffix, said) in forms.items():
        out = tmp_path / f"{suffix}.zip"
        assert generate(home, "--method", "cure", "--quiet", "--trace", str(out), *arguments) == 0
        assert "note:" not in capsys.readouterr().err
        run = Trace.load(out).run
        assert (run["settings"]["suffix"], run.get("suffix_choice")) == (suffix, said)


def test_a_presets_own_method_runs_with_its_options_unless_another_is_named(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = home / "own.yaml"
    own.write_text(
        (home / "pair.yaml").read_text() + "\nmethod: cure\nsettings: {tau_margin: 3.0, b_max: 2, suffix: S1}"
    )
    found = object_of(home, capsys, "--preset", str(own))
    assert found["method"] == "cure" and found["repair"]["tried"] > 0
    settings = found["settings"]
    assert (settings["tau_margin"], settings["b_max"], settings["suffix"]) == (3.0, 2, "S1")
    assert object_of(home, capsys, "--preset", str(own), "--b-max", "1")["settings"]["b_max"] == 1
    assert object_of(home, capsys, "--preset", str(own), "--method", "block")["method"] == "block"
    assert generate(home, "--preset", str(own), "--gamma", "4") == 2
    assert "--gamma is not used by method 'cure'" in capsys.readouterr().err


def test_eagles_tree_is_drafted_by_an_eagle_checkpoint(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    eagle_folder = (home / "tree.txt").read_text()
    plain = object_of(home, capsys, "--method", "ar")
    found = object_of(home, capsys, "--method", "eagle2", "--drafter", eagle_folder, "--gamma", "3")
    assert found["token_ids"] == plain["token_ids"] and found["repair"]["nodes"] > 20


REFUSED = {
    "no block drafter": (
        ("--method", "cure", "--drafter", "lookup"),
        "method 'cure' needs a drafter that proposes a whole block at once (DFlash format); this pair's is "
        "of kind lookup: name one with --drafter, or train one with distill --kind block",
    ),
    "no tree drafter": (("--method", "eagle2"), "method 'eagle2' needs a drafter that proposes trees"),
    "not of sd": (("--method", "sd", "--tau-margin", "1"), "--tau-margin is not used by method 'sd'"),
    "not of block": (("--method", "block", "--no-resync"), "--no-resync is not used by method 'block'"),
    "no gamma": (("--method", "cure", "--gamma", "4"), "--gamma is not used by method 'cure'"),
    "idle": (("--method", "cure", "--mask", "even"), "--mask has no effect without --tiers via-sd"),
    "tiers": (("--method", "cure", "--tiers", "0.4"), "method cure takes via-sd, or none"),
    "suffix": (("--method", "cure", "--suffix", "S3"), "suffix is 'S3'; choose one of auto, S1, S2, S4"),
    "no correction": (("--method", "cure", "--suffix", "S4"), "--suffix S4 redoes Domino's correction"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused_in_a_sentence(
    name: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, said = REFUSED[name]
    assert generate(home, *arguments) == 2
    err = capsys.readouterr().err
    assert said in err and err.splitlines()[-1].startswith("error: ")


def test_block_and_cure_are_measured_beside_plain_decoding(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    fixed = ["--preset", str(home / "pair.yaml"), "--data", str(home / "prompts.jsonl"), "--dtype", "float64"]
    limits = ["--device", "cpu", "--max-new-tokens", "8", "--repeats", "1", "--more-drafters", "lookup"]
    assert main(["bench", "--methods", "sd,block,cure", *fixed, *limits, "--out", str(out)]) == 0
    labels = [entry["label"] for entry in json.loads(out.read_text())["methods"]]
    assert set(labels) == {"ar", "sd", "block", "cure", "sd, lookup"}

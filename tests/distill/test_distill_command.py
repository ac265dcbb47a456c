"""`distill` as a user meets it, on a toy verifier in a folder: made, killed, resumed, refused."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from distill.command_toys import KINDS, SMALL, Command, arguments, facts_of, said, weights
from scripted import run as decode
from viasd_core.cli.main import main
from viasd_core.distill import train
from viasd_core.distill.answers import Answer
from viasd_core.distill.shards import ShardFolder
from viasd_core.pair import load_pair
from viasd_core.parts import parts_of
from viasd_core.settings import Settings

ROOT = Path(__file__).parents[2]
LOADED_AS = {"ar": "ar", "eagle": "eagle3", "block": "dflash"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_drafter_is_made_told_of_and_ready_to_draft(
    kind: str, finished: dict[str, Path], place: Path
) -> None:
    out = finished[kind]
    facts = json.loads((out / "facts.json").read_text())
    assert facts["kind"] == kind and facts["prompts"] == 40 and facts["verifier"] == "verifier"
    assert facts["tokens"] > 150 and facts["parameters"] > 1000 and facts["steps"] == 10
    assert len(facts["held_out"]["agree"]) == len(facts["held_out"]["overlap"]) == (1 if kind == "ar" else 3)
    card = (out / "README.md").read_text()
    assert f"`{kind}`" in card and f"{facts['tokens']:,} tokens" in card and "prompts.jsonl" in card
    assert f"| agree | {facts['held_out']['agree'][0]:.3f}" in card
    # Of 40 prompts 0 and 32 are held out; a block is judged from a fixed number of places of each answer, the
    # others once a token.
    assert facts["held_out_answers"] == 2 and "the figures are of 2 such answers" in card
    rows = facts["held_out"]["rows"][0]
    assert rows >= 2 and (kind == "block" or rows <= 2 * SMALL["--max-new-tokens"])
    config = (out / "config.json").read_text()
    assert str(place) not in config + card.replace(facts["command"], "")
    assert json.loads(config)["trained_for"]["id"] == "verifier"
    pair = load_pair(str(place / "toy.yaml"), drafter=str(out), dtype="float64")
    assert pair.trained is not None and pair.trained.drafter.kind == LOADED_AS[kind]
    prompt = list(pair.verifier.tokenizer("Count 8 to 56").input_ids)
    texts = [
        decode(parts_of(pair), prompt, Settings(method=method, gamma=3, max_new_tokens=24)).token_ids
        for method in ("ar", "sd")
    ]
    assert texts[0] == texts[1]


def test_prompts_that_ran_out_and_the_layers_started_from_are_told(
    finished: dict[str, Path], distill: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = ("--answers", str(finished["ar"] / "answers"), "--epochs", "1")
    assert distill(tmp_path / "fresh", "ar", *answers) == 0
    told = capsys.readouterr().err
    assert "of 100000, since the prompts ran out" in told and "blocks start from layers 0,3,7" in told
    assert distill(tmp_path / "on", "ar", *answers, "--start", str(finished["ar"])) == 0
    told = capsys.readouterr().err
    assert "it goes on from ar" in told and "blocks start" not in told
    assert "agreement on 2 held-out answers by position" in told
    assert distill(tmp_path / "few", "ar", *answers, "--tokens", "100") == 0
    assert "ran out" not in capsys.readouterr().err


def test_drafters_of_all_kinds_learn_from_the_same_answers(finished: dict[str, Path]) -> None:
    told = [json.loads((out / "facts.json").read_text()) for out in finished.values()]
    assert len({facts["tokens"] for facts in told}) == 1
    assert not any((finished[kind] / "answers").exists() for kind in ("eagle", "block"))


DYING = """
import os, signal, sys
from viasd_core.cli.main import main
from viasd_core.distill.train import Trainer
plain = Trainer._step
def step(trainer, number, batch):
    if number == 54:
        os.kill(os.getpid(), signal.SIGKILL)
    plain(trainer, number, batch)
Trainer._step = step
main(sys.argv[1:])
"""


def test_killed_while_training_and_run_again_it_makes_the_drafter_of_an_uninterrupted_run(
    finished: dict[str, Path], place: Path, tmp_path: Path
) -> None:
    """SIGKILL between two saves: four steps are lost and made again."""
    more = ("--epochs", "3.1", "--batch", "2", "--answers", str(finished["ar"] / "answers"))
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    killed = subprocess.run(
        [sys.executable, "-c", DYING, *arguments(place, cut, "ar", *more)],
        env=environment,
        check=False,
        capture_output=True,
    )
    assert killed.returncode == -signal.SIGKILL
    assert [path.name for path in cut.iterdir()] == ["training.pt"]
    for out in (cut, whole):
        assert main(arguments(place, out, "ar", *more)) == 0
    assert weights(cut).keys() == weights(whole).keys()
    for name, weight in weights(whole).items():
        torch.testing.assert_close(weights(cut)[name], weight, atol=2e-2, rtol=2e-2, msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_interrupted_while_answering_and_while_training_it_ends_within_noise_of_an_uninterrupted_run(
    kind: str, finished: dict[str, Path], distill: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Shards are cut elsewhere then, so batches differ; the texts do not."""
    monkeypatch.setattr("viasd_core.distill.collect.SHARD_TOKENS", 900)
    plain, step = ShardFolder.write, train.Trainer._step

    def interrupted(folder: ShardFolder, name: str, answers: Sequence[Answer]) -> None:
        plain(folder, name, answers)
        raise KeyboardInterrupt

    def stopped(trainer: Any, number: int, batch: Any) -> None:
        if number == 5:
            raise KeyboardInterrupt
        step(trainer, number, batch)

    with monkeypatch.context() as patch:
        patch.setattr(ShardFolder, "write", interrupted)
        assert distill(tmp_path / "cut", kind) == 130
    with monkeypatch.context() as patch:
        patch.setattr(train.Trainer, "_step", stopped)
        assert distill(tmp_path / "cut", kind) == 130
    assert distill(tmp_path / "cut", kind, "--json") == 0
    found, whole = facts_of(capsys), json.loads((finished[kind] / "facts.json").read_text())
    assert found["tokens"] == whole["tokens"] and found["steps"] >= 10
    for figure in ("agree", "overlap"):
        assert found["held_out"][figure] == pytest.approx(whole["held_out"][figure], abs=0.15)


ORPHANING = """
import os, signal, sys, threading, time
from pathlib import Path
from viasd_core.cli.main import main
from viasd_core.distill import workers
plain = workers._collect
def endless(*given):
    Path(sys.argv[-1], f"worker-{os.getpid()}").touch()
    time.sleep(600)
workers._collect = endless
def kill():
    while len(list(Path(sys.argv[-1]).glob("worker-*"))) < 2:
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    threading.Thread(target=kill, daemon=True).start()
    main(sys.argv[1:-1])
"""


def runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks processes up in /proc")
def test_workers_end_when_the_process_that_started_them_is_killed(place: Path, tmp_path: Path) -> None:
    """The script is a file, so that spawned workers import it and find its endless answering."""
    script, seen = tmp_path / "orphaning.py", tmp_path / "seen"
    script.write_text(ORPHANING)
    seen.mkdir()
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    given = [*arguments(place, tmp_path / "out", "ar", "--workers", "2"), str(seen)]
    done = subprocess.run(
        [sys.executable, str(script), *given], env=environment, check=False, capture_output=True
    )
    assert done.returncode == -signal.SIGKILL
    left = {int(path.name.removeprefix("worker-")) for path in seen.iterdir()}
    assert len(left) == 2
    deadline = time.monotonic() + 60
    while left and time.monotonic() < deadline:
        left = {worker for worker in left if runs(worker)}
        time.sleep(0.1)
    assert not left


@pytest.mark.slow
def test_two_workers_share_the_prompts(
    distill: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert distill(tmp_path / "mine", "ar", "--workers", "2", "--json") == 0
    assert facts_of(capsys)["prompts"] == 40
    names = [path.name for path in (tmp_path / "mine" / "answers").glob("shard-*")]
    assert {name.split("-")[1] for name in names} == {"0", "1"}


def test_a_full_disk_is_one_sentence_and_costs_nothing_that_was_made(
    distill: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file-size limit stands in for the disk: shards are smaller than it, the training's state is not."""
    out = tmp_path / "mine"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, hard))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("viasd_core.distill.collect.SHARD_TOKENS", 200)
            assert distill(out, "ar") == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "too large" in said(capsys)
    shards = sorted((out / "answers").iterdir())
    assert sorted(path.name for path in out.iterdir()) == ["answers"] and len(shards) > 5
    assert distill(out, "ar") == 0
    assert sorted((out / "answers").iterdir()) == shards and (out / "model.safetensors").exists()


REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "no such file": (("--data", "nowhere.jsonl"), "nowhere.jsonl does not exist"),
    "no such preset": (("--preset", "huge"), "there is no preset 'huge'"),
    "blocks as words": (("--blocks", "first"), "--blocks takes layer numbers"),
    "blocks beyond": (("--blocks", "0,8"), "different layers from 0 to 7"),
    "blocks twice": (("--blocks", "3,3"), "different layers from 0 to 7"),
    "blocks and layers": (("--layers", "9"), "blocks names 3 layers and layers asks for 9"),
    "too many taps": (("--kind", "block", "--taps", "6"), "too few for"),
    "features": (("--taps", "3"), "leave it out with --kind ar"),
    "block options": (("--slots", "3"), "leave it out with --kind ar"),
    "two layers": (("--kind", "eagle"), "a drafter of kind eagle has one layer; got 3"),
    "domino": (("--domino",), "does not go with kind ar"),
    "no tokens": (("--tokens", "0"), "tokens must be at least 1"),
    "cold": (("--temperatures", "-1"), "temperatures must lie between 0 and 10"),
    "no epochs": (("--epochs", "nan"), "epochs must lie between 0 and 1000"),
    "rate": (("--learning-rate", "2"), "learning_rate must lie between 0 and 1"),
    "seed": (("--seed", str(2**70)), "seed must be below"),
    "workers": (("--workers", "0"), "--workers must be at least 1"),
    "context": (("--longest-prompt", "600"), "do not fit the verifier's context of 512"),
    "short": (("--longest-prompt", "3"), "give shorter prompts or raise --longest-prompt"),
    "dtype": (("--dtype", "int4"), "dtype 'int4' is not known"),
    "text for a number": (("--tokens", "many"), "--tokens"),
    "no kind": (("--kind", "medusa"), "--kind"),
    "lanes": (("--lanes", "100000000"), "lanes can be 4096 at most"),
    "slots": (("--kind", "block", "--slots", "100000000"), "slots can be 256 at most"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_refused_in_a_sentence_before_anything_is_made(
    name: str, distill: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more, wanted = REFUSED[name]
    try:
        status = distill(tmp_path / "mine", "ar", *more)
    except SystemExit as error:
        status = int(str(error.code))
    assert status == 2 and wanted in said(capsys)
    assert not (tmp_path / "mine").exists()


def test_too_little_to_train_on_is_said_in_a_sentence(
    distill: Command, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.txt").write_text("Count to nine.")
    assert distill(tmp_path / "mine", "ar", "--data", str(tmp_path / "one.txt")) == 2
    assert "holds no training answers; give more prompts" in said(capsys)


@pytest.mark.parametrize("there", [("README.md",), ("config.json", "model.safetensors")])
def test_files_of_somebody_else_are_not_replaced(
    there: tuple[str, ...], distill: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in there:
        (tmp_path / name).write_text("precious")
    assert distill(tmp_path, "ar") == 2
    assert f"holds {' and '.join(there)} already, and no training.pt to go on from" in said(capsys)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(there)
    assert all((tmp_path / name).read_text() == "precious" for name in there)
    assert distill(tmp_path / there[0], "ar") == 2
    assert "is a file; give the folder" in said(capsys)


def test_another_drafter_in_the_same_folder_is_refused_and_the_first_stays(
    finished: dict[str, Path], distill: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine"
    shutil.copytree(finished["ar"], out)
    kept = (out / "model.safetensors").read_bytes()
    assert distill(out, "ar", "--blocks", "0,1,2") == 2
    assert "belongs to a training with other settings or answers" in said(capsys)
    assert distill(out, "ar", "--seed", "1") == 2
    assert "of another plan, which differs in" in said(capsys)
    assert (out / "model.safetensors").read_bytes() == kept

"""A search that was stopped, interrupted or killed goes on from its log; a log that is none is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dimr.command_toys import PAIR, SEARCH, Command, last
from viasd_core.dimr.command import Workplace
from viasd_core.dimr.log import log_path
from viasd_core.dimr.masks import read_mask
from viasd_core.dimr.request import Request
from viasd_core.dimr.search import SearchSettings
from viasd_core.errors import DataError
from viasd_core.sources import LoadedModel


@pytest.mark.parametrize(
    "change",
    [{"cost": "a"}, {"cost": float("nan")}, {"mask": "x"}, {"mask": None}, {"mask": "1"}, {"t_us": "now"},
     {"step": [1]}, {"step": True}, {"method": 3}, {"accepted": 1}, {"more": 1}],
)  # fmt: skip
def test_a_damaged_line_of_the_log_is_one_sentence(
    change: dict[str, Any], dimr: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "m.json"
    assert dimr(*SEARCH, "--out", str(out)) == 0
    lines = log_path(out).read_text("utf-8").splitlines()
    lines[2] = json.dumps(json.loads(lines[2]) | change)
    log_path(out).write_text("\n".join(lines[:5]) + "\n", "utf-8")
    capsys.readouterr()
    assert dimr(*SEARCH, "--out", str(out), "--resume") == 2
    assert f"{log_path(out)} is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: [*lines, lines[1]], "it scores a mask twice"),
        (lambda lines: [], "holds nothing to resume"),
        (lambda lines: [lines[0], "[" * 100_000], "is not the log of a search"),
    ],
)
def test_a_log_that_is_none_is_one_sentence(
    change: Callable[[list[str]], list[str]],
    words: str,
    dimr: Command,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    out = tmp_path / "m.json"
    assert dimr(*SEARCH, "--out", str(out)) == 0
    lines = log_path(out).read_text("utf-8").splitlines()[:4]
    log_path(out).write_text("".join(line + "\n" for line in change(lines)), "utf-8")
    capsys.readouterr()
    assert dimr(*SEARCH, "--out", str(out), "--resume") == 2
    said = capsys.readouterr().err
    assert words in said and str(log_path(out)) in said and "Traceback" not in said


@pytest.mark.parametrize("search", ["dimr", "random", "greedy"])
@pytest.mark.parametrize("slim_kv", ["shared", "own"])
def test_a_killed_command_resumes_to_the_mask_it_would_have_found(
    search: str,
    slim_kv: str,
    dimr: Command,
    interrupt: Callable[[int], None],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    options = {"dimr": SEARCH, "random": (*SEARCH[:4], *SEARCH[6:]), "greedy": (*SEARCH[:2], *SEARCH[6:])}
    arguments = (*options[search], "--search", search, "--slim-kv", slim_kv, "--json", "--out")
    assert dimr(*arguments, str(tmp_path / "whole.json")) == 0
    whole = last(capsys)
    cut = str(tmp_path / "cut.json")
    number = {"dimr": 10, "random": 5, "greedy": 13}[search]  # a mask of the wanted size has been scored
    interrupt(number)
    assert dimr(*arguments, cut) == 130
    printed = capsys.readouterr()
    assert printed.err.startswith("error: interrupted; the best mask so far is kept")
    kept = json.loads((tmp_path / "cut.json").read_text("utf-8"))
    assert kept["complete"] is False and kept["held_out"] is None
    assert len(kept["history"]) == number - 1
    assert read_mask(tmp_path / "cut.json", PAIR.verifier.identity).bits == kept["mask"]
    assert dimr(*arguments, cut) == 2  # the unfinished search is not lost by starting anew
    assert "--resume" in capsys.readouterr().err
    interrupt(-1)
    assert dimr(*arguments, cut, "--resume") == 0
    resumed = last(capsys)
    assert (resumed["mask"], resumed["cost"]) == (whole["mask"], whole["cost"])
    assert resumed["evaluations"] == whole["evaluations"] and resumed["complete"] is True


KILLED_AT_THE_TENTH_MASK = """
import os, signal, sys
import torch
import viasd_core.pair
from toys import toy_pair
from viasd_core.cli.main import main
from viasd_core.dimr.request import Request
from viasd_core.dimr.score import Scorer

torch.set_num_threads(1)
pair, plain, left = toy_pair(layers=8), Scorer.cost, [10]
viasd_core.pair.load_pair = lambda *_, **__: pair

def cost(scorer, mask):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return plain(scorer, mask)

Scorer.cost = cost
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_process_killed_outright_resumes_to_the_mask_it_would_have_found(
    dimr: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Nothing runs after a SIGKILL: what is left is what the log got as the search went."""
    cut, whole = tmp_path / "cut.json", tmp_path / "whole.json"
    tests = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-c", KILLED_AT_THE_TENTH_MASK, "dimr", "--preset=tiny", *SEARCH, f"--out={cut}"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tests.parent), str(tests)])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not cut.exists() and len(log_path(cut).read_text().splitlines()) == 1 + 9
    assert dimr(*SEARCH, "--out", str(cut), "--resume") == 0
    assert dimr(*SEARCH, "--out", str(whole)) == 0
    resumed, other = (json.loads(path.read_text("utf-8")) for path in (cut, whole))
    assert [row["mask"] for row in resumed["history"]] == [row["mask"] for row in other["history"]]
    assert [row["cost"] for row in resumed["history"]] == pytest.approx(
        [row["cost"] for row in other["history"]], rel=1e-9
    )
    assert resumed["mask"] == other["mask"] and resumed["complete"] is True


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"dtype": torch.float32}, "another dtype"),
        ({"device": torch.device("cuda")}, "another device"),
        ({"dtype": torch.bfloat16, "device": torch.device("cuda")}, "another dtype and device"),
    ],
)
def test_costs_of_another_dtype_or_device_are_never_mixed(
    changed: dict[str, Any],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Workplace.prepare(
        PAIR,
        Request(SearchSettings(steps=2), tokens=6),
        (["the hat"], ["an inner thing"]),
        tmp_path / "m.json",
    )
    place.log.begin()
    assert place.log.resume() == []
    for name, value in changed.items():
        monkeypatch.setattr(LoadedModel, name, value)
    with pytest.raises(DataError, match=f"belongs to a search with {said};"):
        place.log.resume()


def test_a_search_that_found_nothing_yet_says_so_and_resumes(
    dimr: Command, interrupt: Callable[[int], None], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "mask.json"
    interrupt(4)
    assert dimr(*SEARCH, "--out", str(out)) == 130
    assert "before the first mask" in capsys.readouterr().err and not out.exists()
    interrupt(-1)
    assert dimr(*SEARCH, "--out", str(out), "--resume") == 0


def test_a_finished_search_may_be_made_again_and_is_not_resumed_with_another_seed(
    dimr: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = (*SEARCH, "--json", "--out", str(tmp_path / "mask.json"))
    assert dimr(*arguments) == 0
    first = last(capsys)
    assert dimr(*arguments, "--seed", "1") == 0
    capsys.readouterr()
    assert dimr(*arguments, "--resume") == 2
    assert "another search" in capsys.readouterr().err
    assert dimr(*arguments) == 0
    assert last(capsys)["mask"] == first["mask"]


def test_a_larger_budget_goes_on_where_a_smaller_one_ended(
    dimr: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ("--json", "--out", str(tmp_path / "mask.json"))
    assert dimr(*SEARCH, *arguments) == 0
    small = last(capsys)
    larger = (*SEARCH[:2], "--steps", "12", *SEARCH[4:])
    assert dimr(*larger, *arguments, "--resume") == 0
    assert last(capsys)["evaluations"] == small["evaluations"] + 4

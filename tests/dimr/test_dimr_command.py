"""`dimr` as a user meets it, on a toy pair: what it finds, keeps, refuses, and how it survives a Ctrl-C."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import viasd_core.pair
from toys import toy_pair
from viasd_core.cli.main import main
from viasd_core.dimr.calibration import teacher_force
from viasd_core.dimr.command import Workplace
from viasd_core.dimr.log import log_path
from viasd_core.dimr.masks import SCHEMA, MaskStore, read_mask
from viasd_core.dimr.request import Request
from viasd_core.dimr.score import Scorer
from viasd_core.dimr.search import Observation, SearchSettings
from viasd_core.dimr.store import precedence
from viasd_core.errors import DataError, MaskError
from viasd_core.parts import parts_of
from viasd_core.paths import mask_folder
from viasd_core.recording import record
from viasd_core.settings import Settings
from viasd_core.sources import LoadedModel
from viasd_core.trace_check import check

Command = Callable[..., int]
SEARCH = ("--skip-ratio", "0.4", "--steps", "8", "--theta", "3", "--tokens", "6", "--prompts", "3")
PAIR = toy_pair(layers=8)


@pytest.fixture
def dimr(monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """Run `dimr` on the toy pair, whatever the preset names."""
    monkeypatch.setattr(viasd_core.pair, "load_pair", lambda *_, **__: PAIR)
    before = signal.getsignal(signal.SIGTERM)
    yield lambda *arguments: main(["dimr", "--preset", "tiny", *arguments])
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Press Ctrl-C while the n-th mask is scored from now on."""
    plain = Scorer.cost

    def arm(number: int) -> None:
        left = [number]

        def cost(scorer: Scorer, mask: str) -> float:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            return plain(scorer, mask)

        monkeypatch.setattr(Scorer, "cost", cost)

    return arm


def last(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_the_last_line_has_every_promised_number_and_the_file_serves(
    dimr: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "mask.json"
    assert dimr(*SEARCH, "--out", str(out), "--curve", "--json") == 0
    found = last(capsys)
    assert {"cost", "held_out", "evaluations", "seconds", "evaluations_per_s", "mask", "out"} <= set(found)
    assert found["evaluations"] == 6 + 1 + 8
    held = found["held_out"]
    assert {"cost", "block_cost", "agreement", "regions", "r_eff", "predicted", "others", "tier_gain"} <= set(
        held
    )
    assert set(held["predicted"]) >= {"rho", "committed", "speed"}
    assert held["tier_gain"]["value"] is not None and held["curve"]["points"]
    content = json.loads(out.read_text("utf-8"))
    assert content["schema"] == SCHEMA and content["mask"].count("0") == 3
    assert content["model"] == {"id": "toy", "sha256": "0" * 64} and content["layers"] == 8
    steps = [row for row in content["history"] if row["step"] is not None]
    assert content["cost"] == min(row["cost"] for row in steps)
    assert [row["method"] for row in steps].count("bo") == 2
    assert read_mask(out, PAIR.verifier.identity).bits == content["mask"]
    with pytest.raises(MaskError, match="was made for toy with 8 layers, not for org/other"):
        read_mask(out, {"kind": "hub", "id": "org/other", "layers": 8})


@pytest.mark.parametrize("slim_kv", ["shared", "own"])
def test_a_whole_run_leaves_every_weight_as_it_was(
    slim_kv: str, dimr: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """D8: continuing, searching, judging and the curve."""
    assert PAIR.draft_model is not None
    models = [PAIR.verifier.model, PAIR.draft_model.model]
    before = [copy.deepcopy(model.state_dict()) for model in models]
    arguments = (*SEARCH, "--slim-kv", slim_kv, "--curve", "--json", "--out", str(tmp_path / "mask.json"))
    assert dimr(*arguments) == 0
    found = last(capsys)
    assert found["held_out"]["curve"]["points"] and found["held_out"]["tier_gain"]["value"] is not None
    for model, old in zip(models, before, strict=True):
        now = model.state_dict()
        assert now.keys() == old.keys() and all(torch.equal(now[name], old[name]) for name in old)


def test_a_search_over_sub_layers_keeps_a_mask_of_halves_that_serves(
    dimr: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "mask.json"
    assert dimr(*SEARCH, "--granularity", "sublayer", "--out", str(out), "--curve", "--json") == 0
    content, held = json.loads(out.read_text("utf-8")), last(capsys)["held_out"]
    assert (content["granularity"], content["layers"], len(content["mask"])) == ("sublayer", 8, 16)
    assert content["mask"].count("0") == 6 and content["skip_ratio"] == 0.375
    assert {len(point["mask"]) for point in held["curve"]["points"]} == {16}
    assert set(held["others"]) == {"even", "contiguous", "random"} and 0 < held["r_eff"] < 0.5
    mask = read_mask(out, PAIR.verifier.identity)
    settings = Settings(mask=str(out), max_new_tokens=8)
    trace = record(PAIR, "", settings, prompt_ids=[5, 6, 7])
    assert (trace.run["mask"], trace.run["mask_id"]) == (mask.bits, "mask")
    assert trace.run["r_eff"] == pytest.approx(held["r_eff"]) and check(trace) == []


def test_a_mask_searched_inside_another_serves_beside_it(
    dimr: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    strong, weak = tmp_path / "strong.json", tmp_path / "weak.json"
    assert dimr(*SEARCH, "--out", str(strong)) == 0
    asked = ("--skip-ratio", "0.6", *SEARCH[2:], "--inside", str(strong), "--out", str(weak))
    assert dimr(*asked) == 0
    settings = Settings(tiers=(str(weak), str(strong)), max_new_tokens=8)
    trace = record(PAIR, "", settings, prompt_ids=[5, 6, 7])
    assert [tier["mask_id"] for tier in trace.run["slim_tiers"]] == ["weak", "strong"]
    assert check(trace) == []
    with pytest.raises(MaskError, match="is not inside"):
        record(PAIR, "", settings.with_(tiers=(str(strong), str(weak))), prompt_ids=[5, 6, 7])


def test_the_search_never_sees_what_the_mask_is_judged_on(tmp_path: Path) -> None:
    request = Request(SearchSettings(steps=2), skip_ratio=0.4, tokens=6)
    place = Workplace.prepare(
        PAIR, request, (["the hat", "on and on"], ["an inner thing"]), tmp_path / "m.json"
    )
    assert [text.text for text in place.scorer.texts] == place.texts.search
    found = place.judge(Observation(0, "even", place.space.even, 1.0, 1.0, 0, True), [])
    unseen = teacher_force(place.runner, place.texts.held_out)
    assert found["cost"] == Scorer(unseen, place.scoring).cost(place.space.even)
    prompts = {text.ids[: text.prompt_tokens] for text in (*place.texts.search, *place.texts.held_out)}
    assert len(prompts) == 3


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


def held_out_cost(path: Path) -> float:
    return float(json.loads(path.read_text("utf-8"))["held_out"]["cost"])


def test_without_out_a_better_mask_of_that_ratio_keeps_its_place(
    dimr: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever of two searches is made first, runs find the mask of lower held-out cost."""
    out = mask_folder() / "toy-r38.json"
    aside = out.parent / "set-aside" / out.name
    short = (*SEARCH[:2], "--search", "random", "--steps", "1", *SEARCH[6:])
    assert dimr(*short) == 0
    poor = out.read_text("utf-8")
    assert dimr(*SEARCH) == 0
    good = out.read_text("utf-8")
    assert held_out_cost(out) < json.loads(poor)["held_out"]["cost"] and not aside.exists()
    capsys.readouterr()
    assert dimr(*short, "--json") == 0
    found = last(capsys)
    assert out.read_text("utf-8") == good and found["out"] == str(aside)
    assert f"{out} stays the mask that runs find: it costs less on held-out texts" in found["aside"]
    assert json.loads(aside.read_text("utf-8"))["mask"] == json.loads(poor)["mask"]
    parts = parts_of(PAIR)
    assert parts.masks is not None
    assert parts.masks.choose("auto", 0.38).bits == json.loads(good)["mask"]
    assert dimr(*short) == 0
    assert "stays the mask that runs find" in capsys.readouterr().out
    assert dimr(*short, "--out", str(out)) == 0  # asked for by name
    assert json.loads(out.read_text("utf-8"))["mask"] == json.loads(poor)["mask"]


def test_without_out_a_finished_mask_does_not_yield_to_an_interrupted_search(
    dimr: Command, interrupt: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    out = mask_folder() / "toy-r38.json"
    aside = out.parent / "set-aside" / out.name
    short = (*SEARCH[:2], "--search", "random", "--steps", "1", *SEARCH[6:])
    assert dimr(*short) == 0
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
    assert dimr(*SEARCH[:2], "--search", "random", "--steps", "1", *SEARCH[6:], "--json") == 0
    found = last(capsys)
    assert f"{shipped} stays the mask that runs find: it costs less" in found["aside"]
    assert not (mask_folder() / "toy-r38.json").exists() and Path(found["out"]).parent.name == "set-aside"


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


def test_the_cost_can_be_chosen_and_is_written_down(
    dimr: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = (*SEARCH, "--json", "--out", str(tmp_path / "mask.json"))
    assert dimr(*arguments, "--alpha", "0.2", "--beta", "1", "--phi", "squared") == 0
    found = last(capsys)
    assert found["settings"]["score"]["cost"] == {"alpha": 0.2, "beta": 1.0, "phi": "squared"}
    assert dimr(*arguments, "--resume") == 2
    assert "another score" in capsys.readouterr().err


def test_somebody_else_s_file_is_left_alone(dimr: Command, tmp_path: Path) -> None:
    foreign = tmp_path / "precious.json"
    foreign.write_text('{"mine": 1}')
    assert dimr(*SEARCH, "--out", str(foreign)) == 2
    assert foreign.read_text() == '{"mine": 1}'


def cells(judged: dict[str, Any]) -> list[str]:
    """A judged mask as the summary's tables show it."""
    guess = judged["predicted"]
    return [
        f"{judged['cost']:.4f}",
        f"{judged['agreement']:.3f}",
        *(f"{guess[key]:.2f}" for key in ("rho", "committed", "speed")),
    ]


def test_the_summary_names_the_mask_its_rivals_and_the_prediction(
    dimr: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert dimr(*SEARCH, "--out", str(tmp_path / "mask.json"), "--curve") == 0
    printed = capsys.readouterr()
    for part in ("predicted: q called", "gain of the tier"):
        assert part in printed.out
    lines = [line.split() for line in printed.out.splitlines()]
    held = json.loads((tmp_path / "mask.json").read_text("utf-8"))["held_out"]
    head = ["cost", "agreement", "rho", "tokens/cycle", "speed"]
    start = lines.index(["held", "out", *head])
    beside = {"found": held, **held["others"]}
    assert lines[start + 1 : start + 5] == [[name, *cells(one)] for name, one in beside.items()]
    points = held["curve"]["points"]
    start = lines.index(["r", *head])
    assert len(points) == 6 and lines[start + 1 : -1] == [
        [f"{point['skip_ratio']:.3f}", *cells(point)] for point in points
    ]
    assert "speculative decoding" in printed.out.splitlines()[-1]
    assert printed.err.startswith("step 0 (even)")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--skip-ratio", "1.5"), "skip_ratio"),
        (("--skip-ratio", "nan"), "skip_ratio"),
        (("--skip-ratio", "0.01"), "nothing to search"),
        (("--steps", "0"), "steps"),
        (("--search", "magic"), "magic"),
        (("--search", "greedy", "--theta", "3"), "--theta"),
        (("--search", "random", "--theta", "3"), "--theta"),
        (("--window", "0"), "window"),
        (("--rho", "1"), "rho"),
        (("--slim-kv", "both"), "slim_kv"),
        (("--alpha", "0.5", "--beta", "0.3"), "beta"),
        (("--phi", "cube"), "phi"),
        (("--tokens", "0"), "tokens"),
        (("--prompts", "1"), "prompts"),
        (("--data", "/nonexistent"), "does not exist"),
        (("--preset", "nope"), "nope"),
        (("--out", "mask.txt"), ".json"),
        (("--resume",), "no log"),
        (("--nonsense",), "nonsense"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(
    arguments: tuple[str, ...], said: str, dimr: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = dimr("--prompts", "2", "--tokens", "2", *arguments)
    except SystemExit as stop:
        status = int(stop.code or 0)
    printed = capsys.readouterr().err
    assert status == 2
    assert printed.startswith("error: ") and printed.count("\n") == 1 and said in printed

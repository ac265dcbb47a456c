"""`dimr` as a user meets it, on a toy pair: what it finds, keeps, refuses, and how it survives a Ctrl-C."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dimr.command_toys import PAIR, SEARCH, Command, last
from viasd_core.dimr.calibration import teacher_force
from viasd_core.dimr.command import Workplace
from viasd_core.dimr.masks import SCHEMA, read_mask
from viasd_core.dimr.request import Request
from viasd_core.dimr.score import Scorer
from viasd_core.dimr.search import Observation, SearchSettings
from viasd_core.errors import MaskError
from viasd_core.recording import record
from viasd_core.settings import Settings
from viasd_core.trace_check import check


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

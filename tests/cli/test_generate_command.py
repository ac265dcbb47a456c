"""`generate` as a user meets it, on a toy pair: what it prints, keeps and refuses."""

from __future__ import annotations

import json
import os
import signal
import zipfile
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import viasd_core.decode
import viasd_core.pair
from toys import toy_pair
from viasd_core.cli.main import main
from viasd_core.dimr.masks import SCHEMA
from viasd_core.live import LiveSettings
from viasd_core.settings import Settings
from viasd_core.trace import Trace
from viasd_core.trace_check import check

Command = Callable[..., int]
VIA = ("--mask", "even", "--skip-ratio", "0.3")


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `generate` on the toy pair, whatever the preset names."""
    monkeypatch.setattr(viasd_core.pair, "load_pair", lambda *_, **__: toy_pair())

    def command(*arguments: str) -> int:
        prompt = () if "--prompt-file" in arguments or "--prompt" in arguments else ("--prompt", "the hat")
        return main(["generate", *prompt, "--max-new-tokens", "12", *arguments])

    return command


def test_the_last_line_is_one_object_with_every_promised_number(
    generate: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out.zip"
    assert generate("--method", "via-sd", *VIA, "--json", "--trace", str(out)) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    promised = (
        "text token_ids prompt_tokens new_tokens finish_reason method settings cycles draft_forwards "
        "slim_forwards full_forwards settle_forwards escalating_cycles counts repair examined "
        "rejection_rate region_c_share escalation_rate mean_committed r_eff mixture audit phases_ms "
        "wall_s ttft_s tokens_per_s trace"
    )
    assert set(promised.split()) <= set(found)
    assert sum(found["counts"].values()) == found["new_tokens"] == len(found["token_ids"])
    trace = Trace.load(out)
    assert check(trace) == [] and trace.token_ids == found["token_ids"]


def test_streamed_text_is_the_trace_s_text(
    generate: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert generate("--method", "ar", "--trace", str(tmp_path / "t")) == 0
    from viasd_core.terminal import printable

    text = Trace.load(tmp_path / "t").text
    assert capsys.readouterr().out == "\n".join(map(printable, text.split("\n"))) + "\n"


def test_an_empty_prompt_starts_from_the_start_token_and_its_trace_holds(
    generate: Command, tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").write_text("")
    arguments = ("--method", "ar", "--raw", "--prompt-file", str(tmp_path / "empty.txt"))
    assert generate(*arguments, "--trace", str(tmp_path / "t.zip")) == 0
    trace = Trace.load(tmp_path / "t.zip")
    assert check(trace) == [] and trace.run["prompt_tokens"] == 1


def test_a_trace_that_cannot_be_kept_does_not_cost_the_text(
    generate: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert generate("--method", "ar", "--json", "--trace", str(tmp_path / ("n" * 250 + ".zip"))) == 2
    printed = capsys.readouterr()
    assert json.loads(printed.out.splitlines()[-1])["new_tokens"] > 0
    assert printed.err.startswith("error: ") and "cannot be written" in printed.err


def test_a_polite_kill_keeps_what_was_decoded(
    generate: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recording = import_module("viasd_core.recording")
    plain = recording.collect

    def killed(trace: Any, events: Any, started: float, on_event: Any) -> None:
        plain(trace, iter([next(events), next(events)]), started, on_event)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(recording, "collect", killed)
    try:
        assert generate("--method", "ar", "--quiet", "--trace", str(tmp_path / "t.zip")) == 130
    finally:
        signal.signal(signal.SIGTERM, before)
    trace = Trace.load(tmp_path / "t.zip")
    assert len(trace.token_ids) == 2 and trace.run["complete"] is False and check(trace) == []


@pytest.mark.parametrize("temperature", ["1e-39", "1e-320", "1e-6"])
def test_a_tiny_temperature_is_as_good_as_greedy(
    generate: Command, capsys: pytest.CaptureFixture[str], temperature: str
) -> None:
    assert generate("--method", "ar", "--json", "--temperature", temperature) == 0
    sampled = json.loads(capsys.readouterr().out.splitlines()[-1])["token_ids"]
    assert generate("--method", "ar", "--json") == 0
    assert sampled == json.loads(capsys.readouterr().out.splitlines()[-1])["token_ids"]


def test_somebody_else_s_files_are_left_alone(generate: Command, tmp_path: Path) -> None:
    foreign = tmp_path / "mine.zip"
    with zipfile.ZipFile(foreign, "w") as archive:
        archive.writestr("run.json", "{}")
        archive.writestr("precious.txt", "precious")
    folder = tmp_path / "table"
    folder.mkdir()
    (folder / "tokens.csv").write_text("my own table")
    for target in (foreign, folder):
        assert generate("--method", "ar", "--quiet", "--trace", str(target)) == 2
    assert zipfile.ZipFile(foreign).read("precious.txt") == b"precious"
    assert (folder / "tokens.csv").read_text() == "my own table"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--alpha1", "7"), "alpha1"),
        (("--alpha1", "nan"), "alpha1"),
        (("--temperature", "1e309"), "temperature"),
        (("--gamma", "0"), "gamma"),
        (("--method", "magic"), "magic"),
        (("--preset", "nope"), "nope"),
        (("--strict", "--temperature", "1"), "strict"),
        (("--mask", "11011", "--skip-ratio", "0.2"), "contradict"),
        (("--alpha", "0.2"), "--alpha has no effect without --rule-c lossy"),
        (("--beta", "1.2", "--rule-c", "greedy"), "--beta has no effect without --rule-c lossy"),
        (("--bonus-threshold", "0.5"), "--bonus-threshold has no effect without --bonus slim"),
        (("--drafter", "lookup", "--lookup-first"), "--lookup-first has no effect with the drafter lookup"),
        (("--drafter", "lookup", "--draft-p-min", "0.3"), "--draft-p-min has no effect"),
        (("--mask", "110"), "mask"),
        (("--mask", "even", "--prompt", "\udcff"), "surrogate"),
        (("--stop", "\udcff"), "surrogate"),
        (("--method", "ar", "--alpha1", "0.5"), "alpha1"),
        (("--method", "ar", "--drafter", "lookup"), "drafter"),
        (("--prompt-file", "/nonexistent/prompt"), "prompt"),
        (("--trace", ""), "trace"),
        (("--mask", "even", "--prompt", "x" * 4000), "context"),
        (("--nonsense",), "nonsense"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(
    arguments: tuple[str, ...], said: str, generate: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = generate(*arguments)
    except SystemExit as stop:
        status = int(stop.code or 0)
    printed = capsys.readouterr().err
    assert status == 2
    assert printed.startswith("error: ") and printed.count("\n") == 1 and said in printed
    assert "Traceback" not in printed


def test_damaged_weights_are_a_sentence_not_an_empty_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = toy_pair()
    pair.verifier.model.model.norm.weight[:] = float("nan")
    monkeypatch.setattr(viasd_core.pair, "load_pair", lambda *_, **__: pair)
    assert main(["generate", "--method", "ar", "--prompt", "the", "--max-new-tokens", "4"]) == 2
    assert "not finite" in capsys.readouterr().err


def test_several_slim_verifiers_are_described_and_counted(
    generate: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out.zip"
    assert generate("--tiers", "0.6,0.2", "--mask", "even", "--json", "--trace", str(out)) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [tier["skip_ratio"] for tier in found["slim_tiers"]] == [0.6, 0.2]
    assert found["settings"]["tiers"] == [0.6, 0.2] and list(found["tiers"]) == ["1", "2"]
    assert check(Trace.load(out)) == []


@pytest.mark.parametrize(
    ("given", "part"),
    [
        (("--tiers", "0.6,0.2", "--skip-ratio", "0.3"), "--skip-ratio and --tiers contradict"),
        (("--tiers", "0.6,0.2", "--method", "sd"), "--tiers is not used by method 'sd'"),
        (("--tiers", "0.2,0.6"), "name the weakest tier first"),
        (("--tiers", "0.6,0.2"), "lie inside each other"),
        (("--tiers", "model:nowhere/to/be/found"), "neither a folder that exists"),
        (("--tiers", "11011,10001"), "is not inside"),
    ],
)
def test_tiers_that_cannot_serve_are_one_sentence_and_status_2(
    generate: Command, capsys: pytest.CaptureFixture[str], given: tuple[str, ...], part: str
) -> None:
    assert generate(*given) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and part in said


def test_a_draft_ends_where_the_drafter_is_unsure(
    generate: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """At 1 nothing is sure enough to be drafted, and the forwards that found so are told."""
    given = ("--drafter", "layer-skip", "--draft-p-min", "1", "--max-new-tokens", "8", "--json")
    assert generate("--method", "sd", *given) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["settings"]["draft_p_min"] == 1.0
    assert found["counts"]["target"] == 8 and found["draft_forwards"] >= 7


def test_a_model_tier_that_does_not_exist_is_refused_before_the_verifier_is_loaded(
    generate: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the verifier was loaded")

    monkeypatch.setattr("viasd_core.pair.load_model", never)
    assert generate("--tiers", "model:nowhere/to/be/found") == 2
    assert "neither a folder that exists" in capsys.readouterr().err


def mask_file(folder: Path, name: str, bits: str, **model: str) -> Path:
    path = folder / f"{name}.json"
    content = {"schema": SCHEMA, "model": model or {"sha256": "0" * 64}, "layers": 5, "mask": bits}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_a_mask_of_another_model_is_refused_by_name_and_passed_over_by_auto(
    generate: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    foreign = mask_file(tmp_path, "theirs", "10101", id="org/other", sha256="1" * 64)
    assert generate("--mask", str(foreign)) == 2
    assert "was made for org/other with 5 layers, not for toy with 5" in capsys.readouterr().err


def test_a_run_and_a_turned_skip_ratio_take_the_stored_mask_nearest_to_it(tmp_path: Path) -> None:
    pair = toy_pair()
    files = (
        mask_file(tmp_path, "theirs", "10011", id="org/other"),
        mask_file(tmp_path, "few", "11011"),
        mask_file(tmp_path, "many", "10001"),
    )
    pair = replace(pair, preset=replace(pair.preset, masks=files))
    settings = Settings(skip_ratio=0.35, max_new_tokens=20, gamma=2)
    live = LiveSettings(settings)
    events = viasd_core.decode.generate(pair, [5, 6, 7], settings, live)
    assert next(events).cycle.mask_id == "few"
    live.update(skip_ratio=0.45)
    assert next(events).cycle.mask_id == "many"

"""The Markdown report, and `bench report` on good and bad files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bench.scripted import prompt, result, summary
from viasd_core.bench import payoff, report, results
from viasd_core.bench.measure import PromptRuns, RunResult
from viasd_core.cli.main import main
from viasd_core.settings import Settings

FACTS = {
    "planned_prompts": 2,
    "data": {"name": "prompts.jsonl"},
    "verifier": {"kind": "hub", "id": "acme/big"},
    "drafter": "layer-skip",
    "git": {"sha": "0123456789abcdef", "modified": True},
}


def document(via_seconds: float = 2.0, complete: bool = True, count: int = 2, **facts: Any) -> dict[str, Any]:
    """ar, sd, via-sd and hf on `count` prompts of 20 tokens: 4, 2, `via_seconds` and 5 seconds a prompt."""
    specs = [
        {"label": name, "method": name, "settings": {"gamma": 4} if "sd" in name else {}}
        for name in ("ar", "sd", "via-sd", "hf")
    ]
    runs: dict[str, list[RunResult]] = {
        "ar": [result(range(20), 4.0, summary=summary(cycles=20, c_kept=1))],
        "sd": [result(range(20), 2.0, summary=summary(cycles=10, c_kept=3, c_lost=1))],
        "via-sd": [result([*range(19), 99], via_seconds, summary=summary(cycles=10, a=3, b=1))],
        "hf": [result(range(20), 5.0)],
    }
    prompts = [
        results.prompt_entry(PromptRuns(prompt(str(index), 3), runs), str, greedy=True)
        for index in range(count)
    ]
    return results.document({**FACTS, **facts}, specs, prompts, complete=complete)


def cells(text: str, heading: str, method: str) -> list[str]:
    section = text.split(heading)[1]
    line = next(line for line in section.splitlines() if line.startswith(f"| {method} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_speeds_stand_with_their_intervals() -> None:
    text = report.markdown(document(), "r.json")
    assert cells(text, "### Speed", "sd")[1:3] == ["10.00", "2.00 [2.00, 2.00]"]
    assert cells(text, "### Speed", "hf")[1:3] == ["4.00", "0.80 [0.80, 0.80]"]


def test_quality_stands_beside_speed_and_what_was_not_measured_is_a_dash() -> None:
    text = report.markdown(document(), "r.json")
    via, hf = cells(text, "### Tiers and quality", "via-sd"), cells(text, "### Tiers and quality", "hf")
    assert via[1:5] == ["2.00", "0.250", "0.000", "0.000"] and via[6:8] == ["0 % of 2", "19"]
    assert hf[1:6] == ["-"] * 5 and hf[6] == "100 % of 2"


def test_every_table_has_as_many_cells_as_its_head() -> None:
    blocks = re.findall(r"(?:^\|.*\n)+", report.markdown(document(), "r.json"), re.MULTILINE)
    assert len(blocks) == 4
    for block in blocks:
        assert len({line.count("|") for line in block.splitlines()}) == 1


@pytest.mark.parametrize(("seconds", "words"), [(1.0, "**pays**"), (3.0, "**does not pay**")])
def test_the_verdict_follows_the_measured_ratio_to_plain_speculation(seconds: float, words: str) -> None:
    assert words in report.markdown(document(seconds), "r.json")


def test_an_interval_around_one_is_called_no_difference() -> None:
    assert payoff.verdict(0.9, 1.1) == "no difference shown"
    assert payoff.verdict(None, None) == "one prompt cannot tell"


@pytest.mark.parametrize(
    ("via", "sd"), [("via-sd", "sd"), ("via-sd, lookup", "sd, lookup"), ("via-sd, r 0.3", "sd")]
)
def test_via_sd_is_compared_with_the_speculation_of_the_same_drafter(via: str, sd: str) -> None:
    labels = ("ar", "sd", "via-sd", "sd, lookup", "via-sd, lookup", "via-sd, r 0.3")
    assert payoff.rival({"methods": [{"label": label} for label in labels]}, via) == sd


def test_one_prompt_gives_a_ratio_without_an_interval() -> None:
    text = report.markdown(document(count=1), "r.json")
    assert cells(text, "### Speed", "sd")[2] == "2.00"
    assert "one prompt cannot tell" in text


def test_the_average_cycle_adds_up_to_the_measured_phases() -> None:
    entries = {entry["label"]: entry for entry in document()["methods"]}
    for label in ("sd", "via-sd"):
        entry = entries[label]
        spent = sum(value for phase, value in entry["phases_ms"].items() if phase != "prefill")
        called = payoff.cycle_cost(entry).full_per_cycle > 0
        expected = spent if called else spent - entry["phases_ms"]["full"]
        assert payoff.cycle_cost(entry).ms_per_token == pytest.approx(expected / entry["new_tokens"])


def test_options_that_were_switched_on_are_told_and_defaults_are_not() -> None:
    usual = Settings(method="sd").as_dict()
    told = {**usual, "gamma": 3, "lookup_first": True, "draft_p_min": 0.3}
    entry = {"label": "sd, lookup", "method": "sd", "settings": told}
    assert report.options_of(entry) == ["lookup_first on", "draft_p_min 0.3"]
    assert (
        "- `sd`; `sd, lookup`: lookup_first on" in report.options_text([{**entry, "label": "sd"}, entry])[0]
    )
    assert report.options_text([{**entry, "settings": usual}]) == []
    assert report.options_of({"label": "hf", "method": "hf", "settings": {"lookup_first": True}}) == []


def test_tiers_are_told_where_the_label_does_not_name_them() -> None:
    told = Settings(tiers=(0.6, 0.45)).as_dict()
    entry = {"label": "via-sd", "method": "via-sd", "settings": told}
    assert report.options_of(entry) == ["tiers [0.6, 0.45]"]
    assert report.options_of({**entry, "label": "via-sd, tiers 0.6,0.45"}) == []


def test_an_interrupted_run_says_so() -> None:
    assert "**incomplete**" in report.markdown(document(complete=False), "r.json")
    empty = results.document(FACTS, [], [], complete=False)
    assert "no figures" in report.markdown(empty, "r.json")


def test_text_from_a_file_cannot_act_on_the_terminal() -> None:
    text = report.markdown(document(preset="a\x1b[2J|b", started="\u202e"), "r\x1b.json")
    assert "\x1b" not in text and "\u202e" not in text


def test_report_prints_several_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one.json", "two.json"):
        results.write_result(tmp_path / name, document())
    assert main(["bench", "report", str(tmp_path / "one.json"), str(tmp_path / "two.json")]) == 0
    out = capsys.readouterr().out
    assert "## Benchmark one.json" in out and "## Benchmark two.json" in out


@pytest.mark.parametrize("content", ["", '{"schema": "viasd-bench/1"}', '{"schema": "viasd-bench/2"}', "[1]"])
def test_a_file_that_is_no_result_is_one_sentence_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    results.write_result(good, document())
    bad.write_text(content, encoding="utf-8")
    assert main(["bench", "report", str(good), str(bad)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1 and "bad.json" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["report"], "needs at least one result file"),
        (["reprot", "r.json"], "'reprot'"),
        (["report", "r.json", "--preset", "tiny"], "leave the other options out"),
        (["report", "missing.json"], "does not exist"),
    ],
)
def test_a_mistyped_report_command_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["bench", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_methods_are_also_compared_at_their_own_fastest_gamma() -> None:
    best = document(3.0)
    faster = [result(range(20), 1.0, summary=summary(cycles=10, a=3))]
    for index, entry in enumerate(best["prompts"]):
        done = PromptRuns(prompt(str(index), 3), {"via-sd (gamma 2)": faster})
        entry["runs"] |= results.prompt_entry(done, str, greedy=True)["runs"]
    specs = [{key: entry[key] for key in ("label", "method", "settings")} for entry in best["methods"]]
    specs.append({"label": "via-sd (gamma 2)", "method": "via-sd", "settings": {"gamma": 2}})
    search = {"via-sd": {"best": 2, "tried": [{"gamma": 2, "tokens_per_s": 20.0}], "prompts": ["0"]}}
    text = report.markdown(
        results.document(FACTS, specs, best["prompts"], complete=True, gamma_search=search), "r.json"
    )
    assert "third tier **does not pay** here; via-sd runs at 0.67" in text
    assert "fastest gamma: third tier **pays** here; via-sd (gamma 2) runs at 2.00" in text

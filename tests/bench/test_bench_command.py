"""`bench` end to end on tiny random models in float64, saved as folders and named by a preset file."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from toys import perturbed, toy_model, toy_tokenizer
from viasd_core.bench.measure import RunResult
from viasd_core.bench.runners import EngineRunner
from viasd_core.cli.main import main

PROMPTS = ("the answer and the other one", "one one one one one one", "on the other hand")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a verifier, a drafter close to it, and presets for both kinds of drafter."""
    home = tmp_path_factory.mktemp("models")
    verifier = toy_model(layers=4)
    for name, model in (("verifier", verifier), ("drafter", perturbed(verifier, 0.05))):
        model.save_pretrained(home / name)
        toy_tokenizer().save_pretrained(home / name)
    settings = "settings: {gamma: 3, skip_ratio: 0.25, mask: even, alpha1: 0.2, alpha2: 0.1}\nchat: false\n"
    for name, drafter in (("pair", "{kind: model, source: {folder: drafter}}"), ("lookup", "{kind: lookup}")):
        preset = f"verifier: {{folder: verifier}}\ndrafter: {drafter}\n{settings}"
        (home / f"{name}.yaml").write_text(preset, encoding="utf-8")
    lines = [json.dumps({"id": f"p{index}", "prompt": text}) for index, text in enumerate(PROMPTS)]
    (home / "prompts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return home


def arguments(
    models: Path, out: Path, *more: str, preset: str = "pair", methods: str = "ar,sd,via-sd"
) -> list[str]:
    given = [
        "--preset",
        str(models / f"{preset}.yaml"),
        "--methods",
        methods,
        "--data",
        str(models / "prompts.jsonl"),
    ]
    fixed = ["--dtype", "float64", "--device", "cpu", "--max-new-tokens", "12", "--repeats", "2"]
    return ["bench", *given, *fixed, "--out", str(out), *more]


@pytest.fixture(scope="module")
def measured(models: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run with everything: three methods, three baselines, best gammas, the cost of tracing."""
    out = tmp_path_factory.mktemp("out") / "result.json"
    extras = ("--baselines", "hf,hf-assisted,hf-lookup", "--best-gamma", "--tracing-cost")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the suite's own fixture comes after those of a module
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("viasd_core.bench.command.CANDIDATES", (2, 5))
        assert main(arguments(models, out, *extras)) == 0
    torch.set_num_threads(threads)
    result: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return result


@pytest.fixture(scope="module")
def by_label(measured: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {entry["label"]: entry for entry in measured["methods"]}


def test_methods_and_baselines_stand_in_one_list(measured: dict[str, Any]) -> None:
    labels = [entry["label"] for entry in measured["methods"]]
    assert labels[:6] == ["ar", "sd", "via-sd", "hf", "hf-assisted", "hf-lookup"]
    assert measured["complete"] and measured["schema"] == "viasd-bench/1"
    assert [prompt["id"] for prompt in measured["prompts"]] == ["p0", "p1", "p2"]


def test_lossless_methods_and_hugging_face_give_the_very_tokens_of_ar(
    by_label: dict[str, dict[str, Any]],
) -> None:
    for label in ("ar", "sd", "hf", "hf-assisted", "hf-lookup"):
        quality = by_label[label]["quality"]
        assert (quality["compared_to_ar"], quality["identical_to_ar"]) == (3, 1.0), label


def test_raw_times_of_every_prompt_method_and_repeat_are_kept(measured: dict[str, Any]) -> None:
    for prompt in measured["prompts"]:
        for run in prompt["runs"].values():
            assert len(run["seconds"]) == len(run["ttft_s"]) == len(run["new_tokens"]) == 2
            assert all(0 < first <= last for first, last in zip(run["ttft_s"], run["seconds"], strict=True))
            assert all(
                1 <= first <= total <= 12
                for first, total in zip(run["first_tokens"], run["new_tokens"], strict=True)
            )


def test_engine_methods_report_their_tiers_and_baselines_do_not(by_label: dict[str, dict[str, Any]]) -> None:
    plain, sd, via, hf = (by_label[label] for label in ("ar", "sd", "via-sd", "hf"))
    assert plain["full_forwards_per_token"] == pytest.approx(1.0)
    assert 0 < sd["full_forwards_per_token"] < 1
    assert sd["slim_forwards_per_token"] == 0 < via["slim_forwards_per_token"]
    assert via["mean_committed"] > 1 and via["mask"].count("0") == 1 and 0 < via["r_eff"] < 0.25
    assert sum(via["phases_ms"].values()) > 0
    assert hf["mean_committed"] is None and hf["phases_ms"] is None


def test_settings_are_the_presets_and_only_those_a_method_uses(by_label: dict[str, dict[str, Any]]) -> None:
    assert by_label["via-sd"]["settings"]["alpha1"] == 0.2
    assert by_label["sd"]["settings"]["gamma"] == 3 and "alpha1" not in by_label["sd"]["settings"]
    assert "gamma" not in by_label["ar"]["settings"]


def test_the_best_gamma_is_measured_as_a_column_of_its_own(measured: dict[str, Any]) -> None:
    for method in ("sd", "via-sd"):
        found = measured["gamma_search"][method]
        assert [one["gamma"] for one in found["tried"]] == [2, 3, 5]  # the preset's own 3 among them
        best = found["best"]
        own = [
            entry for entry in measured["methods"] if entry["method"] == method and entry.get("best_gamma")
        ]
        assert [entry["settings"]["gamma"] for entry in own] == ([] if best == 3 else [best])


def test_the_cost_of_tracing_pairs_runs_of_equal_length(measured: dict[str, Any]) -> None:
    for prompt in measured["prompts"]:
        assert prompt["runs"]["via-sd (trace off)"]["new_tokens"] == prompt["runs"]["via-sd"]["new_tokens"]
    cost = measured["tracing_cost"]
    assert cost["time_ratio"] > 0 and 0 < cost["host_us_per_cycle"] < cost["cycle_us"]
    assert "via-sd (trace off)" not in [entry["label"] for entry in measured["methods"]]


def test_provenance_names_what_ran_and_no_folder(measured: dict[str, Any], models: Path) -> None:
    facts = measured["provenance"]
    assert facts["data"]["name"] == "prompts.jsonl" and len(facts["data"]["sha256"]) == 64
    assert (facts["dtype"], facts["device"], facts["repeats"], facts["seed"]) == ("float64", "cpu", 2, 0)
    assert facts["packages"]["torch"] and facts["attention"] and facts["threads"] >= 1
    assert str(models) not in json.dumps(measured)


def test_stdout_is_the_report_and_bench_report_prints_the_same(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "result.json"
    assert main(arguments(models, out, "--limit", "2", methods="sd")) == 0
    first = capsys.readouterr()
    assert first.out.startswith("## Benchmark result.json") and "| sd |" in first.out
    assert "prompt 2 of 2" in first.err
    assert main(["bench", "report", str(out)]) == 0
    assert capsys.readouterr().out == first.out


def test_sampling_is_the_same_in_every_repeat(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    assert main(arguments(models, out, "--temperature", "1", "--seed", "5", "--baselines", "hf")) == 0
    result = json.loads(out.read_text(encoding="utf-8"))
    assert all(entry["repeats_agree"] for entry in result["methods"])
    assert all(entry["quality"]["compared_to_ar"] == 0 for entry in result["methods"])


@pytest.fixture
def fail_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, type[BaseException]], None]:
    """Let the n-th run of the engine fail with an exception."""
    run, calls = EngineRunner.run, itertools.count(1)

    def arrange(number: int, error: type[BaseException]) -> None:
        def failing(self: EngineRunner, prompt_ids: Sequence[int], max_new_tokens: int) -> RunResult:
            if next(calls) == number:
                raise error("arranged by the test")
            return run(self, prompt_ids, max_new_tokens)

        monkeypatch.setattr(EngineRunner, "run", failing)

    return arrange


@pytest.mark.parametrize(
    ("run", "finished"), [(2, 0), (6 + 4 + 3, 1)], ids=["while warming up", "in the middle of a prompt"]
)
def test_ctrl_c_keeps_the_finished_prompts(
    models: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    fail_at: Callable[[int, type[BaseException]], None],
    run: int,
    finished: int,
) -> None:
    fail_at(run, KeyboardInterrupt)  # two methods: 6 warm-up runs, then 4 a prompt
    out = tmp_path / "result.json"
    assert main(arguments(models, out, methods="ar,sd")) == 130
    result = json.loads(out.read_text(encoding="utf-8"))
    assert not result["complete"]
    assert len(result["prompts"]) == finished and len(result["methods"]) == (2 if finished else 0)
    captured = capsys.readouterr()
    assert f"interrupted: {finished} of 3 prompts" in captured.err
    assert "**incomplete**" in captured.out


def test_a_crash_leaves_the_finished_prompts_in_the_file(
    models: Path, tmp_path: Path, fail_at: Callable[[int, type[BaseException]], None]
) -> None:
    fail_at(3 + 2 * 2 + 1, MemoryError)  # one method: 3 warm-up runs, then 2 a prompt
    out = tmp_path / "result.json"
    with pytest.raises(MemoryError):
        main(arguments(models, out, methods="ar"))
    assert [prompt["id"] for prompt in json.loads(out.read_text())["prompts"]] == ["p0", "p1"]


def test_prompts_too_long_for_the_context_are_left_out_and_named(models: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "data.jsonl", tmp_path / "result.json"
    lines = [{"id": "long", "prompt": "x" * 600}, {"id": "short", "prompt": "the one"}]
    data.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert main(arguments(models, out, "--data", str(data), methods="ar")) == 0
    result = json.loads(out.read_text(encoding="utf-8"))
    assert result["provenance"]["skipped"] == ["long"]
    assert [prompt["id"] for prompt in result["prompts"]] == ["short"]


@pytest.mark.parametrize(
    ("preset", "more", "words"),
    [
        ("lookup", ("--baselines", "hf-assisted"), "hf-assisted needs a draft model"),
        ("pair", ("--max-new-tokens", "512"), "no prompt fits"),
    ],
)
def test_what_only_the_models_can_tell_is_refused_in_one_sentence(
    models: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    preset: str,
    more: tuple[str, ...],
    words: str,
) -> None:
    out = tmp_path / "result.json"
    assert main(arguments(models, out, *more, preset=preset)) == 2
    assert words in capsys.readouterr().err.splitlines()[-1]
    assert not out.exists()


def test_options_that_do_nothing_for_the_drafter_are_refused_unless_another_is_measured_beside_it(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "result.json"
    given = ("--drafter", "lookup", "--lookup-first")
    assert main(arguments(models, out, *given)) == 2
    assert "--lookup-first has no effect with the drafter lookup" in capsys.readouterr().err
    assert main(arguments(models, out, *given, "--more-drafters", "lookup")) == 2
    assert "--lookup-first has no effect with the drafter lookup" in capsys.readouterr().err
    beside = ("--more-drafters", str(models / "drafter"), "--limit", "1", "--repeats", "1")
    assert main(arguments(models, out, *given, *beside, methods="sd")) == 0
    assert "- `sd, drafter`: lookup_first on" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("methods", "more", "words"),
    [
        ("ar", "lookup", "--more-drafters needs a method that drafts"),
        ("sd", "lookup,none", "--more-drafters names none, which drafts nothing"),
    ],
)
def test_drafters_that_nothing_would_be_drafted_with_are_refused(
    methods: str, more: str, words: str, models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(models, tmp_path / "r.json", "--more-drafters", more, methods=methods)) == 2
    assert words in capsys.readouterr().err


def test_drafters_of_names_that_files_cannot_tell_apart_keep_a_trace_each(
    models: Path, tmp_path: Path
) -> None:
    for name in ("my_drafter", "My-drafter"):
        (tmp_path / name).symlink_to(models / "drafter")
    more = ",".join(str(tmp_path / name) for name in ("my_drafter", "My-drafter"))
    given = ("--more-drafters", more, "--traces", str(tmp_path / "traces"), "--limit", "1", "--repeats", "1")
    assert main(arguments(models, tmp_path / "r.json", *given, methods="ar,sd")) == 0
    kept = sorted(path.name for path in (tmp_path / "traces").iterdir())
    assert kept == ["001-ar.zip", "001-sd-my-drafter-.zip", "001-sd-my-drafter.zip", "001-sd.zip"]


def test_more_slim_verifiers_are_measured_beside_and_reported_by_number_of_layers(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """2, 3, 4 and 5 layers, one of them with an independent model; no folder of this machine is recorded."""
    out, model = tmp_path / "result.json", f"model:{models / 'drafter'}"
    tiers = ("--tiers", "0.5,0.25", "--tiers", f"0.5,{model},0.25", "--limit", "1", "--repeats", "1")
    assert main(arguments(models, out, *tiers)) == 0
    result = json.loads(out.read_text(encoding="utf-8"))
    labels = ["via-sd", "via-sd, tiers 0.5,0.25", "via-sd, tiers 0.5,model:drafter,0.25"]
    assert [entry["label"] for entry in result["methods"]] == ["ar", "sd", *labels]
    assert [len(entry["slim_tiers"]) for entry in result["methods"][3:]] == [2, 3]
    assert str(models) not in json.dumps(result["methods"])
    table = capsys.readouterr().out.partition("### By number of layers")[2].splitlines()
    rows = [line.split(" | ")[:2] for line in table if line.startswith(("| sd", "| via-sd"))]
    assert [[name.removeprefix("| "), count] for name, count in rows[:4]] == [
        ["sd", "2"], [labels[0], "3"], [labels[1], "4"], [labels[2], "5"]
    ]  # fmt: skip


def test_via_sd_is_measured_at_every_skip_ratio_against_speculative_decoding(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "result.json"
    ratios = ("--skip-ratios", "0.5,0.25", "--limit", "1", "--repeats", "1")
    assert main(arguments(models, out, *ratios)) == 0
    entries = json.loads(out.read_text(encoding="utf-8"))["methods"]
    assert [entry["label"] for entry in entries[3:]] == ["via-sd, r 0.5", "via-sd, r 0.25"]
    assert [entry["settings"]["skip_ratio"] for entry in entries[3:]] == [0.5, 0.25]
    assert [entry["mask"].count("0") for entry in entries[3:]] == [2, 1]
    section = capsys.readouterr().out.partition("### VIA-SD by share of skipped layers")[2]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| via-sd")][:3]
    assert [float(row[1]) for row in rows] == sorted(float(row[1]) for row in rows), "weakest last"
    assert {row[-1].removesuffix(" |") for row in rows} == {entry["mask"] for entry in entries[2:]}


@pytest.mark.parametrize(
    ("ratios", "words"),
    [("0.2,much", "not a list of numbers"), ("0.2,1.5", "skip_ratio")],
)
def test_skip_ratios_that_cannot_be_are_refused_before_anything_is_loaded(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], ratios: str, words: str
) -> None:
    assert main(arguments(models, tmp_path / "result.json", "--skip-ratios", ratios)) == 2
    assert words in capsys.readouterr().err
    assert main(arguments(models, tmp_path / "result.json", "--skip-ratios", "0.2", methods="ar,sd")) == 2
    assert "--skip-ratios is about via-sd" in capsys.readouterr().err


def test_tiers_that_cannot_be_are_refused_before_anything_is_loaded(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "result.json"
    assert main(arguments(models, out, "--tiers", "0.2,0.4")) == 2
    assert "name the weakest tier first" in capsys.readouterr().err
    assert main(arguments(models, out, "--tiers", "0.4,0.2", methods="ar,sd")) == 2
    assert "add via-sd to --methods" in capsys.readouterr().err

"""CURE beside the same drafter's single path: what `bench` measures, and what its table says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from drafters.checkpoint_files import saved
from drafters.own_files import block_parts, with_ids
from toys import toy_model, toy_tokenizer
from viasd_core.bench import repairs
from viasd_core.bench.report import markdown
from viasd_core.cli.main import main
from viasd_core.trace import Trace
from viasd_core.trace_check import check

PROMPTS = ("the and the", "in on in on the")
LABELS = ["ar", "block", "cure", "cure, no branch 0", "cure, no resync", "cure, neither"]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


def greedy(model: Any, prompt: list[int]) -> list[int]:
    ids = torch.tensor([prompt])
    text = model.generate(ids, max_new_tokens=16, do_sample=False, pad_token_id=0)
    return [int(token) for token in text[0, len(prompt) :]]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory, traces: Path) -> dict[str, Any]:
    """Two prompts on a toy verifier; its block drafter guesses, from the tokens that the verifier says."""
    home = tmp_path_factory.mktemp("bench")
    model = toy_model(layers=6)
    model.save_pretrained(home / "verifier")
    toy_tokenizer().save_pretrained(home / "verifier")
    said = {token for text in PROMPTS for token in greedy(model, toy_tokenizer()(text).input_ids)}
    saved(home / "blocks", *with_ids(block_parts(model.config, (1, 3), seed=8), sorted(said)))
    (home / "pair.yaml").write_text(
        "verifier: {folder: verifier}\ndrafter: {kind: model, source: {folder: blocks}}\nchat: false\n"
    )
    lines = [{"prompt": text} for text in PROMPTS]
    (home / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    given = ["--preset", str(home / "pair.yaml"), "--methods", "block,cure", "--ablations", "--v-max", "12"]
    fixed = ["--data", str(home / "prompts.jsonl"), "--dtype", "float64", "--device", "cpu"]
    short = ["--max-new-tokens", "16", "--repeats", "1", "--out", str(home / "result.json")]
    short += ["--traces", str(traces)]
    assert main(["bench", *given, *fixed, *short]) == 0
    found: dict[str, Any] = json.loads((home / "result.json").read_text())
    return found


def test_every_ablation_is_a_lane_with_its_part_taken_away(result: dict[str, Any]) -> None:
    entries = {entry["label"]: entry for entry in result["methods"]}
    assert list(entries) == LABELS
    for label, changes in repairs.ABLATIONS.items():
        own = entries[label]["settings"]
        assert own == entries["cure"]["settings"] | changes and own["v_max"] == 12
        assert own["suffix"] == entries[label]["suffix_choice"]["choice"] != "auto"
    assert all(entry["quality"]["identical_to_ar"] == 1.0 for entry in entries.values())


def test_drafts_kept_a_step_are_those_of_the_text(result: dict[str, Any]) -> None:
    entries = {entry["label"]: entry for entry in result["methods"]}
    drafts = {
        label: repairs.kept(result["prompts"], label, entries[label], entries["block"]).drafts
        for label in LABELS[1:]
    }
    assert drafts == pytest.approx({label: drafts_a_step(result, label) for label in LABELS[1:]})
    assert drafts["cure"] > 0, "a drafter that is never right shows nothing"
    assert repairs.kept(result["prompts"], "block", entries["block"], entries["block"]).extra == 0


def test_a_gain_over_a_branch_0_that_was_not_verified_is_not_counted(result: dict[str, Any]) -> None:
    entries = {entry["label"]: entry for entry in result["methods"]}
    extra = {
        label: repairs.kept(result["prompts"], label, entries[label], entries["block"]).extra
        for label in LABELS[1:]
    }
    runs = [prompt["runs"]["cure"]["summary"]["repair"] for prompt in result["prompts"]]
    assert extra["cure"] == sum(one["extra_tokens"] for one in runs)
    assert extra["cure, no branch 0"] is extra["cure, neither"] is None
    cells = rows_of(markdown(result, "r.json"), "### What repairs need")
    shown = {label: "-" if value is None else str(value) for label, value in extra.items()}
    assert {label: cells[label][-1] for label in extra} == shown


def test_what_was_kept_is_compared_with_the_single_path_over_all_prompts() -> None:
    """Two prompts, rates of sums: 12 drafts in 6 cycles with repairs, 10 in 10 without."""
    steps = {"block": [(2.0, 3), (4 / 7, 7)], "cure": [(4.0, 2), (1.0, 4)]}
    prompts = [
        {
            "runs": {
                label: {
                    "summary": {"cycles": cycles, "repair": {"accepted_per_step": kept, "extra_tokens": 2}}
                }
                for label, (kept, cycles) in ((label, both[index]) for label, both in steps.items())
            }
        }
        for index in range(2)
    ]
    found = repairs.kept(prompts, "cure", {"tokens_per_s": 5.0}, {"tokens_per_s": 10.0})
    assert (found.drafts, found.over_parallel, found.beyond_parallel) == pytest.approx((2.0, 2.0, 1.0))
    assert (found.time_over_parallel, found.extra) == (2.0, 4)
    assert found.over_parallel_ci == pytest.approx((1.0 / (4 / 7), 2.0)), "one prompt alone, or the other"
    assert found.beyond_parallel_ci == pytest.approx((1.0 - 4 / 7, 2.0))


def drafts_a_step(result: dict[str, Any], label: str) -> float:
    """From the text itself: every cycle of a greedy run ends in one token of the verifier's own."""
    runs = [prompt["runs"][label] for prompt in result["prompts"]]
    cycles = sum(run["summary"]["cycles"] for run in runs)
    own = sum(
        run["summary"]["counts"][name] for run in runs for name in ("rewritten_full", "bonus", "target")
    )
    return float((sum(len(run["token_ids"]) for run in runs) - own) / cycles)


def test_the_tables_have_a_row_for_each_and_one_of_the_papers_beneath(result: dict[str, Any]) -> None:
    text = markdown(result, "r.json")
    cells = rows_of(text, "### What repairs need")
    expected = [LABELS[1], *(name for label in LABELS[2:] for name in (label, f"paper's {label}"))]
    assert list(cells) == expected
    assert cells["paper's cure"] == ["6.826", "1.055", "-", "2.708", "1.776", "85.4%", "-"]
    sets = rows_of(text, "### Blocks and their repairs")
    assert sets["paper, HumanEval"] == ["30.4", "42.2", "6.2", "8.7", "4.88", "3.49", "7.165", "7.641"]
    assert sets["2 here"][1] == "-", "speculative decoding was not measured"
    assert sets["2 here"][-2:] == [cells["block"][0], cells["cure"][0]]


def rows_of(text: str, heading: str) -> dict[str, list[str]]:
    section = text.split(heading)[1].split("###")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows[2:]}


def test_every_prompt_and_method_leaves_a_trace_that_is_sound(result: dict[str, Any], traces: Path) -> None:
    names = {path.name for path in traces.iterdir()}
    slugs = ("ar", "block", "cure", "cure-neither", "cure-no-branch-0", "cure-no-resync")
    assert names == {f"{number:03d}-{slug}.zip" for number in (1, 2) for slug in slugs}
    for number, prompt in enumerate(result["prompts"], 1):
        trace = Trace.load(traces / f"{number:03d}-cure.zip")
        assert check(trace) == []
        assert trace.token_ids == prompt["runs"]["cure"]["token_ids"]
        assert trace.run["prompt"] == PROMPTS[number - 1] and trace.run["settings"]["v_max"] == 12


def test_nothing_is_said_of_repairs_without_the_single_path(result: dict[str, Any]) -> None:
    without = result | {"methods": [one for one in result["methods"] if one["label"] != "block"]}
    assert "repairs" not in markdown(without, "r.json")

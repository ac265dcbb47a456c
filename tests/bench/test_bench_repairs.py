"""CURE beside the same drafter's single path: what `bench` measures, and what its table says of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drafters.checkpoint_files import saved
from drafters.own_files import block_parts, with_ids
from toys import toy_model, toy_tokenizer
from viasd_core.bench import repairs
from viasd_core.bench.report import markdown
from viasd_core.cli.main import main

LABELS = ["ar", "block", "cure", "cure, no branch 0", "cure, no resync", "cure, neither"]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two prompts on a toy verifier whose block drafter is right by chance only."""
    home = tmp_path_factory.mktemp("bench")
    model = toy_model(layers=6)
    model.save_pretrained(home / "verifier")
    toy_tokenizer().save_pretrained(home / "verifier")
    few = sorted({int(token) for token in toy_tokenizer()("the and in on").input_ids})
    saved(home / "blocks", *with_ids(block_parts(model.config, (1, 3), seed=8), [*few, 200, 201]))
    (home / "pair.yaml").write_text(
        "verifier: {folder: verifier}\ndrafter: {kind: model, source: {folder: blocks}}\nchat: false\n"
    )
    lines = [{"prompt": text} for text in ("the and the", "in on in on the")]
    (home / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    given = ["--preset", str(home / "pair.yaml"), "--methods", "block,cure", "--ablations", "--v-max", "12"]
    fixed = ["--data", str(home / "prompts.jsonl"), "--dtype", "float64", "--device", "cpu"]
    short = ["--max-new-tokens", "16", "--repeats", "1", "--out", str(home / "result.json")]
    assert main(["bench", *given, *fixed, *short]) == 0
    found: dict[str, Any] = json.loads((home / "result.json").read_text())
    return found


def test_every_ablation_is_a_lane_with_its_part_taken_away(result: dict[str, Any]) -> None:
    entries = {entry["label"]: entry for entry in result["methods"]}
    assert list(entries) == LABELS
    for label, changes in repairs.ABLATIONS.items():
        own = entries[label]["settings"]
        assert own == entries["cure"]["settings"] | changes and own["v_max"] == 12
    assert all(entry["quality"]["identical_to_ar"] == 1.0 for entry in entries.values())


def test_what_was_kept_is_counted_from_the_raw_runs(result: dict[str, Any]) -> None:
    entries = {entry["label"]: entry for entry in result["methods"]}
    for label in LABELS[1:]:
        found = repairs.kept(result["prompts"], label, entries[label], entries["block"])
        runs = [prompt["runs"] for prompt in result["prompts"]]
        cycles = sum(run[label]["summary"]["cycles"] for run in runs)
        alone = sum(run["block"]["summary"]["cycles"] for run in runs)
        tokens = sum(len(run[label]["token_ids"]) for run in runs)
        assert found.tokens == pytest.approx(tokens / cycles)
        assert found.over_parallel == pytest.approx(alone / cycles), "the same text in fewer cycles"
        assert found.drafts <= found.tokens <= found.drafts + 1
        low, high = found.over_parallel_ci
        assert low is not None and high is not None and low <= found.over_parallel <= high
    assert repairs.kept(result["prompts"], "block", entries["block"], entries["block"]).extra == "0"


def test_a_gain_over_a_branch_0_that_was_not_verified_is_not_counted(result: dict[str, Any]) -> None:
    entries = {entry["label"]: entry for entry in result["methods"]}
    extra = {
        label: repairs.kept(result["prompts"], label, entries[label], entries["block"]).extra
        for label in LABELS[1:]
    }
    runs = [prompt["runs"]["cure"]["summary"]["repair"] for prompt in result["prompts"]]
    assert extra["cure"] == str(sum(one["extra_tokens"] for one in runs))
    assert extra["cure, no branch 0"] == extra["cure, neither"] == "-"
    text = markdown(result, "r.json").split("### Blocks and their repairs")[1]
    head, _, *rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    place = [name.strip() for name in head].index("tokens repairs gained")
    assert {row[0].strip(): row[place].strip() for row in rows} == extra


def test_the_table_has_a_row_for_each_and_the_papers_ratios(result: dict[str, Any]) -> None:
    text = markdown(result, "r.json").split("### Blocks and their repairs")[1]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    cells = {row[0].strip(): [cell.strip() for cell in row] for row in rows[2:]}
    assert list(cells) == LABELS[1:]
    assert cells["cure"][-2:] == ["1.055", "1.776"] and cells["block"][-2:] == ["-", "-"]


def test_nothing_is_said_of_repairs_without_the_single_path(result: dict[str, Any]) -> None:
    without = result | {"methods": [one for one in result["methods"] if one["label"] != "block"]}
    assert "Blocks and their repairs" not in markdown(without, "r.json")

"""The offline scorer: its numbers hang together, a perfect ranking is best, prompts are never mixed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cure.cure_toys import table_parts
from sample_traces import finish_run, tree_trace
from scripted import TableRunner, near, random_table, run
from viasd_core.cli.main import main
from viasd_core.cure.scorer import FEATURES, MODELS, Block, admit, base_rate, blocks_of, identity_gap, scores
from viasd_core.errors import DataError
from viasd_core.settings import Settings
from viasd_core.trace import Trace

BUDGETS = (0.1, 0.2, 0.3, 0.4, 0.5, 1.0)


def planted(prompts: int = 6, each: int = 60) -> list[Block]:
    """Blocks whose gain follows from the margin alone."""
    dice = np.random.default_rng(1)
    found = []
    for number in range(prompts * each):
        features = tuple(dice.random(len(FEATURES)))
        gain = int(dice.integers(1, 5)) if features[0] < 0.2 else 0
        found.append(Block(features, gain, str(number % prompts)))
    return found


def test_precision_times_r_is_recall_times_the_base_rate_at_every_budget() -> None:
    """C8."""
    blocks = planted()
    gains = [block.gain for block in blocks]
    found = admit(gains, np.random.default_rng(2).random(len(blocks)), BUDGETS)
    assert identity_gap(found, base_rate(blocks)) < 1e-12
    assert identity_gap([replace(found[2], precision=0.9)], base_rate(blocks)) > 1e-3
    for name in ("recall", "extra_recall"):
        values = [getattr(one, name) for one in found]
        assert values == sorted(values) and values[-1] == 1.0


def test_a_perfect_scorer_is_beaten_by_none() -> None:
    """C8."""
    gains = [block.gain for block in planted()]
    perfect = admit(gains, gains, BUDGETS)
    for seed in range(5):
        other = admit(gains, np.random.default_rng(seed).random(len(gains)), BUDGETS)
        for best, one in zip(perfect, other, strict=True):
            assert best.precision >= one.precision and best.extra_recall >= one.extra_recall
    assert perfect[0].precision == 1.0


@pytest.mark.parametrize("model", MODELS)
def test_a_rule_that_holds_for_all_prompts_is_found_on_those_held_out(model: str) -> None:
    blocks = planted()
    found = admit([block.gain for block in blocks], scores(blocks, model), [base_rate(blocks)])
    assert found[0].precision > 0.8
    assert scores(blocks, model).tolist() == scores(blocks, model).tolist()


@pytest.mark.parametrize("model", MODELS)
def test_what_holds_for_one_prompt_alone_is_not_told_by_the_others(model: str) -> None:
    """A prompt's own blocks never train the model that scores them: a rule turned round there ranks last."""
    blocks = planted()
    odd = [
        replace(block, gain=int(block.features[0] >= 0.2)) if block.prompt == "0" else block
        for block in blocks
    ]
    ranked = scores(odd, model)
    mine = np.array([block.prompt == "0" for block in odd])
    useful = np.array([block.gain > 0 for block in odd])
    assert ranked[mine & useful].mean() < ranked[mine & ~useful].mean()


def test_the_sample_trace_has_one_useful_block_and_one_without_gain() -> None:
    first, second = blocks_of(tree_trace())
    named = dict(zip(FEATURES, first.features, strict=True))
    assert (first.gain, second.gain) == (2, 0)
    assert (named["margin"], named["second_margin"], named["position"]) == (0.2, 1.5, 2.0)
    assert (named["repairs"], named["nodes"], named["block"]) == (1.0, 5.0, 3.0)
    assert first.prompt == second.prompt


def recorded(seed: int, folder: Path) -> str:
    """A run of its own prompt, saved."""
    q = random_table(8, 2, seed % 3, scale=1.5)
    settings = Settings(method="cure", max_new_tokens=120, tau_margin=2.0)
    trace = run(table_parts(TableRunner(q), near(q, 0.6, 9 + seed)), [seed], settings)
    finish_run(trace, "cure", settings.as_dict())
    trace.run["prompt"] = f"prompt {seed}"
    path = folder / f"{seed}.zip"
    trace.save(path)
    return str(path)


def test_the_command_prints_both_models_and_their_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [recorded(seed, tmp_path) for seed in range(6)]
    report = tmp_path / "report.md"
    assert main(["cure-scorer", *paths, "--out", str(report), "--json"]) == 0
    out = capsys.readouterr().out
    assert report.read_text("utf-8").strip() == out[: out.rindex('{"blocks"')].strip()
    result = json.loads(out.splitlines()[-1])
    assert all(model in out for model in MODELS) and result["prompts"] == 6
    for model in MODELS:
        assert result["models"][model]["identity_gap"] < 1e-12
        assert [round(one["r"], 1) for one in result["models"][model]["budgets"]] == [0.1, 0.2, 0.3, 0.4, 0.5]
    expected = [block for path in paths for block in blocks_of(Trace.load(path))]
    assert result["base_rate"] == base_rate(expected)
    first = result["models"][MODELS[0]]["budgets"][0]
    row = next(line for line in out.splitlines() if line.startswith(f"| {first['r']:.3f}"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    measured = [f"{first[name]:.3f}" for name in ("precision", "recall", "extra_recall")]
    assert cells[1:] == [*measured, "0.359", "0.308", "0.396"]


def test_a_report_that_cannot_be_kept_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [recorded(seed, tmp_path) for seed in range(6)]
    (tmp_path / "file").write_text("not a folder", "utf-8")
    assert main(["cure-scorer", *paths, "--out", str(tmp_path / "file" / "report.md")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_traces_without_a_repair_or_of_one_prompt_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = recorded(1, tmp_path)
    assert main(["cure-scorer", one]) == 2
    assert "at least two prompts" in capsys.readouterr().err
    bare = Trace.load(one)
    bare.tree = []
    bare.save(tmp_path / "bare.zip")
    assert main(["cure-scorer", str(tmp_path / "bare.zip")]) == 2
    assert "no repaired block" in capsys.readouterr().err


def test_a_gain_that_nobody_knows_is_no_block_to_learn_from() -> None:
    """Through the tiers branch 0 alone may not have been judged; its accepted nodes do not tell."""
    trace = tree_trace()
    trace.cycles = [replace(row, branch0_kept=0) for row in trace.cycles]
    assert blocks_of(trace)[0].gain == 3
    trace.cycles = [replace(row, branch0_kept=None, alpha1=0.5) for row in trace.cycles]
    assert blocks_of(trace) == []


def test_blocks_of_which_none_is_useful_cannot_be_told_apart() -> None:
    with pytest.raises(DataError, match="nothing to tell apart"):
        admit([0, 0], [0.1, 0.2], BUDGETS)
    same = [replace(block, gain=0) for block in planted()]
    with pytest.raises(DataError, match="every repair, or none, was useful"):
        scores(same, MODELS[0])

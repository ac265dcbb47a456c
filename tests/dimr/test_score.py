"""A mask's score: equal to what serving computes, block by block behind a settle, and costed by eq. 11-12."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from dimr.dimr_toys import random_texts, toy_runner, toy_scorer
from oracle.rows import tolerance
from toys import toy_model
from viasd_core.dimr import calibration
from viasd_core.dimr.calibration import Text, teacher_force
from viasd_core.dimr.cost import CostSettings, divergence
from viasd_core.dimr.masks import parse_bits
from viasd_core.dimr.score import Scorer, ScoreSettings, serving
from viasd_core.errors import PairError, SettingsError
from viasd_core.layers import BlockRunner
from viasd_core.settings import Settings
from viasd_core.sublayers import Layer
from viasd_core.verifier import Verifier

HALVES = ("11100111011011", "01111111111110")  # attention and MLP of each layer in turn
MASKS = ("1101011", "1010101", "1000001", "0111011", *HALVES)
WINDOW = ScoreSettings(window=4, gamma=2, rho=0.4)


def kept(mask: str) -> tuple[Layer, ...]:
    return parse_bits(mask, 7).layers


def served(runner: BlockRunner, text: Text, mask: str, window: int, block: int) -> Tensor:
    """q' rows [new tokens, V] as decoding makes them: settle, then slim forwards over blocks of `block`
    drafts that are all kept, until the debt is `window` rows.
    """
    verifier = Verifier(runner, len(text.ids), slim=kept(mask))
    tokens, rows = list(text.ids), []
    end = len(tokens) - 1
    length = text.prompt_tokens
    verifier.prefill(tokens[: length - 1])
    while length <= end:
        if length - 1 - verifier.n_q >= window:
            verifier.settle(tokens[:length])
        room = window - (length - 1 - verifier.n_q)
        drafts = tokens[length : length + min(block, room, end + 1 - length)]
        logits = verifier.slims[0].run(tokens[:length], torch.tensor(drafts))
        rows.append(logits[: len(drafts)])
        length += len(drafts)
        verifier.rewind(length - 1)
    return torch.cat(rows)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("block", [1, 3, 4])
def test_one_forward_gives_what_block_wise_slim_forwards_behind_settles_give(
    family: str, mask: str, block: int
) -> None:
    scorer, texts = toy_scorer(WINDOW, family)
    for number, text in enumerate(texts):
        expected = served(text.runner, text.text, mask, WINDOW.window, block)
        near = 10 * tolerance(texts[0].runner.model)
        torch.testing.assert_close(scorer.slim_logits(number, mask), expected, rtol=0, atol=near)


def test_a_sliding_window_counts_positions_not_slots() -> None:
    """q' rows lie behind q's rows in the cache, not at their position."""
    runner = BlockRunner(toy_model("mistral", layers=7, vocab=40, sliding_window=5))
    texts = teacher_force(runner, random_texts(40, (12, 11)))
    scorer = Scorer(texts, WINDOW)
    expected = served(runner, texts[0].text, MASKS[0], 4, 2)
    torch.testing.assert_close(scorer.slim_logits(0, MASKS[0]), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("mask", MASKS)
def test_own_cache_scores_the_pure_sub_model(family: str, mask: str) -> None:
    scorer, texts = toy_scorer(ScoreSettings(slim_kv="own"), family)
    for number, text in enumerate(texts):
        tokens, first = list(text.text.ids), text.text.prompt_tokens
        verifier = Verifier(text.runner, len(tokens), slim=kept(mask), slim_kv="own")
        expected = verifier.slims[0].run(tokens[:first], torch.tensor(tokens[first:]))[:-1]
        near = 10 * tolerance(texts[0].runner.model)
        torch.testing.assert_close(scorer.slim_logits(number, mask), expected, rtol=0, atol=near)


@pytest.mark.parametrize("slim_kv", ["shared", "own"])
def test_masks_scored_before_leave_no_trace(slim_kv: str) -> None:
    """q's rows are read, never written: the order of masks is nobody's business."""
    settings = ScoreSettings(window=4, slim_kv=slim_kv)
    alone = toy_scorer(settings)[0].score(MASKS[2])
    scorer, _ = toy_scorer(settings)
    for mask in (*MASKS, "1111111"):
        scorer.score(mask)
    assert scorer.score(MASKS[2]) == alone


def test_a_mask_that_skips_nothing_costs_nothing_and_agrees_everywhere() -> None:
    """V6."""
    for mask in ("1111111", "1" * 14):
        score = toy_scorer(WINDOW)[0].score(mask)
        assert score.cost == pytest.approx(0, abs=1e-12) and score.agreement == 1.0


def test_a_mask_that_skips_both_halves_scores_as_the_layers_own() -> None:
    scorer, _ = toy_scorer(WINDOW)
    assert scorer.cost("".join(2 * bit for bit in MASKS[0])) == pytest.approx(
        scorer.cost(MASKS[0]), abs=1e-12
    )


def test_cost_agreement_and_regions_are_those_of_the_rows_by_age() -> None:
    settings = ScoreSettings(window=4, gamma=2, rho=0.4, thresholds=(0.6, 0.2), cost=CostSettings(0.3, 0.9))
    scorer, texts = toy_scorer(settings)
    score = scorer.score(MASKS[0])
    by_age: list[list[list[float]]] = [[] for _ in range(4)]
    for number, text in enumerate(texts):
        slim = scorer.slim_logits(number, MASKS[0])
        verifier = Verifier(text.runner, len(text.text.ids))
        full = verifier.full(list(text.text.ids[:-1]))[-text.text.new_tokens :]
        costs = divergence(full.log_softmax(-1), slim.log_softmax(-1), settings.cost)
        for row, token in enumerate(text.text.ids[text.text.prompt_tokens :]):
            law = slim[row].softmax(-1)
            r = float(law[token] / law.max())
            region = [r >= 0.6, 0.2 <= r < 0.6, r < 0.2]
            agree = bool(full[row].argmax() == slim[row].argmax())
            by_age[row % 4].append([float(costs[row]), agree, *region])
    means = torch.tensor([torch.tensor(rows, dtype=torch.float64).mean(0).tolist() for rows in by_age])
    weights = torch.tensor([1.0, 1.0, 0.6, 0.6]) / 3.2
    expected = (weights[:, None] * means).sum(0).tolist()
    assert [score.cost, score.agreement, *score.regions] == pytest.approx(expected, abs=1e-6)
    assert score.block_cost == pytest.approx(float(means[:, 0].sum()), rel=1e-6)
    assert score.agreement_by_age == pytest.approx(means[:, 1].tolist())
    assert sum(score.regions) == pytest.approx(1)
    assert score.positions == 15


def test_the_block_cost_of_one_whole_window_is_the_sum_over_it() -> None:
    """Eq. 12."""
    scorer, texts = toy_scorer(ScoreSettings(window=7), "llama", (5, 7))
    rows = divergence(texts[0].log_q, scorer.slim_logits(0, MASKS[1]).log_softmax(-1))
    assert scorer.score(MASKS[1]).block_cost == pytest.approx(float(rows.sum()))


def test_ages_weigh_less_the_more_often_q_runs() -> None:
    even, often = ScoreSettings(rho=0.0, gamma=3), ScoreSettings(rho=0.5, gamma=3)
    assert even.weights(9).tolist() == pytest.approx([1 / 9] * 9)
    assert (often.weights(9) / often.weights(9)[0]).tolist() == [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25]


def test_layers_before_the_first_skipped_one_are_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer, texts = toy_scorer(WINDOW)
    ran: list[int] = []
    for layer, block in enumerate(texts[0].runner.body.layers):
        block.register_forward_hook(lambda *_, layer=layer: ran.append(layer))
    scorer.slim_logits(0, "1111010")
    assert ran == [5]


@pytest.mark.parametrize("slim_kv", ["shared", "own"])
def test_rows_of_q_that_do_not_fit_in_memory_are_made_anew(
    slim_kv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ScoreSettings(window=4, slim_kv=slim_kv)
    whole, kept_rows = toy_scorer(settings)
    monkeypatch.setattr(calibration, "KEEP_BYTES", 0)
    again, made_anew = toy_scorer(settings)
    assert kept_rows[0]._log_q is not None and made_anew[0]._log_q is None
    assert again.score(MASKS[0]) == whole.score(MASKS[0])


def test_scoring_never_touches_the_weights() -> None:
    """D8."""
    scorer, texts = toy_scorer(WINDOW)
    before = copy.deepcopy(texts[0].runner.model.state_dict())
    for mask in MASKS:
        scorer.score(mask)
    after = texts[0].runner.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_damaged_weights_are_a_sentence_not_a_mask() -> None:
    runner = toy_runner()
    runner.model.model.norm.weight[:] = float("nan")
    with pytest.raises(PairError, match="not finite"):
        teacher_force(runner, random_texts(40, (4, 3)))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (20, 5, "shared", (0.5, 0.3))),
        ({"debt_cap": 12, "gamma": 3}, (12, 3, "shared", (0.5, 0.3))),
        ({"debt_cap": 0}, (20, 5, "shared", (0.5, 0.3))),
        ({"strict": True, "slim_kv": "own"}, (16, 5, "own", (0.5, 0.3))),
        ({"gate": "literal", "alpha1": 0.9}, (20, 5, "shared", (0.1, 0.7))),
        ({"core_thresholds": (2.0, 1.5)}, (20, 5, "shared", (2.0, 1.5))),
    ],
)
def test_scoring_follows_the_settings_that_will_serve(settings: dict[str, Any], expected: object) -> None:
    found = serving(Settings(**settings))
    assert (found.window, found.gamma, found.slim_kv) == expected[:3]  # type: ignore[index]
    assert found.thresholds == pytest.approx(expected[3])  # type: ignore[index]


@pytest.mark.parametrize(
    ("changes", "part"), [({"window": 0}, "window is 0"), ({"rho": 1.0}, "rho is 1"), ({"rho": -0.1}, "rho")]
)
def test_bad_scoring_settings_are_a_sentence(changes: dict[str, Any], part: str) -> None:
    with pytest.raises(SettingsError, match=part):
        ScoreSettings(**changes)

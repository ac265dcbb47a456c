"""What is said about a found mask: held-out numbers, others of its size, the gain of its tier, the curve."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import pytest
import torch

from dimr.dimr_toys import made, random_texts, run, toy_scorer
from toys import toy_pair
from viasd_core.dimr.calibration import teacher_force
from viasd_core.dimr.cost import CostSettings, insertion_gain
from viasd_core.dimr.masks import contiguous_mask, even_mask, random_mask
from viasd_core.dimr.predict import Draftsman, Times
from viasd_core.dimr.report import CURVE, Bench, compare, curve, layer_costs, nested, nested_masks, tier_gain
from viasd_core.dimr.score import Score, Scorer, ScoreSettings
from viasd_core.dimr.space import Space
from viasd_core.layers import BlockRunner
from viasd_core.pair import ModelPair
from viasd_core.parts import parts_of
from viasd_core.recording import effective_skip

MASK = "1011001"
SETTINGS = ScoreSettings(window=4, gamma=3)


def bench_of(pair: ModelPair, settings: ScoreSettings, times: Times) -> Bench:
    parts = parts_of(pair)
    runner = BlockRunner(pair.verifier.model)
    texts = teacher_force(runner, random_texts(runner.vocab_size, (6, 9), (4, 8)))
    return Bench(parts, Scorer(texts, settings), times, Draftsman(3, 1.0, 0.0), 12)


def curve_around(bench: Bench) -> dict[str, Any]:
    alone = {layer: float(layer) for layer in range(1, 6)}
    return curve([bench.judge(mask) for mask in nested_masks(bench, MASK, alone)])


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    return toy_pair(layers=7)


def test_the_found_mask_stands_beside_others_of_its_size(pair: ModelPair) -> None:
    bench = bench_of(pair, SETTINGS, Times(1, 1, 0))
    found = compare(bench, MASK)
    score = bench.scorer.score(MASK)
    assert (found["cost"], found["agreement"]) == (score.cost, score.agreement)
    assert found["cost_by_age"] == list(score.cost_by_age)
    assert found["r_eff"] == effective_skip(bench.parts, [0, 2, 3, 6])
    others = found["others"]
    assert others["even"]["cost"] == bench.scorer.cost(even_mask(3 / 7, 7).bits)
    assert contiguous_mask(3 / 7, 7).bits == "1100011"
    assert others["contiguous"]["cost"] == bench.scorer.cost("1100011")
    drawn = [random_mask(3 / 7, 7, seed).bits for seed in range(5)]
    scores = [bench.scorer.score(mask) for mask in drawn]
    assert others["random"]["cost"] == statistics.median(one.cost for one in scores)
    for number, region in enumerate("ABC"):
        share = statistics.fmean(one.regions[number] for one in scores)
        assert others["random"]["regions"][region] == pytest.approx(share)
    guesses = [bench.predict(one, mask).as_dict() for one, mask in zip(scores, drawn, strict=True)]
    for key, value in others["random"]["predicted"].items():
        assert value == pytest.approx(statistics.fmean(guess[key] for guess in guesses))
    assert found["predicted"] == bench.predict(score, MASK).as_dict()
    even = even_mask(3 / 7, 7).bits
    assert others["even"]["predicted"] == bench.predict(bench.scorer.score(even), even).as_dict()
    assert {frozenset(one) for one in others.values()} == {frozenset(others["even"])}


def test_judging_a_mask_beside_others_scores_each_once(
    pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, plain, scored = bench_of(pair, SETTINGS, Times(1, 1, 0)), Scorer.score, list[str]()

    def score(scorer: Scorer, mask: str) -> Score:
        scored.append(mask)
        return plain(scorer, mask)

    monkeypatch.setattr(Scorer, "score", score)
    compare(bench, MASK)
    drawn = [random_mask(3 / 7, 7, seed).bits for seed in range(5)]
    assert scored == [MASK, *drawn, even_mask(3 / 7, 7).bits, "1100011"]


def test_single_skip_costs_come_from_the_search_where_it_looked() -> None:
    scorer, _ = toy_scorer(SETTINGS)
    space = Space(7, 3)
    seen = run(made(space, lambda mask: float(mask.index("0")), kind="greedy"))
    assert layer_costs(seen, space, scorer) == {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0, 5: 5.0}
    assert layer_costs([], space, scorer)[4] == scorer.cost("1111011")


def test_masks_of_the_curve_are_nested_in_and_around_the_found_one() -> None:
    alone = {1: 0.5, 2: 0.1, 3: 0.4, 4: 0.2, 5: 0.3}
    found = "1101011"  # skips 2 and 4
    assert [nested(found, count, alone) for count in range(1, 6)] == [
        "1101111", "1101011", "1101001", "1100001", "1000001"
    ]  # fmt: skip


def test_the_curve_names_the_ratio_that_is_predicted_fastest(pair: ModelPair) -> None:
    lenient = replace(SETTINGS, thresholds=(0.0, 0.0))
    bench = bench_of(pair, lenient, Times(1.0, 0.0, 0.0))
    found = curve_around(bench)
    assert [point["mask"].count("0") for point in found["points"]] == [1, 2, 3, 4, 5]
    assert all(set(point) >= {"cost", "agreement", "r_eff", "predicted"} for point in found["points"])
    assert found["optimum"] == pytest.approx(5 / 7)  # everything passes: the smallest q' is the fastest
    assert "skipping 71% is predicted fastest" in found["sentence"]


def test_a_curve_without_an_optimum_says_so(pair: ModelPair) -> None:
    bench = bench_of(pair, SETTINGS, Times(0.0, 1.0, 0.0))  # layers cost nothing: skipping them saves nothing
    found = curve_around(bench)
    assert found["optimum"] is None
    assert found["sentence"].startswith("no skip ratio from 14% to 71% is predicted to beat")
    assert (CURVE[0], CURVE[-1], len(CURVE)) == (0.05, 0.75, 15)


def test_the_gain_of_the_tier_is_equation_seven_over_the_drafters_own_rows(pair: ModelPair) -> None:
    bench, cost = bench_of(pair, SETTINGS, Times(1, 1, 0)), CostSettings(0.4, 0.7)
    assert pair.draft_model is not None
    total, rows = 0.0, 0
    for number, text in enumerate(bench.scorer.texts):
        ids = torch.tensor([text.text.ids[:-1]])
        log_p, log_q = (
            model(ids).logits[0, -text.fresh :].log_softmax(-1)
            for model in (pair.draft_model.model, pair.verifier.model)
        )
        log_u = bench.scorer.slim_logits(number, MASK).log_softmax(-1)
        total += float(insertion_gain(log_p, log_u, log_q, cost))
        rows += text.fresh
    found = tier_gain(pair, bench.parts, bench.scorer, MASK, cost)
    assert found == {"value": pytest.approx(total / rows), "reason": ""}


def test_a_tier_that_is_the_drafter_itself_gains_nothing() -> None:
    """V13, with a layer-skip drafter whose layers q' keeps."""
    pair = toy_pair(layers=7, drafter="layer-skip", skip_ratio=3 / 7)
    bench = bench_of(pair, SETTINGS, Times(1, 1, 0))
    same = even_mask(3 / 7, 7).bits
    assert tier_gain(pair, bench.parts, bench.scorer, same, CostSettings())["value"] == pytest.approx(0)
    assert abs(tier_gain(pair, bench.parts, bench.scorer, MASK, CostSettings())["value"]) > 1e-3


@pytest.mark.parametrize("kind", ["lookup", "none"])
def test_a_drafter_without_a_law_has_no_gain_and_the_reason_is_given(kind: str) -> None:
    pair = toy_pair(layers=7, drafter=kind)
    bench = bench_of(pair, SETTINGS, Times(1, 1, 0))
    found = tier_gain(pair, bench.parts, bench.scorer, MASK, CostSettings())
    assert found["value"] is None and kind in found["reason"]

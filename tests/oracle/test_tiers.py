"""Several slim verifiers, halves of layers and models among them: cycles and rows by their definition."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

import toys
from oracle.definition import Definition, guess_with
from oracle.models import LAYERS, VARIANTS, draft_model, loop_of, model, pair, prompt, random_gates, run
from oracle.reference import recompute
from oracle.rows import check_rows, tolerance
from viasd_core.live import LiveSettings
from viasd_core.pair import ModelPair
from viasd_core.settings import Settings
from viasd_core.sublayers import from_units
from viasd_core.trace import Trace
from viasd_core.trace_check import check

NOISE = 0.06
TIER = "model:toy/tier"


@cache
def tier_model(variant: str) -> PreTrainedModel:
    """Another model of the verifier's vocabulary, right more often than the drafter."""
    return toys.perturbed(model(variant), 0.03, seed=7)


def tiered_pair(variant: str, drafter: str = "model") -> ModelPair:
    source = pair(variant, drafter, noise=NOISE)
    return replace(source, tiers={TIER: toys.loaded(tier_model(variant), "tier")})


def nested_masks(dice: random.Random, count: int, halves: bool) -> list[str]:
    """`count` masks weak to strong, each inside the next, over layers or over halves of them."""
    units = LAYERS * (2 if halves else 1)
    order = dice.sample(range(units), units)
    sizes = sorted(dice.sample(range(1, units), count))
    return ["".join("1" if unit in order[:size] else "0" for unit in range(units)) for size in sizes]


def random_tiers(dice: random.Random) -> tuple[str, ...]:
    halves = dice.random() < 0.5
    tiers = nested_masks(dice, dice.randrange(1, 4 if halves else 3), halves)
    if dice.random() < 0.4:
        tiers.insert(dice.randrange(len(tiers) + 1), TIER)
    return tuple(tiers)


def as_defined(tier: str, variant: str) -> Any:
    """What the definition takes for a tier: kept layers and halves, or a model."""
    if tier == TIER:
        return tier_model(variant)
    kept = [unit for unit, bit in enumerate(tier) if bit == "1"]
    return tuple(kept) if len(tier) == LAYERS else from_units(kept)


def random_settings(dice: random.Random) -> Settings:
    return Settings(
        tiers=random_tiers(dice),
        gamma=dice.randrange(1, 7),
        **random_gates(dice),
        max_new_tokens=24,
    )


def tiers_of(trace: Trace, cycle: int) -> list[int | None]:
    return [row.tier for row in trace.tokens if row.cycle == cycle and row.region]


def compare(case: int) -> Trace:
    dice = random.Random(case)
    variant, length = dice.choice(list(VARIANTS)), dice.randrange(1, 12)
    settings = random_settings(dice).with_(final_audit=False)
    first, *stronger = (as_defined(str(tier), variant) for tier in settings.tiers)
    guess = guess_with(draft_model(variant, torch.float64, "sdpa", NOISE))
    expected = Definition(
        model(variant), guess, settings, prompt(length, case), first, tuple(stronger), toys.EOS_ID
    )
    cycles = expected.run()
    trace = run(tiered_pair(variant), prompt(length, case), settings)
    trace.run.update(method="via-sd", n_layers=LAYERS, prompt_tokens=length, settings=settings.as_dict())
    assert trace.token_ids == expected.text[length:]
    for row, wanted in zip(trace.cycles, cycles, strict=True):
        regions = "".join(token.region for token in trace.tokens if token.cycle == row.cycle)
        assert (regions, row.committed) == (wanted.regions, len(wanted.committed))
        assert (row.full_forwards, row.settle_forwards, row.n_q) == (wanted.full, wanted.settle, wanted.n_q)
        assert tiers_of(trace, row.cycle) == wanted.tiers
        assert row.slim_forwards == wanted.asked == sum(row.tier_forwards)
    return trace


@pytest.mark.parametrize("case", range(12))
def test_a_run_with_several_slim_verifiers_follows_the_definition(case: int) -> None:
    trace = compare(case)
    assert [problem for problem in check(trace) if "run.json" not in problem] == []


@pytest.mark.slow
@pytest.mark.parametrize("case", range(12, 132))
def test_many_runs_with_several_slim_verifiers_follow_the_definition(case: int) -> None:
    compare(case)


def test_the_compared_runs_reach_every_tier_and_region() -> None:
    """Else the comparison would prove little."""
    seen = set()
    for case in (0, 3, 4, 6):
        trace = compare(case)
        seen |= {(row.region, row.tier) for row in trace.tokens if row.region}
        seen |= {("asked", row.slim_forwards) for row in trace.cycles}
    assert {("A", 1), ("B", 1), ("C", None), ("A", 2), ("asked", 1), ("asked", 2)} <= seen


def drive(case: int, **changes: Any) -> Trace:
    """A run whose rows are checked after every cycle, with knobs turned between cycles."""
    dice = random.Random(case)
    strict = dice.random() < 0.3
    settings = random_settings(dice).with_(strict=strict, temperature=0.0 if strict else 1.0, **changes)
    live = LiveSettings(settings)
    drafter = dice.choice(["model", "nested", "own"])
    trace = Trace()
    loop = loop_of(
        tiered_pair(dice.choice(list(VARIANTS)), drafter), prompt(dice.randrange(1, 14)), settings, live
    )
    while trace.finish is None:
        trace.add(loop.step())
        check_rows(loop)
        if dice.random() < 0.4:
            live.update(skip_ratio=dice.choice([0.3, 0.6, 0.8]), gamma=dice.randrange(1, 6))
    return trace


@pytest.mark.parametrize("case", range(8))
def test_rows_of_every_tier_equal_a_recompute_after_every_cycle(case: int) -> None:
    """V15 with explicit masks, halves of layers and models."""
    drive(case)


@pytest.mark.parametrize("choice", ["even", "random:4"])
def test_rows_survive_another_mask_of_the_first_tier_in_mid_run(choice: str) -> None:
    """A new skip ratio changes u_1's mask alone, inside u_2's, and drops the rows that u_1 wrote."""
    for case in range(2):
        trace = drive(case, tiers=(0.5, 0.25), mask=choice)
        changed = {row.mask_id for row in trace.cycles}
        assert all(len(name.split(",")) == 2 for name in changed)
        assert len({name.split(",")[1] for name in changed}) == 1


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_forward_through_halves_of_layers_is_the_plain_one(variant: str) -> None:
    """A one-tier run whose mask keeps halves only: its recorded log q' against the reference's."""
    mask = "10011101"
    settings = Settings(mask=mask, slim_kv="own", gamma=3, max_new_tokens=12, temperature=1.0)
    ids = prompt(5)
    trace = run(pair(variant, "model", noise=NOISE), ids, settings)
    layers = as_defined(mask, variant)
    compared = 0
    for row in trace.emitted:
        if row.source == "draft" and row.logp_slim is not None and row.out_pos is not None:
            text = [*ids, *trace.token_ids[: row.out_pos]]
            logits = recompute(model(variant), text, layers)[0][-1]
            expected = float(logits.log_softmax(-1)[row.token_id])
            assert row.logp_slim == pytest.approx(expected, abs=10 * tolerance(model(variant)))
            compared += 1
    assert compared > 3


@pytest.mark.parametrize("case", range(4))
def test_strict_equals_greedy_whatever_the_tiers(case: int) -> None:
    """V14."""
    dice = random.Random(100 + case)
    variant = dice.choice(list(VARIANTS))
    settings = random_settings(dice).with_(strict=True)
    ids = prompt(dice.randrange(1, 9), case)
    greedy = run(tiered_pair(variant), ids, Settings(method="ar", max_new_tokens=settings.max_new_tokens))
    assert run(tiered_pair(variant), ids, settings).token_ids == greedy.token_ids


def test_masks_drawn_for_these_tests_are_inside_each_other() -> None:
    for case in range(20):
        masks = nested_masks(random.Random(case), 3, case % 2 == 0)
        kept = [{unit for unit, bit in enumerate(mask) if bit == "1"} for mask in masks]
        assert all(weak < strong for weak, strong in pairwise(kept))

"""Whole greedy runs, cycle by cycle, against the algorithm written down without any cache."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import toys
from oracle.definition import Definition, guess_with
from oracle.models import VARIANTS, WINDOW, draft_model, pair, prompt, random_gates, run
from oracle.models import model as toy
from viasd_core.settings import Settings
from viasd_core.trace import VERDICTS, Trace

NOISE = 0.06


def definition(variant: str, settings: Settings, length: int, seed: int, noise: float = NOISE) -> Definition:
    layers = tuple(index for index, bit in enumerate(settings.mask) if bit == "1")
    guess = guess_with(draft_model(variant, torch.float64, "sdpa", noise))
    return Definition(toy(variant), guess, settings, prompt(length, seed), layers, eos=toys.EOS_ID)


def cycles_of(trace: Trace) -> list[tuple[str, int, int, int]]:
    """(regions in order, tokens, q forwards, settles) of each cycle, the end's own settle left out."""
    regions: dict[int, str] = {}
    for row in trace.tokens:
        regions[row.cycle] = regions.get(row.cycle, "") + row.region
    return [
        (regions[row.cycle], row.committed, row.full_forwards, row.settle_forwards) for row in trace.cycles
    ]


def compare(case: int, new: int) -> tuple[str, Trace]:
    dice = random.Random(case)
    variant, length = dice.choice(list(VARIANTS)), dice.randrange(1, 2 * WINDOW)
    values: dict[str, Any] = {"max_new_tokens": new, "gamma": dice.randrange(1, 7)}
    if dice.random() < 0.25:
        settings = Settings(method="sd", bonus=dice.choice(["none", "q-if-called"]), **values)
    else:
        settings = Settings(
            method="via-sd",
            mask=f"{dice.randrange(1, 16):04b}",
            **random_gates(dice),
            final_audit=False,
            **values,
        )
    expected = definition(variant, settings, length, case)
    cycles = expected.run()
    trace = run(pair(variant, "model", noise=NOISE), prompt(length, case), settings)
    assert trace.token_ids == expected.text[length:]
    assert cycles_of(trace) == [(c.regions, len(c.committed), c.full, c.settle) for c in cycles]
    assert [row.n_q for row in trace.cycles] == [c.n_q for c in cycles]
    return "".join(c.regions for c in cycles), trace


@pytest.mark.parametrize("case", range(24))
def test_run_follows_the_definition(case: int) -> None:
    compare(case, 28)


@pytest.mark.slow
@pytest.mark.parametrize("case", range(24, 144))
def test_many_runs_follow_the_definition(case: int) -> None:
    compare(case, 48)


def test_the_cases_reach_every_region_and_every_kind_of_token() -> None:
    regions, verdicts = "", set()
    for case in (6, 14, 21):
        found, trace = compare(case, 16)
        regions += found
        verdicts |= {row.verdict for row in trace.tokens}
    assert set(regions) == set("ABC")
    assert verdicts == set(VERDICTS) - {"retracted"}

"""Lossless speculative decoding, strict VIA-SD and VIA-SD that always asks q say what plain decoding says."""

from __future__ import annotations

import random
from typing import Any

import pytest

from oracle.models import DRAFTERS, VARIANTS, WINDOW, hf_greedy, loop_of, pair, prompt, run, say
from oracle.scripted import drafting
from viasd_core.parts import parts_of
from viasd_core.settings import Settings

GAMMA = 4
NEW = 3 * WINDOW
MIXED = ("llama", "mistral-window", "qwen3-window")
ALWAYS_KEEP = {"core_thresholds": (0.0, 0.0)}  # q' settles everything: strict has all the work
LOSSLESS: dict[str, tuple[str, dict[str, Any]]] = {
    "sd": ("sd", {}),
    "sd-no-bonus": ("sd", {"bonus": "none"}),
    "all-in-c": ("via-sd", {"core_thresholds": (2.0, 2.0)}),
    "strict": ("via-sd", {"strict": True}),
    "strict-own": ("via-sd", {"strict": True, "slim_kv": "own"}),
    "strict-keep": ("via-sd", {"strict": True, **ALWAYS_KEEP}),
    "strict-keep-own": ("via-sd", {"strict": True, "slim_kv": "own", "debt_cap": 0, **ALWAYS_KEEP}),
}


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_speculative_decoding_equals_plain(variant: str, drafter: str) -> None:
    said = say(pair(variant, drafter), prompt(WINDOW - 2), "sd", max_new_tokens=NEW, gamma=GAMMA)
    assert said == list(hf_greedy(variant, WINDOW - 2, NEW))


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("way", [way for way in LOSSLESS if not way.startswith("sd")])
@pytest.mark.parametrize("variant", ["llama", "qwen3-window"])
def test_via_sd_equals_plain(variant: str, way: str, drafter: str) -> None:
    method, settings = LOSSLESS[way]
    said = say(
        pair(variant, drafter), prompt(WINDOW - 2), method, max_new_tokens=NEW, gamma=GAMMA, **settings
    )
    assert said == list(hf_greedy(variant, WINDOW - 2, NEW))


@pytest.mark.parametrize("right", range(GAMMA + 1))
@pytest.mark.parametrize("way", LOSSLESS)
@pytest.mark.parametrize("variant", MIXED)
def test_rejection_at_every_offset(variant: str, way: str, right: int) -> None:
    method, settings = LOSSLESS[way]
    ids, truth = prompt(5), hf_greedy(variant, 5, NEW)
    parts = drafting(parts_of(pair(variant, "none")), ids + list(truth), [right])
    said = say(parts, ids, method, max_new_tokens=NEW, gamma=GAMMA, **settings)
    assert said == list(truth)


@pytest.mark.parametrize("way", LOSSLESS)
@pytest.mark.parametrize("variant", MIXED)
def test_rejections_here_and_there_and_empty_drafts(variant: str, way: str) -> None:
    method, settings = LOSSLESS[way]
    dice = random.Random(way + variant)
    ids, truth = prompt(WINDOW), hf_greedy(variant, WINDOW, NEW)
    offsets, counts = ([dice.randrange(GAMMA + 2) for _ in range(31)] for _ in range(2))
    parts = drafting(parts_of(pair(variant, "none")), ids + list(truth), offsets, counts)
    said = say(parts, ids, method, max_new_tokens=NEW, gamma=GAMMA + 1, **settings)
    assert said == list(truth)


def test_scripted_rejections_happen_where_they_were_asked_for() -> None:
    ids, truth = prompt(5), hf_greedy("llama", 5, NEW)
    parts = drafting(parts_of(pair("llama", "none")), ids + list(truth), [2])
    cycles = run(parts, ids, Settings(method="sd", gamma=GAMMA, max_new_tokens=NEW)).cycles
    assert {(row.region_c_accepted, row.region_c_rejected) for row in cycles[:-1]} == {(2, 1)}


@pytest.mark.parametrize("case", range(12))
def test_strict_equals_plain_for_any_mask_cap_and_gamma(case: int) -> None:
    strict_case(case, 20)


@pytest.mark.slow
@pytest.mark.parametrize("case", range(12, 132))
def test_strict_equals_plain_for_many_masks_caps_and_gammas(case: int) -> None:
    strict_case(case, 40)


def strict_case(case: int, new: int) -> None:
    dice = random.Random(case)
    variant, length = dice.choice(list(VARIANTS)), dice.randrange(1, 20)
    settings: dict[str, Any] = {
        "mask": f"{dice.randrange(1, 16):04b}",
        "gamma": dice.randrange(1, 9),
        "debt_cap": dice.choice([None, 0, 1, 5]),
        "slim_kv": dice.choice(["shared", "own"]),
        "alpha1": dice.choice([0.0, 0.01, 0.5, 1.0]),
        "alpha2": dice.choice([0.0, 0.01, 0.3]),
        "bonus": dice.choice(["none", "q-if-called", "slim"]),
        "bonus_threshold": 0.0,
        "regenerate": dice.random() < 0.7,
        "after_escalation": dice.choice(["gate", "q"]),
        "trace": dice.random() < 0.5,
        "final_audit": dice.random() < 0.5,
    }
    source = pair(variant, dice.choice(list(DRAFTERS)))
    loop = loop_of(source, prompt(length, 1), Settings(max_new_tokens=new, strict=True, **settings))
    while loop.step().finish is None:
        assert len(loop.run.tokens) <= length + new
    assert loop.run.tokens[length:] == list(hf_greedy(variant, length, new, seed=1))

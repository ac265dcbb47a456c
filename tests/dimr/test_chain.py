"""Masks inside each other for several slim verifiers: how ratios, files and bits become a chain."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from viasd_core.dimr.chain import choose_chain
from viasd_core.dimr.masks import SCHEMA, LayerMask, MaskStore, even_mask, inside, parse_bits, random_mask
from viasd_core.errors import MaskError

IDENTITY: dict[str, Any] = {"kind": "hub", "id": "org/model", "layers": 8}


def store(folder: Path, *masks: str) -> MaskStore:
    """A store of mask files named after their bits."""
    files = []
    for bits in masks:
        content = {"schema": SCHEMA, "mask": bits, "layers": 8, "model": {"id": "org/model"}}
        files.append(folder / f"{bits}.json")
        files[-1].write_text(json.dumps(content), encoding="utf-8")
    return MaskStore(files, IDENTITY)


def chain_bits(found: list[LayerMask]) -> list[str]:
    return [mask.bits for mask in found]


def test_of_all_nested_choices_the_stored_masks_nearest_to_the_ratios_are_taken(tmp_path: Path) -> None:
    """The mask nearest to .25 alone, 10111101, has no weaker one inside it: the chain goes without it."""
    stored = store(tmp_path, "10111101", "11101101", "11101001", "11001001", "10010011")
    assert chain_bits(choose_chain(stored, (0.5, 0.25), "auto")) == ["11001001", "11101101"]
    assert chain_bits(choose_chain(stored, (0.5, 0.375, 0.25), "auto")) == [
        "11001001",
        "11101001",
        "11101101",
    ]


def test_one_ratio_takes_the_mask_a_single_slim_verifier_would(tmp_path: Path) -> None:
    stored = store(tmp_path, "11101111", "11001011")
    for choice in ("auto", "even", "random:3"):
        assert choose_chain(stored, (0.3,), choice) == [stored.choose(choice, 0.3)]


def test_stored_masks_that_do_not_lie_inside_each_other_are_refused_with_the_reason(tmp_path: Path) -> None:
    stored = store(tmp_path, "11001111", "11110001")
    with pytest.raises(MaskError, match=r"no stored masks of org/model for the tiers 0.5, 0.25 lie inside"):
        choose_chain(stored, (0.5, 0.25), "auto")
    with pytest.raises(MaskError, match="dimr --inside"):
        choose_chain(MaskStore([], IDENTITY), (0.5, 0.25), "auto")


@pytest.mark.parametrize("choice", ["even", "random:5"])
def test_even_and_random_chains_skip_exactly_n_and_lie_inside_each_other(choice: str) -> None:
    ratios = (0.6, 0.45, 0.2)
    bare = MaskStore([], IDENTITY | {"layers": 30})
    found = choose_chain(bare, ratios, choice)
    assert [mask.bits.count("0") for mask in found] == [18, 14, 6]
    assert all(inside(weak, strong) for weak, strong in pairwise(found))
    assert all(mask.bits[0] == mask.bits[-1] == "1" for mask in found)
    single = even_mask(0.2, 30) if choice == "even" else random_mask(0.2, 30, 5)
    assert found[-1] == single and choose_chain(bare, ratios, choice) == found


def test_a_random_weaker_mask_is_uniform_over_those_inside_the_stronger_one() -> None:
    bare = MaskStore([], IDENTITY)
    added: Counter[int] = Counter()
    for seed in range(1500):
        weak, strong = choose_chain(bare, (0.25, 0.125), f"random:{seed}")
        added[next(layer for layer in range(8) if weak.bits[layer] != strong.bits[layer])] += 1
    assert set(added) == set(range(1, 7))
    assert all(abs(count - 250) < 75 for count in added.values())  # 5 standard deviations


def test_given_masks_are_taken_as_they_are_and_must_lie_inside_each_other(tmp_path: Path) -> None:
    stored = store(tmp_path, "11101101")
    file = str(tmp_path / "11101101.json")
    assert chain_bits(choose_chain(stored, ("11001001", file), "auto")) == ["11001001", "11101101"]
    for wrong in (("11011001", file), (file, "11001001"), (file, "11101101")):
        with pytest.raises(MaskError, match=r"tier 1 .* is not inside tier 2"):
            choose_chain(stored, wrong, "auto")
    assert chain_bits(choose_chain(stored, ("10000001", 0.25), "auto")) == ["10000001", "11101101"]


def test_a_mask_of_halves_lies_inside_one_of_layers_by_what_it_runs() -> None:
    layers = parse_bits("1011", 4)
    assert inside(parse_bits("10001111", 4), layers)
    assert inside(parse_bits("11001110", 4), layers)
    assert not inside(parse_bits("11101111", 4), layers)
    assert not inside(parse_bits("11001111", 4), layers), "the same layers, written as halves"


def test_ratios_too_near_to_differ_are_refused() -> None:
    with pytest.raises(MaskError, match="give ratios that are further apart"):
        choose_chain(MaskStore([], IDENTITY), (0.26, 0.25), "even")

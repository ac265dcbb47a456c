"""The built-in check of a drafter before a run: near-chance agreement is said, good agreement is not."""

from __future__ import annotations

import pytest

import toys
from viasd_core.self_check import NEAR_CHANCE, TOKENS, self_check


def test_a_copy_of_the_verifier_agrees_everywhere() -> None:
    found = self_check(toys.toy_pair(noise=0.0))
    assert found is not None
    assert found["agreement"] == 1.0
    assert found["positions"] > TOKENS, "more than one of the answers was looked at"
    assert found["warning"] is None


def test_a_stranger_is_near_chance_and_the_warning_says_where_to_look() -> None:
    pair = toys.toy_pair(noise=5.0)
    found = self_check(pair)
    assert found is not None
    assert found["agreement"] < NEAR_CHANCE
    assert f"of {found['positions']} tokens" in found["warning"]
    assert "chat template" in found["warning"]


@pytest.mark.parametrize("kind", ["none", "lookup"])
def test_what_predicts_nothing_is_not_checked(kind: str) -> None:
    assert self_check(toys.toy_pair(drafter=kind)) is None

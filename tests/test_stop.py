"""Where a block ends: EOS ids, stop strings across tokens, the limit, and which of them is named."""

from __future__ import annotations

import pytest

from scripted import Letters
from viasd_core.stop import Cut, StopRules

SPELL = Letters(dict(enumerate([b"a", b"b", b"c", b"ab", b"xcab", b"</s>", b"\xf0\x9f", b"\x98\x80"])))
EOS = 5


def rules(*stops: str, limit: int = 100, reason: str = "length") -> StopRules:
    return StopRules(frozenset({EOS, 9}), stops, limit, reason, SPELL)


def test_a_block_without_an_end_stands_whole() -> None:
    assert rules("zzz").cut([0, 1], [1, 2, 3]) == Cut(3)
    assert rules().cut([], []) == Cut(0)


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
@pytest.mark.parametrize("eos", [EOS, 9])
def test_any_eos_id_ends_the_run_at_any_offset_of_a_block(offset: int, eos: int) -> None:
    block = [0, 0, 0, 0]
    block[offset] = eos
    assert rules().cut([1], block) == Cut(offset + 1, "eos")


def test_a_stop_string_inside_one_token_keeps_that_token_and_says_where_it_begins() -> None:
    assert rules("ca").cut([0, 0], [4, 1]) == Cut(1, "stop", 3)


def test_a_stop_string_split_over_tokens_of_one_block_is_found() -> None:
    assert rules("abc").cut([], [2, 0, 1, 2, 0]) == Cut(4, "stop", 1)


def test_a_stop_string_that_began_in_earlier_output_is_found() -> None:
    assert rules("cab").cut([0, 2], [3, 1]) == Cut(1, "stop", 1)
    assert rules("aab").cut([0, 0], [1]) == Cut(1, "stop", 0)


def test_a_stop_string_that_earlier_output_already_held_is_not_found_again() -> None:
    """Only bytes that the new token completed count."""
    assert rules("ab").cut([0, 1], [2, 2]) == Cut(2)


def test_of_two_stop_strings_the_one_that_begins_first_trims_the_text() -> None:
    assert rules("cab", "xc").cut([0], [4]) == Cut(1, "stop", 1)
    assert rules("ab", "xcab").cut([0], [4]) == Cut(1, "stop", 1)


def test_a_stop_string_may_lie_inside_the_bytes_of_a_split_character() -> None:
    assert rules("😀").cut([0], [6, 7, 0]) == Cut(2, "stop", 1)


def test_the_limit_ends_the_block_with_its_own_reason() -> None:
    assert rules(limit=3).cut([0], [1, 1, 1, 1]) == Cut(2, "length")
    assert rules(limit=3, reason="context").cut([0, 0], [1]) == Cut(1, "context")


def test_a_block_that_ends_exactly_below_the_limit_goes_on() -> None:
    assert rules(limit=4).cut([0], [1, 1]) == Cut(2)


def test_one_token_that_completes_several_names_eos_then_stop_then_length() -> None:
    """A cap that coincides with a stop must not hide it."""
    assert rules("</s>", limit=2).cut([0], [EOS]) == Cut(1, "eos")
    assert rules("b", limit=2).cut([0], [1]) == Cut(1, "stop", 1)


def test_the_first_end_in_the_block_wins() -> None:
    assert rules("b", limit=3).cut([], [0, 1, EOS]) == Cut(2, "stop", 1)
    assert rules("b", limit=1).cut([], [0, 1, EOS]) == Cut(1, "length")

"""A trace as terminal text: marks under tokens, tables, comparison, and nothing a terminal would act on."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from sample_traces import strict_trace, tree_trace, via_sd_trace
from viasd_core import terminal
from viasd_core.trace_show import diff, shared_prefix, show

ESCAPES = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def test_show_puts_each_tier_code_under_its_token() -> None:
    lines = show(via_sd_trace(), width=80).splitlines()
    text, marks = lines[7:9]
    assert text == "Plants eat \U0001f331.\u23ce"  # a column for the half character
    assert marks == "S S   M   SF RS"
    assert lines[9:11] == ["NA =1+1 so<eos>", "S S    +  T\u00b7"]


def test_show_marks_tokens_of_a_repair_branch() -> None:
    assert "FF\u03a8F\u03a8+F+" in show(tree_trace(), width=80).splitlines()


def test_show_lists_every_cycle_with_its_counts_and_reason() -> None:
    lines = show(via_sd_trace(), width=80).splitlines()
    row = next(line for line in lines if line.endswith("region C"))
    assert row.split()[:10] == ["1", "4", "4", "1", "0", "1", "1", "3", "1", "0"]
    assert sum(bool(re.match(r" +\d+ +4 ", line)) for line in lines) == 4


def test_show_names_the_branch_that_won_and_leaves_out_columns_that_say_nothing() -> None:
    lines = show(tree_trace(), width=80).splitlines()
    header = next(line.split() for line in lines if line.startswith("cycle"))
    assert "nodes" in header and "why" not in header
    row = next(line.split() for line in lines if line.strip().startswith("0 "))
    assert row[header.index("nodes")] == str(tree_trace().cycles[0].tree_nodes)
    assert row[header.index("won")] == "1", "`won by` is one column: its cell stands at the index of `won`"
    assert "repair extra_tokens     2" in show(tree_trace()).splitlines()
    assert "nodes" not in show(via_sd_trace()) and "audit" not in show(tree_trace())


def test_show_prints_the_summary_numbers() -> None:
    text = show(via_sd_trace(), width=80)
    for line in (
        "tokens/s                22",
        "rejection rate          0.2222",
        "audit agree             0.75",
    ):
        assert line in text


@pytest.mark.parametrize(
    ("recorded", "name"),
    [
        ("toy", "toy"),
        ({"kind": "folder", "id": "toy", "sha256": "0"}, "toy"),
        ({"kind": "lookup"}, "lookup"),
        ({"kind": "model", "model": {"kind": "hub", "id": "org/toy"}}, "org/toy"),
    ],
)
def test_show_names_models_by_id_or_kind(recorded: object, name: str) -> None:
    trace = via_sd_trace()
    trace.run["models"] = {"verifier": "q", "drafter": recorded}
    assert f"drafter  {name}" in show(trace).splitlines()


@pytest.mark.parametrize("width", [40, 57, 80])
def test_show_wraps_tokens_within_the_width(width: int) -> None:
    trace = via_sd_trace()
    trace.tokens = [
        replace(row, text=text)
        for row, text in zip(trace.tokens, ["\u6f22\u5b57" * 9, "x" * 333, *["word "] * 12], strict=True)
    ]
    lines = show(trace, width=width).splitlines()
    text = lines[7 : next(index for index, line in enumerate(lines) if line.startswith("S accepted"))]
    assert max(terminal.display_width(line) for line in text) <= width
    assert sum(line.count("x") for line in text) == 333


def test_colour_appears_only_when_asked_for() -> None:
    plain, coloured = show(via_sd_trace()), show(via_sd_trace(), colour=True)
    assert "\x1b" not in plain
    assert "\x1b[30;48;2;86;180;233mPl\x1b[0m" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


@pytest.mark.parametrize(
    "hostile", ["\x1b]0;owned\x07", "\x1b[2J", "\x9b2J", "\u202eevil", "\x00", "\r", "\b\b", "\ud800"]
)
def test_hostile_text_cannot_reach_the_terminal(hostile: str) -> None:
    trace = via_sd_trace()
    trace.tokens[0] = replace(trace.tokens[0], text=hostile)
    trace.cycles[0] = replace(trace.cycles[0], reason=hostile)
    trace.run |= {"prompt": hostile, "run_id": hostile, "method": hostile, "models": {"verifier": hostile}}
    for text in (show(trace), diff(trace, trace), diff(trace, strict_trace())):
        assert not ESCAPES.search(text)
        text.encode()


def test_joined_emoji_and_wide_characters_are_shown_as_they_are() -> None:
    family = "\U0001f469\u200d\U0001f469\u200d\U0001f466"
    assert terminal.printable(family + "\u6f22") == family + "\u6f22"
    assert terminal.display_width("\u6f22a\u0301") == 3


def test_diff_finds_the_first_differing_token_and_shows_both_sides() -> None:
    other = via_sd_trace()
    row = next(row for row in other.tokens if row.out_pos == 2)
    other.tokens[other.tokens.index(row)] = replace(row, token_id=9, text=" grow")
    text = diff(via_sd_trace(), other, width=80)
    assert "the first 2 tokens are equal, 0 of them settled by another tier" in text
    assert "first divergence at token 2" in text
    assert "Plants eat" in text and "Plants grow" in text


def test_diff_of_equal_outputs_counts_tokens_settled_by_another_tier() -> None:
    other = via_sd_trace()
    other.tokens[0] = replace(other.tokens[0], verdict="target", source="full", region="")
    text = diff(via_sd_trace(), other)
    assert "the first 11 tokens are equal, 1 of them settled by another tier\nthe outputs are equal" in text


def test_diff_says_where_the_shorter_output_ends() -> None:
    shorter = via_sd_trace()
    shorter.tokens = [row for row in shorter.tokens if row.out_pos is None or row.out_pos < 6]
    text = diff(via_sd_trace(), shorter)
    assert "first divergence at token 6" in text
    assert text.count("(ends here)") == 1


def test_diff_says_when_the_prompts_differ() -> None:
    other = via_sd_trace()
    other.run["prompt_token_ids"] = [1]
    assert diff(via_sd_trace(), other).startswith("the prompts differ")


def test_delta_table_gives_difference_and_ratio() -> None:
    other = via_sd_trace()
    other.run["tokens_per_s"] = 33.0
    line = next(line for line in diff(via_sd_trace(), other).splitlines() if line.startswith("tokens/s"))
    assert line.split() == ["tokens/s", "22", "33", "11", "1.500"]


def test_delta_table_survives_numbers_that_were_not_recorded() -> None:
    other = via_sd_trace()
    other.run["tokens_per_s"] = None
    line = next(line for line in diff(via_sd_trace(), other).splitlines() if line.startswith("tokens/s"))
    assert line.split() == ["tokens/s", "22", "-", "-", "-"]


def test_shared_prefix_of_empty_outputs_is_zero() -> None:
    assert shared_prefix([], via_sd_trace().emitted) == 0

"""Reports about stopping and limits, each as a test named after its symptom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import toys
from oracle.models import hf_greedy, pair, prompt, run
from oracle.scripted import another, drafting, scripted_parts
from viasd_core.parts import Parts, parts_of
from viasd_core.settings import Settings
from viasd_core.trace import Trace
from viasd_core.trace_check import check

GAMMA = 4
EOS = toys.EOS_ID
PROMPT = [20, 21]
BODY = list(range(30, 60))
SD: dict[str, Any] = {"method": "sd", "gamma": GAMMA}
KEEP: dict[str, Any] = {"gamma": GAMMA, "mask": "even", "core_thresholds": (0.0, 0.0)}
SLIM: dict[str, Any] = {"gamma": GAMMA, "mask": "even", "core_thresholds": (0.9, 0.0)}
ASK: dict[str, Any] = {"gamma": GAMMA, "mask": "even", "core_thresholds": (2.0, 2.0)}
ENDS = {
    "sd": SD,
    "kept-by-slim": KEEP,
    "asked": ASK,
    "asked-beforehand": ASK | {"debt_cap": 1},  # a settle is due in every cycle
    "strict": KEEP | {"strict": True},
}


def ends_at(place: int, right: Sequence[int] = (99,), **drafted: int) -> Parts:
    """Parts whose every tier says BODY and ends at output token `place`; drafts err at `right`."""
    says = [*PROMPT, *BODY[:place], EOS, *BODY[place:]]
    return drafting(scripted_parts(says), says, right)


def settled(trace: Trace, place: int) -> None:
    """The run stopped at the end-of-sequence token, and every count agrees."""
    assert trace.token_ids == [*BODY[:place], EOS]
    assert trace.finish == "eos"
    assert trace.cycles[-1].kv_len == len(PROMPT) + place + 1
    assert sum(row.committed for row in trace.cycles) == place + 1 == trace.summary()["new_tokens"]
    trace.run = {"prompt_tokens": len(PROMPT), "mask": "1001"}
    assert [problem for problem in check(trace) if "run.json" not in problem] == []


@pytest.mark.parametrize("place", range(2 * GAMMA + 2))
@pytest.mark.parametrize("way", ENDS)
def test_generation_continues_behind_an_accepted_end_token(way: str, place: int) -> None:
    """transformers #47912: the end token at every offset of a drafted block, kept by q' or by q."""
    settled(run(ends_at(place), PROMPT, Settings(max_new_tokens=25, **ENDS[way])), place)


@pytest.mark.parametrize("place", range(GAMMA + 1))
def test_generation_continues_behind_an_end_token_q_puts_in(place: int) -> None:
    """transformers #47912: drafts are wrong exactly there, so the end token is a rewrite, or a bonus."""
    trace = run(ends_at(place, right=[place]), PROMPT, Settings(max_new_tokens=25, **SD))
    settled(trace, place)
    assert trace.emitted[-1].verdict == ("bonus" if place == GAMMA else "rewritten_full")


@pytest.mark.parametrize("place", range(GAMMA))
def test_generation_continues_behind_an_end_token_q_prime_puts_in(place: int) -> None:
    """transformers #47912: region B's redraw is the end token."""
    trace = run(ends_at(place, right=[place]), PROMPT, Settings(max_new_tokens=25, **SLIM))
    settled(trace, place)
    assert trace.emitted[-1].verdict == "regenerated_slim"


@pytest.mark.parametrize("bonus", ["q-if-called", "slim"])
def test_generation_continues_behind_an_end_token_in_the_bonus(bonus: str) -> None:
    """transformers #47912."""
    way = ASK if bonus == "q-if-called" else KEEP
    trace = run(ends_at(GAMMA), PROMPT, Settings(max_new_tokens=25, bonus=bonus, **way))
    settled(trace, GAMMA)
    assert trace.emitted[-1].verdict == "bonus"
    assert trace.emitted[-1].source == ("bonus" if bonus == "q-if-called" else "slim_sample")


@pytest.mark.parametrize("place", [0, 2, 5])
def test_end_token_that_q_takes_back_ends_the_run(place: int) -> None:
    """transformers #47912, under strict: q' kept an end token q does not agree with, so decoding goes on."""
    says = [*PROMPT, *BODY]
    early = [*says[: len(PROMPT) + place], EOS, *says[len(PROMPT) + place + 1 :]]
    parts = drafting(scripted_parts(says, slim=early), early, [99])
    trace = run(parts, PROMPT, Settings(max_new_tokens=12, strict=True, **KEEP))
    assert trace.token_ids == BODY[:12] and trace.finish == "length"


@pytest.mark.parametrize("new", range(1, 2 * GAMMA + 3))
@pytest.mark.parametrize("way", ENDS)
def test_counters_include_tokens_that_were_cut_off(way: str, new: int) -> None:
    """transformers #48981: limits fall inside, at the end of and behind a block."""
    trace = run(ends_at(25), PROMPT, Settings(max_new_tokens=new, **ENDS[way]))
    assert trace.token_ids == BODY[:new] and trace.finish == "length"
    assert sum(row.committed for row in trace.cycles) == new
    assert trace.cycles[-1].kv_len == len(PROMPT) + new
    assert sum(trace.summary()["counts"].values()) == new


TEXT = "say the word and hand over"
STOPS = ("say", "the", "the w", " word", "d and h", "r", "nd h", "ver")


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("way", ENDS)
def test_stop_string_inside_a_block_or_over_two_tokens_is_missed(way: str, stop: str) -> None:
    """transformers #48039; sglang #23802, #27637."""
    trace = saying(TEXT, Settings(max_new_tokens=60, stop=(stop,), **ENDS[way]))
    assert trace.text == TEXT[: TEXT.index(stop)] and trace.finish == "stop"
    said = b"".join(SPELL[token] for token in trace.token_ids)
    assert said.decode().index(stop) == TEXT.index(stop)
    assert len(b"".join(SPELL[token] for token in trace.token_ids[:-1])) < TEXT.index(stop) + len(stop)


SPELL = scripted_parts([]).spell


def saying(text: str, settings: Settings) -> Trace:
    says = [*PROMPT, *toys.toy_tokenizer()(text).input_ids, EOS]
    errors = [9, 2, 0] if settings.strict or settings.core_thresholds != (0.0, 0.0) else [9]
    return run(drafting(scripted_parts(says), says, errors), PROMPT, settings)


def test_stop_string_with_an_early_look_alike_is_missed() -> None:
    """sglang #27637: half a stop string, then the whole one."""
    trace = saying("an annand and", Settings(max_new_tokens=60, stop=("anand", "annd", "nand"), **SD))
    assert trace.text == "an an" and trace.finish == "stop"


@pytest.mark.parametrize("way", ENDS)
def test_length_limit_masks_the_stop_that_came_with_it(way: str) -> None:
    """sglang #31599: the last allowed token completes a stop string, or is the end token."""
    count = len(toys.toy_tokenizer()(TEXT[: TEXT.index("word") + 4]).input_ids)
    trace = saying(TEXT, Settings(max_new_tokens=count, stop=("word",), **ENDS[way]))
    assert trace.finish == "stop" and len(trace.token_ids) == count
    settled(run(ends_at(5), PROMPT, Settings(max_new_tokens=6, **ENDS[way])), 5)


@pytest.mark.parametrize("new", [1, 2, 3, 7])
def test_lookup_drafts_beyond_the_limit(new: int) -> None:
    """transformers #46993, #47195; koboldcpp #1276: gamma is far larger than what remains."""
    ids = prompt(6) * 4
    source = pair("llama", "lookup")
    trace = run(source, ids, Settings(method="sd", gamma=40, max_new_tokens=new))
    assert len(trace.token_ids) == new
    assert all(row.kv_len <= len(ids) + new and row.drafted < new for row in trace.cycles)


def test_lookup_drafts_beyond_an_end_token() -> None:
    """transformers #47195: the copied text holds an end token; nothing behind it is offered."""
    says = [30, 31, 32, EOS, 40, 41, 30, 31, 32, EOS, 40, 41]
    lookup = parts_of(pair("llama", "lookup")).drafter
    trace = run(replace(scripted_parts(says), drafter=lookup), says[:8], Settings(method="sd", gamma=8))
    assert trace.token_ids == [32, EOS] and trace.finish == "eos"
    assert [row.token_id for row in trace.tokens if row.source == "draft"] == [32, EOS]


@pytest.mark.parametrize("way", ENDS)
@pytest.mark.parametrize("length", [2, 17, 22, 23])
def test_lookahead_runs_past_the_context(length: int, way: str) -> None:
    """exllamav2 #274; vLLM #57941, #5342; lmstudio #499."""
    n_ctx, says = 24, list(range(30, 60))
    parts = drafting(scripted_parts(says, n_ctx=n_ctx), says, [99])
    trace = run(parts, says[:length], Settings(max_new_tokens=100, **{**ENDS[way], "gamma": 20}))
    assert trace.token_ids == says[length:n_ctx] and trace.finish == "context"


def test_scripted_models_say_what_real_ones_would() -> None:
    """The scripts above stand for models: the same run over a real model has the same shape."""
    ids, truth = prompt(6), list(hf_greedy("llama", 6, 12))
    real = drafting(parts_of(pair("llama", "none")), ids + truth, [1, 3])
    scripted = drafting(scripted_parts(ids + truth), ids + truth, [1, 3])
    settings = Settings(max_new_tokens=12, **SD)
    assert shape(run(real, ids, settings)) == shape(run(scripted, ids, settings))
    assert another(truth[0]) != truth[0]


def shape(trace: Trace) -> list[tuple[int, int, int, str]]:
    return [(row.cycle, row.slot, row.token_id, row.verdict) for row in trace.tokens]

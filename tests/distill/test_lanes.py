"""Answers written side by side: each is what its prompt gives alone, and its rows are the verifier's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from distill.distill_toys import TAPS, answer, toy_prompts, toy_target
from laws.chi_square import p_value
from oracle.rows import tolerance
from viasd_core.distill.prompts import Prompt
from viasd_core.drafters.checkpoints import Target


@torch.inference_mode()
def greedy(target: Target, prompt: Prompt, new: int, eos: frozenset[int] = frozenset()) -> tuple[int, ...]:
    """Plain decoding by definition: one forward over the whole text a token."""
    text = list(prompt.ids)
    while len(text) < len(prompt.ids) + new:
        text.append(int(target.runner.model(torch.tensor([text])).logits[0, -1].argmax()))
        if text[-1] in eos:
            break
    return tuple(text)


@pytest.mark.parametrize("lanes", [1, 5])
@pytest.mark.parametrize("opening", [(), (7, 7, 3, 1, 9)])
def test_texts_written_side_by_side_are_those_of_plain_decoding(
    family: str, lanes: int, opening: tuple[int, ...]
) -> None:
    """Lanes are refilled at different times, as texts end at different lengths."""
    target, prompts = toy_target(family, layers=3), toy_prompts(9, opening=opening)
    eos = frozenset({greedy(target, prompts[1], 2)[-1]})
    found = answer(target, prompts, lanes=lanes, new=10, eos=eos)
    assert [one.ids for one in found] == [greedy(target, prompt, 10, eos) for prompt in prompts]
    assert len({one.new_tokens for one in found}) > 1, "all texts ended together"


def test_a_sliding_window_is_kept_to_in_every_lane() -> None:
    target = toy_target("mistral", layers=3, sliding_window=4)
    prompts = toy_prompts(6, opening=(3, 5, 2), longest=11)
    found = answer(target, prompts, lanes=4, new=20, capacity=40)
    assert [one.ids for one in found] == [greedy(target, prompt, 20) for prompt in prompts]
    free = toy_target("mistral", layers=3, sliding_window=None)
    assert [one.ids for one in answer(free, prompts, lanes=4, new=20, capacity=40)] != [
        one.ids for one in found
    ]


def test_rows_kept_of_an_answer_are_the_verifiers_hidden_states(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those behind the tapped layers, and those its head reads; of the prompt and its copied opening too."""
    monkeypatch.setattr("viasd_core.distill.answers.STORED", torch.float64)
    target = toy_target(family)
    for one in answer(target, toy_prompts(5, opening=(4, 4, 8)), lanes=2, taps=TAPS):
        with torch.inference_mode():
            states = target.runner.model(
                torch.tensor([one.ids[:-1]]), output_hidden_states=True
            ).hidden_states
        tapped = torch.stack([states[tap + 1][0] for tap in TAPS], dim=1)
        near = 10 * tolerance(target.runner.model)
        torch.testing.assert_close(one.features, tapped, atol=near, rtol=0.0)
        torch.testing.assert_close(one.final, states[-1][0], atol=near, rtol=0.0)


def test_rows_are_stored_narrow_and_belong_to_their_answer_alone() -> None:
    """What the next text of a lane writes does not reach an answer that was handed out."""
    target, prompts = toy_target(), toy_prompts(6)
    alone = [answer(target, [prompt], lanes=1, prefix=(), taps=TAPS)[0] for prompt in prompts]
    for ours, theirs in zip(answer(target, prompts, lanes=2, prefix=(), taps=TAPS), alone, strict=True):
        assert ours.features.dtype == ours.final.dtype == torch.bfloat16
        assert ours.features.shape == (len(ours.ids) - 1, len(TAPS), 32)
        assert torch.equal(ours.features, theirs.features) and torch.equal(ours.final, theirs.final)


@pytest.mark.parametrize("lanes", [1, 3, 20])
def test_a_sampled_answer_depends_on_its_prompt_and_the_seed_alone(lanes: int) -> None:
    """Not on how many lanes there are, nor on which texts stand beside it."""
    target, prompts = toy_target(layers=3), toy_prompts(11)
    options: dict[str, Any] = {"temperatures": (0.7, 1.3), "eos": frozenset({1, 2})}
    wanted = [one.ids for one in answer(target, prompts, lanes=4, **options)]
    assert [one.ids for one in answer(target, prompts, lanes=lanes, **options)] == wanted
    assert [one.ids for one in answer(target, prompts[::-1], lanes=lanes, **options)] == wanted
    assert [one.ids for one in answer(target, prompts[5:7], lanes=lanes, **options)] == wanted[5:7]
    assert [one.ids for one in answer(target, prompts, lanes=lanes, seed=1, **options)] != wanted


def test_sampled_answers_follow_the_verifiers_law_at_their_prompts_temperature() -> None:
    """The joint law of two tokens; prompt i is answered at the i-th temperature, in turn."""
    target = toy_target(layers=1, vocab=4)
    prompts = [Prompt(index, (1, 3, 0)) for index in range(1000)]
    temperatures = (0.6, 1.5)
    found = answer(target, prompts, lanes=64, new=2, temperatures=temperatures)
    texts = torch.tensor([[1, 3, 0, first] for first in range(4)])
    with torch.inference_mode():
        logits = target.runner.model(texts).logits
    laws = []
    for temperature in temperatures:
        chances = (logits / temperature).softmax(-1)
        laws.append(np.asarray(chances[0, 2][:, None] * chances[:, 3]))
    for place in (0, 1):
        counts = np.zeros((4, 4))
        for one in found[place::2]:
            counts[one.ids[3:]] += 1
        assert p_value(counts.reshape(-1), laws[place].reshape(-1)) > 1e-3
        assert p_value(counts.reshape(-1), laws[1 - place].reshape(-1)) < 1e-3


def test_a_text_that_ends_with_its_first_token_leaves_its_lane_to_the_next() -> None:
    target, prompts = toy_target(layers=3), toy_prompts(8)
    first = [greedy(target, prompt, 1)[-1] for prompt in prompts]
    eos = frozenset({first[0], first[2], first[3]})
    found = answer(target, prompts, lanes=2, new=6, eos=eos)
    assert [one.ids for one in found] == [greedy(target, prompt, 6, eos) for prompt in prompts]
    assert [found[place].new_tokens for place in (0, 2, 3)] == [1, 1, 1]


def test_all_texts_may_end_with_their_first_token() -> None:
    target, prompts = toy_target(layers=2), toy_prompts(5)
    found = answer(target, prompts, lanes=2, eos=frozenset(range(40)))
    assert [one.new_tokens for one in found] == [1] * 5


def test_a_full_lane_ends_its_text() -> None:
    target = toy_target(layers=3)
    prompts = [Prompt(0, (5, 2, 7)), Prompt(1, (8,)), Prompt(2, (1, 1, 1, 1, 1, 1, 1, 1, 1))]
    found = answer(target, prompts, lanes=2, new=30, capacity=10, prefix=())
    assert [len(one.ids) for one in found] == [10, 10, 10]
    assert [one.ids for one in found] == [greedy(target, one, 10 - len(one.ids)) for one in prompts]


def test_more_lanes_than_prompts_and_no_prompts_at_all_are_no_trouble() -> None:
    target, prompts = toy_target(layers=2), toy_prompts(2)
    assert [one.index for one in answer(target, prompts, lanes=9)] == [0, 1]
    assert answer(target, [], lanes=3, prefix=()) == []

"""Hugging Face baselines on a tiny random pair: what was asked for runs, and nothing is left changed."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

from toys import EOS_ID, toy_pair
from viasd_core.bench.baselines import BASELINES, HFRunner, baseline_settings, cut_at_eos, hf_runner
from viasd_core.errors import PairError, SettingsError
from viasd_core.pair import ModelPair
from viasd_core.settings import Settings

PROMPT = [10, 20, 30, 40, 20, 30]
GREEDY = Settings(method="ar")


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    return toy_pair()


def ticking() -> Callable[[], float]:
    """A clock that moves one second each time it is read."""
    return itertools.count().__next__


def greedy(pair: ModelPair, count: int) -> list[int]:
    """Greedy decoding without a cache: the definition."""
    tokens = list(PROMPT)
    for _ in range(count):
        logits = pair.verifier.model(torch.tensor([tokens])).logits
        tokens.append(int(logits[0, -1].argmax()))
        if tokens[-1] == EOS_ID:
            break
    return tokens[len(PROMPT) :]


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_is_greedy_decoding_of_the_verifier(pair: ModelPair, name: str) -> None:
    result = hf_runner(name, pair, GREEDY).run(PROMPT, 24)
    assert list(result.token_ids) == greedy(pair, 24)


def test_the_verifier_itself_runs_not_a_copy(pair: ModelPair) -> None:
    runner = hf_runner("hf-assisted", pair, GREEDY)
    assert pair.draft_model is not None
    assert runner.model is pair.verifier.model and runner.assistant is pair.draft_model.model


def test_a_repetition_penalty_in_the_checkpoint_does_not_leak_into_the_baseline(pair: ModelPair) -> None:
    model = pair.verifier.model
    own = model.generation_config
    penalised = type(own)(repetition_penalty=5.0, do_sample=True, top_k=3, eos_token_id=[20])
    model.generation_config = penalised
    try:
        result = hf_runner("hf", pair, GREEDY).run(PROMPT, 12)
        assert model.generation_config is penalised
    finally:
        model.generation_config = own
    assert list(result.token_ids) == greedy(pair, 12)


def test_the_checkpoint_config_comes_back_after_a_failed_call(pair: ModelPair) -> None:
    own = pair.verifier.model.generation_config
    runner = hf_runner("hf", pair, GREEDY)
    with pytest.raises(ValueError, match="max_new_tokens"):
        runner.run(PROMPT, -1)
    assert pair.verifier.model.generation_config is own


@pytest.mark.parametrize("name", ["hf-assisted", "hf-lookup"])
def test_no_draft_schedule_survives_into_the_next_call(pair: ModelPair, name: str) -> None:
    runner = hf_runner(name, pair, GREEDY)
    first, second = runner.run(PROMPT, 16), runner.run(PROMPT, 16)
    assert (first.token_ids, first.first_tokens) == (second.token_ids, second.first_tokens)


def test_output_ends_with_the_first_eos_of_several(pair: ModelPair) -> None:
    output = greedy(pair, 24)
    stop = output[5]
    runner = HFRunner("hf", pair.verifier.model, tuple(sorted({EOS_ID, stop})), GREEDY)
    result = runner.run(PROMPT, 24)
    assert list(result.token_ids) == output[: output.index(stop) + 1]
    assert result.finish == "eos"


def test_sampling_uses_the_settings_and_repeats_with_the_seed(pair: ModelPair) -> None:
    settings = Settings(method="ar", temperature=1.5, seed=3)
    first, again = (hf_runner("hf", pair, settings).run(PROMPT, 20).token_ids for _ in range(2))
    other = hf_runner("hf", pair, settings.with_(seed=4)).run(PROMPT, 20).token_ids
    only_best = hf_runner("hf", pair, settings.with_(top_k=1)).run(PROMPT, 20).token_ids
    assert first == again != other
    assert list(only_best) == greedy(pair, 20)


def test_times_are_from_the_request_to_the_first_and_to_the_last_token(pair: ModelPair) -> None:
    plain = HFRunner("hf", pair.verifier.model, (EOS_ID,), GREEDY, clock=ticking()).run(PROMPT, 8)
    assert (plain.ttft_s, plain.seconds, plain.first_tokens) == (1, 2, 1)


def test_tokens_that_arrive_with_the_first_block_are_counted(pair: ModelPair) -> None:
    result = hf_runner("hf-assisted", pair, GREEDY).run(PROMPT, 24)
    assert 1 <= result.first_tokens <= len(result.token_ids)
    assert result.ttft_s <= result.seconds


def test_assisted_generation_without_a_draft_model_is_refused() -> None:
    with pytest.raises(PairError, match=r"needs a draft model.*'lookup'"):
        hf_runner("hf-assisted", toy_pair(drafter="lookup"), GREEDY)


def test_assisted_generation_with_heads_of_other_width_is_refused() -> None:
    with pytest.raises(PairError, match="equal output width, got 300 and 267"):
        hf_runner("hf-assisted", toy_pair(draft_vocab=300), GREEDY)


def test_an_unknown_baseline_is_refused(pair: ModelPair) -> None:
    with pytest.raises(SettingsError, match="'hf-magic'"):
        hf_runner("hf-magic", pair, GREEDY)


def test_the_draft_length_of_each_baseline_is_recorded(pair: ModelPair) -> None:
    assert baseline_settings(hf_runner("hf-lookup", pair, GREEDY))["prompt_lookup_num_tokens"] == 10
    assert baseline_settings(hf_runner("hf-assisted", pair, GREEDY))["num_assistant_tokens"] == 20


@pytest.mark.parametrize(
    ("tokens", "kept"),
    [([1, 2, 3], [1, 2, 3]), ([1, 9, 3], [1, 9]), ([1, 8, 9], [1, 8]), ([9], [9]), ([], [])],
)
def test_cut_at_eos(tokens: list[int], kept: list[int]) -> None:
    assert cut_at_eos(tokens, (8, 9)) == kept

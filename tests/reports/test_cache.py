"""Reports about caches, positions and masks, each as a test named after its symptom."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

from oracle.definition import Definition, guess_with
from oracle.models import (
    LAYERS,
    VARIANTS,
    WINDOW,
    WINDOWED,
    draft_model,
    hf_greedy,
    model,
    pair,
    prompt,
    run,
    say,
)
from oracle.reference import recompute
from oracle.rows import difference, tolerance
from oracle.scripted import drafting
from viasd_core import masks
from viasd_core.decode import generate
from viasd_core.layers import BlockRunner
from viasd_core.parts import Parts, parts_of
from viasd_core.settings import Settings
from viasd_core.tiers import TierStack
from viasd_core.verifier import Verifier

SD = Settings(method="sd", gamma=4, max_new_tokens=20)
STRICT: dict[str, Any] = {"strict": True, "core_thresholds": (0.0, 0.0), "mask": "0101"}


def bucketed(variant: str, drafter: str) -> Parts:
    """Parts with padded widths and key lengths, as on CUDA."""
    return replace(parts_of(pair(variant, drafter)), runner=BlockRunner(model(variant), bucketed=True))


def test_greedy_output_changes_after_a_rejection_at_some_offset() -> None:
    """transformers #30042."""
    ids, truth = prompt(6), hf_greedy("llama", 6, 40, attention="eager")
    parts = drafting(parts_of(pair("llama", "none", attention="eager")), ids + list(truth), range(6))
    said = say(parts, ids, "sd", gamma=5, max_new_tokens=40)
    assert said == list(truth)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("length", [WINDOW - 2, WINDOW, WINDOW + 3])
@pytest.mark.parametrize("variant", WINDOWED)
def test_rollback_across_a_sliding_window_crashes_or_corrupts(
    variant: str, length: int, attention: str
) -> None:
    """transformers #47447, #48280, #47153, #46629; mlx-swift-lm #505: three windows long."""
    new = 3 * WINDOW
    ids, truth = prompt(length), hf_greedy(variant, length, new, attention=attention)
    parts = drafting(parts_of(pair(variant, "none", attention=attention)), ids + list(truth), [2, 0, 3, 1, 4])
    for method, settings in (("sd", {}), ("via-sd", STRICT)):
        assert say(parts, ids, method, gamma=4, max_new_tokens=new, **settings) == list(truth)


@pytest.mark.parametrize("drafter", ["model", "nested", "own"])
@pytest.mark.parametrize("variant", ["llama", "qwen3-window"])
def test_static_and_dynamic_shapes_disagree(variant: str, drafter: str) -> None:
    """transformers #45745, #34797."""
    for settings in (SD, Settings(gamma=4, max_new_tokens=20, mask="1011", alpha2=0.02, alpha1=0.2)):
        static = run(bucketed(variant, drafter), prompt(5), settings)
        dynamic = run(pair(variant, drafter), prompt(5), settings)
        assert static.token_ids == dynamic.token_ids
        assert [row.verdict for row in static.tokens] == [row.verdict for row in dynamic.tokens]


def test_empty_cache_layers_are_read() -> None:
    """transformers #46235: slots of layers that q' skips do not exist in its own cache, and are not looked at
    in a shared one.
    """
    text, block, kept = prompt(9), torch.tensor(prompt(3, 1)), (1, 2)
    own = Verifier(BlockRunner(model("llama")), 20, slim=kept, slim_kv="own")
    assert set(own.slim_stack.slots.keys) == set(kept)
    shared = Verifier(BlockRunner(model("llama")), 20, slim=kept)
    with torch.inference_mode():
        shared.prefill(text[:-1])
        expected = shared.slims[0].run(text, block)
        shared.rewind(len(text) - 1)
        for layer in {*range(LAYERS)} - {*kept}:
            shared.stack.slots.keys[layer].fill_(torch.nan)
            shared.stack.slots.values[layer].fill_(torch.nan)
        assert torch.equal(shared.slims[0].run(text, block), expected)


@pytest.mark.parametrize("slim_kv", ["shared", "own"])
def test_removed_layers_raise_an_index_error(slim_kv: str) -> None:
    """transformers #30508: every mask that keeps a layer runs, and strict makes each exact."""
    for kept in range(1, 2**LAYERS):
        mask = f"{kept:0{LAYERS}b}"
        said = say(
            pair("qwen3"), prompt(4), "via-sd", mask=mask, slim_kv=slim_kv, strict=True, max_new_tokens=6
        )
        assert said == list(hf_greedy("qwen3", 4, 6))


@pytest.mark.parametrize("variant", ["llama", *WINDOWED])
def test_boolean_and_additive_masks_disagree(variant: str) -> None:
    """transformers #29525, #46507: eager attention adds a boolean mask as 0 or 1."""
    parents, tokens = [-1, 0, 0, 1, 3, 2, -1], torch.tensor(prompt(7, 3))
    seen = []
    for attention in ("sdpa", "eager"):
        stack = TierStack(BlockRunner(model(variant, attention=attention)), [range(LAYERS)], 30)
        with torch.inference_mode():
            stack.prefill(prompt(WINDOW + 2))
            seen.append(stack.run_tree(0, tokens, parents))
    assert (seen[0] - seen[1]).abs().max() < 1e-5


def test_rejected_tree_nodes_stay_in_the_draft_cache() -> None:
    """EAGLE #336."""
    drafter = draft_model("llama", torch.float64, "sdpa", 0.06)
    stack, text = TierStack(BlockRunner(drafter), [range(LAYERS)], 60), prompt(8)
    with torch.inference_mode():
        stack.prefill(text)
        for turn in range(4):
            tokens, path = prompt(6, turn), [[1, 3], [0], [0, 2, 5], []][turn]
            stack.run_tree(0, torch.tensor(tokens), [-1, -1, 0, 1, 1, 2])
            stack.keep_path(0, path)
            text += [tokens[node] for node in path]
            assert stack.rows == [len(text)]
            assert difference(stack, recompute(drafter, text)[1], 0, len(text)) < tolerance(drafter)


def test_cache_length_is_not_reset_between_generations() -> None:
    """EAGLE #82: the same prompt twice, then a shorter one."""
    source, settings = pair("llama", "own"), SD.with_(temperature=1.0)
    first = run(source, prompt(20), settings).token_ids
    assert run(source, prompt(20), settings).token_ids == first
    short = say(source, prompt(3), "sd", max_new_tokens=12)
    assert short == list(hf_greedy("llama", 3, 12))


def test_accepted_tokens_are_missing_from_the_draft_cache() -> None:
    """vLLM #14649: acceptance equals that of a drafter without a cache."""
    ids, settings = prompt(5), Settings(method="sd", gamma=3, max_new_tokens=40)
    guess = guess_with(draft_model("mistral-window", torch.float64, "sdpa", 0.06))
    expected = Definition(model("mistral-window"), guess, settings, list(ids)).run()
    cycles = run(pair("mistral-window", "model"), ids, settings).cycles
    assert [row.committed for row in cycles] == [len(cycle.committed) for cycle in expected]
    assert 0 < sum(row.region_c_accepted for row in cycles) < sum(row.drafted for row in cycles)


def test_speculation_works_for_the_first_request_only() -> None:
    """llama.cpp PR 22105, #19231: three requests in a row, the same acceptance."""
    source = pair("qwen2", "nested")
    traces = [run(source, prompt(6), SD) for _ in range(3)]
    accepted = [trace.summary()["counts"]["accepted_full"] for trace in traces]
    assert accepted[0] > 0 and len(set(accepted)) == 1


def test_two_conversations_swap_their_caches() -> None:
    """buun-llama-cpp #107."""
    source, prompts = pair("llama", "nested"), (prompt(5), prompt(14))
    settings = Settings(max_new_tokens=16, mask="1011", gamma=3, alpha1=0.2, alpha2=0.02)
    alone = [run(source, ids, settings).token_ids for ids in prompts]
    runs = [generate(source, ids, settings) for ids in prompts]
    said: list[list[int]] = [[], []]
    while events := [next(one, None) for one in runs]:
        if not any(events):
            break
        for index, event in enumerate(events):
            said[index] += [row.token_id for row in event.rows if row.emitted] if event else []
    assert said == alone


@pytest.mark.parametrize("kept", [(1, 2, 3), (2, 3), (3,)])
def test_positions_are_wrong_when_the_first_layers_are_skipped(kept: tuple[int, ...]) -> None:
    """LayerSkip PR #28: positions taken from a cache whose first layer is empty start at 0 again."""
    text = prompt(10)
    stack = TierStack(BlockRunner(model("qwen2")), [kept], 20)
    with torch.inference_mode():
        stack.prefill(text[:6])
        logits = [stack.run(0, text[6:9], logit_rows=3), stack.run(0, text[9:], logit_rows=1)]
    expected, _ = recompute(model("qwen2"), text, kept)
    assert (torch.cat(logits) - expected[6:]).abs().max() < tolerance(model("qwen2"))


def test_index_out_of_bounds_with_varying_prompt_lengths() -> None:
    """gpt-fast #69: 1, 2, 511, 512 and 513 tokens, one pair."""
    longer = copy.deepcopy(model("llama"))
    longer.config.max_position_embeddings = 1024
    parts = replace(parts_of(pair("llama", "lookup")), runner=BlockRunner(longer))
    for length in (513, 1, 511, 2, 512):
        assert say(parts, prompt(length), "sd", max_new_tokens=4) == list(hf_greedy("llama", length, 4))


@pytest.mark.parametrize("gamma", range(1, 10))
def test_mask_length_does_not_match_the_padded_rows(gamma: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpec #33: runs that cross widths 1 to 16 and several key buckets."""
    monkeypatch.setattr(masks, "WIDTHS", (1, 2, 4, 8))
    monkeypatch.setattr(masks, "KEY_BUCKET", 8)
    for method, settings in (("sd", {}), ("via-sd", STRICT)):
        said = say(
            bucketed("qwen3-window", "nested"), prompt(5), method, gamma=gamma, max_new_tokens=12, **settings
        )
        assert said == list(hf_greedy("qwen3-window", 5, 12))


@pytest.mark.parametrize("variant", VARIANTS)
def test_next_turn_forgets_the_last_token_of_the_answer(variant: str) -> None:
    """LiteRT-LM #3439: an answer that ended with debt outstanding is continued as if it were all prompt."""
    source, ids = pair(variant, "nested"), prompt(5)
    lazy = Settings(
        max_new_tokens=7, mask="1011", core_thresholds=(0.0, 0.0), debt_cap=0, final_audit=False, gamma=3
    )
    answer = run(source, ids, lazy)
    assert answer.cycles[-1].debt > 0
    text = ids + answer.token_ids + prompt(2)
    expected = torch.tensor([text])
    theirs = model(variant).generate(  # type: ignore[operator]
        expected, attention_mask=torch.ones_like(expected), max_new_tokens=6, do_sample=False, pad_token_id=0
    )
    assert say(source, text, "sd", max_new_tokens=6) == theirs[0, len(text) :].tolist()

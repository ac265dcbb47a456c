"""Reports about vocabularies, each as a test named after its symptom."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from tokenizers.processors import TemplateProcessing

import toys
from oracle.models import LAYERS, prompt, run
from viasd_core.errors import PairError
from viasd_core.pair import check_vocabulary
from viasd_core.settings import Settings

PADDED = toys.VOCAB + 21


def padded(seed: int) -> Any:
    """A model whose head has padding rows that would win nearly every draw."""
    made = toys.toy_model("qwen2", layers=LAYERS, vocab=PADDED, seed=seed)
    loud = torch.randn(32, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 20
    made.lm_head.weight[toys.VOCAB :: 2] = loud
    made.lm_head.weight[toys.VOCAB + 1 :: 2] = -loud
    return made


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "settings",
    [
        Settings(method="ar"),
        Settings(method="sd"),
        Settings(mask="even", alpha2=0.05, bonus="slim", bonus_threshold=0.0),
        Settings(mask="even", regenerate=False, rule_c="pi"),
    ],
)
def test_padding_rows_of_the_head_are_sampled(settings: Settings, temperature: float) -> None:
    """vLLM #10913; Qwen3 #466, #292: 152,064 rows for 151,936 tokens."""
    source = replace(
        toys.toy_pair("qwen2", layers=LAYERS),
        verifier=toys.loaded(padded(0)),
        draft_model=toys.loaded(toys.perturbed(padded(0), 0.03), "draft"),
    )
    raw = padded(0)(torch.tensor([prompt(9)]), use_cache=False).logits[0, -1].argmax()
    assert raw >= toys.VOCAB  # without the cut it would be a padding row
    trace = run(source, prompt(9), settings.with_(temperature=temperature, max_new_tokens=30))
    assert len(trace.token_ids) == 30 or trace.finish == "eos"
    assert max(row.token_id for row in trace.tokens) < toys.VOCAB
    assert all((row.audit_rank or 0) < toys.VOCAB for row in trace.tokens)


def test_heads_of_different_width_crash() -> None:
    """vLLM #10913: the drafter's head is padded to another width than the verifier's."""
    source = toys.toy_pair("qwen2", layers=LAYERS, vocab=PADDED, draft_vocab=toys.VOCAB + 5)
    for settings in (Settings(method="sd"), Settings(mask="even")):
        trace = run(source, prompt(9), settings.with_(max_new_tokens=20, temperature=1.0))
        assert max(row.token_id for row in trace.tokens) < toys.VOCAB


def test_mismatched_vocabularies_fail_in_mid_stream() -> None:
    """transformers #34760, #30728; koboldcpp #2325: refused beforehand, with the first ids that differ."""
    verifier = toys.loaded(toys.toy_model(layers=2))
    drafter = replace(verifier, tokenizer=copy.deepcopy(verifier.tokenizer), identity={"id": "other"})
    shuffled = dict(verifier.tokenizer.get_vocab())
    (first, low), (second, high) = sorted(shuffled.items(), key=lambda item: item[1])[40:42]
    shuffled[first], shuffled[second] = high, low
    drafter.tokenizer.get_vocab = lambda: shuffled  # type: ignore[method-assign]
    with pytest.raises(PairError, match=rf"2 ids differ, first {low} is '.*' and '.*', {high} is"):
        check_vocabulary(verifier, drafter)


def test_drafter_with_fewer_tokens_crashes_on_a_high_id() -> None:
    """transformers #30728: its embedding has no row for an id the verifier may draw."""
    verifier = toys.loaded(toys.toy_model(layers=2))
    drafter = toys.loaded(toys.toy_model(layers=2, vocab=toys.VOCAB - 5), "small")
    with pytest.raises(PairError, match=rf"ends at id {toys.VOCAB - 6}"):
        check_vocabulary(verifier, drafter)


def test_start_token_of_one_model_shifts_the_positions_of_the_other() -> None:
    """transformers #46936, #46124."""
    verifier = toys.loaded(toys.toy_model(layers=2))
    drafter = toys.loaded(toys.toy_model(layers=2), "opens")
    backend: Any = drafter.tokenizer
    backend.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
    )
    with pytest.raises(PairError, match="open a text differently"):
        check_vocabulary(verifier, drafter)

"""DART checkpoints: their rows by the book, their state after every kind of cycle, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from drafters.checkpoint_files import DRAFT_LENGTH, dart, dart_parts, saved, target_of
from drafters.plain_forward import (
    embedding_of,
    feature_rows,
    over_vocabulary,
    read_all,
    rms,
    wide_layer,
    widened,
)
from drafters.runs import (
    CYCLES,
    cycle_settings,
    first_draft,
    parts_with,
    sampled_p_values,
    state_follows_from_the_text,
    texts_agree,
    trace_of_replaced_text,
)
from scripted import run
from toys import toy_pair
from viasd_core.drafters.checkpoints import Trained
from viasd_core.drafters.dart import fits, load
from viasd_core.errors import PairError, SourceError, ViasdError
from viasd_core.pair import ModelPair
from viasd_core.probs import Sampling
from viasd_core.settings import Settings

TEXT = [5, 9, 7, 30, 41, 2, 2, 17, 80]
EPS, THETA = 1e-5, 500.0


def plain_block(
    config: dict[str, Any], tensors: dict[str, Tensor], embedding: Tensor, features: Tensor, text: list[int],
    vocab: int,
) -> Tensor:  # fmt: skip
    """Logits [draft_length + 1, vocab] behind `text`: the last real row and every mask, as published."""
    weights = read_all(tensors)
    hidden = features @ weights["fc.weight"].T
    mask = weights["midlayer.mask_rep"].expand(config["draft_length"], -1)
    wide = torch.cat([widened(weights, embedding[text[1:]], hidden, EPS), mask])
    residual = torch.cat([hidden, mask[:, : config["hidden_size"]]])
    out = wide_layer(weights, wide, residual, THETA, EPS)[-config["draft_length"] - 1 :]
    for _ in range(2):
        out = rms(out, weights["norm.weight"], EPS)
    return over_vocabulary(out @ weights["lm_head.weight"].T, weights, config, vocab)


@pytest.mark.parametrize(("family", "layers"), [("llama", 8), ("qwen3", 5)])
@pytest.mark.parametrize("count", [1, 3, 8, 20])
def test_a_drafted_block_equals_a_recompute_of_the_published_network(
    family: str, layers: int, count: int, tmp_path: Path
) -> None:
    """Fewer tokens need fewer masks and are the same tokens; more than the masks allow are not drafted."""
    pair = toy_pair(family, drafter="none", layers=layers, vocab=280)
    target = target_of(pair)
    config, tensors = dart_parts(target.config, 40, seed=1)
    draft = first_draft(pair, load(saved(tmp_path, config, tensors), target), TEXT, count)
    features = feature_rows(pair, TEXT[:-1], [2, layers // 2, layers - 3])
    wanted = plain_block(config, tensors, embedding_of(pair), features, TEXT, 267)
    assert draft.forwards == 1 and draft.length == min(count, DRAFT_LENGTH + 1)
    assert draft.logits is not None
    torch.testing.assert_close(draft.logits, wanted[: draft.length], atol=1e-9, rtol=0.0)
    assert draft.tokens.tolist() == wanted.argmax(-1)[: draft.length].tolist()


def small(tmp_path: Path, *, vocab: int = 8, draft_vocab: int = 6) -> tuple[ModelPair, Trained]:
    """So few ids that random drafts are often right."""
    pair = toy_pair(drafter="none", layers=6, vocab=vocab)
    target = target_of(pair)
    return pair, load(dart(tmp_path, target.config, draft_vocab, seed=6), target)


def test_every_token_is_drawn_from_the_row_it_reports(tmp_path: Path) -> None:
    pair, trained = small(tmp_path, vocab=12, draft_vocab=5)
    draft = first_draft(pair, trained, [*range(9)], 8, Sampling(1.0))
    assert draft.logits is not None
    torch.testing.assert_close(draft.probs, draft.logits.softmax(-1))
    assert (draft.probs > 0).sum(-1).tolist() == [5] * 8
    assert bool((draft.probs.gather(-1, draft.tokens[:, None]) > 0).all())
    assert draft.tokens.tolist() != draft.probs.argmax(-1).tolist()


@pytest.mark.parametrize("name", CYCLES)
def test_after_every_cycle_the_next_draft_is_that_of_a_fresh_replay(name: str, tmp_path: Path) -> None:
    """Masks and rejected rows are overwritten, q's features take the place of provisional ones."""
    pair, trained = small(tmp_path)
    settings = cycle_settings(name, "110101")
    debts = state_follows_from_the_text(pair, trained, settings, cycles=18)
    assert len(debts) > 8
    if settings.method == "via-sd":
        assert max(debts) > 0 and min(debts) == 0, "no debt was made, or none was paid"


@pytest.mark.parametrize("start", [2, 6, 9])
def test_text_that_replaces_what_was_read_leaves_no_trace_of_it(start: int, tmp_path: Path) -> None:
    pair, trained = small(tmp_path)
    assert trace_of_replaced_text(pair, trained, start) < 1e-9


def test_greedy_text_with_the_drafter_is_plain_decodings(tmp_path: Path) -> None:
    pair, trained = small(tmp_path)
    accepted = [texts_agree(pair, trained, [5, 1, 7, 3], method="sd", gamma=gamma) for gamma in (1, 4, 12)]
    accepted.append(texts_agree(pair, trained, [2, 2], mask="110101", strict=True, gamma=3))
    assert min(accepted) > 0


def test_a_prompt_of_one_token_starts_without_a_draft(tmp_path: Path) -> None:
    pair, trained = small(tmp_path)
    trace = run(parts_with(pair, trained), [3], Settings(method="sd", gamma=2, max_new_tokens=12))
    assert [cycle.drafted for cycle in trace.cycles][:2] == [0, 2]


def test_sampled_text_with_the_drafter_follows_the_verifiers_law(tmp_path: Path) -> None:
    pair, trained = small(tmp_path, vocab=4, draft_vocab=3)
    ours, other = sampled_p_values(pair, trained, [1, 3, 0], runs=400)
    assert ours > 1e-3 and other < 1e-3


def test_the_format_is_told_by_its_config() -> None:
    assert fits({"architectures": ["LlamaForCausalLMDart"]})
    assert fits({"architectures": ["LlamaForCausalLM"], "draft_vocab_size": 32000, "draft_length": 7})
    assert not fits({"architectures": ["LlamaForCausalLM"], "draft_vocab_size": 32000})
    assert not fits({})


REFUSED: dict[str, tuple[dict[str, Any], type[ViasdError], str]] = {
    "hidden size": ({"hidden_size": 64}, PairError, "hidden size 64, and toy has 32"),
    "vocabulary": ({"vocab_size": 300}, PairError, "vocabulary size 300, and toy has 267"),
    "layers": (
        {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 17, 32]}}, PairError, "toy has 8 layers"
    ),
    "no masks": ({"draft_length": 0}, SourceError, "draft_length 0; it must be at least 1"),
    "no draft length": ({"draft_length": ...}, SourceError, "no usable 'draft_length'"),
    "no head count": ({"num_attention_heads": ...}, SourceError, "no usable 'num_attention_heads'"),
    "narrower": ({"hidden_size": 64, "target_hidden_size": 32}, SourceError, "embed_tokens"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_release_for_another_verifier_or_with_an_unusable_config_is_refused_in_a_sentence(
    name: str, tmp_path: Path
) -> None:
    changes, kind, said = REFUSED[name]
    target = target_of(toy_pair(drafter="none", layers=8))
    with pytest.raises(kind, match=said) as caught:
        load(dart(tmp_path, target.config, **changes), target)
    assert "\n" not in str(caught.value)


TENSORS: dict[str, tuple[dict[str, Tensor | None], str]] = {
    "missing": ({"midlayer.mask_rep": None}, "no tensor 'midlayer.mask_rep'"),
    "left over": ({"midlayer.mask": torch.zeros(32)}, "midlayer.mask"),
    "misshapen": ({"midlayer.mask_rep": torch.zeros(32)}, r"mask_rep' has shape \[32\]"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_damaged_file_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    changes, said = TENSORS[name]
    target = target_of(toy_pair(drafter="none", layers=8))
    config, tensors = dart_parts(target.config, 40, seed=0)
    kept = {key: tensor for key, tensor in (tensors | changes).items() if tensor is not None}
    with pytest.raises(SourceError, match=said) as caught:
        load(saved(tmp_path, config, kept), target)
    assert "\n" not in str(caught.value)


def test_a_stored_copy_of_the_verifiers_embedding_is_passed_over(tmp_path: Path) -> None:
    """Published code replaces it by the verifier's own."""
    pair = toy_pair(drafter="none", layers=8)
    target = target_of(pair)
    config, tensors = dart_parts(target.config, 40, seed=3)
    plain = first_draft(pair, load(saved(tmp_path / "plain", config, tensors), target), TEXT, 4)
    tensors["embed_tokens.weight"] = torch.zeros(267, 32)
    copied = first_draft(pair, load(saved(tmp_path / "copied", config, tensors), target), TEXT, 4)
    assert copied.logits is not None and plain.logits is not None
    assert torch.equal(copied.logits, plain.logits)


def test_in_single_precision_few_rows_go_the_quick_way_to_the_same_draft(tmp_path: Path) -> None:
    """On a CPU the products of a few rows read the weights in another order."""
    logits = []
    for dtype in (torch.float32, torch.float64):
        pair = toy_pair(drafter="none", layers=6, dtype=dtype)
        target = target_of(pair)
        draft = first_draft(pair, load(dart(tmp_path, target.config, 40, seed=7), target), TEXT, 3)
        assert draft.logits is not None and draft.logits.dtype == dtype
        logits.append(draft.logits.double())
    torch.testing.assert_close(logits[0], logits[1], atol=1e-3, rtol=0.0)


def test_pickled_weights_are_refused_with_what_to_do(tmp_path: Path) -> None:
    target = target_of(toy_pair(drafter="none", layers=8))
    checkpoint = dart(tmp_path, target.config)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(SourceError, match=r"pytorch_model\.bin.*convert it to model\.safetensors"):
        load(type(checkpoint)(checkpoint.name, tmp_path, checkpoint.config, {}), target)

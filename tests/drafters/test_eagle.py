"""EAGLE-3 checkpoints: their rows by the book, their state after every kind of cycle, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from drafters.checkpoint_files import eagle, eagle_parts, saved, target_of
from drafters.plain_forward import embedding_of, feature_rows, plain_chain
from drafters.runs import (
    CYCLES,
    GREEDY,
    cycle_settings,
    first_draft,
    noise,
    parts_with,
    sampled_p_values,
    state_follows_from_the_text,
    texts_agree,
    trace_of_replaced_text,
)
from scripted import run
from toys import toy_pair
from viasd_core.drafters.checkpoints import Trained
from viasd_core.drafters.eagle import fits, load
from viasd_core.errors import PairError, SourceError, ViasdError
from viasd_core.pair import ModelPair
from viasd_core.probs import Sampling
from viasd_core.settings import Settings
from viasd_core.verifier import Verifier

TEXT = [5, 9, 7, 30, 41, 2, 2, 17, 80]
THETA = 500.0


@pytest.mark.parametrize(("family", "layers"), [("llama", 8), ("qwen3", 5)])
def test_a_drafted_chain_equals_a_recompute_of_the_published_network(
    family: str, layers: int, tmp_path: Path
) -> None:
    """The verifier's head has padding, which is cut off, and a qwen3 verifier norms its heads."""
    pair = toy_pair(family, drafter="none", layers=layers, vocab=280)
    target = target_of(pair)
    assert target.runner.vocab_size == 267
    config, tensors = eagle_parts(target.config, 40, seed=1)
    draft = first_draft(pair, load(saved(tmp_path, config, tensors), target), TEXT, 5)
    features = feature_rows(pair, TEXT[:-1], [2, layers // 2, layers - 3])
    wanted = plain_chain(config, tensors, embedding_of(pair), features, TEXT, 5, 267)
    assert draft.logits is not None and draft.forwards == draft.length == 5
    torch.testing.assert_close(draft.logits, wanted, atol=1e-9, rtol=0.0)
    assert draft.tokens.tolist() == wanted.argmax(-1).tolist()
    assert draft.probs.shape == (5, 267)


def test_a_release_with_its_own_embedding_and_the_whole_vocabulary_needs_no_id_map(tmp_path: Path) -> None:
    pair = toy_pair(drafter="none", layers=8)
    target = target_of(pair)
    config, tensors = eagle_parts(target.config, 267, seed=2)
    tensors["embed_tokens.weight"] = torch.randn(267, 32, generator=torch.Generator().manual_seed(3))
    config["draft_vocab_size"] = None
    del tensors["d2t"], tensors["t2d"]
    draft = first_draft(pair, load(saved(tmp_path, config, tensors), target), TEXT, 3)
    features = feature_rows(pair, TEXT[:-1], [2, 4, 5])
    own = tensors["embed_tokens.weight"].double()
    wanted = plain_chain(config | {"draft_vocab_size": 267}, tensors, own, features, TEXT, 3, 267)
    assert draft.logits is not None
    torch.testing.assert_close(draft.logits, wanted, atol=1e-9, rtol=0.0)


def test_named_layers_are_those_the_features_lie_behind_in_their_order(tmp_path: Path) -> None:
    pair = toy_pair(drafter="none", layers=8)
    target = target_of(pair)
    config, tensors = eagle_parts(target.config, 40, seed=4)
    config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [6, 0, 3], "use_aux_hidden_state": True}
    trained = load(saved(tmp_path, config, tensors), target)
    assert trained.taps == (0, 3, 6)
    features = feature_rows(pair, TEXT[:-1], [7, 1, 4])
    wanted = plain_chain(config, tensors, embedding_of(pair), features, TEXT, 2, 267)
    logits = first_draft(pair, trained, TEXT, 2).logits
    assert logits is not None
    torch.testing.assert_close(logits, wanted, atol=1e-9, rtol=0.0)


def test_every_token_is_drawn_from_the_row_it_reports(tmp_path: Path) -> None:
    """At a temperature the chain follows its draws; tokens outside the draft vocabulary have no chance."""
    pair, trained = small(tmp_path, vocab=12, draft_vocab=5)
    seen = set()
    for length in range(3, 9):
        draft = first_draft(pair, trained, [*range(length)], 6, Sampling(1.0))
        assert draft.logits is not None
        assert (draft.probs > 0).sum(-1).tolist() == [5] * 6
        torch.testing.assert_close(draft.probs, draft.logits.softmax(-1))
        assert bool((draft.probs.gather(-1, draft.tokens[:, None]) > 0).all())
        seen |= set(draft.tokens.tolist())
    assert len(seen) > 2


def small(
    tmp_path: Path, *, vocab: int = 8, draft_vocab: int = 6, **changes: Any
) -> tuple[ModelPair, Trained]:
    """So few ids that random drafts are often right."""
    pair = toy_pair(drafter="none", layers=6, vocab=vocab)
    target = target_of(pair)
    return pair, load(eagle(tmp_path, target.config, draft_vocab, seed=5, **changes), target)


@pytest.mark.parametrize("name", CYCLES)
def test_after_every_cycle_the_next_draft_is_that_of_a_fresh_replay(name: str, tmp_path: Path) -> None:
    """Behind rejections, rewinds, strict corrections, and q's features in place of provisional ones."""
    pair, trained = small(tmp_path)
    settings = cycle_settings(name, "110101")
    debts = state_follows_from_the_text(pair, trained, settings, cycles=18)
    assert len(debts) > 8
    if settings.method == "via-sd":
        assert max(debts) > 0 and min(debts) == 0, "no debt was made, or none was paid"


@torch.inference_mode()
def test_a_second_prompt_starts_anew(tmp_path: Path) -> None:
    pair, trained = small(tmp_path)
    verifier = Verifier(target_of(pair).runner, 32, taps=trained.taps)
    drafter = trained.make(verifier, 32)
    for text in ([1, 4, 2, 7, 7, 0, 3, 5, 6], [6, 6, 1, 0, 2]):
        verifier.rewind(0)
        verifier.prefill(text[:-1])
        drafter.begin(text)
        found, wanted = drafter.draft(3, GREEDY, noise()).logits, first_draft(pair, trained, text, 3).logits
        assert found is not None and wanted is not None
        torch.testing.assert_close(found, wanted, atol=1e-9, rtol=0.0)


@pytest.mark.parametrize("start", [2, 6, 9])
def test_text_that_replaces_what_was_read_leaves_no_trace_of_it(start: int, tmp_path: Path) -> None:
    pair, trained = small(tmp_path)
    assert trace_of_replaced_text(pair, trained, start) < 1e-9


def test_greedy_text_with_the_drafter_is_plain_decodings(tmp_path: Path) -> None:
    pair, trained = small(tmp_path)
    accepted = [texts_agree(pair, trained, [5, 1, 7, 3], method="sd", gamma=gamma) for gamma in (1, 4)]
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


def test_a_long_prompt_is_read_in_pieces_that_do_not_change_the_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, trained = small(tmp_path)
    text = [number * 5 % 8 for number in range(23)]
    whole = first_draft(pair, trained, text, 3).logits
    monkeypatch.setattr("viasd_core.drafters.eagle.PREFILL_CHUNK", 4)
    pieces = first_draft(pair, trained, text, 3).logits
    assert whole is not None and pieces is not None
    torch.testing.assert_close(pieces, whole, atol=1e-9, rtol=0.0)


def test_a_verifier_in_bfloat16_leaves_the_angles_of_positions_exact(tmp_path: Path) -> None:
    target = target_of(toy_pair(drafter="none", layers=6, dtype=torch.bfloat16))
    module = load(eagle(tmp_path, target.config), target).module
    speeds = module.rotary_emb.inv_freq  # type: ignore[union-attr]
    assert isinstance(speeds, Tensor)
    torch.testing.assert_close(speeds, 1 / THETA ** (torch.arange(0, 8, 2) / 8))
    assert module.fc.weight.dtype == torch.bfloat16  # type: ignore[union-attr]


CONFIGS: dict[str, tuple[dict[str, Any], bool]] = {
    "SpecForge": ({"architectures": ["LlamaForCausalLMEagle3"]}, True),
    "AngelSlim": ({"architectures": ["Eagle3LlamaForCausalLM"]}, True),
    "first releases": ({"architectures": ["LlamaForCausalLM"], "draft_vocab_size": 32000}, True),
    "a plain model": ({"architectures": ["LlamaForCausalLM"]}, False),
    "DART": ({"architectures": ["LlamaForCausalLM"], "draft_vocab_size": 9, "draft_length": 7}, False),
    "speculators": ({"architectures": ["Eagle3Speculator"], "transformer_layer_config": {}}, False),
    "nothing": ({}, False),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_format_is_told_by_its_config(name: str) -> None:
    config, wanted = CONFIGS[name]
    assert fits(config) is wanted


REFUSED: dict[str, tuple[dict[str, Any], type[ViasdError], str]] = {
    "hidden size": ({"hidden_size": 64}, PairError, "hidden size 64, and toy has 32"),
    "target's hidden size": ({"target_hidden_size": 48}, PairError, "hidden size 48, and toy has 32"),
    "vocabulary": ({"vocab_size": 300}, PairError, "vocabulary size 300, and toy has 267"),
    "layers": (
        {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 17, 32]}}, PairError, "toy has 8 layers"
    ),
    "missing key": ({"intermediate_size": ...}, SourceError, "no usable 'intermediate_size'"),
    "missing epsilon": ({"rms_norm_eps": ...}, SourceError, "no usable 'rms_norm_eps'"),
    "text for a number": ({"draft_vocab_size": "many"}, SourceError, "no usable 'draft_vocab_size'"),
    "two layers": ({"num_hidden_layers": 2}, SourceError, "num_hidden_layers 1"),
    "another residual": ({"norm_before_residual": True}, SourceError, "norm_before_residual false"),
    "activation": ({"hidden_act": "quux"}, SourceError, "hidden_act 'quux'"),
    "positions": ({"rope_scaling": {"type": "quux", "factor": 2.0}}, SourceError, "rope_type 'quux'"),
    "half a scaling": ({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, SourceError, "low_freq"),
    "heads": ({"num_key_value_heads": 3}, SourceError, "no multiple"),
    "inner size": ({"intermediate_size": 41}, SourceError, "has shape"),
    "draft vocabulary": ({"draft_vocab_size": 41}, SourceError, "has shape"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_release_for_another_verifier_or_with_an_unusable_config_is_refused_in_a_sentence(
    name: str, tmp_path: Path
) -> None:
    changes, kind, said = REFUSED[name]
    target = target_of(toy_pair(drafter="none", layers=8))
    with pytest.raises(kind, match=said) as caught:
        load(eagle(tmp_path, target.config, **changes), target)
    assert "\n" not in str(caught.value) and "toy-drafter" in str(caught.value)


TENSORS: dict[str, tuple[dict[str, Tensor | None], str]] = {
    "missing": ({"fc.weight": None}, "no tensor 'fc.weight'"),
    "no id map": ({"d2t": None}, "no tensor 'd2t'"),
    "left over": ({"midlayer.self_attn.q_proj.bias": torch.zeros(32)}, "q_proj.bias"),
    "misshapen": ({"norm.weight": torch.zeros(31)}, r"'norm.weight' has shape \[31\]"),
    "ids beyond": ({"d2t": torch.full((40,), 240)}, "distinct ids"),
    "ids twice": ({"d2t": -torch.arange(40)}, "distinct ids"),
    "short id map": ({"d2t": torch.zeros(39, dtype=torch.long)}, "39 entries"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_damaged_file_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    changes, said = TENSORS[name]
    target = target_of(toy_pair(drafter="none", layers=8))
    config, tensors = eagle_parts(target.config, 40, seed=0)
    kept = {key: tensor for key, tensor in (tensors | changes).items() if tensor is not None}
    with pytest.raises(SourceError, match=said) as caught:
        load(saved(tmp_path, config, kept), target)
    assert "\n" not in str(caught.value)


def test_in_single_precision_few_rows_go_the_quick_way_to_the_same_draft(tmp_path: Path) -> None:
    """On a CPU the products of a few rows read the weights in another order."""
    logits = []
    for dtype in (torch.float32, torch.float64):
        pair = toy_pair(drafter="none", layers=6, dtype=dtype)
        target = target_of(pair)
        draft = first_draft(pair, load(eagle(tmp_path, target.config, 40, seed=7), target), TEXT, 3)
        assert draft.logits is not None and draft.logits.dtype == dtype
        logits.append(draft.logits.double())
    torch.testing.assert_close(logits[0], logits[1], atol=1e-3, rtol=0.0)


def test_pickled_weights_are_refused_with_what_to_do(tmp_path: Path) -> None:
    target = target_of(toy_pair(drafter="none", layers=8))
    checkpoint = eagle(tmp_path, target.config)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    pickled = type(checkpoint)(checkpoint.name, tmp_path, checkpoint.config, {})
    with pytest.raises(SourceError, match=r"pytorch_model\.bin.*convert it to model\.safetensors"):
        load(pickled, target)
    (tmp_path / "pytorch_model.bin").unlink()
    with pytest.raises(SourceError, match=r"no \*\.safetensors file"):
        load(pickled, target)


def test_a_narrower_drafter_needs_an_embedding_of_its_own(tmp_path: Path) -> None:
    target = target_of(toy_pair(drafter="none", layers=8))
    with pytest.raises(SourceError, match=r"hidden size 64 is not the verifier's 32.*embed_tokens"):
        load(eagle(tmp_path, target.config, hidden_size=64, target_hidden_size=32), target)

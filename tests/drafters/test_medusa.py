"""Medusa heads in both published layouts: rows by the book, which token each drafts, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from drafters.checkpoint_files import Tensors, block_medusa_parts, numbered_medusa_parts, saved, target_of
from drafters.plain_forward import read_all
from drafters.runs import (
    CYCLES,
    cycle_settings,
    draft_behind_replaced_text,
    first_draft,
    parts_with,
    sampled_p_values,
    state_follows_from_the_text,
    texts_agree,
)
from scripted import run
from toys import toy_pair
from viasd_core.drafters.checkpoints import Trained
from viasd_core.drafters.medusa import fits, load
from viasd_core.errors import PairError, SourceError, ViasdError
from viasd_core.pair import ModelPair
from viasd_core.probs import Sampling
from viasd_core.settings import Settings

TEXT = [5, 9, 7, 30, 41, 2, 2, 17, 80]
Parts = tuple[dict[str, Any], Tensors]


def last_hidden(pair: ModelPair, text: list[int]) -> Tensor:
    """[H]: what the verifier's own head reads at the end of `text`."""
    with torch.inference_mode():
        states = pair.verifier.model(torch.tensor([text]), output_hidden_states=True).hidden_states
    return states[-1][0, -1]


def verifier_head(pair: ModelPair) -> Tensor:
    head = pair.verifier.model.get_output_embeddings()
    assert head is not None and isinstance(head.weight, Tensor)
    return head.weight


def silu(rows: Tensor) -> Tensor:
    return rows * rows.sigmoid()


def residual(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return hidden + silu(weight @ hidden + bias)


@pytest.mark.parametrize(("blocks", "outputs"), [(1, True), (2, True), (1, False)])
def test_numbered_heads_equal_the_published_formula(blocks: int, outputs: bool, tmp_path: Path) -> None:
    """W(h + SiLU(W1 h + b)) of the hidden state before the anchor; a missing W is the verifier's head."""
    pair = toy_pair("qwen3", drafter="none", vocab=280)
    target = target_of(pair)
    config, tensors = numbered_medusa_parts(target.config, 4, blocks, seed=1, outputs=outputs)
    draft = first_draft(pair, load(saved(tmp_path, config, tensors), target), TEXT, 9)
    weights, wanted = read_all(tensors), []
    for head in range(4):
        hidden = last_hidden(pair, TEXT[:-1])
        for block in range(blocks):
            name = f"{head}.{block}.linear"
            hidden = residual(hidden, weights[f"{name}.weight"], weights[f"{name}.bias"])
        output = weights[f"{head}.{blocks}.weight"] if outputs else verifier_head(pair)
        wanted.append((output @ hidden)[:267])
    assert draft.logits is not None and draft.forwards == 1 and draft.probs.shape == (4, 267)
    torch.testing.assert_close(draft.logits, torch.stack(wanted), atol=1e-9, rtol=0.0)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("draft_vocab", [None, 50])
def test_block_heads_equal_the_published_formula(
    draft_vocab: int | None, shared: bool, tmp_path: Path
) -> None:
    pair = toy_pair(drafter="none", vocab=280)
    target = target_of(pair)
    config, tensors = block_medusa_parts(target.config, 3, 2, 2, draft_vocab=draft_vocab, shared=shared)
    draft = first_draft(pair, load(saved(tmp_path, config, tensors), target), TEXT, 3)
    weights = read_all(tensors)
    wanted = torch.full((3, 280), -torch.inf, dtype=torch.float64)
    ids = tensors["token_map"] if draft_vocab else torch.arange(280)
    for head in range(3):
        hidden = last_hidden(pair, TEXT[:-1])
        for block in range(2):
            name = f"blocks.{head}.layers.{block}"
            hidden = residual(hidden, weights[f"{name}.weight"], weights[f"{name}.bias"])
        wanted[head, ids] = weights[f"lm_heads.{0 if shared else head}.weight"] @ hidden
    assert draft.logits is not None
    torch.testing.assert_close(draft.logits, wanted[:, :267], atol=1e-9, rtol=0.0)


def test_head_k_drafts_the_token_k_plus_one_places_behind_the_anchor(tmp_path: Path) -> None:
    """Heads that learned a cycle of tokens: head k maps the feature of token t to token t + k + 2."""
    pair = toy_pair(drafter="none", vocab=40)
    target = target_of(pair)
    cycle = [3, 9, 14, 22, 31, 37, 6]
    text = [cycle[place % 7] for place in range(12)]
    feature = last_hidden(pair, text[:-1])
    config, tensors = numbered_medusa_parts(target.config, 3, 1, seed=0)
    for head in range(3):
        tensors[f"{head}.0.linear.weight"].zero_()
        tensors[f"{head}.0.linear.bias"].zero_()
        taught = torch.zeros(40, 32)
        taught[cycle[(10 + head + 2) % 7]] = feature.float()  # t = 10 is the token before the anchor
        tensors[f"{head}.1.weight"] = taught
    draft = first_draft(pair, load(saved(tmp_path, config, tensors), target), text, 3)
    assert draft.tokens.tolist() == [cycle[place % 7] for place in (12, 13, 14)]


def test_all_heads_of_a_file_are_used_even_where_its_config_counts_fewer(tmp_path: Path) -> None:
    pair = toy_pair(drafter="none")
    target = target_of(pair)
    config, tensors = numbered_medusa_parts(target.config, 5, 1, seed=3)
    trained = load(saved(tmp_path, config | {"medusa_num_heads": 2}, tensors), target)
    assert first_draft(pair, trained, TEXT, 9).length == 5
    assert first_draft(pair, trained, TEXT, 3).length == 3


def small(tmp_path: Path, *, vocab: int = 8, draft_vocab: int = 6) -> tuple[ModelPair, Trained]:
    """So few ids that random drafts are often right."""
    pair = toy_pair(drafter="none", layers=6, vocab=vocab)
    target = target_of(pair)
    config, tensors = block_medusa_parts(target.config, 4, 1, 3, draft_vocab=draft_vocab)
    return pair, load(saved(tmp_path, config, tensors), target)


def test_every_token_is_drawn_from_the_row_it_reports(tmp_path: Path) -> None:
    pair, trained = small(tmp_path, vocab=12, draft_vocab=5)
    tokens = set()
    for end in range(3, 9):
        draft = first_draft(pair, trained, [*range(end)], 4, Sampling(2.0))
        assert draft.logits is not None
        torch.testing.assert_close(draft.probs, (draft.logits / 2).softmax(-1))
        assert bool((draft.probs.gather(-1, draft.tokens[:, None]) > 0).all())
        tokens |= set(draft.tokens.tolist())
    assert len(tokens) > 2


@pytest.mark.parametrize("name", CYCLES)
def test_after_every_cycle_the_next_draft_is_that_of_a_fresh_replay(name: str, tmp_path: Path) -> None:
    pair, trained = small(tmp_path)
    settings = cycle_settings(name, "110101")
    assert len(state_follows_from_the_text(pair, trained, settings, cycles=18)) > 8


def test_text_that_replaces_what_was_read_leaves_no_trace_of_it(tmp_path: Path) -> None:
    pair, trained = small(tmp_path)
    text, tokens = [1, 4, 2, 7, 7, 0, 3, 5, 6], [3, 3, 0, 1]
    found = draft_behind_replaced_text(pair, trained, text, 5, tokens).logits
    wanted = first_draft(pair, trained, [*text[:5], *tokens], 3).logits
    assert found is not None and wanted is not None
    torch.testing.assert_close(found, wanted, atol=1e-9, rtol=0.0)


def test_greedy_text_with_the_heads_is_plain_decodings(tmp_path: Path) -> None:
    pair, trained = small(tmp_path)
    accepted = [texts_agree(pair, trained, [5, 1, 7, 3], method="sd", gamma=gamma) for gamma in (1, 4)]
    accepted.append(texts_agree(pair, trained, [2, 2], mask="110101", strict=True, gamma=3))
    assert min(accepted) > 0


def test_a_prompt_of_one_token_starts_without_a_draft(tmp_path: Path) -> None:
    pair, trained = small(tmp_path)
    trace = run(parts_with(pair, trained), [3], Settings(method="sd", gamma=2, max_new_tokens=12))
    assert [cycle.drafted for cycle in trace.cycles][:2] == [0, 2]


@pytest.mark.slow
def test_sampled_text_with_the_heads_follows_the_verifiers_law(tmp_path: Path) -> None:
    pair, trained = small(tmp_path, vocab=4, draft_vocab=3)
    ours, other = sampled_p_values(pair, trained, [1, 3, 0], runs=400)
    assert ours > 1e-3 and other < 1e-3


def test_the_format_is_told_by_its_config() -> None:
    assert fits({"medusa_num_heads": 3, "medusa_num_layers": 1, "base_model_name_or_path": "a/b"})
    assert fits({"architectures": ["MedusaModel"], "num_heads": 3})
    assert not fits({"architectures": ["LlamaForCausalLM"]})
    assert not fits({})


def numbered(target: Any) -> Parts:
    return numbered_medusa_parts(target, 3, 1, seed=0)


def blocked(target: Any) -> Parts:
    return block_medusa_parts(target, 3, 1, 0, draft_vocab=50)


REFUSED: dict[str, tuple[Any, dict[str, Any], dict[str, Tensor | None], type[ViasdError], str]] = {
    "hidden size": (numbered, {}, {"0.0.linear.weight": torch.zeros(64, 64)}, PairError, "hidden size 64"),
    "vocabulary": (numbered, {}, {"0.1.weight": torch.zeros(300, 32)}, PairError, "vocabulary size 300"),
    "block hidden size": (blocked, {"hidden_size": 64}, {}, PairError, "hidden size 64, and toy has 32"),
    "block vocabulary": (blocked, {"vocab_size": 300}, {}, PairError, "size 300, and toy has 267"),
    "no layers": (numbered, {"medusa_num_layers": ...}, {}, SourceError, "no usable 'medusa_num_layers'"),
    "no heads": (numbered, {"medusa_num_heads": 0}, {}, SourceError, "medusa_num_heads 0"),
    "too few heads": (numbered, {"medusa_num_heads": 4}, {}, SourceError, "no tensor '3.0.linear.weight'"),
    "a gap": (numbered, {}, {"1.0.linear.bias": None}, SourceError, "no tensor '1.0.linear.bias'"),
    "half an output": (numbered, {}, {"2.1.weight": None}, SourceError, "no tensor '2.1.weight'"),
    "left over": (numbered, {}, {"lm_head.weight": torch.zeros(1)}, SourceError, "lm_head.weight"),
    "misshapen": (numbered, {}, {"2.1.weight": torch.zeros(9, 32)}, SourceError, r"shape \[9, 32\]"),
    "no block layers": (blocked, {"num_hidden_layers": ...}, {}, SourceError, "'num_hidden_layers'"),
    "no map": (blocked, {}, {"token_map": None}, SourceError, "no tensor 'token_map'"),
    "short map": (blocked, {}, {"token_map": torch.arange(9)}, SourceError, "50 distinct ids"),
    "ids beyond": (blocked, {}, {"token_map": torch.arange(50) + 240}, SourceError, "50 distinct ids"),
    "unwanted bias": (blocked, {"medusa_fc_bias": False}, {}, SourceError, "layers.0.bias"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_heads_that_do_not_fit_or_are_damaged_are_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    parts, values, changes, kind, said = REFUSED[name]
    target = target_of(toy_pair(drafter="none"))
    config, tensors = parts(target.config)
    kept = {key: tensor for key, tensor in (tensors | changes).items() if tensor is not None}
    with pytest.raises(kind, match=said) as caught:
        load(saved(tmp_path, config | values, kept), target)
    assert "\n" not in str(caught.value) and "toy-drafter" in str(caught.value)


def test_in_single_precision_few_rows_go_the_quick_way_to_the_same_draft(tmp_path: Path) -> None:
    """On a CPU the products of a few rows read the weights in another order."""
    logits = []
    for dtype in (torch.float32, torch.float64):
        pair = toy_pair(drafter="none", layers=6, dtype=dtype)
        target = target_of(pair)
        draft = first_draft(pair, load(saved(tmp_path, *numbered(target.config)), target), TEXT, 3)
        assert draft.logits is not None and draft.logits.dtype == dtype
        logits.append(draft.logits.double())
    torch.testing.assert_close(logits[0], logits[1], atol=1e-3, rtol=0.0)


def test_pickled_heads_are_refused_with_what_to_do(tmp_path: Path) -> None:
    """As most were published: medusa_lm_head.pt."""
    target = target_of(toy_pair(drafter="none"))
    checkpoint = saved(tmp_path, *numbered(target.config))
    (tmp_path / "model.safetensors").rename(tmp_path / "medusa_lm_head.pt")
    with pytest.raises(SourceError, match=r"medusa_lm_head\.pt.*convert it to model\.safetensors"):
        load(type(checkpoint)(checkpoint.name, tmp_path, checkpoint.config, {}), target)

"""DFlash folders: the network by the book, which rows it reads and keeps (X1 to X3), what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from drafters.checkpoint_files import HEAD_DIM, HEADS, KV_HEADS, saved, target_of
from drafters.own_files import EPS, MASK, SLOTS, THETA, block_parts, with_domino, with_ids, with_second
from drafters.plain_forward import embedding_of, feature_rows, read_all, turn
from drafters.runs import GREEDY, first_draft, noise
from toys import toy_pair
from viasd_core.drafters.block import BlockDrafter, fits, load
from viasd_core.drafters.checkpoints import Target, Trained
from viasd_core.drafters.dflash import default_taps
from viasd_core.drafters.formats import load_trained, trained_format
from viasd_core.errors import PairError, SourceError, ViasdError
from viasd_core.pair import ModelPair
from viasd_core.parts import parts_of
from viasd_core.probs import Sampling
from viasd_core.sources import Weights
from viasd_core.verifier import Verifier

TEXT = [5, 9, 7, 30, 41, 2, 2, 17, 80]
TAPS = (1, 3, 5)


def rms(rows: Tensor, weight: Tensor) -> Tensor:
    """In float32, whatever the rows are in, as the release has it."""
    narrow = rows.float()
    return weight * (narrow * torch.rsqrt(narrow.pow(2).mean(-1, keepdim=True) + EPS)).to(rows)


def plain_block(weights: dict[str, Tensor], layers: int, embeds: Tensor, features: Tensor) -> Tensor:
    """[r, H]: queries from the block [r, H] alone, keys from the fused features [c, taps * H] and the block;
    every row of the block sees every key. Positions are 0, 1, ..., c + r - 1.
    """
    context = rms(features @ weights["fc.weight"].T, weights["hidden_norm.weight"])
    rows, before = embeds, len(context)
    for layer in range(layers):
        part = {
            name.removeprefix(f"layers.{layer}."): weight
            for name, weight in weights.items()
            if name.startswith(f"layers.{layer}.")
        }
        asked = rms(rows, part["input_layernorm.weight"])
        normed = convolved(part, "attention_conv", asked, asked, 0)
        source = torch.cat([context, normed])
        query = (normed @ part["self_attn.q_proj.weight"].T).reshape(len(rows), HEADS, HEAD_DIM)
        key = (source @ part["self_attn.k_proj.weight"].T).reshape(len(source), KV_HEADS, HEAD_DIM)
        value = (source @ part["self_attn.v_proj.weight"].T).reshape(len(source), KV_HEADS, HEAD_DIM)
        query = rms(query, part["self_attn.q_norm.weight"])
        query = turn(torch.cat([query.new_zeros(before, HEADS, HEAD_DIM), query]), THETA)[before:]
        key = turn(rms(key, part["self_attn.k_norm.weight"]), THETA)
        mixed = []
        for head in range(HEADS):
            group = head * KV_HEADS // HEADS
            scores = query[:, head] @ key[:, group].T / HEAD_DIM**0.5
            mixed.append(scores.softmax(-1) @ value[:, group])
        mixed_rows = torch.cat(mixed, dim=-1) @ part["self_attn.o_proj.weight"].T
        rows = rows + convolved(part, "attention_conv", asked, mixed_rows, 1)
        asked = rms(rows, part["post_attention_layernorm.weight"])
        normed = convolved(part, "mlp_conv", asked, asked, 0)
        gate = normed @ part["mlp.gate_proj.weight"].T
        inner = gate * gate.sigmoid() * (normed @ part["mlp.up_proj.weight"].T)
        rows = rows + convolved(part, "mlp_conv", asked, inner @ part["mlp.down_proj.weight"].T, 1)
    return rms(rows, weights["norm.weight"])


def convolved(part: dict[str, Tensor], name: str, asked: Tensor, rows: Tensor, side: int) -> Tensor:
    """DFlash2's dynamic convolution of `rows` [r, H], before (`side` 0) or behind what it stands around; the
    rows as they are in a DFlash. `asked` [r, H] tell the kernels, one for each group of 8 channels.
    """
    if f"{name}.base_kernel" not in part:
        return rows
    base = part[f"{name}.base_kernel"][side]
    size, width = base.shape
    told = (asked @ part[f"{name}.kernel_projection.weight"].T).view(len(rows), 2, size, width // 8)
    out = torch.zeros_like(rows)
    for row in range(len(rows)):
        for offset in range(min(size, row + 1)):
            for channel in range(width):
                weight = base[offset, channel] + told[row, side, offset, channel // 8]
                out[row, channel] += weight * rows[row - offset, channel]
    return out


def plain_hidden(pair: ModelPair, tensors: dict[str, Tensor], layers: int = 2) -> Tensor:
    """[SLOTS - 1, H] behind TEXT."""
    block = embedding_of(pair)[[TEXT[-1], *[MASK] * (SLOTS - 1)]]
    features = feature_rows(pair, TEXT[:-1], [tap + 1 for tap in TAPS])
    return plain_block(read_all(tensors), layers, block, features)[1:]


def special(**changes: Any) -> dict[str, Any]:
    return {"dflash_config": {"mask_token_id": MASK, "target_layer_ids": list(TAPS)} | changes}


def head_of(pair: ModelPair) -> Tensor:
    weight = pair.verifier.model.get_output_embeddings().weight
    assert isinstance(weight, Tensor)
    return weight


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_drafted_block_equals_a_recompute_of_the_published_network(family: str, tmp_path: Path) -> None:
    """The verifier's head has padding, which is cut off."""
    pair = toy_pair(family, drafter="none", layers=8, vocab=280)
    target = target_of(pair)
    config, tensors = block_parts(target.config, TAPS, seed=1)
    trained = load(saved(tmp_path, config, tensors), target)
    assert trained.taps == TAPS
    draft = first_draft(pair, trained, TEXT, 9)
    wanted = (plain_hidden(pair, tensors) @ head_of(pair).T)[:, :267]
    assert draft.logits is not None and draft.forwards == 1 and draft.length == SLOTS - 1
    torch.testing.assert_close(draft.logits, wanted, atol=1e-9, rtol=0.0)
    assert draft.tokens.tolist() == wanted.argmax(-1).tolist()


def test_the_ids_a_drafter_cannot_say_have_no_chance(tmp_path: Path) -> None:
    pair = toy_pair(drafter="none", layers=8)
    target = target_of(pair)
    ids = [3, 4, 30, 41, 80, 199, 266]
    config, tensors = with_ids(block_parts(target.config, TAPS, seed=2), ids)
    draft = first_draft(pair, load(saved(tmp_path, config, tensors), target), TEXT, 4)
    wanted = plain_hidden(pair, tensors) @ head_of(pair)[ids].T
    assert draft.logits is not None and draft.logits.shape == (4, 267)
    torch.testing.assert_close(draft.logits[:, ids], wanted, atol=1e-9, rtol=0.0)
    assert draft.logits.isfinite().sum().item() == 4 * len(ids)


def test_dominos_correction_reads_the_tokens_it_has_chosen(tmp_path: Path) -> None:
    """dL_i = W2 SiLU(W1 [h_i; s_{i-1}]), none at the first slot; s is a GRU over the anchor and the draft."""
    pair = toy_pair(drafter="none", layers=8)
    target = target_of(pair)
    config, tensors = with_domino(block_parts(target.config, TAPS, seed=3), 267)
    draft = first_draft(pair, load(saved(tmp_path, config, tensors), target), TEXT, 4)
    weights, hidden = read_all(tensors), plain_hidden(pair, tensors)
    down, up = weights["domino.down.weight"], weights["domino.up.weight"]
    state, token, plain_tokens = torch.zeros(6, dtype=torch.float64), TEXT[-1], []
    assert draft.logits is not None
    for slot, base in enumerate(hidden @ head_of(pair).T):
        given = weights["domino.gru.weight_ih_l0"] @ embedding_of(pair)[token]
        known = weights["domino.gru.weight_hh_l0"] @ state
        reset, update = (given + known)[:6].sigmoid(), (given + known)[6:12].sigmoid()
        state = (1 - update) * (given[12:] + reset * known[12:]).tanh() + update * state
        inner = down @ torch.cat([hidden[slot], state])
        wanted = base + (up @ (inner * inner.sigmoid()) if slot else 0.0)
        torch.testing.assert_close(draft.logits[slot], wanted, atol=1e-9, rtol=0.0)
        token = int(wanted.argmax())
        plain_tokens.append(int(base.argmax()))
    assert draft.tokens.tolist() != plain_tokens, "the correction changed nothing"


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_block_of_dflash2_equals_a_recompute_of_the_published_network(
    temperature: float, tmp_path: Path
) -> None:
    """Convolved layers; then each slot says one of its 3 likeliest ids, by its own logit plus the score
    <predecessor code * projected hidden state, successor code>; all others have no chance.
    """
    pair = toy_pair(drafter="none", layers=8, vocab=280)
    target = target_of(pair)
    config, tensors = with_second(block_parts(target.config, TAPS, seed=3))
    trained = load(saved(tmp_path, config, tensors), target)
    assert trained.kind == "dflash2"
    draft = first_draft(pair, trained, TEXT, 4, Sampling(temperature))
    weights, hidden = read_all(tensors), plain_hidden(pair, tensors)
    before, after = (weights[f"candidate_selector.{name}_codebook"] for name in ("predecessor", "successor"))
    token, alone = TEXT[-1], []
    assert draft.logits is not None and draft.probs is not None
    for slot, own in enumerate((hidden @ head_of(pair).T)[:, :267]):
        candidates = own.argsort(descending=True)[:3].tolist()
        code = before[token] * (weights["candidate_selector.hidden_projection.weight"] @ hidden[slot])
        scores = torch.stack([own[one] + code @ after[one] for one in candidates])
        torch.testing.assert_close(draft.logits[slot, candidates], scores, atol=1e-9, rtol=0.0)
        assert int(draft.logits[slot].isfinite().sum()) == 3
        if temperature:
            law = (scores / temperature).softmax(0)
            torch.testing.assert_close(draft.probs[slot, candidates], law, atol=1e-9, rtol=0.0)
        else:
            assert int(draft.tokens[slot]) == candidates[int(scores.argmax())]
        token = int(draft.tokens[slot])
        alone.append(candidates[0])
    assert draft.tokens.tolist() != alone, "the selector changed nothing"


SECOND: dict[str, tuple[str, object, str]] = {
    "no kernel": ("conv_kernel_size", None, "no usable 'conv_kernel_size'; got None"),
    "a kernel of text": ("conv_kernel_size", "3", "no usable 'conv_kernel_size'; got '3'"),
    "another kernel": ("conv_kernel_size", 2, "base_kernel' has shape"),
    "odd groups": ("conv_group_size", 5, "groups of 5 channels, which do not divide its hidden size 32"),
    "no rank": ("selector_rank", 0, "no usable 'selector_rank'; got 0"),
    "a far rank": ("selector_rank", 10**9, "no usable 'selector_rank'"),
    "many candidates": ("selector_top_k", 268, "selects among 268 candidates, and there are 267 ids"),
}


@pytest.mark.parametrize("name", SECOND)
def test_a_damaged_dflash2_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    key, value, said = SECOND[name]
    target = target_of(toy_pair(drafter="none", layers=8))
    config, tensors = with_second(block_parts(target.config, TAPS, seed=0))
    config["dflash_config"] = config["dflash_config"] | {key: value}
    with pytest.raises(SourceError, match=said) as caught:
        load(saved(tmp_path, config, tensors), target)
    assert "\n" not in str(caught.value) and "toy-drafter" in str(caught.value)


UNBUILDABLE: dict[str, dict[str, Any]] = {
    "text as a size": {"head_dim": "x"},
    "a negative size": {"head_dim": -1},
    "no layers": {"num_hidden_layers": -1},
    "half a row": {"intermediate_size": 1.5},
    "more than memory": {"intermediate_size": 10**12},
    "an activation": {"hidden_act": "x"},
    "no heads": {"num_attention_heads": None},
    "rope": {"rope_theta": "x"},
    "a dtype": {"torch_dtype": "x"},
    "layer types": {"layer_types": 5},
    "a layer twice": special(target_layer_ids=[1, 1, 5]),
    "layers that are no numbers": special(target_layer_ids=[True, 3, 5]),
    "a mask that is no number": special(mask_token_id=True),
    "an endless block": {"block_size": 10**9},
    "an endless correction": special(projector_type="domino", domino_state=10**9, domino_rank=5),
    "no correction": special(projector_type="domino", domino_state=-1, domino_rank=5),
}


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("name", UNBUILDABLE)
def test_a_config_that_describes_no_network_is_refused_in_a_sentence(
    name: str, second: bool, tmp_path: Path
) -> None:
    target = target_of(toy_pair(drafter="none", layers=8))
    parts = block_parts(target.config, TAPS, seed=0)
    config, tensors = with_second(parts) if second else parts
    changes = dict(UNBUILDABLE[name])
    changes |= {key: config[key] | changes[key] for key in changes.keys() & {"dflash_config"}}
    with pytest.raises(SourceError, match="toy-drafter") as caught:
        load_from(tmp_path, config | changes, tensors, target)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize("named", [[["DFlash2DraftModel"]], [{}], 5, True, [None], "DFlashDraftModel", []])
def test_architectures_that_are_no_names_describe_no_drafter(named: object) -> None:
    assert trained_format({"architectures": named}) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["fc.weight", "candidate_selector.successor_codebook"])
def test_weights_that_are_no_finite_numbers_are_refused(name: str, value: float, tmp_path: Path) -> None:
    target = target_of(toy_pair(drafter="none", layers=8))
    config, tensors = with_second(block_parts(target.config, TAPS, seed=0))
    tensors[name] = tensors[name].clone()
    tensors[name][1, 2] = value
    with pytest.raises(SourceError, match=f"toy-drafter: tensor '{name}' holds what is no finite number"):
        load_from(tmp_path, config, tensors, target)


def test_weights_of_whole_numbers_are_refused(tmp_path: Path) -> None:
    target = target_of(toy_pair(drafter="none", layers=8))
    config, tensors = block_parts(target.config, TAPS, seed=0)
    with pytest.raises(SourceError, match=r"'norm\.weight' holds what is no finite number"):
        load_from(tmp_path, config, tensors | {"norm.weight": tensors["norm.weight"].long()}, target)


def load_from(place: Path, config: dict[str, Any], tensors: dict[str, Tensor], target: Target) -> Trained:
    """As a run loads it: the file, then the network."""
    saved(place, config, tensors)
    return load_trained(Weights(place, {"id": "toy-drafter"}), config, target)


@torch.inference_mode()
def test_a_draft_reads_only_the_rows_that_are_new_and_keeps_none_of_its_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X1: its context ends at the anchor after a draft. X2: after `a` kept drafts it reads a + 1 rows. X3:
    the fusion is as wide as all tapped rows together.
    """
    pair = toy_pair(drafter="none", layers=8)
    target = target_of(pair)
    trained = load(saved(tmp_path, *block_parts(target.config, TAPS, seed=4)), target)
    network: Any = trained.module.network
    assert network.fc.in_features == 3 * 32
    verifier = Verifier(parts_of(pair).runner, 64, taps=trained.taps)
    verifier.prefill(TEXT[:-1])
    drafter = trained.make(verifier, 64)
    assert isinstance(drafter, BlockDrafter)
    drafter.begin(TEXT)
    read: list[tuple[int, int]] = []
    features = verifier.features

    def noted(start: int, end: int) -> Tensor:
        read.append((start, end))
        return features(start, end)

    monkeypatch.setattr(verifier, "features", noted)
    text = list(TEXT)
    for kept in (2, 0, 3):
        draft = drafter.draft(4, GREEDY, noise())
        assert drafter.rows == len(text) - 1
        verifier.full(text, draft.tokens)
        start = len(text)
        text += [*draft.tokens.tolist()[:kept], 11]
        verifier.rewind(len(text) - 1)
        drafter.commit(text[start:], start)
    drafter.draft(4, GREEDY, noise())
    assert read == [(0, 8), (8, 11), (11, 12), (12, 16)]


def test_layers_are_tapped_evenly_where_the_config_names_none(tmp_path: Path) -> None:
    assert default_taps(36, 5) == (1, 9, 17, 25, 33), "as the Qwen3-8B release has them"
    assert default_taps(30, 1) == (15,)
    pair = toy_pair(drafter="none", layers=8)
    target = target_of(pair)
    config, tensors = block_parts(target.config, (1, 5), seed=1)
    config["dflash_config"] = {"mask_token_id": MASK}
    assert load(saved(tmp_path, config, tensors), target).taps == (1, 5)


def test_a_verifier_in_bfloat16_leaves_the_angles_of_positions_exact(tmp_path: Path) -> None:
    target = target_of(toy_pair(drafter="none", layers=8, dtype=torch.bfloat16))
    network: Any = load(saved(tmp_path, *block_parts(target.config, TAPS, seed=1)), target).module.network
    torch.testing.assert_close(network.rotary_emb.inv_freq, 1 / THETA ** (torch.arange(0, 8, 2) / 8))
    assert network.fc.weight.dtype == torch.bfloat16


def test_the_format_is_told_by_its_architecture() -> None:
    assert fits({"architectures": ["DFlashDraftModel"]}) and fits({"architectures": ["DFlash2DraftModel"]})
    assert not fits({"architectures": ["Qwen3ForCausalLM"]}) and not fits({})


REFUSED: dict[str, tuple[dict[str, Any], type[ViasdError], str]] = {
    "hidden size": ({"hidden_size": 64}, PairError, "hidden size 64, and toy has 32"),
    "vocabulary": ({"vocab_size": 300}, PairError, "vocabulary 300, and toy has 267"),
    "layers": ({"num_target_layers": 36}, PairError, "layers 36, and toy has 8"),
    "no mask": (special(mask_token_id=None), SourceError, "mask_token_id; got None"),
    "mask beyond": (special(mask_token_id=267), SourceError, "mask_token_id; got 267"),
    "mask below": (special(mask_token_id=-1), SourceError, "mask_token_id; got -1"),
    "mask as text": (special(mask_token_id="<mask>"), SourceError, "mask_token_id; got '<mask>'"),
    "tap beyond": (special(target_layer_ids=[1, 3, 8]), SourceError, "taps layers"),
    "tap of a kind": (special(target_layer_ids=3), SourceError, "taps layers"),
    "no mapping": ({"dflash_config": [1]}, SourceError, "must be a mapping"),
    "no block": ({"block_size": ...}, SourceError, "no usable 'block_size'"),
    "block of one": ({"block_size": 1}, SourceError, "block_size below 2"),
    "windows": ({"layer_types": ["sliding_attention"] * 2}, SourceError, "layer_types"),
    "causal": (special(is_causal=True), SourceError, "is_causal"),
    "scaled": (special(input_embedding_scale=5.6), SourceError, "input_embedding_scale"),
    "capped": ({"final_logit_softcapping": 30.0}, SourceError, "final_logit_softcapping"),
    "domino's sizes": (special(projector_type="domino"), SourceError, "Domino head without sizes"),
    "fewer taps": (special(target_layer_ids=[1, 3]), SourceError, "'fc.weight' has shape"),
    "inner size": ({"intermediate_size": 41}, SourceError, "has shape"),
    "one layer": ({"num_hidden_layers": 1, "layer_types": ...}, SourceError, "does not know: layers.1"),
    "three layers": ({"num_hidden_layers": 3, "layer_types": ...}, SourceError, "no tensor 'layers.2"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_release_for_another_verifier_or_of_another_kind_is_refused_in_a_sentence(
    name: str, tmp_path: Path
) -> None:
    changes, kind, said = REFUSED[name]
    target = target_of(toy_pair(drafter="none", layers=8))
    config, tensors = block_parts(target.config, TAPS, seed=0)
    with pytest.raises(kind, match=said) as caught:
        load(saved(tmp_path, config | changes, tensors), target)
    assert "\n" not in str(caught.value) and "toy-drafter" in str(caught.value)

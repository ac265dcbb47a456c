"""EAGLE-3's wide layer by the book, over a whole sequence at once and without a cache: an oracle."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from drafters.checkpoint_files import HEAD_DIM, KV_HEADS
from viasd_core.pair import ModelPair


def feature_rows(pair: ModelPair, tokens: list[int], inputs: list[int]) -> Tensor:
    """[rows, len(inputs) * H]: the verifier's hidden states at the input of those layers, side by side."""
    with torch.inference_mode():
        states = pair.verifier.model(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    return torch.cat([states[layer][0] for layer in inputs], dim=-1)


def embedding_of(pair: ModelPair) -> Tensor:
    weight = pair.verifier.model.get_input_embeddings().weight
    assert isinstance(weight, Tensor)
    return weight


def read_all(checkpoint_files: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights in float64, everything else as it is."""
    return {
        name: tensor.double() if tensor.is_floating_point() else tensor
        for name, tensor in checkpoint_files.items()
    }


def rms(rows: Tensor, weight: Tensor, eps: float) -> Tensor:
    return rows / (rows.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def turn(heads: Tensor, theta: float) -> Tensor:
    """Rotary positions 0, 1, ... of heads [n, h, d]; angles in float32, as published code has them."""
    half = heads.shape[-1] // 2
    speed = 1.0 / (theta ** (torch.arange(0, 2 * half, 2).float() / (2 * half)))
    angle = torch.arange(len(heads)).float()[:, None] * speed[None]
    cos, sin = angle.cos().double()[:, None], angle.sin().double()[:, None]
    low, high = heads[..., :half], heads[..., half:]
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)


def widened(weights: dict[str, Tensor], embeds: Tensor, hidden: Tensor, eps: float) -> Tensor:
    """[n, 2H]: normed embeddings left, normed hidden states right."""
    left = rms(embeds, weights["midlayer.input_layernorm.weight"], eps)
    return torch.cat([left, rms(hidden, weights["midlayer.hidden_norm.weight"], eps)], dim=-1)


def wide_layer(
    weights: dict[str, Tensor], wide: Tensor, residual: Tensor, theta: float, eps: float
) -> Tensor:
    """[n, H] of wide rows [n, 2H] at positions 0, 1, ..., each seeing itself and all before it."""

    def linear(name: str, rows: Tensor) -> Tensor:
        return rows @ weights[f"midlayer.{name}.weight"].T

    rows = len(wide)
    query = turn(linear("self_attn.q_proj", wide).reshape(rows, -1, HEAD_DIM), theta)
    key = turn(linear("self_attn.k_proj", wide).reshape(rows, KV_HEADS, HEAD_DIM), theta)
    value = linear("self_attn.v_proj", wide).reshape(rows, KV_HEADS, HEAD_DIM)
    mixed = []
    for head in range(query.shape[1]):
        group = head * KV_HEADS // query.shape[1]
        scores = query[:, head] @ key[:, group].T / HEAD_DIM**0.5
        hidden_from = torch.ones(rows, rows, dtype=torch.bool).triu(1)
        mixed.append(scores.masked_fill(hidden_from, -torch.inf).softmax(-1) @ value[:, group])
    residual = residual + linear("self_attn.o_proj", torch.cat(mixed, dim=-1))
    normed = rms(residual, weights["midlayer.post_attention_layernorm.weight"], eps)
    gate = linear("mlp.gate_proj", normed)
    return residual + linear("mlp.down_proj", gate * gate.sigmoid() * linear("mlp.up_proj", normed))


def over_vocabulary(rows: Tensor, weights: dict[str, Tensor], config: dict[str, Any], vocab: int) -> Tensor:
    """Head rows [n, draft vocab] as logits [n, vocab], token by token."""
    if config["draft_vocab_size"] == config["vocab_size"]:
        return rows[:, :vocab]
    whole = torch.full((len(rows), vocab), -torch.inf, dtype=rows.dtype)
    for place, offset in enumerate(weights["d2t"].tolist()):
        if place + offset < vocab:
            whole[:, place + offset] = rows[:, place]
    return whole


def plain_chain(
    config: dict[str, Any], tensors: dict[str, Tensor], embedding: Tensor, features: Tensor, text: list[int],
    count: int, vocab: int,
) -> Tensor:  # fmt: skip
    """EAGLE-3's greedy draft logits [count, vocab]: everything recomputed for every token."""
    eps, theta = config["rms_norm_eps"], config["rope_theta"]
    weights = read_all(tensors)
    tokens = text[1:]
    hidden = features @ weights["fc.weight"].T
    rows = []
    for _ in range(count):
        wide = widened(weights, embedding[tokens], hidden, eps)
        last = wide_layer(weights, wide, hidden, theta, eps)[-1:]
        head = rms(last, weights["norm.weight"], eps) @ weights["lm_head.weight"].T
        rows.append(over_vocabulary(head, weights, config, vocab))
        tokens, hidden = [*tokens, int(rows[-1].argmax())], torch.cat([hidden, last])
    return torch.cat(rows)

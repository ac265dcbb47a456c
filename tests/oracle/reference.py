"""The models' arithmetic written out plainly: no cache object, no attention interface, one visibility rule.

Independent of the engine: it shares with it the models' own projections, norms, MLPs and rotary tables only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from viasd_core.sublayers import Half, Layer

Rows = dict[int, tuple[Tensor, Tensor]]  # layer -> keys and values, [kv_heads, rows, head_dim] each


@torch.no_grad()
def recompute(
    model: PreTrainedModel,
    ids: Sequence[int],
    layers: Sequence[Layer] | None = None,
    prefix: Rows | None = None,
) -> tuple[Tensor, Rows]:
    """Run `ids` through `layers` and halves of them (default: all), behind the rows of `prefix` (default:
    none).

    Rows of `prefix` are taken as they are; its tokens must be the first of `ids`. Returns the logits of the
    rows behind it, [len(ids) - prefix rows, V], and all rows of every layer.
    """
    body: Any = model.model
    prefix = prefix or {}
    known = max((keys.shape[1] for keys, _ in prefix.values()), default=0)
    positions = torch.arange(known, len(ids))
    hidden = body.embed_tokens(torch.tensor(ids[known:], dtype=torch.long))
    cos, sin = (table[0] for table in body.rotary_emb(hidden[None], position_ids=positions[None]))
    rows: Rows = {}
    for kept in range(len(body.layers)) if layers is None else layers:
        number = kept.layer if isinstance(kept, Half) else kept
        module = body.layers[number]
        if not isinstance(kept, Half) or kept.attention:
            past, window = prefix.get(number), window_of(model, number)
            hidden, rows[number] = attend(module, hidden, cos, sin, past, window)
        if not isinstance(kept, Half) or not kept.attention:
            hidden = feed_forward(module, hidden)
    head: Any = model.lm_head
    return capped(head(body.norm(hidden)), getattr(model.config, "final_logit_softcapping", None)), rows


def capped(values: Tensor, cap: float | None) -> Tensor:
    return values if cap is None else cap * (values / cap).tanh()


def feed_forward(layer: Any, hidden: Tensor) -> Tensor:
    """The MLP half of a block on the residual stream; Gemma2 norms behind it, too."""
    if not hasattr(layer, "pre_feedforward_layernorm"):
        out: Tensor = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return out
    change = layer.mlp(layer.pre_feedforward_layernorm(hidden))
    normed: Tensor = layer.post_feedforward_layernorm(change)
    return hidden + normed


def window_of(model: PreTrainedModel, layer: int) -> int | None:
    """How many of the latest positions a layer sees, itself included; None: all."""
    config: Any = model.config
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        return window
    return window if kinds[layer] == "sliding_attention" else None


def attend(
    layer: Any,
    hidden: Tensor,
    cos: Tensor,
    sin: Tensor,
    past: tuple[Tensor, Tensor] | None,
    window: int | None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """A block's attention over `hidden` [rows, width]: the residual stream behind it, all keys and values."""
    attention, new = layer.self_attn, hidden.shape[0]
    normed = layer.input_layernorm(hidden)

    def heads(projected: Tensor) -> Tensor:
        return projected.view(new, projected.shape[1] // attention.head_dim, attention.head_dim)

    query, key = heads(attention.q_proj(normed)), heads(attention.k_proj(normed))
    if hasattr(attention, "q_norm"):
        query, key = attention.q_norm(query), attention.k_norm(key)
    query, key = rotated(query.transpose(0, 1), cos, sin), rotated(key.transpose(0, 1), cos, sin)
    value = heads(attention.v_proj(normed)).transpose(0, 1)
    if past is not None:
        key, value = torch.cat([past[0], key], 1), torch.cat([past[1], value], 1)
    known = key.shape[1] - new
    behind = torch.arange(known, known + new)[:, None] - torch.arange(known + new)[None]
    seen = (behind >= 0) & (behind < (window or behind.numel() + 1))
    groups = query.shape[0] // key.shape[0]
    keys, values = key.repeat_interleave(groups, 0), value.repeat_interleave(groups, 0)
    cap = getattr(attention, "attn_logit_softcapping", None)
    scores = capped((query @ keys.transpose(1, 2)) * attention.scaling, cap)
    shares = scores.masked_fill(~seen, -torch.inf).softmax(-1, torch.float32 if cap else None)
    change = attention.o_proj((shares.to(values) @ values).transpose(0, 1).flatten(1))
    if hasattr(layer, "pre_feedforward_layernorm"):
        change = layer.post_attention_layernorm(change)
    return hidden + change, (key, value)


def rotated(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of [heads, rows, head_dim]."""
    half = states.shape[-1] // 2
    turned = torch.cat([-states[..., half:], states[..., :half]], -1)
    return states * cos + turned * sin


def of_layers(rows: Rows, layers: Sequence[Layer]) -> Rows:
    """The rows of those layers and halves that have any."""
    numbers = [kept.layer if isinstance(kept, Half) else kept for kept in layers]
    return {number: rows[number] for number in numbers if number in rows}


def first(rows: Rows, count: int) -> Rows:
    """The first `count` rows of every layer."""
    return {layer: (key[:, :count], value[:, :count]) for layer, (key, value) in rows.items()}

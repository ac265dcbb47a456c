"""DFlash (arXiv 2602.06036): the network and file format of a block-parallel drafter.

A block is the anchor's embedding followed by mask embeddings. Hidden states of the verifier are fused (`fc`,
`hidden_norm`) and enter every layer as further keys and values; queries come from the block alone, and inside
the block every row sees every other. Embedding and output head are the verifier's.

Tensor names and config keys are those of `z-lab/*-DFlash-*`. Two additions of ours are optional in the file:
a reduced draft vocabulary (`d2t`, as EAGLE-3 has it) and Domino's causal correction (arXiv 2605.29707, see
`domino`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3MLP,
    Qwen3RMSNorm,
    Qwen3RotaryEmbedding,
    apply_rotary_pos_emb,
)

from ..slots import SharedRows, SlotCache
from .dflash2 import DynamicConv

ARCHITECTURE = "DFlashDraftModel"
PUBLISHED_BLOCK = 16

Conv = tuple[int, int]
Rotary = tuple[Tensor, Tensor]
Rows = SlotCache | SharedRows


def default_taps(layers: int, count: int) -> tuple[int, ...]:
    """Verifier layers whose outputs are fused: evenly spread from the second to the third last."""
    if count == 1:
        return (layers // 2,)
    return tuple(round(1 + place * (layers - 4) / (count - 1)) for place in range(count))


class BlockAttention(nn.Module):
    """Queries of the block over the keys and values of context and block together."""

    def __init__(self, config: Qwen3Config, layer: int) -> None:
        super().__init__()
        self.layer = layer
        shape: Any = config
        heads, kv_heads, head_dim = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
        self.head_dim = int(head_dim)
        bias = bool(config.attention_bias)
        self.q_proj = nn.Linear(config.hidden_size, heads * head_dim, bias=bias)
        self.k_proj = nn.Linear(config.hidden_size, kv_heads * head_dim, bias=bias)
        self.v_proj = nn.Linear(config.hidden_size, kv_heads * head_dim, bias=bias)
        self.o_proj = nn.Linear(heads * head_dim, config.hidden_size, bias=bias)
        self.q_norm = Qwen3RMSNorm(head_dim, eps=config.rms_norm_eps)
        self.k_norm = Qwen3RMSNorm(head_dim, eps=config.rms_norm_eps)

    def forward(
        self, block: Tensor, context: Tensor, rotary: Rotary, visible: Tensor | None, slots: Rows | None
    ) -> Tensor:
        """block [b, r, H], context [b, c, H]; rotary covers the c + r positions; visible [b, 1, r, keys]."""
        rows = block.shape[1]
        source = torch.cat([context, block], dim=1)
        query = self.q_norm(self._heads(self.q_proj(block))).transpose(1, 2)
        key = self.k_norm(self._heads(self.k_proj(source))).transpose(1, 2)
        value = self._heads(self.v_proj(source)).transpose(1, 2)
        cos, sin = rotary
        _, key = apply_rotary_pos_emb(key, key, cos, sin)
        query, _ = apply_rotary_pos_emb(query, query, cos[:, -rows:], sin[:, -rows:])
        if slots is not None:
            key, value = slots.update(key, value, self.layer)
        out = functional.scaled_dot_product_attention(query, key, value, attn_mask=visible, enable_gqa=True)
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def _heads(self, rows: Tensor) -> Tensor:
        return rows.unflatten(-1, (-1, self.head_dim))


class BlockLayer(nn.Module):
    def __init__(self, config: Qwen3Config, layer: int, conv: Conv | None) -> None:
        super().__init__()
        self.self_attn = BlockAttention(config, layer)
        self.mlp = Qwen3MLP(config)
        self.input_layernorm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.convolved = conv is not None
        if conv:
            self.attention_conv = DynamicConv(config.hidden_size, *conv)
            self.mlp_conv = DynamicConv(config.hidden_size, *conv)

    def forward(
        self, block: Tensor, context: Tensor, rotary: Rotary, visible: Tensor | None, slots: Rows | None
    ) -> Tensor:
        def attend(rows: Tensor) -> Tensor:
            mixed: Tensor = self.self_attn(rows, context, rotary, visible, slots)
            return mixed

        normed = self.input_layernorm(block)
        block = block + (self.attention_conv(normed, attend) if self.convolved else attend(normed))
        normed = self.post_attention_layernorm(block)
        return block + (self.mlp_conv(normed, self.mlp) if self.convolved else self.mlp(normed))


class DFlash(nn.Module):
    """The block-parallel network. `taps` name the verifier layers its features come from, in order; `conv`
    are size and group of DFlash2's convolutions.
    """

    def __init__(self, config: Qwen3Config, taps: tuple[int, ...], conv: Conv | None = None) -> None:
        super().__init__()
        self.config, self.taps = config, taps
        self.head_dim = int(config.head_dim)
        self.layers = nn.ModuleList(
            BlockLayer(config, layer, conv) for layer in range(config.num_hidden_layers)
        )
        self.norm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.fc = nn.Linear(len(taps) * config.hidden_size, config.hidden_size, bias=False)
        self.hidden_norm = Qwen3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary_emb = Qwen3RotaryEmbedding(config)

    def reset_rotary(self, device: torch.device) -> None:
        """Make the rotary frequencies anew, in float32: in bfloat16 they would be positions off."""
        self.rotary_emb = Qwen3RotaryEmbedding(self.config).to(device)

    def forward(
        self,
        block: Tensor,
        features: Tensor,
        positions: Tensor,
        visible: Tensor | None = None,
        slots: Rows | None = None,
    ) -> Tensor:
        """Normed hidden states [b, r, H] of block embeddings [b, r, H].

        features [b, c, taps, H] of new context rows; positions [b, c + r] of context and block; visible
        [b, 1, r, keys], None where every key is seen. With `slots` the keys of earlier context come first.
        """
        context = self.hidden_norm(self.fc(features.flatten(2)))
        rotary = self.rotary_emb(block, positions)
        for layer in self.layers:
            block = layer(block, context, rotary, visible, slots)
        return self.norm(block)


def network_config(config: Mapping[str, Any]) -> Qwen3Config:
    """The Qwen3 part of a config.json."""
    known = {key: value for key, value in config.items() if key not in ("model_type", "architectures")}
    return Qwen3Config(**known)

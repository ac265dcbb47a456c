"""The one-layer network of EAGLE-3 (arXiv 2503.01840), which DART extends: no text, no drafting, no files.

Its layer reads the embedding of a token and a hidden state side by side, so its projections are twice as wide
as the model.
"""

from __future__ import annotations

from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig
from transformers.activations import ACT2FN
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRotaryEmbedding, rotate_half

from ..errors import SourceError
from ..masks import Pass
from ..slots import SlotCache
from .checkpoints import Checkpoint

ROPE_TYPES = ("default", "linear", "llama3", "yarn")
REQUIRED = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "vocab_size",
    "max_position_embeddings",
)
OPTIONAL = ("head_dim", "hidden_act", "num_key_value_heads", "rope_parameters", "rope_scaling", "rope_theta")
Rotary = tuple[Tensor, Tensor]


class WideAttention(nn.Module):
    """Attention whose projections read embedding and hidden state side by side, [n, 2H]."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        width, self.head_dim = config.hidden_size, int(config.head_dim or 0)
        heads, kv_heads = config.num_attention_heads, int(config.num_key_value_heads or 0)
        self.q_proj = nn.Linear(2 * width, heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(2 * width, kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(2 * width, kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(heads * self.head_dim, width, bias=False)

    def forward(
        self, wide: Tensor, rotary: Rotary, visible: Tensor | None, slots: SlotCache, outputs: int
    ) -> Tensor:
        """[outputs, H] of the last rows of wide [n, 2H]; keys and values of all n rows are written."""
        cos, sin = rotary
        query = turned(self._heads(self.q_proj(wide[-outputs:])), cos[-outputs:], sin[-outputs:])
        key = turned(self._heads(self.k_proj(wide)), cos, sin)
        keys, values = slots.update(key, self._heads(self.v_proj(wide)), 0)
        seen = None if visible is None else visible[-outputs:]
        out = functional.scaled_dot_product_attention(query, keys, values, attn_mask=seen, enable_gqa=True)
        mixed: Tensor = self.o_proj(out[0].transpose(0, 1).flatten(1))
        return mixed

    def _heads(self, rows: Tensor) -> Tensor:
        """[1, heads, n, head_dim]"""
        return rows.unflatten(-1, (-1, self.head_dim)).transpose(0, 1)[None]


def turned(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions; heads [1, heads, n, head_dim], cos and sin [n, head_dim]."""
    return heads * cos + rotate_half(heads) * sin


class WideLayer(nn.Module):
    """The `midlayer` of EAGLE-3; the residual path carries the hidden state, not the embedding."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.self_attn = WideAttention(config)
        self.mlp = LlamaMLP(config)
        self.hidden_norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def widen(self, embeds: Tensor, hidden: Tensor) -> Tensor:
        """[n, 2H] of embeds and hidden [n, H]."""
        return torch.cat([self.input_layernorm(embeds), self.hidden_norm(hidden)], dim=-1)

    def forward(
        self, wide: Tensor, hidden: Tensor, rotary: Rotary, visible: Tensor | None, slots: SlotCache
    ) -> Tensor:
        """[m, H]: output of the last m rows of wide [n, 2H], whose residuals are hidden [m, H]."""
        hidden = hidden + self.self_attn(wide, rotary, visible, slots, hidden.shape[0])
        out: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return out


class EagleNetwork(nn.Module):
    """EAGLE-3's weights. It keeps no text and no rows: a chain and a tree drafter plan their own passes.

    `draft_vocab` 0: the head is borrowed, and set as `lm_head` by whoever lends it.
    """

    def __init__(
        self, config: LlamaConfig, features: int, draft_vocab: int, embedding: bool, layer: WideLayer
    ) -> None:
        super().__init__()
        self.midlayer = layer
        self.fc = nn.Linear(features, config.hidden_size, bias=False)
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        if draft_vocab:
            self.lm_head = nn.Linear(config.hidden_size, draft_vocab, bias=False)
        if embedding:
            self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.rotary_emb = LlamaRotaryEmbedding(config)

    def fuse(self, features: Tensor) -> Tensor:
        """[n, H] of the verifier's hidden states [n, taps, H of the verifier]."""
        fused: Tensor = self.fc(features.flatten(1))
        return fused

    def forward(
        self, embeds: Tensor, hidden: Tensor, plan: Pass, slots: SlotCache, outputs: int = 1
    ) -> Tensor:
        """Hidden states [outputs, H] of the last rows of `plan`; embeds and hidden [n, H] of all of them."""
        slots.begin(plan)
        wide = self.midlayer.widen(embeds, hidden)
        out: Tensor = self.midlayer(wide, hidden[-outputs:], self.rotary(plan, wide), plan.visible, slots)
        return out

    def rotary(self, plan: Pass, like: Tensor) -> Rotary:
        cos, sin = self.rotary_emb(like, plan.positions[None])
        return cos[0], sin[0]

    def logits(self, hidden: Tensor) -> Tensor:
        """[n, draft vocab] of hidden [n, H]."""
        out: Tensor = self.lm_head(self.norm(hidden))
        return out


def network_config(checkpoint: Checkpoint) -> LlamaConfig:
    """The layer's shape from a published config.json; null means the published code's default.

    Raises SourceError for a missing or impossible value, and for variants that compute something else.
    """
    given = checkpoint.config
    values: dict[str, Any] = {key: checkpoint.need(key) for key in REQUIRED}
    values["rms_norm_eps"] = checkpoint.need("rms_norm_eps", float)
    values.update((key, given[key]) for key in OPTIONAL if given.get(key) is not None)
    if given.get("num_hidden_layers", 1) != 1 or given.get("norm_before_residual"):
        raise SourceError(
            f"{checkpoint.name} is a variant that is not known; its config must say num_hidden_layers 1 and "
            "norm_before_residual false"
        )
    try:
        config = LlamaConfig(**values)
        scaling: Any = config.rope_parameters
        if config.hidden_act not in ACT2FN or scaling["rope_type"] not in ROPE_TYPES:
            raise ValueError(f"hidden_act {config.hidden_act!r} with rope_type {scaling['rope_type']!r}")
        if int(config.num_attention_heads) % int(config.num_key_value_heads or 1):
            raise ValueError("num_attention_heads is no multiple of num_key_value_heads")
        LlamaRotaryEmbedding(config)
    except (StrictDataclassError, ValueError, TypeError, KeyError) as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise SourceError(f"config.json of {checkpoint.name} describes no known layer: {reason}") from error
    return config

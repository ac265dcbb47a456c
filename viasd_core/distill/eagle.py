"""Training an autoregressive drafter that reads the verifier's features (EAGLE-3, arXiv 2503.01840).

Row t joins the feature of token t with the embedding of token t + 1 and learns the verifier's law of token
t + 2. Behind the newest feature a drafter lives on its own output, so training does the same (the paper's
training-time test): step 2 starts from the output of step 1 in place of the next feature, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig

from ..drafters.borrowed import cut_head, to_offsets
from ..drafters.checkpoints import Target
from ..drafters.eagle import AUX_LAYERS, BORROWED_HEAD
from ..drafters.eagle_network import EagleNetwork, Rotary, WideLayer, turned
from .batches import Batch
from .objective import HeldOut, compare, divergence, law

ARCHITECTURE = "LlamaForCausalLMEagle3"
STEPS = 3  # drafted tokens that a chain is trained for
ANCHORS = 64  # rows of a text that later steps start from
DECAY = 0.8  # weight of a step relative to the one before it


@dataclass(frozen=True)
class Keys:
    """Keys and values [b, kv heads, rows, head_dim] of one step, all repeated to the number of heads."""

    keys: Tensor
    values: Tensor


class EagleObjective:
    """Weighted KL(q || p) along chains; embedding and head are the verifier's, frozen, the head cut.

    The layer's MLP and last norm start as those of the verifier's block `origin`. `scale` [taps, H] is what
    features are divided by while training; in the file it is part of `fc`.
    """

    def __init__(
        self,
        target: Target,
        taps: Sequence[int],
        origin: int,
        draft_ids: Tensor,
        *,
        scale: Tensor | None = None,
        steps: int = STEPS,
        anchors: int = ANCHORS,
    ) -> None:
        self.target, self.draft_ids, self.origin = target, draft_ids, origin
        self.taps, self.steps, self.anchors = tuple(taps), steps, anchors
        # Training is in float32, whatever the verifier runs in; on a card autocast lowers the products.
        self.head = cut_head(target.head, draft_ids).float()
        self.embedding = target.embedding.float()
        shape = layer_config(target)
        size = target.runner.hidden_size
        self.network = EagleNetwork(shape, len(self.taps) * size, 0, False, WideLayer(shape))
        self._initialise(target.runner.model.model)
        given = torch.ones(len(self.taps), size) if scale is None else scale
        self.scale = given.to(target.runner.device)
        self.network.to(device=target.runner.device, dtype=torch.float32)
        self.module: nn.Module = self.network

    def _initialise(self, verifier: Any) -> None:
        block = verifier.layers[self.origin]
        size = self.target.runner.hidden_size
        with torch.no_grad():
            self.network.midlayer.mlp.load_state_dict(block.mlp.state_dict())
            weight = block.post_attention_layernorm.weight
            self.network.midlayer.post_attention_layernorm.weight.copy_(weight)
            self.network.norm.weight.copy_(verifier.norm.weight)
            self.network.fc.weight.normal_(0, (len(self.taps) * size) ** -0.5)

    def loss(self, batch: Batch, random: torch.Generator) -> Tensor:
        terms, weights = [], []
        for step, (student, final) in enumerate(self._chain(batch, self._anchors(batch, random))):
            terms.append(divergence(student, law(final, self.head)).mean() * DECAY**step)
            weights.append(DECAY**step)
        return torch.stack(terms).sum() / sum(weights)

    def measure(self, batch: Batch, found: HeldOut) -> None:
        """Chains from evenly spread rows, along the verifier's own text."""
        for step, (student, final) in enumerate(self._chain(batch, self._anchors(batch, None)), start=1):
            found.add(
                step, *compare(student, law(final, self.target.head), self.draft_ids.to(student.device))
            )

    def _anchors(self, batch: Batch, random: torch.Generator | None) -> Tensor:
        """Rows [b, a] that chains behind the first step start from: any whose first drafted token the
        verifier wrote; evenly spread without `random`.
        """
        first = (batch.prompt_tokens - 2).clamp_min(0)
        room = (batch.lengths - 2 - first).clamp_min(1)[:, None]
        shape = (len(first), self.anchors)
        if random is None:
            spread = (torch.arange(self.anchors, device=first.device) + 0.5).expand(shape) / self.anchors
        else:
            spread = torch.rand(shape, generator=random).to(first.device)
        return first[:, None] + (spread * room).long()

    def _chain(self, batch: Batch, anchors: Tensor) -> list[tuple[Tensor, Tensor]]:
        """For each step the drafter's log-law [n, draft vocab], and the verifier's final hidden states [n, H]
        that tell its own: of every row in the first step, of the anchors' chains in the later ones.
        """
        layer, rows = self.network.midlayer, batch.ids.shape[1] - 2
        features = batch.features[:, :rows].to(self.embedding.dtype) / self.scale
        hidden = self.network.fc(features.flatten(2))
        positions = torch.arange(rows, device=batch.ids.device).expand(batch.ids.shape[0], rows)
        causal = positions[:, None, :] <= positions[..., None]
        wide = layer.widen(self._embed(batch.ids[:, 1:-1]), hidden)
        rotary = self._rotary(wide, positions)
        context = self._keys(wide, rotary)
        hidden = self._finish(hidden, self._attend(wide, rotary, context, causal, []))
        wanted = batch.predicting()[:, 1:]  # row t predicts token t + 2, as the verifier's row t + 1 does
        found = [(self._law(hidden[wanted]), batch.final[:, 1:][wanted])]
        lanes = torch.arange(len(anchors), device=anchors.device)[:, None]
        hidden, visible = hidden[lanes, anchors], positions[:, None, :] <= anchors[..., None]
        own: list[Keys] = []
        for step in range(1, self.steps):
            place = anchors + step  # the row this step stands for
            token = batch.ids.gather(1, (place + 1).clamp_max(batch.ids.shape[1] - 1))
            wide = layer.widen(self._embed(token), hidden)
            rotary = self._rotary(wide, place)
            own.append(self._keys(wide, rotary))
            hidden = self._finish(hidden, self._attend(wide, rotary, context, visible, own))
            wanted = place + 2 < batch.lengths[:, None]
            judge = (place + 1).clamp_max(batch.final.shape[1] - 1)
            found.append((self._law(hidden[wanted]), batch.final[lanes, judge][wanted]))
        return found

    def _embed(self, tokens: Tensor) -> Tensor:
        return nn.functional.embedding(tokens, self.embedding)

    def _rotary(self, like: Tensor, positions: Tensor) -> Rotary:
        """Angles [b, 1, n, head_dim] for all heads."""
        cos, sin = self.network.rotary_emb(like, positions)
        return cos[:, None], sin[:, None]

    def _keys(self, wide: Tensor, rotary: Rotary) -> Keys:
        attention = self.network.midlayer.self_attn
        key = turned(self._heads(attention.k_proj(wide)), *rotary)
        value = self._heads(attention.v_proj(wide))
        times = attention.q_proj.out_features // attention.k_proj.out_features
        return Keys(key.repeat_interleave(times, 1), value.repeat_interleave(times, 1))

    def _heads(self, rows: Tensor) -> Tensor:
        """[b, heads, n, head_dim] of [b, n, heads * head_dim]"""
        return rows.unflatten(-1, (-1, self.network.midlayer.self_attn.head_dim)).transpose(1, 2)

    def _attend(
        self, wide: Tensor, rotary: Rotary, context: Keys, visible: Tensor, own: Sequence[Keys]
    ) -> Tensor:
        """Attention output [b, n, H] over `visible` [b, n, rows] context rows and, for each chain, its own
        earlier rows.
        """
        attention = self.network.midlayer.self_attn
        query = turned(self._heads(attention.q_proj(wide)), *rotary) * attention.head_dim**-0.5
        scores = (query @ context.keys.transpose(-1, -2)).masked_fill(~visible[:, None], -torch.inf)
        each = [(query * one.keys).sum(-1, keepdim=True) for one in own]
        shares = torch.cat([scores, *each], dim=-1).softmax(-1)
        rows = context.keys.shape[2]
        mixed = shares[..., :rows] @ context.values
        for place, one in enumerate(own, start=rows):
            mixed = mixed + shares[..., place : place + 1] * one.values
        out: Tensor = attention.o_proj(mixed.transpose(1, 2).flatten(2))
        return out

    def _finish(self, hidden: Tensor, attended: Tensor) -> Tensor:
        layer = self.network.midlayer
        hidden = hidden + attended
        out: Tensor = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return out

    def _law(self, hidden: Tensor) -> Tensor:
        return self.head(self.network.norm(hidden)).float().log_softmax(-1)

    def weights(self) -> dict[str, Tensor]:
        """What goes into the file: the scale of the features is part of `fc` there."""
        state = dict(self.module.state_dict())
        state["fc.weight"] = state["fc.weight"] / self.scale.flatten()
        return state

    def take(self, weights: dict[str, Tensor]) -> None:
        fused = weights["fc.weight"].to(self.scale.device) * self.scale.flatten()
        self.module.load_state_dict(weights | {"fc.weight": fused})

    def config(self) -> dict[str, Any]:
        return {
            **layer_facts(self.target),
            "architectures": [ARCHITECTURE],
            "model_type": "llama",
            "num_hidden_layers": 1,
            "draft_vocab_size": len(self.draft_ids),
            "eagle_config": {AUX_LAYERS: list(self.taps), "use_aux_hidden_state": True},
            BORROWED_HEAD: True,
            "initialised_from_layers": [self.origin],
        }

    def extra_tensors(self) -> dict[str, Tensor]:
        return {"d2t": to_offsets(self.draft_ids)}


def layer_facts(target: Target) -> dict[str, Any]:
    """The shape of the drafter's layer, as config.json says it: the verifier's own."""
    ours = target.config
    return {
        "hidden_size": ours.hidden_size,
        "intermediate_size": ours.intermediate_size,
        "num_attention_heads": ours.num_attention_heads,
        "num_key_value_heads": ours.num_key_value_heads,
        "head_dim": target.runner.head_dim,
        "hidden_act": ours.hidden_act,
        "rms_norm_eps": ours.rms_norm_eps,
        "rope_parameters": dict(ours.rope_parameters),
        "max_position_embeddings": ours.max_position_embeddings,
        "vocab_size": ours.vocab_size,
    }


def layer_config(target: Target) -> LlamaConfig:
    return LlamaConfig(**layer_facts(target))

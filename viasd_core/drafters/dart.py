"""DART (arXiv 2601.19278): EAGLE-3's layer over copies of a learned mask, so that one forward drafts a block.

Layout of the published code (fvliang/DART): EAGLE-3's tensors with `midlayer.mask_rep` [2H] beside them, and
`draft_length` in config.json; the embedding is always the verifier's. The newest real row, which predicts the
token behind the anchor, is followed by masks at the positions that come next, one for each further token. A
mask stands for the normed input of a row, and its first half for the row's residual. The published code norms
a row twice before the head, and so does this. Its n-gram tree is another way to choose from the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig

from ..errors import SourceError
from ..masks import Pass, chain_pass
from ..probs import Noise, Sampling
from ..slots import SlotCache
from ..verifier import Verifier
from .base import Draft, Drafter
from .checkpoints import Checkpoint, Target, Trained
from .eagle import UNUSED, FeatureDrafter, Reader, draw_rows, feature_layers, load_network, need_safetensors
from .eagle_network import EagleNetwork, WideLayer


class MaskedLayer(WideLayer):
    """EAGLE-3's layer with the learned input of a row whose token and feature are unknown."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.mask_rep = nn.Parameter(torch.zeros(2 * config.hidden_size))


def masked_forward(
    network: EagleNetwork, embeds: Tensor, hidden: Tensor, plan: Pass, slots: SlotCache, masks: int
) -> Tensor:
    """[masks + 1, H] of the last real row and the masks behind it; embeds and hidden [n, H] of real rows."""
    slots.begin(plan)
    layer: Any = network.midlayer
    mask = layer.mask_rep.expand(masks, -1)
    wide = torch.cat([layer.widen(embeds, hidden), mask])
    residual = torch.cat([hidden[-1:], mask[:, : hidden.shape[1]]])
    out: Tensor = layer(wide, residual, network.rotary(plan, wide), plan.visible, slots)
    return out


class DartDrafter(FeatureDrafter):
    """One forward a draft, over the pending rows and a mask for each token but the first."""

    def __init__(self, reader: Reader, verifier: Verifier, capacity: int, longest: int) -> None:
        super().__init__(reader, verifier, capacity)
        self._longest = longest

    def draft(self, count: int, sampling: Sampling, noise: Noise, p_min: float = 0.0) -> Draft:
        length = len(self._context) - 1
        if length < 1:
            return self._nothing()
        reader, start, masks = self._reader, self._pending(), min(count, self._longest) - 1
        embeds, hidden = self._inputs(start, length)
        plan = chain_pass(start, length - start + masks, embeds.device)
        out = masked_forward(reader.network, embeds, hidden, plan, self._slots, masks)
        logits = reader.logits(reader.network.norm(out))
        self._written()
        return Draft(*draw_rows(logits, sampling, noise), logits, 1)


def fits(config: Mapping[str, Any]) -> bool:
    """By architecture, or by `draft_length`, which only DART has."""
    return "LlamaForCausalLMDart" in (config.get("architectures") or ()) or "draft_length" in config


def load(checkpoint: Checkpoint, target: Target) -> Trained:
    """Raises PairError for another verifier's drafter, SourceError for unusable files."""
    need_safetensors(checkpoint)
    masks = checkpoint.need("draft_length")
    if masks < 1:
        raise SourceError(f"config.json of {checkpoint.name} has draft_length {masks}; it must be at least 1")
    layers = feature_layers(checkpoint, target)
    unused = (*UNUSED, "embed_tokens.")
    network = load_network(checkpoint, target, MaskedLayer, len(layers), embedding=False, unused=unused)
    reader = Reader(checkpoint, target, network, layers)

    def make(verifier: Verifier, capacity: int) -> Drafter:
        return DartDrafter(reader, verifier, capacity, longest=masks + 1)

    return Trained("dart", reader.taps, make, network)

"""Training a block-parallel drafter (DFlash, arXiv 2602.06036) with a random known prefix inside the block.

Blocks are cut from the verifier's answers at random anchors, many a text, and run together: a block sees the
features of the rows before its anchor and itself. In part of the blocks the first slots hold the real tokens
instead of masks, so that suffixes redrawn behind a substituted token (CURE's S2) are in distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..drafters.block import StoredBlock
from ..drafters.borrowed import cut_head, to_offsets
from ..drafters.checkpoints import Target
from ..drafters.dflash import ARCHITECTURE, DFlash, network_config
from ..drafters.domino import Domino
from .batches import Batch
from .objective import HeldOut, compare, divergence, law

ANCHORS = 12  # blocks cut from a text
KNOWN_SHARE = 0.3  # of blocks with a known prefix
DECAY = 0.8  # weight of a slot relative to the one before it


@dataclass(frozen=True)
class Blocks:
    """Anchored blocks of a batch, [b, a] of them. `known` counts the slots behind the anchor that hold
    tokens.
    """

    anchors: Tensor  # [b, a] row of the anchor
    known: Tensor  # [b, a]
    slots: Tensor  # [b, a, k] row of every slot
    taught: Tensor  # [b, a, k - 1] whether slot s + 1 is a mask with a law to learn


class BlockObjective:
    """Weighted KL(q || p) at the masked slots; embedding and head are the verifier's, frozen and cut.

    `domino` names the sizes of a causal correction, its GRU's state and its head's rank; empty: none.
    """

    def __init__(
        self,
        target: Target,
        taps: Sequence[int],
        origins: Sequence[int],
        draft_ids: Tensor,
        *,
        slots: int,
        mask_token: int,
        anchors: int = ANCHORS,
        domino: Sequence[int] = (),
        shift: bool = False,
        scale: Tensor | None = None,
    ) -> None:
        self.target, self.draft_ids, self.origins = target, draft_ids, list(origins)
        self.slots, self.mask_token, self.anchors, self.shift = slots, mask_token, anchors, shift
        # Training is in float32, whatever the verifier runs in; on a card autocast lowers the products.
        self.head = cut_head(target.head, draft_ids).float()
        self.embedding = target.embedding.float()
        self.network = DFlash(
            network_config(self.config_of(target, len(origins), slots, mask_token, taps)), tuple(taps)
        )
        self._initialise(target.runner.model.model)
        self.domino, self.domino_sizes = None, tuple(domino)
        if domino:
            state, rank = domino
            self.domino = Domino(target.runner.hidden_size, state, rank, len(draft_ids))
        # Hidden states differ by orders of magnitude between layers and dimensions; training sees them alike.
        shape = (len(taps), target.runner.hidden_size)
        self.scale = (torch.ones(shape) if scale is None else scale).to(target.runner.device)
        self.module: nn.Module = StoredBlock(self.network, self.domino).to(target.runner.device)

    @property
    def longest_known(self) -> int:
        """Most known tokens behind an anchor in training: one slot is left to learn."""
        return self.slots - 2

    @staticmethod
    def config_of(
        target: Target, layers: int, slots: int, mask_token: int, taps: Sequence[int]
    ) -> dict[str, Any]:
        """A DFlash config.json in the verifier's shape."""
        ours = target.config
        return {
            "architectures": [ARCHITECTURE],
            "model_type": "qwen3",
            "num_hidden_layers": layers,
            "hidden_size": ours.hidden_size,
            "intermediate_size": ours.intermediate_size,
            "num_attention_heads": ours.num_attention_heads,
            "num_key_value_heads": ours.num_key_value_heads,
            "head_dim": target.runner.head_dim,
            "rms_norm_eps": ours.rms_norm_eps,
            "rope_parameters": dict(ours.rope_parameters),
            "max_position_embeddings": ours.max_position_embeddings,
            "attention_bias": False,
            "vocab_size": ours.vocab_size,
            "block_size": slots,
            "num_target_layers": target.runner.n_layers,
            "dflash_config": {"mask_token_id": mask_token, "target_layer_ids": list(taps)},
        }

    def weights(self) -> dict[str, Tensor]:
        """What goes into the file: the scale of the features is part of `fc` there."""
        state = dict(self.module.state_dict())
        state["fc.weight"] = state["fc.weight"] / self.scale.flatten()
        return state

    def take(self, weights: dict[str, Tensor]) -> None:
        fused = weights["fc.weight"].to(self.scale.device) * self.scale.flatten()
        self.module.load_state_dict(weights | {"fc.weight": fused})

    def _initialise(self, verifier: Any) -> None:
        """Layers start as the verifier's blocks `origins`, the context as its last tapped features beside
        random views of the others, scaled as the last of `origins` has it.
        """
        with torch.no_grad():
            for layer, origin in zip(self.network.layers, self.origins, strict=True):
                theirs: Any = verifier.layers[origin]
                layer.load_state_dict(theirs.state_dict(), strict=False)
                if not hasattr(theirs.self_attn, "q_norm"):
                    # DFlash norms heads that this verifier does not: attention would start out far too even.
                    for name in ("q", "k"):
                        projection = getattr(theirs.self_attn, f"{name}_proj")
                        norm = getattr(layer.self_attn, f"{name}_norm")
                        norm.weight.fill_(usual_size(projection, theirs.input_layernorm))
            last = verifier.layers[self.origins[-1]]
            self.network.hidden_norm.load_state_dict(last.input_layernorm.state_dict())
            self.network.norm.load_state_dict(verifier.norm.state_dict())
            size = self.target.runner.hidden_size
            self.network.fc.weight.normal_(0, size**-0.5)
            self.network.fc.weight[:, -size:] = torch.eye(size)

    def loss(self, batch: Batch, random: torch.Generator) -> Tensor:
        blocks = self._cut(batch, random)
        student, final = self._law(batch, blocks)
        slot = torch.arange(self.slots - 1, device=batch.ids.device)
        weights = (DECAY ** (slot - blocks.known[..., None]).clamp_min(0))[blocks.taught]
        return (divergence(student, law(final, self.head)) * weights).sum() / weights.sum()

    def measure(self, batch: Batch, found: HeldOut) -> None:
        """Blocks without a known prefix at evenly spread anchors."""
        blocks = self._cut(batch, None)
        student, final = self._law(batch, blocks)
        agree, overlap = compare(student, law(final, self.target.head), self.draft_ids.to(student.device))
        position = torch.arange(1, self.slots, device=agree.device).expand_as(blocks.taught)[blocks.taught]
        for place in range(1, self.slots):
            found.add(place, agree[position == place], overlap[position == place])

    def _cut(self, batch: Batch, random: torch.Generator | None) -> Blocks:
        """Anchors from the prompt's last row to the text's second last; evenly spread without `random`."""
        first = batch.prompt_tokens - 1
        room = (batch.lengths - 1 - first)[:, None]
        shape = (len(first), self.anchors)
        device = batch.ids.device
        if random is None:
            spread = (torch.arange(self.anchors, device=device) + 0.5).expand(shape) / self.anchors
            known = torch.zeros(shape, dtype=torch.long, device=device)
        else:
            spread = torch.rand(shape, generator=random).to(device)
            most = self.longest_known
            length = torch.randint(1, max(most, 1) + 1, shape, generator=random).clamp_max(most).to(device)
            known = torch.where(torch.rand(shape, generator=random).to(device) < KNOWN_SHARE, length, 0)
        anchors = first[:, None] + (spread * room).long()
        slots = anchors[..., None] + torch.arange(self.slots, device=device)
        masked = torch.arange(1, self.slots, device=device) > known[..., None]
        return Blocks(anchors, known, slots, masked & (slots[..., 1:] < batch.lengths[:, None, None]))

    def _law(self, batch: Batch, blocks: Blocks) -> tuple[Tensor, Tensor]:
        """The drafter's log-law [n, draft vocab] at the taught slots, and the verifier's final hidden states
        [n, H] that tell its own.

        With `shift` a slot's token is read off the row before it, the first one off the anchor itself.
        """
        rows = self._forward(batch, blocks)
        hidden = rows[:, :, :-1] if self.shift else rows[:, :, 1:]
        logits = self.head(hidden[blocks.taught])
        if self.domino is not None:
            logits = logits + self._correction(batch, blocks, hidden)[blocks.taught]
        student = logits.float().log_softmax(-1)
        before = (blocks.slots[..., 1:] - 1).clamp_max(batch.final.shape[1] - 1)  # row s - 1 predicts token s
        lanes = torch.arange(len(before), device=before.device)[:, None, None].expand_as(before)
        return student, batch.final[lanes[blocks.taught], before[blocks.taught]]

    def _correction(self, batch: Batch, blocks: Blocks, hidden: Tensor) -> Tensor:
        """[b, a, k - 1, draft vocab], from the true tokens before each slot."""
        assert self.domino is not None
        told = self._real(batch, blocks)[..., :-1].flatten(0, 1)
        embedded = nn.functional.embedding(told, self.embedding)
        return self.domino(hidden.flatten(0, 1), embedded).view(*hidden.shape[:-1], -1)

    def _real(self, batch: Batch, blocks: Blocks) -> Tensor:
        """The text's ids [b, a, k] at the slots; the last id stands in behind its end."""
        last = batch.ids.shape[1] - 1
        return batch.ids.gather(1, blocks.slots.flatten(1).clamp_max(last)).view_as(blocks.slots)

    def _forward(self, batch: Batch, blocks: Blocks) -> Tensor:
        """Hidden states [b, a, k, H] of all blocks at once."""
        b, a, k = blocks.slots.shape
        rows = batch.features.shape[1]
        device = batch.ids.device
        slot = torch.arange(k, device=device)
        real = self._real(batch, blocks)
        tokens = torch.where(slot <= blocks.known[..., None], real, self.mask_token).flatten(1)
        embedded = nn.functional.embedding(tokens, self.embedding)
        positions = torch.cat([torch.arange(rows, device=device).expand(b, rows), blocks.slots.flatten(1)], 1)
        context = torch.arange(rows, device=device) < blocks.anchors.repeat_interleave(k, 1)[..., None]
        own = torch.block_diag(*[torch.ones(k, k, dtype=torch.bool, device=device)] * a).expand(
            b, a * k, a * k
        )
        visible = torch.cat([context, own], dim=2)[:, None]
        features = batch.features.to(embedded.dtype) / self.scale
        return self.network(embedded, features, positions, visible).view(b, a, k, -1)

    def config(self) -> dict[str, Any]:
        made = self.config_of(self.target, len(self.origins), self.slots, self.mask_token, self.network.taps)
        made["dflash_config"] |= {"known_prefix": self.longest_known > 0}
        if self.shift:
            made["dflash_config"] |= {"shift_label": True}
        if self.domino is not None:
            state, rank = self.domino_sizes
            made["dflash_config"] |= {
                "projector_type": "domino",
                "domino_state": state,
                "domino_rank": rank,
            }
        return made | {"draft_vocab_size": len(self.draft_ids), "initialised_from_layers": self.origins}

    def extra_tensors(self) -> dict[str, Tensor]:
        return {"d2t": to_offsets(self.draft_ids)}


def usual_size(projection: Any, norm: Any) -> float:
    """Root mean square of a projection's outputs behind a norm, were what it normed as large in every
    direction.
    """
    weight: Tensor = projection.weight * norm.weight
    return float(weight.square().sum(1).mean().sqrt())

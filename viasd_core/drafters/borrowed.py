"""An autoregressive drafter made of a few blocks: embedding and output head are the verifier's own, frozen.

The head is cut to the ids that texts really use (EAGLE-3's reduced draft vocabulary, arXiv 2503.01840: entry
i of `d2t` is the verifier's id minus i), because the head is most of what a drafter of two blocks costs.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import PairError, SourceError
from ..layers import BlockRunner
from ..masks import Pass
from ..slots import SlotCache
from ..softcap import CappedHead
from ..sublayers import Layer
from ..tiers import TierStack
from ..verifier import Verifier
from .autoregressive import AutoregressiveDrafter
from .base import Drafter
from .checkpoints import Checkpoint, Target, Trained, check_equal

ARCHITECTURE = "ViasdArDrafter"


class BorrowedModel(nn.Module):
    """A Hugging Face decoder of `blocks` layers in the verifier's shape, with its embedding and cut head.

    `draft_ids` [draft vocab] are the verifier's ids that the head keeps. State: `model.layers`, `model.norm`.
    """

    def __init__(self, target: Target, blocks: int, draft_ids: Tensor) -> None:
        from transformers import AutoModel

        super().__init__()
        self.config: Any = shrunk_config(target.config, blocks)
        self.model: Any = AutoModel.from_config(self.config, dtype=target.runner.dtype)
        self.model.embed_tokens = _frozen_view(target.runner.body.embed_tokens)
        self.lm_head = cut_head(target.head, draft_ids)
        self.config.vocab_size = draft_ids.shape[0]


def shrunk_config(config: Any, blocks: int) -> Any:
    """The verifier's config with fewer layers and no embedding of its own."""
    small = copy.deepcopy(config)
    small.num_hidden_layers = blocks
    if getattr(small, "layer_types", None):
        small.layer_types = small.layer_types[:blocks]
    small.vocab_size, small.pad_token_id = 1, None
    small._attn_implementation = config._attn_implementation
    return small


def _frozen_view(embedding: nn.Embedding) -> nn.Embedding:
    """The same table, and the same scale where there is one; a view may change its dtype on its own."""
    view = copy.copy(embedding)
    view._parameters = {"weight": nn.Parameter(embedding.weight.detach(), requires_grad=False)}
    view._buffers = dict(embedding._buffers)
    return view


def cut_head(head: Any, draft_ids: Tensor) -> Any:
    """The head's rows of `draft_ids`, as a head of its own."""
    if isinstance(head, CappedHead):
        return CappedHead(cut_head(head.inner, draft_ids), head.cap)
    ids = draft_ids.to(head.weight.device)
    cut = nn.Linear(head.in_features, ids.shape[0], bias=head.bias is not None, device="meta")
    cut.weight = nn.Parameter(head.weight[ids].detach().clone(), requires_grad=False)
    if head.bias is not None:
        cut.bias = nn.Parameter(head.bias[ids].detach().clone(), requires_grad=False)
    return cut


def whole_model(model: BorrowedModel, verifier: Any) -> Any:
    """A Hugging Face causal LM over the verifier's whole vocabulary, sharing blocks, embedding and head.

    For baselines that draft with Hugging Face's own code. Nothing is copied.
    """
    from transformers import AutoModelForCausalLM

    config = copy.deepcopy(model.config)
    config.vocab_size = 1
    whole: Any = AutoModelForCausalLM.from_config(config, dtype=verifier.dtype)
    whole.model.layers, whole.model.norm = model.model.layers, model.model.norm
    whole.model.embed_tokens, whole.lm_head = verifier.model.embed_tokens, verifier.lm_head
    whole.config.vocab_size = verifier.config.vocab_size
    return whole.eval()


def spread(logits: Tensor, draft_ids: Tensor | None, vocab_size: int) -> Tensor:
    """Logits [.., draft vocab] over the whole vocabulary [.., V]: -inf where the drafter knows no id."""
    if draft_ids is None:
        return logits[..., :vocab_size]
    whole = logits.new_full((*logits.shape[:-1], vocab_size), -torch.inf)
    whole[..., draft_ids] = logits
    return whole


class ReducedRunner(BlockRunner):
    """`BlockRunner` of a `BorrowedModel`; its logits are spread over the pair's `vocab_size` ids."""

    def __init__(self, model: BorrowedModel, draft_ids: Tensor, vocab_size: int, n_ctx: int) -> None:
        super().__init__(model)
        self.draft_ids = draft_ids.to(self.device)
        self.vocab_size, self.n_ctx = vocab_size, n_ctx

    def forward(
        self, tokens: Tensor, plan: Pass, slots: SlotCache, layers: Sequence[Layer], logit_rows: int
    ) -> Tensor | None:
        logits = super().forward(tokens, plan, slots, layers, logit_rows)
        return None if logits is None else spread(logits, self.draft_ids, self.vocab_size)


def to_offsets(draft_ids: Tensor) -> Tensor:
    """Sorted ids as EAGLE-3 stores them: d2t[i] = id - i."""
    return draft_ids - torch.arange(draft_ids.shape[0], device=draft_ids.device)


def from_offsets(name: str, d2t: Tensor, vocab_size: int) -> Tensor:
    """The verifier's ids of drafter `name`'s d2t tensor.

    Raises SourceError unless they are distinct and all known to it.
    """
    ids = d2t.flatten().long() + torch.arange(d2t.numel())
    if (
        d2t.dtype not in (torch.int64, torch.int32)
        or d2t.dim() != 1
        or not len(ids)
        or ids.min() < 0
        or ids.max() >= vocab_size
        or len(ids.unique()) != len(ids)
    ):
        raise SourceError(f"d2t of {name} does not name distinct ids below the verifier's {vocab_size}")
    return ids


def fits(config: Mapping[str, Any]) -> bool:
    return ARCHITECTURE in (config.get("architectures") or ())


def load(checkpoint: Checkpoint, target: Target) -> Trained:
    """Raises PairError for another verifier's drafter, SourceError for damaged files."""
    config = target.config
    for key in (
        "model_type",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
    ):
        check_equal(checkpoint, target, key, checkpoint.config.get(key), getattr(config, key))
    blocks, vocabulary = checkpoint.need("num_hidden_layers"), checkpoint.need("vocab_size")
    if vocabulary != config.vocab_size:
        raise PairError(
            f"drafter {checkpoint.name} was trained for a vocabulary of {vocabulary} ids, {target.name} has "
            f"{config.vocab_size}; use the drafter made for this verifier"
        )
    draft_ids = from_offsets(checkpoint.name, checkpoint.read("d2t"), target.runner.vocab_size)
    model = BorrowedModel(target, blocks, draft_ids)
    checkpoint.fill(TrainedPart(model), target, ignore=("d2t",))
    model.model.rotary_emb.to(target.runner.device)
    runner = ReducedRunner(model, draft_ids, target.runner.vocab_size, target.runner.n_ctx)

    def make(verifier: Verifier, capacity: int) -> Drafter:
        stack = TierStack(runner, [range(runner.n_layers)], capacity)
        return AutoregressiveDrafter(checkpoint.name, stack, 0, runner.n_ctx, runner.vocab_size)

    return Trained("ar", (), make, model)


class TrainedPart(nn.Module):
    """What of a `BorrowedModel` lies in its file: blocks and last norm."""

    def __init__(self, model: BorrowedModel) -> None:
        super().__init__()
        self.layers, self.norm = model.model.layers, model.model.norm

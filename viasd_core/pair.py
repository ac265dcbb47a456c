"""A verifier and what drafts for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from .presets import DrafterSpec, Preset
from .sources import LoadedModel


@dataclass(frozen=True)
class ModelPair:
    """A verifier q, the drafter that proposes for it and, where the drafter is a model, that model p."""

    name: str
    verifier: LoadedModel
    drafter: DrafterSpec
    draft_model: LoadedModel | None  # set when drafter.kind == "model"
    preset: Preset

    @cached_property
    def n_vocab(self) -> int:
        """Ids both models know: logits are sliced to this width, so that padding rows are never drawn."""
        sizes = [self.verifier.n_vocab, max(self.verifier.tokenizer.get_vocab().values()) + 1]
        if self.draft_model is not None:
            sizes.append(self.draft_model.n_vocab)
        return min(sizes)

"""Training an autoregressive drafter: a few of the verifier's own blocks, taught its law by KL divergence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..drafters.borrowed import ARCHITECTURE, BorrowedModel, TrainedPart, to_offsets
from ..drafters.checkpoints import Target
from .batches import Batch
from .objective import HeldOut, compare, divergence, law


class ArObjective:
    """KL(q || p) on every token the verifier wrote, over the draft vocabulary.

    The blocks start as copies of the verifier's `origins`, its last norm as theirs.
    """

    def __init__(self, target: Target, origins: Sequence[int], draft_ids: Tensor) -> None:
        self.target, self.origins, self.draft_ids = target, list(origins), draft_ids
        self.model = BorrowedModel(target, len(self.origins), draft_ids)
        verifier: Any = target.runner.model.model
        for block, origin in zip(self.model.model.layers, self.origins, strict=True):
            block.load_state_dict(verifier.layers[origin].state_dict())
        self.model.model.norm.load_state_dict(verifier.norm.state_dict())
        # Training is in float32, whatever the verifier runs in; on a card autocast lowers the products.
        self.model.to(device=target.runner.device, dtype=torch.float32)
        self.module: nn.Module = TrainedPart(self.model)

    def loss(self, batch: Batch, random: torch.Generator) -> Tensor:
        student, final = self._law(batch)
        return divergence(student, law(final, self.model.lm_head)).mean()

    def measure(self, batch: Batch, found: HeldOut) -> None:
        """Teacher-forced: the figures of one position stand for all."""
        student, final = self._law(batch)
        found.add(1, *compare(student, law(final, self.target.head), self.draft_ids.to(student.device)))

    def _law(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The drafter's log-law [n, draft vocab] at the rows that predict, and the verifier's final hidden
        states [n, H] there.
        """
        rows = batch.predicting()
        # Padding stands behind the text, where causal attention cannot see it.
        hidden = self.model.model(input_ids=batch.ids[:, :-1], use_cache=False).last_hidden_state
        return self.model.lm_head(hidden[rows]).float().log_softmax(-1), batch.final[rows]

    def weights(self) -> dict[str, Tensor]:
        return dict(self.module.state_dict())

    def take(self, weights: dict[str, Tensor]) -> None:
        self.module.load_state_dict(weights)

    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self.target.config.to_dict()
        config.pop("_name_or_path", None)  # a place on this machine
        return config | {
            "architectures": [ARCHITECTURE],
            "num_hidden_layers": len(self.origins),
            "draft_vocab_size": len(self.draft_ids),
            "initialised_from_layers": self.origins,
        }

    def extra_tensors(self) -> dict[str, Tensor]:
        return {"d2t": to_offsets(self.draft_ids)}


def most_important(target: Target, texts: Sequence[Sequence[int]], count: int) -> list[int]:
    """The `count` blocks that turn their input the most (block influence, 1 - cos(in, out), arXiv
    2403.03853).
    """
    model: Any = target.runner.model
    influence = torch.zeros(target.runner.n_layers)
    with torch.inference_mode():
        for text in texts:
            ids = torch.tensor([list(text)], device=target.runner.device)
            states = model.model(input_ids=ids, output_hidden_states=True, use_cache=False).hidden_states
            for layer in range(target.runner.n_layers):
                # The last state is normed, which changes no direction that the cosine would miss much.
                turned = nn.functional.cosine_similarity(
                    states[layer].float(), states[layer + 1].float(), dim=-1
                )
                influence[layer] += 1 - turned.mean().cpu()
    return sorted(influence.topk(count).indices.tolist())

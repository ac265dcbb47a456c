"""What training a drafter needs from its kind: a module, a loss and held-out figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..softcap import CappedHead
from .batches import Batch


@dataclass
class HeldOut:
    """Acceptance by draft position, summed over held-out rows; position 1 is the first drafted token.

    `agree`: the drafter's first choice is the verifier's. `overlap`: sum_v min(p, q), the chance that a
    sampled draft is accepted at temperature 1 (arXiv 2211.17192).
    """

    agree: list[float] = field(default_factory=list)
    overlap: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)  # predictions judged

    def add(self, position: int, agree: Tensor, overlap: Tensor) -> None:
        """agree, overlap: [n] of one position."""
        while len(self.rows) < position:
            self.agree.append(0.0)
            self.overlap.append(0.0)
            self.rows.append(0)
        self.agree[position - 1] += float(agree.sum())
        self.overlap[position - 1] += float(overlap.sum())
        self.rows[position - 1] += agree.numel()

    def shares(self, name: str) -> list[float]:
        sums: list[float] = getattr(self, name)
        return [total / rows if rows else 0.0 for total, rows in zip(sums, self.rows, strict=True)]

    @property
    def score(self) -> float:
        """Drafted tokens a greedy cycle keeps, were positions independent: what early stopping watches."""
        kept, total = 1.0, 0.0
        for share in self.shares("agree"):
            kept *= share
            total += kept
        return total


class Objective(Protocol):
    """A drafter in training. `module` holds exactly the trained parameters, under their names in the file."""

    module: nn.Module

    def loss(self, batch: Batch, random: torch.Generator) -> Tensor: ...

    def measure(self, batch: Batch, found: HeldOut) -> None: ...

    def weights(self) -> dict[str, Tensor]:
        """The trained tensors as the file holds them."""
        ...

    def take(self, weights: dict[str, Tensor]) -> None:
        """Train on from tensors that `weights` gave."""
        ...

    def config(self) -> dict[str, Any]:
        """config.json"""
        ...

    def extra_tensors(self) -> dict[str, Tensor]:
        """Tensors of the file that are not trained."""
        ...


def law(final: Tensor, head: nn.Linear | CappedHead) -> Tensor:
    """The verifier's log-law over the head's ids from its stored final hidden states [n, H]."""
    with torch.no_grad():
        return head(final.to(head.weight.dtype)).float().log_softmax(-1)


def divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """KL(teacher || student) [n] of log-laws [n, V], nats."""
    return torch.nn.functional.kl_div(student, teacher, reduction="none", log_target=True).sum(-1)


def compare(student: Tensor, teacher: Tensor, draft_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Whether first choices agree, and the overlap sum_v min(p, q), per row.

    student [n, draft vocab] and teacher [n, V] are log-laws: what the drafter cannot say counts against it.
    """
    agree = draft_ids[student.argmax(-1)] == teacher.argmax(-1)
    return agree, torch.minimum(student.exp(), teacher[:, draft_ids].exp()).sum(-1)

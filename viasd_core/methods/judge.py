"""q's opinion of every row it ran over: the retro-audit's raw material, computed where the logits are."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..probs import raw_log_probs
from .outcome import Judged, Opinion

COLUMNS = 6


@dataclass(frozen=True)
class RowFacts:
    """Facts of logits rows [m, V], kept on the device until they travel with the cycle's packed copy."""

    logp: Tensor  # [m, V] raw log q
    probs: Tensor | None  # [m, V] processed q, None when not needed
    kl: Tensor  # [m]

    def about(self, tokens: Tensor, rows: Tensor | None = None) -> Tensor:
        """Columns best, best_logp, logp, rank, prob, kl for one token a row, [m, 6]."""
        logp = self.logp if rows is None else self.logp[rows]
        kl = self.kl if rows is None else self.kl[rows]
        probs = self.probs if rows is None or self.probs is None else self.probs[rows]
        mine = logp.gather(-1, tokens[:, None])
        best_logp, best = logp.max(-1)
        rank = (logp > mine).sum(-1)
        prob = torch.ones_like(kl) if probs is None else probs.gather(-1, tokens[:, None])[:, 0]
        columns = (best, best_logp, mine[:, 0], rank, prob, kl)
        return torch.stack([column.double() for column in columns], dim=1)


def row_facts(logits: Tensor, probs: Tensor | None, slim_logits: Tensor | None) -> RowFacts:
    """`slim_logits` [k, V] are q' rows aligned with the first k of q's `logits` [m, V], as q' saw them when
    it settled the token; the remaining rows have no KL.
    """
    logp = raw_log_probs(logits)
    kl = torch.zeros(logp.shape[0], dtype=logp.dtype, device=logp.device)
    if slim_logits is not None and slim_logits.shape[0]:
        count = slim_logits.shape[0]
        full = logp[:count]
        kl[:count] = (full.exp() * (full - raw_log_probs(slim_logits))).sum(-1).clamp_min(0)
    return RowFacts(logp, probs, kl)


def opinions(flat: list[float]) -> list[Opinion]:
    """Rows of `RowFacts.about` after the packed copy."""
    rows = [flat[start : start + COLUMNS] for start in range(0, len(flat), COLUMNS)]
    return [
        Opinion(int(best), best_logp, logp, int(rank), prob, kl)
        for best, best_logp, logp, rank, prob, kl in rows
    ]


def judged(base: int, flat: list[float]) -> Judged:
    return Judged(base, opinions(flat))

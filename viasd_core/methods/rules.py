"""How the full verifier tests a drafted token, and what it draws instead. Shared by SD and VIA-SD's region C.

Rows are processed probabilities unless named raw; p is the drafter, q the verifier, `slim` q'. Shapes [g, V].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..probs import normalise, raw_log_probs, residual


@dataclass(frozen=True)
class Contest:
    """Everything a rule may look at for one drafted block of g tokens."""

    tokens: Tensor  # [g]
    uniforms: Tensor  # [g]
    p: Tensor  # [g, V]
    q: Tensor  # [g, V]
    q_logits: Tensor  # [g, V] raw
    slim: Tensor | None  # [g, V]
    greedy: bool

    def of_draft(self, rows: Tensor) -> Tensor:
        """The drafted tokens' entries of `rows`, [g]."""
        return rows.gather(-1, self.tokens[:, None])[:, 0]


class Rule(Protocol):
    def keep(self, contest: Contest) -> Tensor:
        """Which drafted tokens pass, bool [g], each as if its predecessors had."""
        ...

    def replacement(self, contest: Contest, offset: Tensor) -> Tensor:
        """Law [1, V] of the token drawn where draft `offset` [1] failed."""
        ...


@dataclass(frozen=True)
class Lossless:
    """Keep with probability min(1, q/p), else the residual: the output law is q (arXiv 2211.17192)."""

    def keep(self, contest: Contest) -> Tensor:
        return contest.uniforms * contest.of_draft(contest.p) < contest.of_draft(contest.q)

    def replacement(self, contest: Contest, offset: Tensor) -> Tensor:
        return residual(contest.q[offset], contest.p[offset])


@dataclass(frozen=True)
class Lossy:
    """Keep with probability min(1, q / ((1 - alpha) p)), else norm(max(0, q / beta - p)): VIA-SD (A.2),
    (A.3).

    Greedy rows are one-hot and would make this plain SD, so at temperature 0 the test is q(v) >= (1 - alpha)
    max q on raw rows and the replacement is q's argmax.
    """

    alpha: float
    beta: float

    def keep(self, contest: Contest) -> Tensor:
        if contest.greedy:
            raw = raw_log_probs(contest.q_logits).exp()
            return contest.of_draft(raw) >= (1 - self.alpha) * raw.amax(-1)
        p, q = contest.of_draft(contest.p), contest.of_draft(contest.q)
        return contest.uniforms * (1 - self.alpha) * p < q

    def replacement(self, contest: Contest, offset: Tensor) -> Tensor:
        if contest.greedy:
            return contest.q[offset]
        q, p = contest.q[offset], contest.p[offset]
        return normalise((q / self.beta - p).clamp_min(0), q)


@dataclass(frozen=True)
class Mixture:
    """Lossless towards pi = (1 - d2)((1 - d1) p + d1 q') + d2 q, VIA-SD (14), with d1, d2 as counted so far.

    At temperature 0 one-hot rows would make the test random, so pi is built from raw rows and its argmax
    decides.
    """

    d1: float
    d2: float
    raw_p: Tensor | None  # [g, V]; None for a drafter without logits, whose rows are already exact
    raw_slim: Tensor  # [g, V]

    def target(self, contest: Contest) -> Tensor:
        """pi, [g, V]."""
        if contest.greedy:
            p = contest.p if self.raw_p is None else self.raw_p
            return self._mix(p, self.raw_slim, raw_log_probs(contest.q_logits).exp())
        assert contest.slim is not None
        return self._mix(contest.p, contest.slim, contest.q)

    def _mix(self, p: Tensor, slim: Tensor, q: Tensor) -> Tensor:
        return (1 - self.d2) * ((1 - self.d1) * p + self.d1 * slim) + self.d2 * q

    def keep(self, contest: Contest) -> Tensor:
        pi = self.target(contest)
        if contest.greedy:
            return pi.argmax(-1) == contest.tokens
        return contest.uniforms * contest.of_draft(contest.p) < contest.of_draft(pi)

    def replacement(self, contest: Contest, offset: Tensor) -> Tensor:
        pi = self.target(contest)[offset]
        return pi if contest.greedy else residual(pi, contest.p[offset])


@dataclass(frozen=True)
class GreedyFull:
    """Keep only q's argmax, at any temperature; replace by it."""

    def keep(self, contest: Contest) -> Tensor:
        return contest.q_logits.argmax(-1) == contest.tokens

    def replacement(self, contest: Contest, offset: Tensor) -> Tensor:
        best = contest.q_logits[offset].argmax(-1, keepdim=True)
        return torch.zeros_like(contest.q[offset]).scatter_(-1, best, 1.0)


def first_failure(rule: Rule, contest: Contest, tested: Tensor) -> Tensor:
    """Offset [1] of the first tested token the rule refuses, g when none; it stays on the device."""
    return (rule.keep(contest) | ~tested).long().cumprod(0).sum().reshape(1)

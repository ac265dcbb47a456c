"""What every drafter offers: begin, draft, commit, rewind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from ..probs import Noise, Sampling, raw_log_probs


@dataclass(frozen=True)
class Draft:
    """A proposed block. Token j was drawn from row `probs[j]`; `logits` are raw, None for lookup."""

    tokens: Tensor  # [g] ids
    probs: Tensor  # [g, V] processed
    logits: Tensor | None  # [g, V]
    forwards: int  # drafter forwards this draft cost

    @property
    def length(self) -> int:
        return self.tokens.shape[0]

    def confident(self, p_min: float) -> Draft:
        """The tokens before the first that `unsure` holds of; all where rows have no probabilities."""
        if not p_min or self.logits is None:
            return self
        return self.cut(int((unsure(self.logits, p_min).cumsum(0) == 0).sum()))

    def cut(self, length: int) -> Draft:
        """The first `length` tokens."""
        logits = None if self.logits is None else self.logits[:length]
        return Draft(self.tokens[:length], self.probs[:length], logits, self.forwards)


def unsure(logits: Tensor, p_min: float) -> Tensor:
    """Marks [n] of raw rows [n, V] that give no token a probability of `p_min`.

    Told by the row, not by the token drawn from it: a draft that ended by that would change the output's law.
    """
    return raw_log_probs(logits).amax(-1).exp() < p_min


class Drafter(Protocol):
    """Proposes tokens behind the committed text. `commit` never runs a forward: pending tokens ride with
    `draft`.
    """

    name: str
    n_ctx: int  # longest text it can draft behind

    def begin(self, context: Sequence[int]) -> None:
        """Start on a prompt; may prefill."""
        ...

    def draft(self, count: int, sampling: Sampling, noise: Noise, p_min: float = 0.0) -> Draft:
        """Up to `count` tokens; fewer, also none, is legal. One that drafts token by token ends before a
        token that `unsure` holds of; others may leave `p_min` to `Draft.confident`.
        """
        ...

    def commit(self, tokens: Sequence[int], start: int) -> None:
        """The committed text is now its first `start` tokens followed by `tokens`."""
        ...

    def rewind(self, length: int) -> None:
        """Forget everything computed at and above row `length`."""
        ...


@dataclass(frozen=True)
class Redrawn:
    """Blocks drawn anew behind changed tokens, known ones included; b blocks of g tokens."""

    tokens: Tensor  # [b, g] ids
    logp: Tensor  # [b, g] raw log-probability, nats
    margin: Tensor  # [b, g] raw top-1 less top-2, nats
    probs: Tensor  # [b, g, V] the processed laws the tokens were drawn from
    forwards: int


@dataclass(frozen=True)
class Candidate:
    """One token of a drafter's own tree; `value` is the log-probability of the path down to it, nats."""

    token: int
    parent: int  # index among the candidates, -1: a child of the text's last token
    logp: float
    value: float


@runtime_checkable
class TreeDrafter(Drafter, Protocol):
    """A drafter that grows a tree by itself."""

    def draft_tree(self, depth: int, width: int) -> tuple[list[Candidate], int]:
        """Candidates of at most `depth` levels, parents first, and the forwards they cost. At each level the
        `width` most valuable nodes are expanded, each by its `width` likeliest tokens.
        """
        ...


@runtime_checkable
class BlockParallel(Drafter, Protocol):
    """A drafter that proposes a whole block in one pass and can draw what follows a changed token anew."""

    @property
    def longest(self) -> int:
        """Most tokens of one draft: K - 1 for blocks of K slots."""
        ...

    @property
    def rerolls(self) -> bool:
        """Whether it has a causal correction that `reroll` can redo."""
        ...

    def redraw(self, known: Sequence[Sequence[int]], count: int, sampling: Sampling, noise: Noise) -> Redrawn:
        """Blocks of `count` tokens that begin with `known`, in one batched pass, behind the text of the last
        `draft`.
        """
        ...

    def reroll(self, known: Sequence[Sequence[int]], count: int, sampling: Sampling, noise: Noise) -> Redrawn:
        """The same without a network pass: only the correction follows the changed tokens."""
        ...

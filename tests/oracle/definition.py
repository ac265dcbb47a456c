"""VIA-SD and speculative decoding at temperature 0 by their definition: no cache, every row from scratch.

Follows arXiv 2606.12243, Algorithms 1 and 2, with the engine's documented choices: one cache for q and q'
(q' reads q's rows below `n_q`), q at most once a cycle, the debt cap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import PreTrainedModel

from oracle.reference import first, of_layers, recompute
from viasd_core.settings import Settings
from viasd_core.sublayers import Layer

Guess = Callable[[list[int]], int]  # the drafter: the next token behind a text


@dataclass
class Cycle:
    """What one cycle did: regions in order, tokens committed, forwards of q (settles apart)."""

    regions: str
    committed: list[int]
    full: int
    settle: int
    n_q: int
    tiers: list[int | None] = field(default_factory=list)  # who settled each examined draft, 1 = first asked
    asked: int = 0  # slim verifiers that ran


@dataclass
class Definition:
    """A decoder over `text` (prompt, then output too); `layers` are those q' keeps, `stronger` those of the
    slim verifiers asked after it (or models of their own).
    """

    model: PreTrainedModel
    guess: Guess
    settings: Settings
    text: list[int]
    layers: tuple[Layer, ...] | PreTrainedModel = ()
    stronger: tuple[tuple[Layer, ...] | PreTrainedModel, ...] = ()
    eos: int = -1
    n_q: int = field(init=False)
    n_u: list[int] = field(init=False)  # each slim verifier's watermark
    limit: int = field(init=False)

    def __post_init__(self) -> None:
        self.n_q = len(self.text) - 1
        self.slims = [self.layers, *self.stronger]
        self.n_u = [self.n_q] * len(self.slims)
        self.limit = len(self.text) + self.settings.max_new_tokens

    def run(self) -> list[Cycle]:
        cycles: list[Cycle] = []
        while len(self.text) < self.limit and (not cycles or self.text[-1] != self.eos):
            cycles.append(self.cycle())
        return cycles

    def draft(self) -> list[int]:
        room = self.limit - len(self.text) - (self.settings.bonus_kind != "none")
        tokens: list[int] = []
        while len(tokens) < min(self.settings.gamma, room) and self.eos not in tokens:
            tokens.append(self.guess(self.text + tokens))
        return tokens

    def full_rows(self, draft: list[int]) -> Tensor:
        """q's rows that judge each drafted token and what follows the last."""
        return recompute(self.model, self.text + draft)[0][len(self.text) - 1 :]

    def slim_rows(self, draft: list[int], tier: int) -> Tensor:
        """q's rows below n_q, those of stronger tiers below their watermarks, its own above; in own mode, and
        where it is a model, it alone.
        """
        whole, slim = self.text + draft, self.slims[tier]
        if isinstance(slim, PreTrainedModel):
            return recompute(slim, whole)[0][-len(draft) - 1 :]
        if self.settings.slim_kv == "own":
            return recompute(self.model, whole, slim)[0][-len(draft) - 1 :]
        rows, known = first(recompute(self.model, whole)[1], self.n_q), self.n_q
        for stronger in range(len(self.slims) - 1, tier, -1):
            theirs = self.slims[stronger]
            if not isinstance(theirs, PreTrainedModel):
                rows = of_layers(rows, theirs)
                if self.n_u[stronger] > known:
                    known = self.n_u[stronger]
                    rows = recompute(self.model, whole[:known], theirs, rows)[1]
        logits = recompute(self.model, whole, slim, of_layers(rows, slim))[0]
        for weaker in range(tier + 1):
            self.n_u[weaker] = len(whole)
        return logits[-len(draft) - 1 :]

    def cycle(self) -> Cycle:
        draft = self.draft()
        if not draft:
            new = int(self.full_rows([])[0].argmax())
            return self.commit("", [new], full=1, settle=0)
        if self.settings.method == "sd":
            return self.speculative(draft)
        return self.via_sd(draft)

    def speculative(self, draft: list[int]) -> Cycle:
        said = self.full_rows(draft).argmax(-1).tolist()
        kept = next((j for j, token in enumerate(draft) if token != said[j]), len(draft))
        regions = "C" * min(kept + 1, len(draft))
        committed = draft[:kept]
        if kept < len(draft) or (self.settings.bonus_kind != "none" and draft[-1] != self.eos):
            committed = [*committed, said[kept]]
        return self.commit(regions, committed, full=1, settle=0)

    def via_sd(self, draft: list[int]) -> Cycle:
        settings = self.settings
        tau1, tau2 = settings.alpha1, settings.alpha2
        cap = settings.debt_limit(settings.gamma)
        settle = int(cap is not None and len(self.text) + len(draft) - self.n_q > cap)
        said = self.full_rows(draft).argmax(-1).tolist()
        seen: list[Tensor] = []  # rows of the slim verifiers that were asked
        regions, tiers, committed, new = "", list[int | None](), list[int](), None
        for j, token in enumerate(draft):
            region = "C"
            if not (settings.after_escalation == "q" and "C" in regions):
                for tier in range(len(self.slims)):
                    if tier == len(seen):
                        seen.append(self.slim_rows(draft, tier))
                    probs = seen[tier][j].softmax(-1)
                    r = float(probs[token] / probs.max())
                    region = "C" if r < tau2 else "A" if r >= tau1 else "B"
                    if region == "B" and not settings.regenerate:
                        region = "C"
                    if region != "C":
                        break
            regions += region
            tiers.append(tier + 1 if region != "C" else None)
            if region == "B":
                new = int(probs.argmax())
                break
            if region == "C" and token != said[j]:
                new = said[j]
                break
            committed.append(token)
        full = int("C" in regions and not settle)
        if new is None and settings.bonus_kind != "none" and draft[-1] != self.eos:
            last = seen[-1][-1]
            if full or settle:
                new = said[len(draft)]
            elif settings.bonus_kind == "slim" and last.softmax(-1).max() >= settings.bonus_threshold:
                new = int(last.argmax())
        done = self.commit(regions, committed + ([] if new is None else [new]), full=full, settle=settle)
        done.tiers, done.asked = tiers, len(seen)
        return done

    def commit(self, regions: str, tokens: list[int], *, full: int, settle: int) -> Cycle:
        if self.eos in tokens:
            tokens = tokens[: tokens.index(self.eos) + 1]
        self.text += tokens
        if full or settle:
            self.n_q = len(self.text) - 1
            self.n_u = [self.n_q] * len(self.n_u)
        self.n_u = [min(rows, len(self.text) - 1) for rows in self.n_u]
        return Cycle(regions, tokens, full, settle, self.n_q)


def guess_with(model: PreTrainedModel) -> Guess:
    """Greedy tokens of a draft model, each from scratch."""

    def guess(text: list[int]) -> int:
        with torch.no_grad():
            return int(recompute(model, text)[0][-1].argmax())

    return guess

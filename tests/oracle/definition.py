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

from oracle.reference import first, recompute
from viasd_core.settings import Settings

Guess = Callable[[list[int]], int]  # the drafter: the next token behind a text


@dataclass
class Cycle:
    """What one cycle did: regions in order, tokens committed, forwards of q (settles apart)."""

    regions: str
    committed: list[int]
    full: int
    settle: int
    n_q: int


@dataclass
class Definition:
    """A decoder over `text` (prompt, then output too); `layers` are those q' keeps."""

    model: PreTrainedModel
    guess: Guess
    settings: Settings
    text: list[int]
    layers: tuple[int, ...] = ()
    eos: int = -1
    n_q: int = field(init=False)
    limit: int = field(init=False)

    def __post_init__(self) -> None:
        self.n_q = len(self.text) - 1
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

    def slim_rows(self, draft: list[int]) -> Tensor:
        """q's rows below n_q, q' own above; in own mode q' by itself."""
        whole, prefix = self.text + draft, None
        if self.settings.slim_kv == "shared":
            rows = first(recompute(self.model, whole)[1], self.n_q)
            prefix = {layer: rows[layer] for layer in self.layers}
        return recompute(self.model, whole, self.layers, prefix)[0][-len(draft) - 1 :]

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
        settings, slim = self.settings, self.slim_rows(draft)
        tau1, tau2 = settings.alpha1, settings.alpha2
        cap = settings.debt_limit(settings.gamma)
        settle = int(cap is not None and len(self.text) + len(draft) - self.n_q > cap)
        said = self.full_rows(draft).argmax(-1).tolist()
        regions, committed, new = "", [], None
        for j, token in enumerate(draft):
            probs = slim[j].softmax(-1)
            r = float(probs[token] / probs.max())
            region = "C" if r < tau2 else "A" if r >= tau1 else "B"
            if region == "B" and not settings.regenerate:
                region = "C"
            if settings.after_escalation == "q" and "C" in regions:
                region = "C"
            regions += region
            if region == "B":
                new = int(probs.argmax())
                break
            if region == "C" and token != said[j]:
                new = said[j]
                break
            committed.append(token)
        full = int("C" in regions and not settle)
        if new is None and settings.bonus_kind != "none" and draft[-1] != self.eos:
            if full or settle:
                new = said[len(draft)]
            elif settings.bonus_kind == "slim" and slim[-1].softmax(-1).max() >= settings.bonus_threshold:
                new = int(slim[-1].argmax())
        return self.commit(regions, committed + ([] if new is None else [new]), full=full, settle=settle)

    def commit(self, regions: str, tokens: list[int], *, full: int, settle: int) -> Cycle:
        if self.eos in tokens:
            tokens = tokens[: tokens.index(self.eos) + 1]
        self.text += tokens
        if full or settle:
            self.n_q = len(self.text) - 1
        return Cycle(regions, tokens, full, settle, self.n_q)


def guess_with(model: PreTrainedModel) -> Guess:
    """Greedy tokens of a draft model, each from scratch."""

    def guess(text: list[int]) -> int:
        with torch.no_grad():
            return int(recompute(model, text)[0][-1].argmax())

    return guess

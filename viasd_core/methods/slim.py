"""The slim verifiers' part of a VIA-SD cycle: u_1, and a stronger one only when a token falls through to it.

arXiv 2606.12243, Algorithm 2 and Fig. 3a: at u_i a token of low confidence (r < tau2) goes to the next tier,
else it is kept (r >= tau1) or u_i draws another one; what falls through the last slim verifier is q's. Each
slim verifier runs at most once a cycle, over the whole block.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..drafters.base import Draft
from ..probs import draw, logits_to_probs, raw_log_probs
from ..transfer import to_device, to_host
from .base import Run, cut_after_eos, draft_facts
from .gates import block_regions, confidence_ratios, in_region_b, region
from .outcome import NewToken, Opinion

Column = list[float]


@dataclass
class Examined:
    """What the slim verifiers said of one block, cut behind its first end-of-sequence token.

    `host` holds the columns of the tier that decided each offset: `ratio`, and `logp_slim` in a traced run.
    `decided[j]` is that tier, from 0.
    """

    draft: Draft
    thresholds: tuple[float, float]
    host: dict[str, Column]
    decided: list[int]
    looks: list[dict[str, Column]] = field(default_factory=list)  # one a tier that ran
    logits: list[Tensor] = field(default_factory=list)  # raw [g + 1, V], one a tier that ran
    regions: list[str] = field(default_factory=list)

    @property
    def rows(self) -> Tensor:
        """Raw rows [g + 1, V] of the tiers that decided; behind the block, of the strongest that ran."""
        if len(self.logits) == 1:
            return self.logits[0]
        tiers = to_device([*self.decided, len(self.logits) - 1], self.logits[0].device)
        return torch.stack(self.logits)[tiers, torch.arange(len(tiers), device=tiers.device)]

    @property
    def tiers(self) -> list[int | None]:
        """Who settled each draft: slim verifier 1, 2, ..., None where q decides or nobody looked."""
        marks = [*self.regions, *[""] * (self.draft.length - len(self.regions))]
        return [
            tier + 1 if mark in ("A", "B") else None for tier, mark in zip(self.decided, marks, strict=True)
        ]

    def redrawn(self, opinion: Opinion | None) -> NewToken:
        """The token that replaces the draft in region B."""
        tier = self.decided[len(self.regions) - 1]
        return slim_token(self.looks[tier], "redraw", "regenerated_slim", opinion, tier=tier)

    @property
    def redrawn_id(self) -> int:
        return int(self.looks[self.decided[len(self.regions) - 1]]["redraw"][0])

    def bonus(self, threshold: float) -> NewToken | None:
        """A token behind the block, where the strongest tier that ran is confident enough."""
        look = self.looks[-1]
        if look["bonus_confidence"][0] < threshold:
            return None
        return slim_token(look, "bonus", "bonus", None, tier=len(self.looks) - 1)


def examine(run: Run, draft: Draft, tau1: float, tau2: float) -> Examined:
    """Run u_1 over the block, and each stronger slim verifier once a token of the block falls to it."""
    settings, slims = run.settings, run.verifier.slims
    logits = _forward(run, draft, 0)
    with run.clock.phase("gate"):
        host = to_host(**draft_facts(run, draft), **_look(run, draft, logits, tau1, tau2, None))
    length = cut_after_eos(host["tokens"], run.eos_ids)
    found = Examined(draft.cut(length), (tau1, tau2), host, [0] * length, [host], [logits[: length + 1]])
    while True:
        found.regions = block_regions(
            found.host["ratio"][:length],
            tau1,
            tau2,
            regenerate=settings.regenerate,
            after_escalation=settings.after_escalation,
        )
        if "C" not in found.regions or len(found.looks) == len(slims):
            return found
        _ask_next(run, found)


def _ask_next(run: Run, found: Examined) -> None:
    """The next stronger tier looks at the block and decides the offsets that fell through to it."""
    tier, (tau1, tau2) = len(found.looks), found.thresholds
    ratios = found.host["ratio"]
    fallen = [
        mark == "C" or (mark == "B" and not run.settings.regenerate)
        for mark in (region(r, tau1, tau2) for r in ratios[: found.draft.length])
    ]
    logits = _forward(run, found.draft, tier)
    with run.clock.phase("gate"):
        reached = to_device(fallen, logits.device)
        look = to_host(**_look(run, found.draft, logits, tau1, tau2, reached))
    found.logits.append(logits)
    found.looks.append(look)
    found.host = dict(found.host)
    for name in ("ratio", "logp_slim"):
        if name in look:
            column = zip(fallen, look[name], found.host[name], strict=False)
            found.host[name] = [theirs if fell else before for fell, theirs, before in column]
    found.decided = [tier if fell else before for fell, before in zip(fallen, found.decided, strict=True)]


def _forward(run: Run, draft: Draft, tier: int) -> Tensor:
    with run.clock.phase("slim", part=tier):
        return run.verifier.slims[tier].run(run.tokens, draft.tokens)


def _look(
    run: Run, draft: Draft, logits: Tensor, tau1: float, tau2: float, reached: Tensor | None
) -> dict[str, Tensor]:
    """Everything the gate needs of one slim verifier, for a packed copy; the region-B redraw and slim bonus
    are drawn alongside. `reached` marks the offsets it is asked about (None: all).
    """
    settings = run.settings
    ratios = confidence_ratios(logits[:-1], draft.tokens)
    columns = {"ratio": ratios}
    if settings.trace:
        columns["logp_slim"] = raw_log_probs(logits[:-1]).gather(-1, draft.tokens[:, None])
    if settings.regenerate:
        redrawn = in_region_b(ratios, tau1, tau2)
        if reached is not None:
            redrawn = redrawn & reached
        columns |= _draw_slim(run, "redraw", logits[redrawn.int().argmax(0, keepdim=True)])
    if settings.bonus_kind == "slim":
        columns |= _draw_slim(run, "bonus", logits[-1:])
        columns["bonus_confidence"] = raw_log_probs(logits[-1]).max().exp()
    return columns


def _draw_slim(run: Run, name: str, logits: Tensor) -> dict[str, Tensor]:
    """A draw from one raw row [1, V], with its processed probability and raw log-probability."""
    law = logits_to_probs(logits, run.sampling)
    token = draw(law, run.noise.exponentials(name, run.sampling, *law.shape))[:, None]
    return {
        name: token,
        f"{name}_p": law.gather(-1, token),
        f"{name}_logp": raw_log_probs(logits).gather(-1, token),
    }


def slim_token(
    look: dict[str, Column],
    name: str,
    verdict: str,
    opinion: Opinion | None,
    *,
    tier: int = 0,
    row: int = 0,
) -> NewToken:
    """The draw `name` of slim verifier `tier` (from 0), out of its columns after the packed copy."""
    return NewToken(
        int(look[name][row]),
        verdict,
        "slim_sample",
        p_used=look[f"{name}_p"][row],
        logp_slim=look[f"{name}_logp"][row],
        opinion=opinion,
        tier=tier + 1,
    )

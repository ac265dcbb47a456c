"""What a method sees of a run, and the steps SD and VIA-SD share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from ..drafters.base import BlockParallel, Draft, Drafter
from ..drafters.lookup import copied
from ..live import Knobs
from ..method_options import BLOCK_METHODS
from ..probs import Noise, Sampling, draw, logits_to_probs, raw_log_probs
from ..settings import Settings
from ..timing import PhaseClock
from ..transfer import to_device, to_host
from ..verifier import Verifier
from .judge import judged, row_facts
from .outcome import Drafted, NewToken, Outcome


@dataclass
class Run:
    """The state of one run that methods read. `tokens` are prompt and committed output, the last is the
    anchor.
    """

    settings: Settings
    tokens: list[int]
    limit: int  # tokens may never grow beyond: prompt + max_new, or the context
    verifier: Verifier
    drafter: Drafter | None
    eos_ids: frozenset[int]
    noise: Noise
    clock: PhaseClock
    knobs: Knobs
    slim_rows: list[Tensor] = field(
        default_factory=list
    )  # raw q' row of each committed token q has not judged
    region_totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys("ABC", 0))
    drafter_out_of_context: bool = False

    @property
    def sampling(self) -> Sampling:
        settings = self.settings
        return Sampling(self.knobs.temperature, settings.top_k, settings.top_p, settings.min_p)

    @property
    def longest_draft(self) -> int:
        """Most tokens of one draft: gamma, or a whole block where the method drafts those."""
        if self.settings.method in BLOCK_METHODS and isinstance(self.drafter, BlockParallel):
            return self.drafter.longest
        return self.knobs.gamma

    @property
    def wants_opinions(self) -> bool:
        """Whether q's view of each token is needed: for the trace, and for strict's corrections."""
        return self.settings.trace or self.settings.strict

    @property
    def debt_slim_rows(self) -> Tensor | None:
        return torch.stack(self.slim_rows) if self.slim_rows else None


class Method(Protocol):
    def cycle(self, run: Run) -> Outcome: ...


def draft_block(run: Run, *, bonus_possible: bool, sampling: Sampling | None = None) -> Draft | None:
    """Draft at most gamma tokens (or one block), none past the limit or the drafter's context and none behind
    one it is unsure of, by the run's sampling unless told otherwise. None: there is nothing to draft with or
    no room; a draft may be empty.
    """
    count = draft_room(run, bonus_possible=bonus_possible)
    if run.drafter is None or count < 1:
        return None
    with run.clock.phase("draft"):
        if run.settings.copies_first and (repeated := look_up(run, count)).length:
            return repeated
        p_min = run.settings.least_sure
        return run.drafter.draft(count, sampling or run.sampling, run.noise, p_min).confident(p_min)


def look_up(run: Run, count: int) -> Draft:
    """What followed the same words earlier in the text; the run's drafter is not asked then."""
    runner = run.verifier.runner
    return copied(run.tokens, count, runner.vocab_size, runner.device, runner.dtype)


def draft_room(run: Run, *, bonus_possible: bool) -> int:
    """Most tokens a draft may have now; below 1: nothing can be drafted."""
    if run.drafter is None:
        return 0
    room = run.limit - len(run.tokens) - (1 if bonus_possible else 0)
    drafter_room = run.drafter.n_ctx - len(run.tokens) + 1
    run.drafter_out_of_context = drafter_room < 1
    return min(run.longest_draft, room, drafter_room)


def undrafted(run: Run, draft: Draft | None = None) -> Outcome:
    """A cycle without drafted tokens; what the empty draft cost is told."""
    forwards = draft.forwards if draft else 0
    unsure = forwards and run.settings.least_sure
    outcome = full_alone(run, "the drafter was not sure of any token" if unsure else "nothing was drafted")
    outcome.draft_forwards = forwards
    return outcome


def full_alone(run: Run, reason: str) -> Outcome:
    """q over its debt and the anchor, one `target` token: plain decoding, and every empty draft."""
    base = run.verifier.n_q
    with run.clock.phase("full"):
        logits = run.verifier.full(run.tokens)
    with run.clock.phase("gate"):
        probs = logits_to_probs(logits[-1:], run.sampling)
        token = draw(probs, run.noise.exponentials("target", run.sampling, *probs.shape))
        packed = {"token": token, "p_used": probs.gather(-1, token[:, None])}
        if run.wants_opinions:
            debt = to_device(run.tokens[base + 1 :], logits.device)
            processed = None if run.sampling.greedy else logits_to_probs(logits, run.sampling)
            facts = row_facts(logits, processed, run.debt_slim_rows)
            packed["judged"] = facts.about(torch.cat([debt, token]))
        host = to_host(**packed)
    verdicts = judged(base, host["judged"]) if "judged" in host else None
    new = NewToken(
        int(host["token"][0]),
        "target",
        "full",
        p_used=host["p_used"][0],
        opinion=verdicts.opinions[-1] if verdicts else None,
    )
    return Outcome(new=new, judged=verdicts, full_forwards=1, reason=reason)


def draft_facts(run: Run, draft: Draft, *, margins: bool = False) -> dict[str, Tensor]:
    """Vectors [g] about the drafted tokens, for the packed copy; without `margins` some are the trace's."""
    columns = {"tokens": draft.tokens, "p_used": draft.probs.gather(-1, draft.tokens[:, None])}
    if draft.logits is not None and (run.settings.trace or margins):
        logp = raw_log_probs(draft.logits)
        top = logp.topk(min(2, logp.shape[-1]), dim=-1).values
        columns["logp_draft"] = logp.gather(-1, draft.tokens[:, None])
        columns["margin"] = top[:, 0] - top[:, -1]
        columns["entropy"] = -torch.special.xlogy(logp.exp(), logp.exp()).sum(-1)
    return columns


def drafted_tokens(host: dict[str, list[float]], uniforms: list[float] | None, count: int) -> list[Drafted]:
    """The first `count` drafted tokens from a packed copy of `draft_facts` and a gate's columns."""

    def column(name: str) -> list[float] | list[None]:
        return host.get(name, [None] * count)

    return [
        Drafted(
            token=int(host["tokens"][j]),
            p_used=host["p_used"][j],
            logp_draft=column("logp_draft")[j],
            margin=column("margin")[j],
            entropy=column("entropy")[j],
            ratio=column("ratio")[j],
            logp_slim=column("logp_slim")[j],
            rand_u=uniforms[j] if uniforms else None,
        )
        for j in range(count)
    ]


def cut_after_eos(tokens: list[float], eos_ids: frozenset[int]) -> int:
    """Length of the block up to and including its first end-of-sequence token."""
    for length, token in enumerate(tokens, start=1):
        if int(token) in eos_ids:
            return length
    return len(tokens)

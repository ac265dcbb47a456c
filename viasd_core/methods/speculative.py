"""Speculative decoding (Leviathan et al., arXiv 2211.17192), and its lossy variant (VIA-SD App. A).

One q forward judges the whole block. Drafts are kept up to the first refusal, where the rule's replacement is
drawn; a fully kept block earns a bonus token from q's last row.
"""

from __future__ import annotations

import torch

from ..transfer import to_host
from .base import Run, cut_after_eos, draft_block, draft_facts, drafted_tokens, undrafted
from .contest import test_block
from .judge import judged, opinions
from .outcome import NewToken, Outcome
from .rules import Rule


class Speculative:
    """Every examined draft is in region C: there is no slim tier."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def cycle(self, run: Run) -> Outcome:
        bonus = run.settings.bonus_kind != "none"
        draft = draft_block(run, bonus_possible=bonus)
        if draft is None or not draft.length:
            return undrafted(run, draft)
        base = run.verifier.n_q
        with run.clock.phase("full"):
            logits = run.verifier.full(run.tokens, draft.tokens)
        with run.clock.phase("gate"):
            every = torch.ones(draft.length, dtype=torch.bool, device=logits.device)
            tested = test_block(run, draft, logits, self.rule, every)
            host = to_host(**draft_facts(run, draft), **tested.columns(draft.tokens, run.tokens[base + 1 :]))
        length = cut_after_eos(host["tokens"], run.eos_ids)
        failure = int(host["failure"][0])
        outcome = Outcome(
            drafted=drafted_tokens(host, host["uniforms"], length),
            regions=["C"] * min(failure + 1, length),
            kept=min(failure, length),
            judged=judged(base, host["judged"]) if "judged" in host else None,
            draft_forwards=draft.forwards,
            full_forwards=1,
        )
        ended = outcome.drafted[-1].token in run.eos_ids
        if failure < length or (failure == draft.length and bonus and not ended):
            rewritten = failure < length
            outcome.new = NewToken(
                int(host["token"][0]),
                "rewritten_full" if rewritten else "bonus",
                "full" if rewritten else "bonus",
                p_used=host["token_p"][0],
                opinion=opinions(host["token_opinion"])[0] if "token_opinion" in host else None,
            )
        return outcome

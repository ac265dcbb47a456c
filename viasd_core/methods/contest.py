"""Test a drafted block against the full verifier's rows and draw what replaces the first failure."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..drafters.base import Draft
from ..probs import draw, logits_to_probs
from ..transfer import to_device
from .base import Run
from .judge import RowFacts, row_facts
from .rules import Contest, Rule, first_failure


@dataclass(frozen=True)
class Tested:
    """Device-side result: offset of the first failure (g: none), the token drawn there, q's facts of every
    row.
    """

    failure: Tensor  # [1]
    token: Tensor  # [1]
    p_used: Tensor  # [1, 1]
    uniforms: Tensor  # [g]
    facts: RowFacts | None

    def columns(self, drafted: Tensor, debt: list[int]) -> dict[str, Tensor]:
        """What the host needs, for the packed copy: `debt` are committed tokens q had not judged."""
        columns = {
            "failure": self.failure,
            "token": self.token,
            "token_p": self.p_used,
            "uniforms": self.uniforms,
        }
        if self.facts is not None:
            # The last row judges the token behind the block; no drafted token stands there.
            tail = torch.cat([to_device(debt, drafted.device), drafted, self.token])
            columns["judged"] = self.facts.about(tail)
            columns["token_opinion"] = self.facts.about(self.token, self.failure + len(debt))
        return columns


def test_block(
    run: Run,
    draft: Draft,
    logits: Tensor,
    rule: Rule,
    tested: Tensor,
    *,
    slim_logits: Tensor | None = None,
    slim_probs: Tensor | None = None,
) -> Tested:
    """`logits` [m, V] are q's rows over debt, anchor and block; the last g + 1 judge the block and what
    follows it.

    `tested` [g] marks the offsets the rule decides. Behind a fully kept block the token is a draw from q's
    last row.
    """
    g, sampling = draft.length, run.sampling
    processed = None
    if run.wants_opinions and not sampling.greedy:
        processed = logits_to_probs(logits, sampling)
    block = logits_to_probs(logits[-g - 1 :], sampling) if processed is None else processed[-g - 1 :]
    contest = Contest(
        tokens=draft.tokens,
        uniforms=run.noise.uniforms("accept", g),
        p=draft.probs,
        q=block[:g],
        q_logits=logits[-g - 1 : -1],
        slim=slim_probs,
        greedy=sampling.greedy,
    )
    failure = first_failure(rule, contest, tested)
    law = torch.where(failure < g, rule.replacement(contest, failure.clamp_max(g - 1)), block[g:])
    token = draw(law, run.noise.exponentials("replace", sampling, *law.shape))
    facts = None
    if run.wants_opinions:
        facts = row_facts(logits, processed, slim_logits)
    return Tested(failure, token, law.gather(-1, token[:, None]), contest.uniforms, facts)

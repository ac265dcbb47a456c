"""VIA-SD: drafter p proposes, slim verifiers settle the easy tokens, q is called only for the rest.

arXiv 2606.12243, Algorithms 1 and 2. One cycle: DRAFT, SLIM and GATE (one forward of q' over the block, and
where there are several slim verifiers one of each that a token falls to, see `slim`), at most one q forward
(lazily, when a token falls in region C, or when the KV debt is due to be settled), BONUS. Stop rules, strict,
audit and commit are the decode loop's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..drafters.base import Draft
from ..probs import logits_to_probs, raw_log_probs
from ..settings import Settings, gate_thresholds
from ..transfer import to_device, to_host
from .base import Run, draft_block, drafted_tokens, undrafted
from .contest import test_block
from .judge import judged, opinions
from .outcome import Judged, NewToken, Opinion, Outcome
from .rules import GreedyFull, Lossless, Lossy, Mixture, Rule
from .slim import Examined, examine


class ViaSd:
    def cycle(self, run: Run) -> Outcome:
        settings = run.settings
        draft = draft_block(run, bonus_possible=settings.bonus_kind != "none")
        if draft is None or not draft.length:
            return undrafted(run, draft)
        base, cap = run.verifier.n_q, settings.debt_limit(run.knobs.gamma)
        debt = len(run.tokens) + draft.length - base
        settle = cap is not None and debt > cap
        tau1, tau2 = thresholds(run)
        seen = examine(run, draft, tau1, tau2)
        outcome = Outcome(
            slim_rows=seen.rows,
            draft_forwards=draft.forwards,
            slim_forwards=len(seen.looks),
            thresholds=(tau1, tau2),
            reason=_why(seen, debt, cap if settle else None),
        )
        uniforms = None
        verdict = _Verdict(len(seen.regions), None)
        if settle or "C" in seen.regions:
            with run.clock.phase("full"):
                full_logits = run.verifier.full(run.tokens, seen.draft.tokens)
            outcome.settle_forwards, outcome.full_forwards = int(settle), int(not settle)
            with run.clock.phase("gate"):
                verdict, uniforms = _escalate(run, seen, full_logits, base)
            outcome.judged = verdict.judged
        drafted = drafted_tokens(seen.host, uniforms, seen.draft.length)
        outcome.drafted = [replace(one, tier=tier) for one, tier in zip(drafted, seen.tiers, strict=True)]
        _conclude(run, outcome, seen, verdict)
        return outcome


@dataclass(frozen=True)
class _Verdict:
    """q's part of a cycle: offset of the first region-C refusal (block length: none), and what q would draw
    there.
    """

    failure: int
    token: NewToken | None  # the replacement, or the draw behind a fully kept block
    judged: Judged | None = None
    redraw_opinion: Opinion | None = None


def thresholds(run: Run) -> tuple[float, float]:
    """(tau1, tau2) of this cycle."""
    settings, knobs = run.settings, run.knobs
    return settings.core_thresholds or gate_thresholds(knobs.alpha1, knobs.alpha2, settings.gate)


def make_rule(settings: Settings, region_totals: dict[str, int], draft: Draft, slim_logits: Tensor) -> Rule:
    """The rule region C tests with."""
    if settings.rule_c == "lossy":
        return Lossy(settings.alpha, settings.beta)
    if settings.rule_c == "greedy":
        return GreedyFull()
    if settings.rule_c == "pi":
        d1, d2 = mixture_weights(region_totals)
        raw_p = None if draft.logits is None else raw_log_probs(draft.logits).exp()
        return Mixture(d1, d2, raw_p, raw_log_probs(slim_logits[: draft.length]).exp())
    return Lossless()


def mixture_weights(region_totals: dict[str, int]) -> tuple[float, float]:
    """(d1, d2) of (14) from counts so far: d2 = P[C], d1 = P[B] / (1 - d2), so that (14) equals (B.7).

    Before anything was examined pi is q.
    """
    examined = sum(region_totals.values())
    d2 = region_totals["C"] / examined if examined else 1.0
    return (region_totals["B"] / examined / (1 - d2) if d2 < 1 else 0.0), d2


def _escalate(run: Run, seen: Examined, logits: Tensor, base: int) -> tuple[_Verdict, list[float]]:
    """Test the region-C tokens of the block with q's rows, and collect q's opinions of everything it ran
    over.
    """
    draft, regions, slim_logits = seen.draft, seen.regions, seen.rows
    debt = run.tokens[base + 1 :]
    in_c = [mark == "C" for mark in regions] + [False] * (draft.length - len(regions))
    slim_seen = slim_logits if run.debt_slim_rows is None else torch.cat([run.debt_slim_rows, slim_logits])
    tested = test_block(
        run,
        draft,
        logits,
        make_rule(run.settings, run.region_totals, draft, slim_logits),
        to_device(in_c, logits.device),
        slim_logits=slim_seen,
        slim_probs=logits_to_probs(slim_logits[:-1], run.sampling) if run.settings.rule_c == "pi" else None,
    )
    columns = tested.columns(draft.tokens, debt)
    if tested.facts is not None and regions[-1] == "B":
        redraw = to_device([seen.redrawn_id], logits.device)
        row = to_device([len(debt) + len(regions) - 1], logits.device)
        columns["redraw_opinion"] = tested.facts.about(redraw, row)
    found = to_host(**columns)
    failure = int(found["failure"][0])
    token = NewToken(
        int(found["token"][0]),
        "rewritten_full" if failure < draft.length else "bonus",
        "full" if failure < draft.length else "bonus",
        p_used=found["token_p"][0],
        opinion=opinions(found["token_opinion"])[0] if "token_opinion" in found else None,
    )
    verdict = _Verdict(
        failure,
        token,
        judged(base, found["judged"]) if "judged" in found else None,
        opinions(found["redraw_opinion"])[0] if "redraw_opinion" in found else None,
    )
    return verdict, found["uniforms"]


def _conclude(run: Run, outcome: Outcome, seen: Examined, verdict: _Verdict) -> None:
    """Which drafts stand and what follows them: q's refusal, else region B's redraw, else a bonus if there is
    one.
    """
    length, regions = len(outcome.drafted), seen.regions
    if verdict.token is not None and verdict.failure < length:
        outcome.kept, outcome.new = verdict.failure, verdict.token
        outcome.regions = regions[: verdict.failure + 1]
        return
    outcome.regions = regions
    if regions[-1] == "B":
        outcome.kept = len(regions) - 1
        outcome.new = seen.redrawn(verdict.redraw_opinion)
        return
    outcome.kept = length
    if run.settings.bonus_kind == "none" or outcome.drafted[-1].token in run.eos_ids:
        return
    if verdict.token is not None:
        outcome.new = verdict.token
    elif run.settings.bonus_kind == "slim":
        outcome.new = seen.bonus(run.settings.bonus_threshold)


def _why(seen: Examined, debt: int, cap: int | None) -> str:
    """Why q ran this cycle, in words; empty when it did not."""
    reasons, tau2 = [], seen.thresholds[1]
    if cap is not None:
        reasons.append(f"{debt} rows of debt and block exceed the cap of {cap}")
    if "C" in seen.regions:
        offset = seen.regions.index("C")
        r = seen.host["ratio"][offset]
        reasons.append(
            f"draft {offset} fell in region C: ratio {r:.3f} < {tau2:.3f}"
            if r < tau2
            else f"draft {offset} fell between the gates (ratio {r:.3f}) and regeneration is off"
        )
    return "; ".join(reasons)

"""VIA-SD: drafter p proposes, the slim verifier q' settles the easy tokens, q is called only for the rest.

arXiv 2606.12243, Algorithms 1 and 2. One cycle: DRAFT, SLIM (one q' forward over the block), a settle of the
KV debt when it is due, GATE, at most one q forward (lazily, when a token falls in region C), BONUS. Stop
rules, strict, audit and commit are the decode loop's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..drafters.base import Draft
from ..probs import draw, logits_to_probs, raw_log_probs
from ..settings import Settings, gate_thresholds
from ..transfer import to_device, to_host
from .base import Run, cut_after_eos, draft_block, draft_facts, drafted_tokens, full_alone
from .contest import test_block
from .gates import block_regions, confidence_ratios, in_region_b
from .judge import judged, opinions
from .outcome import Judged, NewToken, Opinion, Outcome
from .rules import GreedyFull, Lossless, Lossy, Mixture, Rule


class ViaSd:
    def cycle(self, run: Run) -> Outcome:
        settings = run.settings
        draft = draft_block(run, bonus_possible=settings.bonus_kind != "none")
        if draft is None:
            return full_alone(run, "nothing was drafted")
        base, cap = run.verifier.n_q, settings.debt_limit(run.knobs.gamma)
        debt = len(run.tokens) + draft.length - base
        with run.clock.phase("slim"):
            slim_logits = run.verifier.slim(run.tokens, draft.tokens)
        full_logits = None
        if cap is not None and debt > cap:
            with run.clock.phase("full"):
                full_logits = run.verifier.full(run.tokens, draft.tokens)
        tau1, tau2 = thresholds(run)
        with run.clock.phase("gate"):
            host = _look(run, draft, slim_logits, tau1, tau2)

        length = cut_after_eos(host["tokens"], run.eos_ids)
        if full_logits is not None:
            full_logits = full_logits[: full_logits.shape[0] - (draft.length - length)]
        draft, slim_logits = draft.cut(length), slim_logits[: length + 1]
        regions = block_regions(
            host["ratio"][:length],
            tau1,
            tau2,
            regenerate=settings.regenerate,
            after_escalation=settings.after_escalation,
        )
        outcome = Outcome(
            slim_rows=slim_logits,
            draft_forwards=draft.forwards,
            slim_forwards=1,
            settle_forwards=int(full_logits is not None),
            thresholds=(tau1, tau2),
            reason=_why(regions, host["ratio"], tau2, debt, cap if full_logits is not None else None),
        )
        if full_logits is None and "C" in regions:
            with run.clock.phase("full"):
                full_logits = run.verifier.full(run.tokens, draft.tokens)
            outcome.full_forwards = 1
        uniforms = None
        verdict = _Verdict(len(regions), None)
        if full_logits is not None:
            with run.clock.phase("gate"):
                verdict, uniforms = _escalate(run, draft, slim_logits, full_logits, base, regions, host)
            outcome.judged = verdict.judged
        outcome.drafted = drafted_tokens(host, uniforms, length)
        _conclude(run, outcome, regions, verdict, host)
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


def _look(run: Run, draft: Draft, slim_logits: Tensor, tau1: float, tau2: float) -> dict[str, list[float]]:
    """Everything the gate needs of q', in one packed copy; the region-B redraw and slim bonus are drawn
    alongside.
    """
    settings = run.settings
    ratios = confidence_ratios(slim_logits[:-1], draft.tokens)
    columns = draft_facts(run, draft) | {"ratio": ratios}
    if settings.trace:
        columns["logp_slim"] = raw_log_probs(slim_logits[:-1]).gather(-1, draft.tokens[:, None])
    if settings.regenerate:
        first_b = in_region_b(ratios, tau1, tau2).int().argmax(0, keepdim=True)
        columns |= _draw_slim(run, "redraw", slim_logits[first_b])
    if settings.bonus_kind == "slim":
        columns |= _draw_slim(run, "bonus", slim_logits[-1:])
        columns["bonus_confidence"] = raw_log_probs(slim_logits[-1]).max().exp()
    return to_host(**columns)


def _draw_slim(run: Run, name: str, logits: Tensor) -> dict[str, Tensor]:
    """A draw from one raw q' row [1, V], with its processed probability and raw log-probability."""
    law = logits_to_probs(logits, run.sampling)
    token = draw(law, run.noise.exponentials(name, run.sampling, *law.shape))[:, None]
    return {
        name: token,
        f"{name}_p": law.gather(-1, token),
        f"{name}_logp": raw_log_probs(logits).gather(-1, token),
    }


def slim_token(
    host: dict[str, list[float]], name: str, verdict: str, opinion: Opinion | None, row: int = 0
) -> NewToken:
    """The draw `name` of q', out of its columns after the packed copy."""
    return NewToken(
        int(host[name][row]),
        verdict,
        "slim_sample",
        p_used=host[f"{name}_p"][row],
        logp_slim=host[f"{name}_logp"][row],
        opinion=opinion,
    )


def _escalate(
    run: Run,
    draft: Draft,
    slim_logits: Tensor,
    logits: Tensor,
    base: int,
    regions: list[str],
    host: dict[str, list[float]],
) -> tuple[_Verdict, list[float]]:
    """Test the region-C tokens of the block with q's rows, and collect q's opinions of everything it ran
    over.
    """
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
        redraw = to_device([int(host["redraw"][0])], logits.device)
        row = to_device([len(debt) + len(regions) - 1], logits.device)
        columns["redraw_opinion"] = tested.facts.about(redraw, row)
    seen = to_host(**columns)
    failure = int(seen["failure"][0])
    token = NewToken(
        int(seen["token"][0]),
        "rewritten_full" if failure < draft.length else "bonus",
        "full" if failure < draft.length else "bonus",
        p_used=seen["token_p"][0],
        opinion=opinions(seen["token_opinion"])[0] if "token_opinion" in seen else None,
    )
    verdict = _Verdict(
        failure,
        token,
        judged(base, seen["judged"]) if "judged" in seen else None,
        opinions(seen["redraw_opinion"])[0] if "redraw_opinion" in seen else None,
    )
    return verdict, seen["uniforms"]


def _conclude(
    run: Run, outcome: Outcome, regions: list[str], verdict: _Verdict, host: dict[str, list[float]]
) -> None:
    """Which drafts stand and what follows them: q's refusal, else region B's redraw, else a bonus if there is
    one.
    """
    length = len(outcome.drafted)
    if verdict.token is not None and verdict.failure < length:
        outcome.kept, outcome.new = verdict.failure, verdict.token
        outcome.regions = regions[: verdict.failure + 1]
        return
    outcome.regions = regions
    if regions[-1] == "B":
        outcome.kept = len(regions) - 1
        outcome.new = slim_token(host, "redraw", "regenerated_slim", verdict.redraw_opinion)
        return
    outcome.kept = length
    if run.settings.bonus_kind == "none" or outcome.drafted[-1].token in run.eos_ids:
        return
    if verdict.token is not None:
        outcome.new = verdict.token
    elif run.settings.bonus_kind == "slim" and host["bonus_confidence"][0] >= run.settings.bonus_threshold:
        outcome.new = slim_token(host, "bonus", "bonus", None)


def _why(regions: list[str], ratios: list[float], tau2: float, debt: int, cap: int | None) -> str:
    """Why q ran this cycle, in words; empty when it did not."""
    reasons = []
    if cap is not None:
        reasons.append(f"{debt} rows of debt and block exceed the cap of {cap}")
    if "C" in regions:
        offset = regions.index("C")
        r = ratios[offset]
        reasons.append(
            f"draft {offset} fell in region C: ratio {r:.3f} < {tau2:.3f}"
            if r < tau2
            else f"draft {offset} fell between the gates (ratio {r:.3f}) and regeneration is off"
        )
    return "; ".join(reasons)

"""From a cycle's outcome to committed text: stop rules, strict corrections, the end settle and the
retro-audit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from .errors import PairError
from .methods.base import Run
from .methods.judge import judged, row_facts
from .methods.outcome import Judged, NewToken, Opinion, Outcome
from .probs import logits_to_probs
from .stop import Cut, StopRules
from .trace import AuditRow
from .transfer import to_device, to_host


@dataclass(frozen=True)
class Settled:
    """Who decided an output token, kept until q has judged it."""

    slim_decided: bool
    draft_p: float | None  # processed p(token) where the token was drafted


@dataclass
class Commit:
    """What became of a cycle's candidates: `stands` of them were committed at position `start` and after.

    A strict correction replaces the token at `corrected` and drops everything behind it, which may reach back
    into earlier cycles.
    """

    start: int
    stands: int
    cut: Cut
    corrected: int | None = None
    correction: NewToken | None = None
    audits: list[AuditRow] = field(default_factory=list)

    @property
    def retracted(self) -> int:
        """Earlier cycles' tokens that no longer stand."""
        return 0 if self.corrected is None else max(0, self.start - self.corrected)


class Committer:
    """Commits outcomes to a run. `decided` runs parallel to the output tokens."""

    def __init__(self, run: Run, stop: StopRules) -> None:
        self.run, self.stop = run, stop
        self.prompt_len = len(run.tokens)
        self.decided: list[Settled] = []

    def commit(self, outcome: Outcome) -> Commit:
        """Cut, correct, audit, and rewind every cache to the committed text. Moves `run.tokens` forward."""
        run = self.run
        start = len(run.tokens)
        candidates = [drafted.token for drafted in outcome.drafted[: outcome.kept]]
        if outcome.new is not None:
            candidates.append(outcome.new.token)
        cut = self.stop.cut(run.tokens[self.prompt_len :], candidates)
        done = Commit(start, cut.kept, cut)
        self._extend(candidates[: cut.kept], outcome)
        if outcome.judged is not None:
            self._hear(done, outcome.judged, outcome.new, start + outcome.kept)
        self._rewind(done)
        ran_full = outcome.full_forwards + outcome.settle_forwards > 0
        self._keep_slim_rows(outcome, ran_full)
        return done

    def settle_at_end(self, done: Commit, outcome: Outcome) -> None:
        """Let q judge the debt left where the run would end; strict may find that it does not end here."""
        if done.cut.finish and self._owes_settle():
            self._settle(done, outcome)

    def _extend(self, tokens: list[int], outcome: Outcome) -> None:
        for index, token in enumerate(tokens):
            self.run.tokens.append(token)
            if index < outcome.kept:
                self.decided.append(Settled(outcome.regions[index] == "A", outcome.drafted[index].p_used))
            else:
                assert outcome.new is not None
                self.decided.append(Settled(outcome.new.source == "slim_sample", None))

    def _hear(self, done: Commit, judged: Judged, new: NewToken | None, new_position: int) -> None:
        """Audit every token q has just judged for the first time; under strict, correct the first it
        disagrees with.
        """
        run = self.run
        for position in range(judged.base + 1, len(run.tokens)):
            is_new = new is not None and position == new_position
            opinion = new.opinion if new is not None and is_new else judged.at(position)
            assert opinion is not None
            if math.isnan(opinion.best_logp):
                raise PairError(
                    "the verifier's numbers are not finite: its weights are damaged or the dtype is too "
                    "narrow; check the file or choose --dtype float32"
                )
            if run.settings.strict and opinion.best != run.tokens[position]:
                self._correct(done, position, opinion)
                opinion = replace(opinion, logp=opinion.best_logp, rank=0)
                done.audits.append(self._audit(position, opinion))
                return
            done.audits.append(self._audit(position, opinion))

    def _correct(self, done: Commit, position: int, opinion: Opinion) -> None:
        run = self.run
        del run.tokens[position:]
        del self.decided[position - self.prompt_len :]
        done.cut = self.stop.cut(run.tokens[self.prompt_len :], [opinion.best])
        run.tokens.append(opinion.best)
        self.decided.append(Settled(False, None))
        done.corrected = position
        done.correction = NewToken(
            opinion.best,
            "target",
            "full",
            p_used=1.0,
            opinion=replace(opinion, logp=opinion.best_logp, rank=0),
        )

    def _audit(self, position: int, opinion: Opinion) -> AuditRow:
        settled = self.decided[position - self.prompt_len]
        accept = None
        if settled.draft_p is not None and not self.run.sampling.greedy:
            accept = min(1.0, opinion.prob / settled.draft_p) if settled.draft_p > 0 else 0.0
        return AuditRow(
            position - self.prompt_len,
            opinion.rank,
            opinion.logp,
            accept,
            opinion.kl if settled.slim_decided else None,
        )

    def _rewind(self, done: Commit) -> None:
        """The one watermark rule: no cache holds the row of the last committed token, nor any behind it."""
        run = self.run
        run.verifier.rewind(len(run.tokens) - 1)
        if run.drafter is not None:
            first = done.start if done.corrected is None else min(done.start, done.corrected)
            run.drafter.commit(run.tokens[first:], first)

    def _keep_slim_rows(self, outcome: Outcome, ran_full: bool) -> None:
        """q' rows of tokens q has not judged, for the KL of the coming audit."""
        run = self.run
        if ran_full:
            run.slim_rows.clear()
        elif run.wants_opinions and outcome.slim_rows is not None:
            count = len(run.tokens) - 1 - run.verifier.n_q - len(run.slim_rows)
            run.slim_rows.extend(outcome.slim_rows[:count])

    def _owes_settle(self) -> bool:
        run = self.run
        wanted = run.settings.strict or (run.settings.final_audit and run.settings.trace)
        return wanted and run.verifier.n_q < len(run.tokens) - 1

    def _settle(self, done: Commit, outcome: Outcome) -> None:
        """One q forward over the debt, its opinions, and whatever they change."""
        run = self.run
        base = run.verifier.n_q
        with run.clock.phase("full"):
            logits = run.verifier.settle(run.tokens)
        tokens = to_device(run.tokens[base + 1 :], logits.device)
        processed = None if run.sampling.greedy else logits_to_probs(logits, run.sampling)
        facts = row_facts(logits, processed, run.debt_slim_rows)
        outcome.settle_forwards += 1
        outcome.reason = "; ".join(
            part for part in (outcome.reason, "the run ends: its debt is settled") if part
        )
        self._hear(done, judged(base, to_host(judged=facts.about(tokens))["judged"]), None, -1)
        self._rewind(done)
        run.slim_rows.clear()

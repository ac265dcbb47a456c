"""The trace of a run: rows grown from cycle events, and the definitions of every number shown.

A decoding run emits one `CycleEvent` a cycle; `Trace.add` folds events into rows. The page, the CSV bundle,
the benchmark and the command line all read a `Trace`, so a number is defined once, here. Plain Python: this
module imports neither torch nor pandas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .rows import (
    EMITTED_VERDICTS,
    EVENT_TYPES,
    FINISHES,
    PHASES,
    SCHEMA,
    SOURCES,
    VERDICTS,
    AuditRow,
    CycleEvent,
    CycleRow,
    DimrRow,
    EventRow,
    ShownEdit,
    TokenRow,
    TreeRow,
)
from .trace_repairs import repair_totals

__all__ = [
    "DEFINITIONS",
    "EMITTED_VERDICTS",
    "EVENT_TYPES",
    "FINISHES",
    "PHASES",
    "SCHEMA",
    "SLIM_DECIDED",
    "SOURCES",
    "VERDICTS",
    "AuditRow",
    "CycleEvent",
    "CycleRow",
    "DimrRow",
    "EventRow",
    "ShownEdit",
    "TokenRow",
    "Trace",
    "TreeRow",
    "is_slim_decided",
    "mean",
    "ratio",
    "summarise",
    "summarise_repair",
]

DEFINITIONS = {
    "examined": "drafted tokens that reached a gate or a verifier's test: A + B + C, counted at gate time",
    "rejection_rate": "(region B + region C rewritten) / examined",
    "region_c_share": "region C / examined",
    "escalation_rate": "cycles with any full-verifier forward (region C, empty draft, settle) / cycles",
    "escalating_cycles": "cycles with at least one region-C token",
    "mean_committed": "new tokens / cycles",
    "mixture": "share of examined tokens in region A, B and C: d_p, d1bar, d2 of VIA-SD (B.4)-(B.6)",
    "r_eff": "bytes of skipped weights / bytes the full verifier reads in one forward",
    "full_forwards": "full-verifier forwards without prefill and settles",
    "settle_forwards": "full-verifier forwards made only to settle KV debt or to audit the end of the run",
    "tiers": "of each slim verifier, 1 = the first asked: forwards, ms, drafts accepted, tokens regenerated",
    "audit.agree": "share of audited slim-decided tokens that equal the full verifier's argmax",
    "audit.mean_log_q": "mean raw log q(token), nats, over audited slim-decided tokens",
    "audit.mean_kl": "mean KL(q || q'), nats, over audited slim-decided tokens",
    "repair.ufps": "drafted positions whose margin (top-1 minus top-2, nats) is below tau_margin; "
    "not known where branch 0 was left out and the cycle does not count them",
    "repair.tried": "cycles whose tree holds a repair branch",
    "repair.won": "cycles where the best path keeps more drafted tokens than branch 0 alone would have; "
    "not known where that is not known of a repaired cycle",
    "repair.extra_tokens": "drafted tokens kept on the best path beyond those branch 0 alone would have "
    "kept, summed; not known where that is not known of a repaired cycle",
    "repair.nodes": "tree nodes verified, the anchor not counted",
    "repair.resyncs": "cycles whose best path leaves branch 0, so that the drafter's cache must follow",
    "repair.accepted_per_step": "kept drafted tokens / cycles",
    "repair.accepted_per_step_with_bonus": "new tokens / cycles",
    "tokens_per_s": "new tokens / wall_s, prefill included",
}


@dataclass
class Trace:
    """A growing or finished run. `run` is the content of run.json; rows are as in the bundle."""

    run: dict[str, Any] = field(default_factory=dict)
    tokens: list[TokenRow] = field(default_factory=list)
    cycles: list[CycleRow] = field(default_factory=list)
    tree: list[TreeRow] = field(default_factory=list)
    dimr: list[DimrRow] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    finish: str | None = None
    problems: list[str] = field(
        default_factory=list, compare=False
    )  # seen while growing or reading; see check()
    _emitted: dict[int, int] = field(init=False, repr=False, compare=False)  # out_pos -> index in tokens

    def __post_init__(self) -> None:
        self._emitted = {
            row.out_pos: index
            for index, row in enumerate(self.tokens)
            if row.emitted and row.out_pos is not None
        }

    def add(self, event: CycleEvent) -> None:
        """Fold one cycle in: retractions and edits first, then the new rows, then the audits."""
        for out_pos in event.retracted:
            self._change(out_pos, verdict="retracted", emitted=False, out_pos=None)
            del self._emitted[out_pos]
        for edit in event.edits:
            self._change(edit.out_pos, shown=edit.shown, data=edit.data, text=edit.text)
        for row in event.rows:
            if row.emitted and row.out_pos is not None:
                self._emitted[row.out_pos] = len(self.tokens)
            self.tokens.append(row)
        for audit in event.audits:
            if self.tokens[self._emitted[audit.out_pos]].audit_cycle is not None:
                self.problems.append(
                    f"output token {audit.out_pos} was audited again in cycle {event.cycle.cycle}"
                )
            self._change(
                audit.out_pos,
                audit_cycle=event.cycle.cycle,
                audit_rank=audit.rank,
                audit_logp=audit.logp,
                audit_accept=audit.accept,
                audit_kl=audit.kl,
            )
        self.cycles.append(event.cycle)
        self.tree.extend(event.tree)
        self.events.extend(event.events)
        self.finish = event.finish or self.finish

    def _change(self, out_pos: int, /, **changes: Any) -> None:
        index = self._emitted[out_pos]
        self.tokens[index] = replace(self.tokens[index], **changes)

    @property
    def emitted(self) -> list[TokenRow]:
        """Surviving emitted rows in output order."""
        return sorted((row for row in self.tokens if row.emitted), key=lambda row: row.out_pos or 0)

    @property
    def token_ids(self) -> list[int]:
        return [row.token_id for row in self.emitted]

    @property
    def text(self) -> str:
        """The bytes of the shown emitted rows, decoded as UTF-8 (an incomplete tail becomes U+FFFD)."""
        return b"".join(row.data for row in self.emitted if row.shown).decode("utf-8", "replace")

    def summary(self) -> dict[str, Any]:
        """Every number of `DEFINITIONS`, recomputed from the rows alone."""
        return summarise(self.tokens, self.cycles, self.tree)

    def save(self, path: str | Path) -> None:
        """Write the bundle to a folder, or to a zip when `path` ends in .zip. Raises TraceError."""
        from .bundle import write_bundle

        write_bundle(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a bundle folder or zip. Raises TraceError with the file and row at fault."""
        from .bundle import read_bundle

        return read_bundle(path)


def ratio(numerator: float, denominator: float) -> float:
    """A share, 0 when there is nothing to share."""
    return numerator / denominator if denominator else 0.0


def mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return sum(values) / len(values) if values else None


SLIM_DECIDED = ("accepted_slim", "regenerated_slim")


def is_slim_decided(row: TokenRow) -> bool:
    """Whether q' alone settled the token: regions A and B, or a bonus drawn from q'."""
    return row.verdict in SLIM_DECIDED or (row.verdict == "bonus" and row.source == "slim_sample")


def summarise(
    tokens: Sequence[TokenRow], cycles: Sequence[CycleRow], tree: Sequence[TreeRow] = ()
) -> dict[str, Any]:
    """Counts and rates of a run (see DEFINITIONS), from its rows.

    Returns a dict with keys new_tokens, cycles, draft_forwards, slim_forwards, full_forwards,
    settle_forwards, escalating_cycles, counts, examined, rejection_rate, region_c_share, escalation_rate,
    mean_committed, mixture, audit, repair, phases_ms; and tiers, where the cycles count them.
    """
    emitted = [row for row in tokens if row.emitted]
    region_a = sum(row.region_a for row in cycles)
    region_b = sum(row.region_b for row in cycles)
    region_c = sum(row.region_c for row in cycles)
    rewritten = sum(row.region_c_rejected for row in cycles)
    examined = region_a + region_b + region_c
    called = sum(row.full_forwards + row.settle_forwards > 0 for row in cycles)
    audited = [row for row in emitted if row.audit_rank is not None]
    slim = [row for row in audited if is_slim_decided(row)]
    return {
        "new_tokens": len(emitted),
        "cycles": len(cycles),
        "draft_forwards": sum(row.draft_forwards for row in cycles),
        "slim_forwards": sum(row.slim_forwards for row in cycles),
        "full_forwards": sum(row.full_forwards for row in cycles),
        "settle_forwards": sum(row.settle_forwards for row in cycles),
        "escalating_cycles": sum(row.region_c > 0 for row in cycles),
        "counts": {verdict: sum(row.verdict == verdict for row in emitted) for verdict in EMITTED_VERDICTS},
        "examined": examined,
        "rejection_rate": ratio(region_b + rewritten, examined),
        "region_c_share": ratio(region_c, examined),
        "escalation_rate": ratio(called, len(cycles)),
        "mean_committed": ratio(len(emitted), len(cycles)),
        "mixture": {
            "A": ratio(region_a, examined),
            "B": ratio(region_b, examined),
            "C": ratio(region_c, examined),
        },
        "audit": {
            "judged": len(audited),
            "agree": mean(float(row.audit_rank == 0) for row in slim),
            "mean_log_q": mean(row.audit_logp for row in slim if row.audit_logp is not None),
            "mean_kl": mean(row.audit_kl for row in slim if row.audit_kl is not None),
            "settle_forwards": sum(row.settle_forwards for row in cycles),
        },
        "repair": summarise_repair(tokens, cycles, tree),
        "phases_ms": {phase: sum(row.phase_us.get(phase, 0) for row in cycles) / 1000 for phase in PHASES},
        **summarise_tiers(emitted, cycles),
    }


def summarise_tiers(emitted: Sequence[TokenRow], cycles: Sequence[CycleRow]) -> dict[str, Any]:
    """Totals of each slim verifier under the key tiers; nothing for runs without one, and for traces from
    before there could be several.
    """
    count = max((len(row.tier_forwards) for row in cycles), default=0)
    tiers = {}
    for tier in range(1, count + 1):
        settled = [row.verdict for row in emitted if row.tier == tier]
        tiers[str(tier)] = {
            "forwards": sum(sum(row.tier_forwards[tier - 1 : tier]) for row in cycles),
            "ms": sum(sum(row.tier_us[tier - 1 : tier]) for row in cycles) / 1000,
            "accepted": settled.count("accepted_slim"),
            "regenerated": settled.count("regenerated_slim"),
        }
    return {"tiers": tiers} if tiers else {}


def summarise_repair(
    tokens: Sequence[TokenRow], cycles: Sequence[CycleRow], tree: Sequence[TreeRow] = ()
) -> dict[str, Any]:
    """Repair-tree totals (see `repair_totals`), and the drafts kept a cycle without and with the bonus.

    A run without trees has no tree rows, and every count comes out as zero.
    """
    kept = sum(row.emitted and row.verdict in ("accepted_slim", "accepted_full") for row in tokens)
    return repair_totals(cycles, tree) | {
        "accepted_per_step": ratio(kept, len(cycles)),
        "accepted_per_step_with_bonus": ratio(sum(row.emitted for row in tokens), len(cycles)),
    }

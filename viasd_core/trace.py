"""The trace of a run: one row a token, one row a cycle, and the definitions of every number shown.

A decoding run emits one `CycleEvent` a cycle; `Trace.add` folds events into rows. The page, the CSV bundle,
the benchmark and the command line all read a `Trace`, so a number is defined once, here. Plain Python: this
module imports neither torch nor pandas.

Sources: bundle layout `viasd-trace/1`; rejection and region terms follow VIA-SD (arXiv 2606.12243) Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

SCHEMA = "viasd-trace/1"

VERDICTS = (
    "accepted_slim",  # region A: the slim verifier keeps the drafted token
    "regenerated_slim",  # region B: drawn anew from the slim verifier
    "accepted_full",  # region C: the full verifier keeps the drafted token
    "rewritten_full",  # region C: the full verifier replaces it
    "bonus",  # drawn after a fully accepted block
    "target",  # decoded by the full verifier alone (plain decoding, empty draft, strict's correction)
    "rejected",  # an examined draft that was replaced
    "discarded",  # dropped in the cycle that made it (behind the block's end, stop string, strict)
    "retracted",  # strict: already emitted, then taken back
)
EMITTED_VERDICTS = VERDICTS[:6]
SOURCES = ("draft", "full", "slim_sample", "bonus", "repair")
PHASES = ("prefill", "draft", "slim", "full", "tree", "gate", "commit", "resync", "host")

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
    "settle_forwards": "full-verifier forwards made only to settle the KV debt or to audit the end of the run",
    "audit.agree": "share of audited tokens decided by the slim verifier that equal the full verifier's argmax",
    "audit.mean_log_q": "mean raw log q(token), nats, over audited tokens decided by the slim verifier",
    "audit.mean_kl": "mean KL(q || q'), nats, over audited tokens decided by the slim verifier",
    "tokens_per_s": "new tokens / wall_s, prefill included",
}


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One drafted or emitted token. Log-probabilities are raw (T = 1) and in nats; None means not evaluated."""

    cycle: int
    slot: int  # offset in the drafted block; the bonus stands at slot == drafted
    token_id: int
    text: str  # display text; "" while a multi-byte character is incomplete
    data: bytes  # exact bytes; of the token that straddles a stop string, only the bytes kept
    source: str
    verdict: str
    emitted: bool
    out_pos: int | None = None  # index in the output, unique among emitted rows
    region: str = ""  # A | B | C, on examined draft rows only
    shown: bool = True  # False: special token, or part of a trimmed stop string
    branch: int = 0
    node: int = -1
    parent: int = -1
    logp_draft: float | None = None
    logp_slim: float | None = None
    logp_full: float | None = None
    p_used: float | None = None  # processed probability the token was drawn or tested with
    slim_ratio: float | None = None  # raw q'(v) / max raw q'
    thr1: float | None = None
    thr2: float | None = None
    rand_u: float | None = None
    top2_margin: float | None = None
    is_ufp: bool = False
    alt: tuple[tuple[int, float], ...] = ()
    entropy_draft: float | None = None
    t_us: int = 0
    audit_cycle: int | None = None
    audit_rank: int | None = None  # 0 = the full verifier's argmax
    audit_logp: float | None = None
    audit_accept: float | None = None  # min(1, q/p) on processed rows, where a draft row exists
    audit_kl: float | None = None  # KL(q || q') at the moment q' settled the token; slim-decided tokens only


@dataclass(frozen=True, slots=True)
class AuditRow:
    """The full verifier's later opinion of an emitted token (retro-audit)."""

    out_pos: int
    rank: int
    logp: float
    accept: float | None
    kl: float | None


@dataclass(frozen=True, slots=True)
class ShownEdit:
    """An emitted token whose visible bytes changed because a stop string that began in it was completed."""

    out_pos: int
    shown: bool
    data: bytes
    text: str


@dataclass(frozen=True, slots=True)
class CycleRow:
    """One decoding cycle. Times are microseconds; A/B/C counts are taken at gate time."""

    cycle: int
    t_start_us: int
    phase_us: dict[str, int]
    gamma: int
    alpha1: float | None
    alpha2: float | None
    skip_ratio: float | None
    temperature: float
    param_version: int
    drafted: int
    region_a: int = 0
    region_b: int = 0
    region_c_accepted: int = 0
    region_c_rejected: int = 0
    committed: int = 0  # net new tokens: emitted here minus retracted here; strict can make it <= 0
    retracted: int = 0
    draft_forwards: int = 0
    slim_forwards: int = 0
    full_forwards: int = 0
    settle_forwards: int = 0
    tau_margin: float | None = None
    v_max: int | None = None
    tree_nodes: int = 0
    kv_len: int = 0  # committed length after the cycle, prompt included
    n_q: int = 0
    n_s: int = 0
    debt: int = 0
    mask_id: str = ""
    reason: str = ""  # why the full verifier ran, in words
    cuda_synced: bool = False

    @property
    def examined(self) -> int:
        return self.region_a + self.region_b + self.region_c_accepted + self.region_c_rejected

    @property
    def region_c(self) -> int:
        return self.region_c_accepted + self.region_c_rejected


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One node of a draft tree; branch 0 is the unrepaired draft."""

    cycle: int
    node: int
    parent: int
    depth: int
    branch: int
    token_id: int
    text: str
    logp_draft: float | None = None
    margin: float | None = None
    is_ufp: bool = False
    verified: bool = False
    accepted: bool = False
    on_best_path: bool = False


@dataclass(frozen=True, slots=True)
class DimrRow:
    """One evaluated layer mask of a DIMR search; cost in nats."""

    step: int
    method: str
    cost: float
    best_cost: float
    mask: str
    tau: int
    t_us: int
    accepted: bool


@dataclass(frozen=True, slots=True)
class EventRow:
    """Something that happened at a time: param_change, pause, resume, step, stop, retract, error, note."""

    t_us: int
    cycle: int
    type: str
    key: str = ""
    old: str = ""
    new: str = ""


@dataclass(frozen=True, slots=True)
class CycleEvent:
    """Everything one cycle changed. Immutable, plain Python: no tensors, no references to live state."""

    cycle: CycleRow
    rows: tuple[TokenRow, ...] = ()
    audits: tuple[AuditRow, ...] = ()
    retracted: tuple[int, ...] = ()  # out_pos of earlier tokens that no longer stand
    edits: tuple[ShownEdit, ...] = ()
    tree: tuple[TreeRow, ...] = ()
    events: tuple[EventRow, ...] = ()
    text: str = ""  # text that became safe to show
    text_retract: int = 0  # characters of already streamed text to drop before appending `text`
    finish: str | None = None  # eos | stop | length | context | cancelled


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
    _emitted: dict[int, int] = field(default_factory=dict, repr=False)  # out_pos -> index in tokens

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

    def _change(self, out_pos: int, **changes: Any) -> None:
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
        return summarise(self.tokens, self.cycles)

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


def summarise(tokens: list[TokenRow], cycles: list[CycleRow]) -> dict[str, Any]:
    """Counts and rates of a run (see DEFINITIONS), from its rows.

    Returns a dict with keys new_tokens, cycles, draft_forwards, slim_forwards, full_forwards, settle_forwards,
    escalating_cycles, counts, examined, rejection_rate, region_c_share, escalation_rate, mean_committed,
    mixture, audit, repair, phases_ms.
    """
    emitted = [row for row in tokens if row.emitted]
    region_a = sum(row.region_a for row in cycles)
    region_b = sum(row.region_b for row in cycles)
    region_c = sum(row.region_c for row in cycles)
    rewritten = sum(row.region_c_rejected for row in cycles)
    examined = region_a + region_b + region_c
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
        "escalation_rate": ratio(sum(row.full_forwards + row.settle_forwards > 0 for row in cycles), len(cycles)),
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
        "repair": summarise_repair(tokens, cycles),
        "phases_ms": {phase: sum(row.phase_us.get(phase, 0) for row in cycles) / 1000 for phase in PHASES},
    }


def summarise_repair(tokens: list[TokenRow], cycles: list[CycleRow]) -> dict[str, Any]:
    """Repair-tree totals (CURE). Accepted per step counts kept drafts; with bonus adds one a cycle."""
    kept = [row for row in tokens if row.emitted and row.verdict in ("accepted_slim", "accepted_full")]
    won = {row.cycle for row in kept if row.branch > 0}
    tried = {row.cycle for row in tokens if row.branch > 0}
    return {
        "ufps": sum(row.is_ufp for row in tokens),
        "tried": len(tried),
        "won": len(won),
        "extra_tokens": 0,
        "nodes": sum(row.tree_nodes for row in cycles),
        "resyncs": len(won),
        "accepted_per_step": ratio(len(kept), len(cycles)),
        "accepted_per_step_with_bonus": ratio(sum(row.emitted for row in tokens), len(cycles)),
    }

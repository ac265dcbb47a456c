"""The rows a trace is made of, and the words that may stand in them (`viasd-trace/1`).

Plain Python: this module imports neither torch nor numpy. Region and verdict terms follow VIA-SD
(arXiv 2606.12243) Algorithm 2. `viasd_core.trace` re-exports everything here; import it from there.
"""

from __future__ import annotations

from dataclasses import dataclass

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
EVENT_TYPES = ("param_change", "pause", "resume", "step", "stop", "retract", "error", "note")
FINISHES = ("eos", "stop", "length", "context", "cancelled")
PHASES = ("prefill", "draft", "slim", "full", "tree", "gate", "commit", "resync", "host")


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One drafted or emitted token. Log-probabilities are raw (T = 1), in nats; None means not evaluated."""

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
    tier: int | None = None  # slim verifier that settled it, 1 = the first asked; None: q, or nobody


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
    tier_forwards: tuple[int, ...] = ()  # slim_forwards of each slim verifier, in the order they are asked
    tier_us: tuple[int, ...] = ()  # the slim phase of each
    branch0_kept: int | None = None  # drafts that branch 0 alone would have kept; None: not known, or no tree
    ufps: int | None = None  # uncertain positions of the block a tree grew from, verified or not

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

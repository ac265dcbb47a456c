"""What a method hands the decode loop after one cycle: plain Python, no tensors but the audit's slim rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from ..cure.growth import DraftTree


@dataclass(frozen=True)
class Opinion:
    """The full verifier's raw view of one token, and what it would have said itself."""

    best: int  # argmax token
    best_logp: float
    logp: float
    rank: int  # 0 = argmax
    prob: float  # processed q(token)
    kl: float  # KL(q || q') of the row, nats; 0 where no q' row exists


@dataclass(frozen=True)
class Judged:
    """q's opinions on positions base+1, base+2, ...: debt and drafted block, each as drafted or committed."""

    base: int
    opinions: list[Opinion]

    def at(self, position: int) -> Opinion:
        return self.opinions[position - self.base - 1]

    def first(self, count: int) -> Judged:
        return Judged(self.base, self.opinions[:count])


@dataclass(frozen=True)
class Drafted:
    """One drafted token and every number looked at for it. None: not evaluated."""

    token: int
    p_used: float
    logp_draft: float | None = None
    margin: float | None = None
    entropy: float | None = None
    ratio: float | None = None
    logp_slim: float | None = None
    rand_u: float | None = None
    logp_full: float | None = None  # where q judged a tree node; else its opinion of the position counts
    is_ufp: bool = False
    alternatives: tuple[tuple[int, float], ...] = ()  # (token, raw log-probability) of repairs tried here
    branch: int = 0
    node: int | None = None  # place in the tree; None: a chain, numbered by offset
    offset: int = 0  # of a tree node in its block
    tier: int | None = None  # slim verifier that settled it, 1 = the first asked; None: q, or nobody


@dataclass(frozen=True)
class NewToken:
    """A token drawn this cycle rather than drafted."""

    token: int
    verdict: str
    source: str
    p_used: float | None = None
    logp_slim: float | None = None
    opinion: Opinion | None = None
    tier: int | None = None  # slim verifier that drew it


@dataclass(frozen=True)
class Verified:
    """A draft tree and what became of it; `accepted` are the nodes of the one path that was kept."""

    tree: DraftTree
    accepted: tuple[int, ...]
    uncertain: frozenset[int] = frozenset()  # nodes of branch 0 whose margin is below tau_margin
    branch0_kept: int | None = None  # drafts that branch 0 alone would have kept; None: not known
    ufps: int = 0  # uncertain positions of the block, also those that are in no node

    @property
    def winner(self) -> int:
        """Branch of the last accepted node; 0 where nothing was accepted."""
        return self.tree.nodes[self.accepted[-1]].branch if self.accepted else 0


@dataclass
class Outcome:
    """One cycle before stop rules, strict and audit: the first `kept` drafts stand, then `new` if there is
    one.

    `regions[j]` is the region of examined draft j; drafts behind them were never looked at. Of a tree,
    `drafted` is the kept path and what would have followed it on its branch, `passed_over` the rest of branch
    0 where that is a repair, and `block` the longer of branch 0 and that line.
    """

    drafted: list[Drafted] = field(default_factory=list)
    regions: list[str] = field(default_factory=list)
    kept: int = 0
    new: NewToken | None = None
    judged: Judged | None = None  # set iff q ran
    slim_rows: Tensor | None = None  # raw q' logits [g + 1, V], row j judges draft j
    draft_forwards: int = 0
    slim_forwards: int = 0
    full_forwards: int = 0
    settle_forwards: int = 0
    thresholds: tuple[float, float] | None = None
    reason: str = ""
    tree: Verified | None = None
    passed_over: list[Drafted] = field(default_factory=list)
    block: int | None = None

    @property
    def offered(self) -> int:
        """Tokens the drafter proposed one behind the other."""
        return len(self.drafted) if self.block is None else self.block

    @property
    def rejected(self) -> bool:
        """Whether the examined draft behind the kept ones was replaced."""
        return len(self.regions) > self.kept

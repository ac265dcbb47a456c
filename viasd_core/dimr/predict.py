"""What decoding with a mask should give: rho, tokens a cycle and speed, from a score and measured times.

The debt's age is a chain that starts anew whenever q runs. The drafter proposes q's own token with a fixed
probability; the gate treats such a token as it did in scoring, by age. Any other token is taken to fall in
region C, where q replaces it: VIA-SD then keeps what speculative decoding keeps, and nothing that q would
not have said counts as a gain.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ..layers import BlockRunner
from ..masks import chain_pass
from ..sublayers import Layer, from_units, units
from ..trace import ratio
from .calibration import Drafting
from .score import Score

REPEATS = 5
NEGLIGIBLE = 1e-9  # probability that q has still not run
ENDLESS = 10_000  # cycles; without a debt cap q may never run


@dataclass(frozen=True)
class Times:
    """Milliseconds of one forward's parts at the width of a drafted block, and of one cycle's drafting."""

    layer_ms: float
    rest_ms: float  # embedding, last norm, head
    draft_ms: float
    attention_share: float = 0.5  # of layer_ms; the rest is the MLP's

    def forward_ms(self, layers: Sequence[Layer]) -> float:
        halves = units(layers)
        attentions = sum(unit % 2 == 0 for unit in halves)
        whole = attentions * self.attention_share + (len(halves) - attentions) * (1 - self.attention_share)
        return self.rest_ms + whole * self.layer_ms


@torch.inference_mode()
def measure_times(runner: BlockRunner, rows: int, context: int, draft_ms: float) -> Times:
    """Median times of forwards over `rows` rows behind `context` rows, in milliseconds."""
    context = max(0, min(context, runner.n_ctx - rows))
    slots = runner.new_slots(context + rows, range(runner.n_layers))
    plan = chain_pass(context, rows, runner.device)
    tokens = torch.zeros(rows, dtype=torch.long, device=runner.device)

    def once(layers: Sequence[Layer]) -> float:
        started = time.perf_counter()
        runner.forward(tokens, plan, slots, layers, rows)
        if runner.device.type == "cuda":
            torch.cuda.synchronize(runner.device)
        return (time.perf_counter() - started) * 1000

    once(range(runner.n_layers))  # the first forward of a shape also pays for its set-up
    attentions = from_units(range(0, 2 * runner.n_layers, 2))
    runs = [(once(range(runner.n_layers)), once(attentions), once(())) for _ in range(REPEATS)]
    whole, half, rest = (statistics.median(times) for times in zip(*runs, strict=True))
    layers_ms = max(whole - rest, 0.0)
    share = min(1.0, max(0.0, ratio(half - rest, layers_ms)))
    return Times(layers_ms / runner.n_layers, rest, draft_ms, share)


@dataclass(frozen=True)
class Draftsman:
    """A drafter in numbers: drafts a cycle, the share that is q's token, and the share of empty cycles."""

    drafted: int
    acceptance: float
    empty: float

    @classmethod
    def of(cls, drafting: Drafting | None, gamma: int) -> Draftsman:
        """As observed; a perfect one where the pair has none."""
        if drafting is None or drafting.cycles == drafting.empty:
            return cls(gamma, 1.0, 0.0)
        drafted = round(drafting.drafted / (drafting.cycles - drafting.empty))
        return cls(max(1, drafted), drafting.acceptance, drafting.empty / drafting.cycles)

    @property
    def committed_by_sd(self) -> float:
        """Tokens a cycle of speculative decoding with its bonus: (1 - a^(g+1)) / (1 - a), 1 where empty."""
        tokens = sum(self.acceptance**kept for kept in range(self.drafted + 1))
        return self.empty + (1 - self.empty) * tokens


@dataclass(frozen=True)
class Prediction:
    """`speed` is tokens a second over those of speculative decoding with the same drafter."""

    rho: float  # share of cycles in which q runs
    committed: float  # tokens a cycle
    committed_by_sd: float
    ms_per_token: float
    sd_ms_per_token: float
    speed: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def predict(
    score: Score, kept: Sequence[Layer], n_layers: int, times: Times, draftsman: Draftsman, cap: int | None
) -> Prediction:
    """Serving with a mask that keeps `kept` of `n_layers` layers under a debt cap (None: no cap)."""
    rho, committed = renewal(score.regions_by_age, draftsman, cap)
    full = times.forward_ms(range(n_layers))
    busy = 1 - draftsman.empty
    via = ratio(times.draft_ms + busy * times.forward_ms(kept) + rho * full, committed)
    by_sd = draftsman.committed_by_sd
    plain = ratio(times.draft_ms + full, by_sd)
    return Prediction(rho, committed, by_sd, via, plain, ratio(plain, via))


def renewal(
    regions: Sequence[tuple[float, float, float]], draftsman: Draftsman, cap: int | None
) -> tuple[float, float]:
    """(share of cycles that call q, tokens a cycle) in the long run; q is called once a renewal."""
    last = len(regions)  # without a cap, older debt is judged as the oldest that was scored
    waiting = {0: 1.0}  # rows of debt behind the anchor -> probability that q has not run since the start
    cycles = tokens = 0.0
    left = 1.0
    while left > NEGLIGIBLE and cycles < ENDLESS:
        later: dict[int, float] = defaultdict(float)
        for debt, share in waiting.items():
            cycles += share
            due = cap is not None and debt + 1 + draftsman.drafted > cap
            for (length, called), chance in block_ends(regions, draftsman, debt).items():
                tokens += share * chance * length
                if not (called or due):
                    later[debt + length if cap is not None else min(debt + length, last)] += share * chance
        waiting, left = later, sum(later.values())
    return (1 - left) / cycles, tokens / cycles


def block_ends(
    regions: Sequence[tuple[float, float, float]], draftsman: Draftsman, debt: int
) -> dict[tuple[int, bool], float]:
    """Probability of each (tokens committed, q called) of one cycle behind `debt` rows."""
    ends: dict[tuple[int, bool], float] = defaultdict(float)
    ends[(1, True)] += draftsman.empty
    going = {False: 1 - draftsman.empty, True: 0.0}  # by whether q has been called
    right = draftsman.acceptance
    for offset in range(draftsman.drafted):
        kept, redrawn, deferred = regions[min(debt + offset, len(regions) - 1)]
        for called, share in going.items():
            ends[(offset + 1, called)] += share * right * redrawn
        ends[(offset + 1, True)] += sum(going.values()) * (1 - right)
        going = {
            False: going[False] * right * kept,
            True: going[True] * right * (kept + deferred) + going[False] * right * deferred,
        }
    for called, share in going.items():
        ends[(draftsman.drafted, called)] += share
    return {end: chance for end, chance in ends.items() if chance > 0}

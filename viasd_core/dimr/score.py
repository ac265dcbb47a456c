"""What a mask is worth as serving will see it: windows of q' rows behind a settle, weighted by their age.

In the shared cache q' reads q's rows below the last settle and its own above; a row's *age* is how many rows
of debt lie below it. All windows of a text run in one forward: each row sees q's rows before its window and
q's sub-model's rows inside it. With an own cache q' is a pure function of the text and has no ages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import PairError, SettingsError
from ..masks import Pass, chain_pass
from ..settings import gate_thresholds
from ..sublayers import from_units, units
from .calibration import TeacherForced
from .cost import CostSettings, divergence, floored_log_probs
from .masks import parse_bits

REGIONS = ("A", "B", "C")


@dataclass(frozen=True)
class ScoreSettings:
    """How serving will run. Raises SettingsError.

    `rho`: share of cycles that call q, as far as the weights of ages are concerned: a debt of k blocks of
    `gamma` rows is left alone with probability (1 - rho)^k.
    """

    window: int = 20  # rows behind a settle: the debt cap
    gamma: int = 5
    rho: float = 0.3
    slim_kv: str = "shared"
    thresholds: tuple[float, float] = (0.5, 0.3)  # tau1, tau2 of the gate
    cost: CostSettings = CostSettings()  # noqa: RUF009 (frozen)

    def __post_init__(self) -> None:
        if not 1 <= self.window <= 100_000:
            raise SettingsError(f"window is {self.window}; give a whole number of rows from 1 to 100000")
        if not 0 <= self.rho < 1:
            raise SettingsError(f"rho is {self.rho:g}; give a number from 0 to below 1")

    @property
    def shared(self) -> bool:
        return self.slim_kv == "shared"

    def weights(self, ages: int) -> np.ndarray:
        """Weight of each age, summing to 1: geometric in blocks."""
        law = (1 - self.rho) ** (np.arange(ages) // self.gamma)
        return np.asarray(law / law.sum())

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for mask files and logs."""
        return asdict(self) | {"cost": self.cost.as_dict(), "thresholds": list(self.thresholds)}


def serving(settings: Any, **changes: Any) -> ScoreSettings:
    """Scoring that matches decoding with `settings` (a Settings of method via-sd)."""
    cap = settings.debt_limit(settings.gamma)
    thresholds = settings.core_thresholds or gate_thresholds(settings.alpha1, settings.alpha2, settings.gate)
    values = {
        "window": cap or 4 * settings.gamma,
        "gamma": settings.gamma,
        "slim_kv": settings.slim_kv,
        "thresholds": thresholds,
    }
    return ScoreSettings(**{**values, **changes})


@dataclass(frozen=True)
class Score:
    """One mask on some texts. Tuples by age: entry a is about rows a behind the settle (one entry: no ages).

    `cost`: mean divergence a position, nats, ages weighted. `block_cost`: eq. 12, the sum over a window.
    `regions`: shares of q's own tokens that the gate would keep (A), redraw (B) or escalate (C), by age.
    """

    cost: float
    block_cost: float
    agreement: float  # share of rows whose most likely token is q's, ages weighted
    regions: tuple[float, float, float]  # ages weighted
    cost_by_age: tuple[float, ...]
    agreement_by_age: tuple[float, ...]
    regions_by_age: tuple[tuple[float, float, float], ...]
    positions: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"regions": dict(zip(REGIONS, self.regions, strict=True))}


class Scorer:
    """Scores masks (0/1 strings, one digit a layer or half a layer) on texts that q has run over."""

    def __init__(self, texts: Sequence[TeacherForced], settings: ScoreSettings) -> None:
        self.texts, self.settings = list(texts), settings
        if any(text.whole == settings.shared for text in self.texts):
            raise ValueError("texts must be run whole for an own cache, and only then")
        self.plans = [window_pass(text, settings) for text in self.texts]

    def cost(self, mask: str) -> float:
        """The number a search minimises."""
        return self.score(mask).cost

    @torch.inference_mode()
    def slim_logits(self, number: int, mask: str) -> Tensor:
        """Raw q' logits [new tokens, V] of text `number`."""
        text = self.texts[number]
        kept = units(parse_bits(mask, text.runner.n_layers).layers)
        n_layers = text.runner.n_layers
        # Before its first skipped half q' is q.
        first = next((unit // 2 for unit in range(2 * n_layers) if unit not in kept), n_layers)
        layers = from_units(unit for unit in kept if unit >= 2 * first)
        hidden = text.runner.through(text.entering[first], self.plans[number], text.slots, layers)
        return text.runner.logits(hidden[:, -text.fresh :])

    @torch.inference_mode()
    def score(self, mask: str) -> Score:
        """Raises PairError when q' numbers are not finite."""
        ages, facts = [], []
        for number, text in enumerate(self.texts):
            logits = self.slim_logits(number, mask)
            facts.append(self._facts(text, logits).double().cpu().numpy())
            ages.append(self.ages(text))
        found = self._summarise(np.concatenate(ages), np.concatenate(facts, axis=1))
        if not np.isfinite(found.cost):
            raise PairError(
                f"the numbers of the slim verifier with mask {mask} are not finite; choose --dtype float32"
            )
        return found

    def ages(self, text: TeacherForced) -> np.ndarray:
        """Age of each scored row."""
        return np.arange(text.fresh) % (self.settings.window if self.settings.shared else 1)

    def _facts(self, text: TeacherForced, logits: Tensor) -> Tensor:
        """Cost, agreement and membership of regions A, B, C of every row, [5, n]."""
        log_q, log_slim = text.log_q, floored_log_probs(logits)
        tau1, tau2 = self.settings.thresholds
        raw = logits if logits.dtype == torch.float64 else logits.float()
        ratios = (raw.gather(-1, text.targets[:, None])[:, 0] - raw.amax(-1)).exp()
        deferred, kept = ratios < tau2, (ratios >= tau2) & (ratios >= tau1)
        cost = divergence(log_q, log_slim, self.settings.cost)
        agree = log_q.argmax(-1) == log_slim.argmax(-1)
        return torch.stack([cost, *(mark.to(cost) for mark in (agree, kept, ~(deferred | kept), deferred))])

    def _summarise(self, ages: np.ndarray, facts: np.ndarray) -> Score:
        counts = np.bincount(ages)
        means = np.stack([np.bincount(ages, fact) / counts for fact in facts])
        weights = self.settings.weights(len(counts)) if self.settings.shared else np.ones(1)
        cost, agreement, *regions = (float(value) for value in means @ weights)
        per_window = means[0].sum() if self.settings.shared else means[0, 0] * self.settings.window
        return Score(
            cost=cost,
            block_cost=float(per_window),
            agreement=agreement,
            regions=(regions[0], regions[1], regions[2]),
            cost_by_age=tuple(means[0].tolist()),
            agreement_by_age=tuple(means[1].tolist()),
            regions_by_age=tuple((a, b, c) for a, b, c in means[2:].T.tolist()),
            positions=len(ages),
        )


def window_pass(text: TeacherForced, settings: ScoreSettings) -> Pass:
    """Where q' rows of a text go and what they see.

    Shared: row i of the scored ones, in a free slot behind q's rows, sees q's rows below its window's start
    and the scored rows of its window up to itself. Own: the whole text as one chain.
    """
    rows, fresh, device = text.rows, text.fresh, text.runner.device
    if not settings.shared:
        return chain_pass(0, rows, device)
    number = torch.arange(fresh, device=device)
    window = number // settings.window
    base = rows - fresh
    earlier = torch.arange(rows, device=device)[None] < base + window[:, None] * settings.window
    inside = (window[:, None] == window[None]) & (number[None] <= number[:, None])
    positions = base + number
    return Pass(
        slots=rows + number + 1,
        positions=positions,
        key_positions=torch.cat([torch.arange(rows, device=device), positions]),
        visible=torch.cat([earlier, inside], dim=1),
        first=rows,
        end=rows + fresh,
        contiguous=True,
    )

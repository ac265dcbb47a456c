"""DIMR's search for the cheapest mask (VIA-SD eq. 13), and the two it is compared with.

`dimr`: the even mask first, then random masks with a Bayesian step every theta. `random`: the same without
Bayesian steps. `greedy`: of all layers still kept, the one whose loss costs least goes next. What is said of
layers holds for halves of layers where the space is one of sub-layers.
Every choice depends on the seed, the step and the costs seen so far alone, so that a search continued from
its log takes the same way as one that was never interrupted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import SettingsError
from ..rows import DimrRow
from .space import Space
from .surrogate import propose

KINDS = ("dimr", "random", "greedy")


@dataclass(frozen=True)
class SearchSettings:
    """How to search. Raises SettingsError.

    The paper states none of the numbers; these are SWIFT's (arXiv 2410.06916), which fit its search times.
    """

    kind: str = "dimr"
    steps: int = 1000  # masks of the wanted size, the even one not counted
    theta: int = 25  # every theta-th step is Bayesian
    patience: int = 300  # steps without a new best
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise SettingsError(f"search is {self.kind!r}; choose one of {', '.join(KINDS)}")
        for name in ("steps", "theta", "patience"):
            value = getattr(self, name)
            if not 1 <= value <= 1_000_000:
                raise SettingsError(f"{name} is {value}; give a whole number from 1 to 1000000")
        if not 0 <= self.seed < 2**63:
            raise SettingsError(f"seed is {self.seed}; give a whole number from 0 to 2^63 - 1")


@dataclass(frozen=True)
class Observation:
    """One evaluated mask. `step` counts masks of the wanted size from 0; None: a mask that skips fewer
    layers, scored to learn what layers cost (it is never the best one).

    `method`: even | random | bo | greedy, and single for one skipped layer. Cost in nats a position;
    `best_cost` is the least so far, None before step 0; `t_us` is search time so far, without what whoever
    iterates did between two masks.
    """

    step: int | None
    method: str
    mask: str
    cost: float
    best_cost: float | None
    t_us: int
    accepted: bool  # it became the best

    def row(self, tau: int) -> DimrRow:
        """The trace's row of a mask of the wanted size; `tau` is the window's length."""
        assert self.step is not None and self.best_cost is not None
        return DimrRow(
            self.step, self.method, self.cost, self.best_cost, self.mask, tau, self.t_us, self.accepted
        )


class Search:
    """Iterate to search: each item is one evaluated mask, in order. Stop iterating to cancel.

    `cost` is called once a mask. `past` are the observations of a search with the same space and settings
    that was interrupted: they come first again, without being evaluated. `heard` gets every new one.
    """

    def __init__(
        self,
        space: Space,
        cost: Callable[[str], float],
        settings: SearchSettings,
        *,
        past: Sequence[Observation] = (),
        heard: Callable[[Observation], None] = lambda new: None,
    ) -> None:
        self.space, self.cost, self.settings = space, cost, settings
        self.heard = heard
        self.seen: dict[str, float] = {}  # masks of the wanted size
        self.singles: dict[int, float] = {}
        self.best: Observation | None = None
        self.evaluations = 0
        self._past = deque(past)
        self._spent_us = past[-1].t_us if past else 0
        self._resumed_ns = 0  # when the step under way began

    @property
    def planned(self) -> int:
        """Masks to evaluate when the search is not ended early."""
        free, settings = len(self.space.free), self.settings
        if settings.kind == "greedy":
            return sum(free - gone for gone in range(self.space.chosen))
        return len(self._probed) + min(settings.steps + 1, self.space.size)

    @property
    def _probed(self) -> tuple[int, ...]:
        """Units whose loss alone is scored first; none where masks choose just one, which the steps score."""
        return self.space.free if self.settings.kind == "dimr" and self.space.chosen > 1 else ()

    def __iter__(self) -> Iterator[Observation]:
        self._resumed_ns = time.perf_counter_ns()
        for found in self._greedy() if self.settings.kind == "greedy" else self._steps():
            yield found
            self._resumed_ns = time.perf_counter_ns()  # a search may have waited behind other work

    def _steps(self) -> Iterator[Observation]:
        """Random search, with a Bayesian step every theta. Stops at S, at patience, or when all is seen."""
        settings, space = self.settings, self.space
        for layer in self._probed:
            found = self._look(None, "single", space.without([layer]))
            self.singles[layer] = found.cost
            yield found
        yield self._look(0, "even", space.even)
        stale = 0
        for step in range(1, settings.steps + 1):
            if stale >= settings.patience or len(self.seen) == space.size:
                return
            bayesian = settings.kind == "dimr" and step % settings.theta == 0
            mask = self._past[0].mask if self._past else self._choose(step, bayesian)
            found = self._look(step, "bo" if bayesian else "random", mask)
            stale = 0 if found.accepted else stale + 1
            yield found

    def _choose(self, step: int, bayesian: bool) -> str:
        random = np.random.default_rng([self.settings.seed, step])
        if bayesian:
            return propose(self.space, self.singles, self.seen, random)
        return self.space.unseen(random, self.seen)

    def _greedy(self) -> Iterator[Observation]:
        """Remove the cheapest layer until n are gone; the last round's masks have the wanted size."""
        space, gone = self.space, list[int]()
        while len(gone) < space.chosen:
            last = len(gone) == space.chosen - 1
            costs: dict[int, float] = {}
            for layer in space.free:
                if layer not in gone:
                    step = len(self.seen) if last else None
                    found = self._look(step, "greedy", space.without([*gone, layer]))
                    costs[layer] = found.cost
                    yield found
            gone.append(min(costs, key=lambda layer: costs[layer]))

    def _look(self, step: int | None, method: str, mask: str) -> Observation:
        """The next observation: from the past while there is one, else by evaluating `mask`."""
        if self._past:
            found = self._past.popleft()
        else:
            cost = self.cost(mask)
            accepted = step is not None and (self.best is None or cost < self.best.cost)
            best = cost if accepted else (self.best.cost if self.best else None)
            self._spent_us += (time.perf_counter_ns() - self._resumed_ns) // 1000
            found = Observation(step, method, mask, cost, best, self._spent_us, accepted)
            self.heard(found)
        self.evaluations += 1
        if step is not None:
            self.seen[found.mask] = found.cost
        if found.accepted:
            self.best = found
        return found

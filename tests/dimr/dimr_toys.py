"""Texts of a toy verifier, and costs planted in a search space."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np
import torch

from toys import toy_model
from viasd_core.dimr.calibration import TeacherForced, Text, teacher_force
from viasd_core.dimr.score import Scorer, ScoreSettings
from viasd_core.dimr.search import Observation, Search, SearchSettings
from viasd_core.dimr.space import Space
from viasd_core.layers import BlockRunner

Cost = Callable[[str], float]
Planted = Callable[[int, int], Cost]  # of layers and a seed


def random_texts(vocab: int, *shapes: tuple[int, int]) -> list[Text]:
    """Texts of (prompt, new) random tokens: scoring does not ask who wrote them."""
    generator = torch.Generator().manual_seed(len(shapes))
    return [
        Text(tuple(torch.randint(3, vocab, (prompt + new,), generator=generator).tolist()), prompt)
        for prompt, new in shapes
    ]


def toy_runner(family: str = "llama", **model: object) -> BlockRunner:
    return BlockRunner(toy_model(family, layers=7, vocab=40, **model))  # type: ignore[arg-type]


def toy_scorer(
    settings: ScoreSettings, family: str = "llama", *shapes: tuple[int, int]
) -> tuple[Scorer, list[TeacherForced]]:
    runner = toy_runner(family)
    texts = teacher_force(runner, random_texts(40, *(shapes or ((6, 11), (9, 4)))), whole=not settings.shared)
    return Scorer(texts, settings), texts


def separable(n_layers: int, seed: int) -> Cost:
    """Every layer has its price."""
    price = np.random.default_rng(seed).exponential(1.0, n_layers)
    return lambda mask: float(sum(price[layer] for layer, bit in enumerate(mask) if bit == "0"))


def with_pairs(n_layers: int, seed: int) -> Cost:
    """Every layer has its price, and neighbours that go together cost more than each alone."""
    alone = separable(n_layers, seed)
    extra = np.random.default_rng(seed + 1000).exponential(1.0, n_layers)
    return lambda mask: (
        alone(mask) + float(sum(extra[at] for at in range(n_layers - 1) if mask[at : at + 2] == "00"))
    )


def run(search: Search, limit: int | None = None) -> list[Observation]:
    """The search's observations, cancelled after `limit`."""

    def taken() -> Iterator[Observation]:
        for number, seen in enumerate(search, 1):
            yield seen
            if number == limit:
                return

    return list(taken())


def made(space: Space, cost: Cost, **settings: object) -> Search:
    return Search(space, cost, SearchSettings(**settings))  # type: ignore[arg-type]


def evaluations_needed(kind: str, planted: Planted, space: Space, seed: int, theta: int = 5) -> int:
    """Masks that a search without an end of its own scores until the cheapest of `space` is among them,
    masks of one skipped layer counted.
    """
    cost = planted(space.units, seed)
    optimum = min(cost(space.without(gone)) for gone in combinations(space.free, space.chosen))
    search = made(space, cost, kind=kind, steps=space.size, patience=space.size, theta=theta, seed=seed)
    return next(number for number, one in enumerate(search, 1) if one.best_cost == optimum)

"""Tiny verifiers that answer prompts, and the shards they leave."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from toys import toy_model
from viasd_core.distill.answers import Answer, Answering
from viasd_core.distill.collect import common_opening
from viasd_core.distill.lanes import LaneRunner
from viasd_core.distill.prompts import Prompt
from viasd_core.distill.shards import ShardFolder
from viasd_core.drafters.checkpoints import Target
from viasd_core.layers import BlockRunner

TAPS = (1, 3)
NOBODY: frozenset[int] = frozenset()
PLAN: dict[str, Any] = {"seed": 0, "taps": [1, 3]}


def toy_target(
    family: str = "llama",
    *,
    layers: int = 5,
    vocab: int = 40,
    dtype: torch.dtype = torch.float64,
    **more: Any,
) -> Target:
    model = toy_model(family, layers=layers, vocab=vocab, dtype=dtype, **more)
    return Target("toy", BlockRunner(model), model.config)


def toy_prompts(
    count: int, *, vocab: int = 40, opening: Sequence[int] = (), longest: int = 9, seed: int = 0
) -> list[Prompt]:
    """Random ids behind a common opening; lengths from one to `longest`."""
    rng = random.Random(seed)
    return [
        Prompt(index, (*opening, *(rng.randrange(vocab) for _ in range(rng.randint(1, longest)))))
        for index in range(count)
    ]


def answer(
    target: Target,
    prompts: Sequence[Prompt],
    *,
    lanes: int = 4,
    taps: Sequence[int] = (0,),
    new: int = 12,
    capacity: int = 64,
    temperatures: Sequence[float] = (0.0,),
    eos: frozenset[int] = NOBODY,
    seed: int = 0,
    prefix: Sequence[int] | None = None,
) -> list[Answer]:
    """All answers, in order of their prompts; the common opening is run once unless `prefix` says."""
    opening = common_opening([prompt.ids[:-1] for prompt in prompts]) if prefix is None else prefix
    runner = LaneRunner(target.runner, taps, lanes, capacity, opening)
    answering = Answering(
        runner, lanes=lanes, max_new_tokens=new, temperatures=temperatures, eos_ids=eos, seed=seed
    )
    return sorted(answering.answers(iter(prompts)), key=lambda found: found.index)


def exact_answers(target: Target, prompts: Sequence[Prompt], taps: Sequence[int]) -> list[Answer]:
    """Sampled texts of different lengths, their rows kept in float64."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("viasd_core.distill.answers.STORED", torch.float64)
        eos = frozenset({1, 2, 3, 4, 5})
        return answer(target, prompts, taps=taps, new=14, temperatures=(0.8,), eos=eos)


def toy_shards(
    folder: Path, target: Target, count: int = 40, *, per_shard: int = 15, new: int = 12, **options: Any
) -> list[Path]:
    """Answers of different lengths in several shards; every 32nd is held out."""
    vocab = target.runner.vocab_size
    prompts = toy_prompts(count, vocab=vocab)
    found = answer(
        target, prompts, new=new, eos=frozenset({1, 2, 3}), temperatures=(0.7,), taps=TAPS, **options
    )
    shards = ShardFolder(folder, PLAN)
    for first in range(0, len(found), per_shard):
        shards.write(f"0-{first:04}", found[first : first + per_shard])
    return shards.paths()

"""Which draft length suits a method best, by measurement on a few prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .measure import BenchPrompt, Runner, measure
from .statistics import speed

CANDIDATES = (1, 2, 3, 4, 5, 6, 8, 10)
TUNING_PROMPTS = 4


def spread(prompts: Sequence[BenchPrompt], count: int = TUNING_PROMPTS) -> list[BenchPrompt]:
    """`count` prompts evenly spaced over the list, so that every task of a mixed file has a say."""
    if len(prompts) <= count:
        return list(prompts)
    return [prompts[index * len(prompts) // count] for index in range(count)]


def search_gamma(
    make: Callable[[int], Runner],
    prompts: Sequence[BenchPrompt],
    candidates: Sequence[int],
    max_new_tokens: int,
) -> dict[str, Any]:
    """Run every candidate on the tuning prompts, interleaved, after one short run each.

    `make(gamma)` gives a runner. Returns {"best", "tried": [{"gamma", "tokens_per_s"}], "prompts": [ids]}.
    The same prompts are measured again afterwards; the figures reported come from that fresh measurement.
    """
    tuning = spread(prompts)
    runners = {gamma: make(gamma) for gamma in candidates}
    for runner in runners.values():
        runner.run(tuning[0].ids, max_new_tokens)
    tokens: dict[int, list[float]] = {gamma: [] for gamma in candidates}
    seconds: dict[int, list[float]] = {gamma: [] for gamma in candidates}
    for done in measure(list(runners.values()), tuning, max_new_tokens=max_new_tokens, repeats=1):
        for gamma, runner in runners.items():
            result = done.runs[runner.label][0]
            tokens[gamma].append(len(result.token_ids))
            seconds[gamma].append(result.seconds)
    speeds = {gamma: speed(tokens[gamma], seconds[gamma]) for gamma in candidates}
    return {
        "best": max(speeds, key=lambda gamma: speeds[gamma]),
        "tried": [{"gamma": gamma, "tokens_per_s": value} for gamma, value in speeds.items()],
        "prompts": [prompt.item.id for prompt in tuning],
    }

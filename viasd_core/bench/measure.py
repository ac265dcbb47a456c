"""Interleaved measurement: every prompt is decoded by every method before the next prompt begins.

A machine's speed drifts (heat, neighbours, clocks). Running A B C A B C, with a rotating start, spreads the
drift over all methods, and comparing on the same prompt makes it cancel. This module knows nothing about
models: it drives `Runner`s and collects what they report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..trace import Trace
from .layouts import BenchItem

WARM_UP_RUNS = 3
WARM_UP_TOKENS = 16


@dataclass(frozen=True)
class RunResult:
    """One decoded prompt. Tokens end with the first EOS or at the limit; seconds count from the request."""

    token_ids: tuple[int, ...]
    seconds: float  # to the last token on the host; prefill included
    ttft_s: float  # to the first token on the host
    first_tokens: int = 1  # how many tokens came with the first one (a whole block in speculative decoding)
    summary: dict[str, Any] | None = None  # Trace.summary(), where the method leaves a trace
    finish: str = ""
    trace: Trace | None = None  # the run itself, where the method leaves one
    untraced_tokens: int | None = None  # how many tokens there were where their ids are not known

    @property
    def new_tokens(self) -> int:
        return len(self.token_ids) if self.untraced_tokens is None else self.untraced_tokens


class Runner(Protocol):
    """Something that decodes a prompt and times itself. `label` is unique within a benchmark."""

    @property
    def label(self) -> str: ...

    def run(self, prompt_ids: Sequence[int], max_new_tokens: int) -> RunResult: ...


@dataclass(frozen=True)
class BenchPrompt:
    """A benchmark item with the token ids that every method decodes from."""

    item: BenchItem
    ids: tuple[int, ...]


@dataclass(frozen=True)
class PromptRuns:
    """All runs of one prompt: label -> one result a repeat, in the order they were made."""

    prompt: BenchPrompt
    runs: dict[str, list[RunResult]]


def rotation(count: int, turn: int) -> list[int]:
    """The order of `count` methods in round `turn`: the same cycle, started one further each time."""
    start = turn % count
    return [(start + step) % count for step in range(count)]


def warm_up(runners: Sequence[Runner], prompts: Sequence[BenchPrompt], max_new_tokens: int) -> None:
    """At least three runs a method that touch the shapes of the measurement.

    Short runs on the shortest and the median prompt, then one of full length on the longest prompt, which
    reaches the largest buffers. Their results are dropped.
    """
    by_length = sorted(prompts, key=lambda prompt: len(prompt.ids))
    chosen = [by_length[0], by_length[len(by_length) // 2]]
    for runner in runners:
        for prompt in chosen[: WARM_UP_RUNS - 1]:
            runner.run(prompt.ids, min(max_new_tokens, WARM_UP_TOKENS))
        runner.run(by_length[-1].ids, max_new_tokens)


def measure(
    runners: Sequence[Runner],
    prompts: Sequence[BenchPrompt],
    *,
    max_new_tokens: int,
    repeats: int,
    progress: Callable[[str], None] = lambda message: None,
) -> Iterator[PromptRuns]:
    """Decode every prompt `repeats` times with every runner, interleaved; yields after each prompt."""
    turn = 0
    for number, prompt in enumerate(prompts, 1):
        runs: dict[str, list[RunResult]] = {runner.label: [] for runner in runners}
        for _ in range(repeats):
            for index in rotation(len(runners), turn):
                runner = runners[index]
                runs[runner.label].append(runner.run(prompt.ids, max_new_tokens))
            turn += 1
        progress(f"prompt {number} of {len(prompts)} ({prompt.item.id})")
        yield PromptRuns(prompt, runs)

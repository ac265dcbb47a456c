"""Runners with a script in place of a model and a clock that only moves when told to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from viasd_core.bench.layouts import BenchItem
from viasd_core.bench.measure import BenchPrompt, RunResult
from viasd_core.trace import PHASES, CycleRow, TokenRow, summarise

Log = list[tuple[str, tuple[int, ...], int]]


@dataclass
class ScriptedRunner:
    """Notes each call in `log` and answers with `answer(prompt_ids, call number)`."""

    label: str
    log: Log
    answer: Callable[[tuple[int, ...], int], RunResult]
    calls: int = field(default=0)

    def run(self, prompt_ids: Sequence[int], max_new_tokens: int) -> RunResult:
        self.log.append((self.label, tuple(prompt_ids), max_new_tokens))
        self.calls += 1
        return self.answer(tuple(prompt_ids), self.calls)


def prompt(name: str, length: int, **item: Any) -> BenchPrompt:
    return BenchPrompt(BenchItem(id=name, prompt=name, **item), tuple(range(length)))


def result(
    tokens: Sequence[int], seconds: float, ttft_s: float = 0.1, first: int = 1, **more: Any
) -> RunResult:
    return RunResult(tuple(tokens), seconds, ttft_s, first, **more)


def summary(
    *,
    cycles: int,
    drafted: int = 4,
    a: int = 0,
    b: int = 0,
    c_kept: int = 0,
    c_lost: int = 0,
    committed: int = 2,
) -> dict[str, Any]:
    """The summary of `cycles` equal cycles: A/B/C counts a cycle, q runs where C has tokens, 1 ms phases."""
    rows = [
        CycleRow(
            cycle=index,
            t_start_us=0,
            phase_us=dict.fromkeys(PHASES, 1000),
            gamma=drafted,
            alpha1=0.5,
            alpha2=0.3,
            skip_ratio=0.2,
            temperature=0.0,
            param_version=0,
            drafted=drafted,
            region_a=a,
            region_b=b,
            region_c_accepted=c_kept,
            region_c_rejected=c_lost,
            committed=committed,
            draft_forwards=drafted,
            slim_forwards=1,
            full_forwards=int(c_kept + c_lost > 0),
        )
        for index in range(cycles)
    ]
    tokens = [
        TokenRow(index, 0, 7, "x", b"x", "draft", "accepted_slim", True, out_pos=index)
        for index in range(cycles * committed)
    ]
    return {**summarise(tokens, rows), "slim_audited": 0}

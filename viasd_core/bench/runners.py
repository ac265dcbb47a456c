"""The engine's decoding methods as benchmark runners, and the settings each runs with."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..decode import generate
from ..method_options import COMMON_OPTIONS, METHOD_OPTIONS
from ..pair import ModelPair
from ..presets import Preset
from ..recording import describe, finish
from ..settings import Settings
from ..trace import Trace, is_slim_decided
from .measure import PromptRuns, RunResult


@dataclass(frozen=True)
class EngineRunner:
    """One method of the engine at fixed settings. Every run uses the same seed, so repeats time the same
    tokens."""

    label: str
    pair: ModelPair
    settings: Settings
    clock: Callable[[], float] = time.perf_counter

    def run(self, prompt_ids: Sequence[int], max_new_tokens: int) -> RunResult:
        """Decode and time as a consumer sees it: to each event handed over, with the trace being built."""
        settings = self.settings.with_(max_new_tokens=max_new_tokens)
        trace = Trace()
        first_s, first_tokens = 0.0, 0
        started = self.clock()
        for event in generate(self.pair, list(prompt_ids), settings):
            trace.add(event)
            if not first_tokens and event.cycle.committed > 0:
                first_s, first_tokens = self.clock() - started, event.cycle.committed
        seconds = self.clock() - started
        timed = RunResult((), seconds, first_s, first_tokens, finish=trace.finish or "")
        if not settings.trace:
            return replace(timed, untraced_tokens=sum(row.committed for row in trace.cycles))
        summary = {**trace.summary(), "slim_audited": slim_audited(trace)}
        return replace(timed, token_ids=tuple(trace.token_ids), summary=summary, trace=trace)

    def save(self, done: PromptRuns, path: Path, max_new_tokens: int) -> None:
        """Keep the first run of a prompt as a bundle, as `generate --trace` would. Raises TraceError."""
        result = done.runs[self.label][0]
        assert result.trace is not None, "only a run that traces is kept"
        settings = self.settings.with_(max_new_tokens=max_new_tokens)
        facts = describe(self.pair, done.prompt.item.prompt, done.prompt.ids, settings)
        result.trace.run.update(facts, ttft_s=result.ttft_s)
        finish(result.trace, result.seconds)
        result.trace.save(path)


def slim_audited(trace: Trace) -> int:
    """Tokens that `audit.agree` is a share of: needed to pool that share over runs."""
    return sum(row.audit_rank is not None and is_slim_decided(row) for row in trace.emitted)


def method_settings(preset: Preset, method: str, overrides: dict[str, Any]) -> Settings:
    """The preset's settings for `method`, then `overrides`; options that the method does not use are left
    out.

    One set of options serves several methods here; a `Request` has refused what none of them uses. Raises
    SettingsError.
    """
    used = COMMON_OPTIONS | METHOD_OPTIONS[method]
    values = {**preset.settings, **overrides}
    return Settings(method=method, **{key: value for key, value in values.items() if key in used})

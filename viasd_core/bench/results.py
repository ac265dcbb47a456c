"""The result file `viasd-bench/1`: raw runs a prompt, and the figures of each method computed from them
alone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import DataError
from ..trace import PHASES, ratio
from . import quality
from .measure import PromptRuns, RunResult
from .statistics import middle, ratio_interval, ratio_of_speeds, speed

BASE = "ar"  # every ratio is taken against plain decoding by the same engine
SCHEMA = "viasd-bench/1"
UNTRACED = "via-sd (trace off)"

_SUMS = (
    "cycles",
    "draft_forwards",
    "slim_forwards",
    "full_forwards",
    "settle_forwards",
    "escalating_cycles",
    "examined",
)
_RATES = {  # rate of Trace.summary() -> what it is a share of
    "rejection_rate": "examined",
    "region_c_share": "examined",
    "escalation_rate": "cycles",
    "mean_committed": "cycles",
}


def prompt_entry(done: PromptRuns, decode: Callable[[Sequence[int]], str], greedy: bool) -> dict[str, Any]:
    """One prompt's raw numbers. `decode` turns token ids into text; agreement with AR is judged when
    `greedy`."""
    item = done.prompt.item
    base = done.runs[BASE][0].token_ids if greedy and BASE in done.runs else None
    entry: dict[str, Any] = {
        "id": item.id,
        "task": item.task,
        "prompt_tokens": len(done.prompt.ids),
        "runs": {},
    }
    for label, results in done.runs.items():
        text = decode(results[0].token_ids)
        entry["runs"][label] = {
            **_raw(results),
            "text": text,
            "quality": quality.judge(results[0].token_ids, base, text, item.reference),
        }
    return entry


def _raw(results: Sequence[RunResult]) -> dict[str, Any]:
    first = results[0]
    return {
        "seconds": [result.seconds for result in results],
        "ttft_s": [result.ttft_s for result in results],
        "first_tokens": [result.first_tokens for result in results],
        "new_tokens": [result.new_tokens for result in results],
        "repeats_agree": all(result.token_ids == first.token_ids for result in results),
        "token_ids": list(first.token_ids),
        "finish": first.finish,
        "summary": {key: value for key, value in (first.summary or {}).items() if key != "phases_ms"} or None,
        "phases_ms": [result.summary["phases_ms"] for result in results if result.summary],
    }


def column(prompts: Sequence[dict[str, Any]], label: str, key: str) -> list[float]:
    """The median over repeats of a raw number, one a prompt."""
    return [middle(prompt["runs"][label][key]) for prompt in prompts]


def method_entry(spec: dict[str, Any], prompts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures of one method from the raw prompts. `spec` holds label, method, settings and what else is
    fixed."""
    label = spec["label"]
    runs = [prompt["runs"][label] for prompt in prompts]
    tokens, seconds, base_tokens, base_seconds = (
        column(prompts, name, key) for name in (label, BASE) for key in ("new_tokens", "seconds")
    )
    ttft, first = column(prompts, label, "ttft_s"), column(prompts, label, "first_tokens")
    later_tokens = [total - early for total, early in zip(tokens, first, strict=True)]
    later_seconds = [total - early for total, early in zip(seconds, ttft, strict=True)]
    return {
        **spec,
        "tokens_per_s": speed(tokens, seconds),
        "ratio_to_ar": ratio_of_speeds(tokens, seconds, base_tokens, base_seconds),
        "ratio_ci": list(ratio_interval(tokens, seconds, base_tokens, base_seconds)),
        "tokens_per_s_after_first": speed(later_tokens, later_seconds),
        "ttft_s": middle(ttft) if ttft else None,
        "new_tokens": int(sum(tokens)),
        "seconds": sum(seconds),
        "repeats_agree": all(run["repeats_agree"] for run in runs),
        **pooled_summary([run["summary"] for run in runs], int(sum(tokens))),
        "phases_ms": pooled_phases([run["phases_ms"] for run in runs]),
        "quality": quality.pool([run["quality"] for run in runs]),
    }


def pooled_summary(summaries: Sequence[dict[str, Any] | None], new_tokens: int) -> dict[str, Any]:
    """Counts added up over prompts and rates over all prompts at once (not means of rates); None without
    traces."""
    known = [summary for summary in summaries if summary is not None]
    names = ("draft", "slim", "full", "settle")
    if not known:
        empty = (*_SUMS, *_RATES, *(f"{name}_forwards_per_token" for name in names), "audit_agree")
        return dict.fromkeys(empty)
    sums = {key: sum(summary[key] for summary in known) for key in _SUMS}
    rates = {
        rate: ratio(sum(summary[rate] * summary[base] for summary in known), sums[base])
        for rate, base in _RATES.items()
    }
    per_token = {f"{name}_forwards_per_token": ratio(sums[f"{name}_forwards"], new_tokens) for name in names}
    return {**sums, **rates, **per_token, "audit_agree": _pooled_audit(known)}


def _pooled_audit(summaries: Sequence[dict[str, Any]]) -> float | None:
    audited = [summary for summary in summaries if summary["slim_audited"]]
    if not audited:
        return None
    agreeing = sum(summary["audit"]["agree"] * summary["slim_audited"] for summary in audited)
    return ratio(agreeing, sum(summary["slim_audited"] for summary in audited))


def pooled_phases(prompts: Sequence[Sequence[dict[str, float]]]) -> dict[str, float] | None:
    """Milliseconds a phase: the median over repeats, added up over prompts."""
    if not any(prompts):
        return None
    return {phase: sum(middle([run[phase] for run in runs]) for runs in prompts if runs) for phase in PHASES}


def tracing_cost(prompts: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """What keeping a trace costs VIA-SD: time with over time without (paired), and host time a cycle."""
    if not prompts or UNTRACED not in prompts[0]["runs"]:
        return None
    off = [column(prompts, UNTRACED, key) for key in ("new_tokens", "seconds")]
    on = [column(prompts, "via-sd", key) for key in ("new_tokens", "seconds")]
    entry = method_entry({"label": "via-sd"}, prompts)
    phases = entry["phases_ms"] or {}
    cycles = entry["cycles"] or 0
    total_us = ratio(sum(phases.values()) * 1000, cycles)
    host_us = ratio(phases.get("host", 0.0) * 1000, cycles)
    return {
        "time_ratio": ratio_of_speeds(*off, *on),
        "time_ratio_ci": list(ratio_interval(*off, *on)),
        "host_us_per_cycle": host_us,
        "cycle_us": total_us,
        "host_share": ratio(host_us, total_us),
    }


def document(
    provenance: dict[str, Any],
    specs: Sequence[dict[str, Any]],
    prompts: Sequence[dict[str, Any]],
    *,
    complete: bool,
    **more: Any,
) -> dict[str, Any]:
    """The whole result. Without a finished prompt `methods` is empty. `more` adds entries, None values are
    left out."""
    extra = {"tracing_cost": tracing_cost(prompts), **more}
    return {
        "schema": SCHEMA,
        "complete": complete,
        "provenance": provenance,
        "methods": [method_entry(spec, prompts) for spec in specs] if prompts else [],
        **{key: value for key, value in extra.items() if value is not None},
        "prompts": list(prompts),
    }


def write_result(path: Path, result: dict[str, Any]) -> None:
    """Replace the file in one step: an interrupted write leaves the previous state. Raises DataError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_text(as_json(result), encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}); give another --out") from error
    finally:
        beside.unlink(missing_ok=True)


def as_json(result: dict[str, Any]) -> str:
    """Figures indented for people, raw prompts one a line, so that a long benchmark stays small."""
    head = {key: value for key, value in result.items() if key != "prompts"}
    figures = json.dumps(head, indent=1, ensure_ascii=False, allow_nan=False)
    prompts = ",\n".join(
        json.dumps(prompt, ensure_ascii=False, allow_nan=False) for prompt in result.get("prompts", [])
    )
    return figures.removesuffix("\n}") + f',\n "prompts": [\n{prompts}\n]\n}}\n'


def read_result(path: Path) -> dict[str, Any]:
    """Read a result file. Raises DataError: not there, not JSON, not this schema."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; give a file written by bench --out") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is not a JSON file ({error}); give a file written by bench --out") from error
    found = result.get("schema") if isinstance(result, dict) else None
    if found != SCHEMA:
        raise DataError(
            f"{path} has schema {found!r}, expected {SCHEMA!r}; give a file written by bench --out"
        )
    return dict(result)

"""Checks that every number in run.json follows from the rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from .trace import DEFINITIONS, Trace, ratio

TOLERANCE = 1e-9


def totals_follow_from_rows(trace: Trace) -> Iterator[str]:
    """`totals`, and the same names at the top level of run.json, equal the summary of the rows."""
    summary = trace.summary()
    totals = trace.run.get("totals")
    if isinstance(totals, dict):
        _leave_out_older_counts(trace, totals, summary)
        yield from _differences("totals", totals, summary, complete=True)
        counts = totals.get("counts")
        if isinstance(counts, dict) and all(isinstance(count, int) for count in counts.values()):
            total = sum(counts.values())
            if total != totals.get("new_tokens"):
                yield f"run.json: counts sum to {total}, new_tokens is {totals.get('new_tokens')}"
    top = {key: value for key, value in trace.run.items() if key in summary}
    yield from _differences("", top, summary, complete=False)
    committed = sum(cycle.committed for cycle in trace.cycles)
    if committed != summary["new_tokens"]:
        yield f"cycles committed {committed} tokens, {summary['new_tokens']} rows are emitted"
    wall, speed = trace.run.get("wall_s"), trace.run.get("tokens_per_s")
    if wall is not None and speed is not None and not _same(speed, ratio(summary["new_tokens"], wall)):
        yield f"run.json: tokens_per_s is {speed}, {summary['new_tokens']} tokens in {wall} s make another"
    skipped = trace.run.get("r_eff")
    if skipped is not None and not (_is_number(skipped) and 0 <= skipped < 1):
        yield f"run.json: r_eff is {skipped}, expected a share from 0 to below 1"


def _leave_out_older_counts(trace: Trace, totals: dict[str, Any], summary: dict[str, Any]) -> None:
    """Put into `summary` the repair counts that an older trace holds by another definition, and that its rows
    do not give: there is nothing to compare them with.
    """
    definitions, given, repair = trace.run.get("definitions"), totals.get("repair"), summary["repair"]
    recorded = definitions if isinstance(definitions, dict) else {}
    for name in ("ufps", "won", "extra_tokens"):
        older = recorded.get(f"repair.{name}") != DEFINITIONS[f"repair.{name}"]
        if repair[name] is None and older and isinstance(given, dict) and name in given:
            repair[name] = given[name]


def _differences(place: str, given: Any, expected: Any, *, complete: bool) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(given, dict):
        for key, value in expected.items():
            name = f"{place}.{key}".lstrip(".")
            if key in given:
                yield from _differences(name, given[key], value, complete=complete)
            elif complete:
                yield f"run.json: {name} is missing"
    elif not _same(given, expected):
        yield f"run.json: {place} is {given!r}, the rows give {expected!r}"


def _same(given: Any, expected: Any) -> bool:
    if not (_is_number(given) and _is_number(expected)):
        return bool(given == expected)
    try:
        return math.isclose(given, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    except OverflowError:  # a whole number no float can hold
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

"""Single changes to a sound trace, and what the checker then says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from viasd_core.trace import Trace
from viasd_core.trace_check import check

Change = Callable[[Trace], object]


def token(index: int, **changes: Any) -> Change:
    def apply(trace: Trace) -> None:
        trace.tokens[index] = replace(trace.tokens[index], **changes)

    return apply


def cycle(index: int, **changes: Any) -> Change:
    def apply(trace: Trace) -> None:
        trace.cycles[index] = replace(trace.cycles[index], **changes)

    return apply


def node(index: int, **changes: Any) -> Change:
    def apply(trace: Trace) -> None:
        trace.tree[index] = replace(trace.tree[index], **changes)

    return apply


def run(**changes: Any) -> Change:
    return lambda trace: trace.run.update(changes)


def setting(**changes: Any) -> Change:
    return lambda trace: trace.run["settings"].update(changes)


def total(*path: str, value: Any) -> Change:
    def apply(trace: Trace) -> None:
        place = trace.run["totals"]
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return apply


def without(key: str) -> Change:
    def apply(trace: Trace) -> None:
        del trace.run[key]

    return apply


def problems_after(make: Callable[[], Trace], *changes: Change) -> str:
    trace = make()
    for change in changes:
        change(trace)
    return "\n".join(check(trace))

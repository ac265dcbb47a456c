"""Long work as a generator: it says in a sentence what comes next, so that whoever drives it can show that
and stop between two steps.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

S = TypeVar("S")
R = TypeVar("R")


def drained(steps: Generator[Any, None, R]) -> R:
    """Run to the end and return what the work gives."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: R = end.value
            return result


def one_step(steps: Generator[S, None, R]) -> Generator[S, None, R | None]:
    """Pass the next step on; returns what the work gives when that was its end, else None."""
    try:
        yield next(steps)
    except StopIteration as end:
        result: R = end.value
        return result
    return None

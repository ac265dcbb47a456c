"""Messages between a growing trace and the viewer, as plain JSON values.

Every message is an object with a `kind`: start, cycle, status, end. Whoever streams them numbers the messages
of a run 1, 2, 3, ...; a batch holds a gapless stretch. Rows leave out fields that hold their default, bytes
are hexadecimal, and a number that is not finite is the string `inf`, `-inf` or `nan`, since JSON has none.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from typing import Any

from viasd_core.trace import CycleEvent, CycleRow, Trace

Message = dict[str, Any]

STATES = ("idle", "queued", "loading", "running", "paused", "stopping", "stopped", "done", "error")


def start_event(run: Mapping[str, Any]) -> Message:
    """Opens a run: what run.json says before the first cycle."""
    return {"kind": "start", "run": plain(run)}


def encode_event(event: CycleEvent) -> Message:
    """One cycle: its row, token rows, audits, retractions, edits, tree nodes, events and finish reason."""
    message: Message = {"kind": "cycle", "cycle": encode_row(event.cycle)}
    for name in ("rows", "audits", "edits", "tree", "events"):
        rows = getattr(event, name)
        if rows:
            message[name] = [encode_row(row) for row in rows]
    if event.retracted:
        message["retracted"] = list(event.retracted)
    if event.finish:
        message["finish"] = event.finish
    return message


def status_event(state: str, text: str = "", **more: Any) -> Message:
    """What the run is doing, in one sentence; `more` may hold position, pending, detail."""
    if state not in STATES:
        raise ValueError(f"the viewer knows no state {state!r}; use one of {', '.join(STATES)}")
    return {"kind": "status", "state": state, "text": scalar_text(text), **plain(more)}


def end_event(run: Mapping[str, Any], dimr: Iterable[Any] = ()) -> Message:
    """Closes a run: the whole content of run.json, and the layer-mask search if the trace holds one."""
    message = {"kind": "end", "run": plain(run)}
    rows = [encode_row(row) for row in dimr]
    return message | ({"dimr": rows} if rows else {})


def trace_messages(trace: Trace) -> list[Message]:
    """A recorded trace as the messages a live run would have sent, audits and retractions folded in."""
    tokens = _by_cycle(trace.tokens)
    tree = _by_cycle(trace.tree)
    events = _by_cycle(trace.events)
    messages = [start_event(trace.run)]
    for cycle in trace.cycles:
        number = cycle.cycle
        event = CycleEvent(
            cycle,
            rows=tuple(tokens.pop(number, ())),
            tree=tuple(tree.pop(number, ())),
            events=tuple(events.pop(number, ())),
        )
        messages.append(encode_event(event))
    last = end_event(trace.run, trace.dimr)
    if left := [encode_row(row) for rows in events.values() for row in rows]:
        last["events"] = left
    return [*messages, last]


def batch(run_id: str, first: int, messages: Sequence[Message], **more: Any) -> dict[str, Any]:
    """The viewer's value: messages number `first` and up of a run. An empty batch has seq = first - 1."""
    return {
        "run": run_id,
        "from": first,
        "seq": first + len(messages) - 1,
        "events": list(messages),
        **more,
    }


def opening(run_id: str, last: int, *, show: bool = False, fresh: bool = False) -> dict[str, Any]:
    """A value that only says how many messages a run has; the viewer fetches them.

    `show` brings a run that the tab has already to the front; `fresh` is what a new tab begins with, which
    must not drive away a file that was opened before it came.
    """
    flags = {"show": show, "fresh": fresh}
    return batch(run_id, last + 1, (), **{name: True for name, value in flags.items() if value})


def _by_cycle(rows: Iterable[Any]) -> dict[int, list[Any]]:
    grouped: defaultdict[int, list[Any]] = defaultdict(list)
    for row in rows:
        grouped[row.cycle].append(row)
    return dict(grouped)


@cache
def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((item.name, item.default) for item in fields(kind))


def encode_row(row: Any) -> Message:
    """A row's fields that differ from their default."""
    encoded: Message = {}
    kind: Any = type(row)
    for name, default in _defaults(kind):
        value = getattr(row, name)
        if default is not MISSING and value == default and type(value) is type(default):
            continue
        if isinstance(value, bytes):
            encoded[name] = value.hex()
        elif name == "alt":
            encoded[name] = [[token, _number(logp)] for token, logp in value]
        elif name == "text" and not _is_scalar(value):
            encoded["text_json"] = json.dumps(value)
        else:
            encoded[name] = plain(value)
    return encoded


def row_defaults(kind: type) -> Message:
    """Field name -> default of a row type, for the reader's side; fields without a default are left out."""
    skip = {"data"} if kind is not CycleRow else {"phase_us"}
    return {
        name: list(default) if isinstance(default, tuple) else default
        for name, default in _defaults(kind)
        if default is not MISSING and name not in skip
    }


def plain(value: Any) -> Any:
    """JSON types only; text that UTF-8 cannot carry has its lone surrogates replaced."""
    if isinstance(value, Mapping):
        return {scalar_text(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, str):
        return scalar_text(value)
    if value is None or isinstance(value, int):
        return value
    if callable(getattr(value, "tolist", None)):
        return plain(value.tolist())
    return scalar_text(str(value))


def _number(value: float) -> float | str:
    return float(value) if math.isfinite(value) else repr(float(value))


def _is_scalar(text: str) -> bool:
    """Whether UTF-8 can carry the text: it holds no lone surrogate."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def scalar_text(text: str) -> str:
    """`text` with every lone surrogate replaced by U+FFFD."""
    return text if _is_scalar(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

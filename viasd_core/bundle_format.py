"""A Trace as the six files of a bundle, and back, in memory: `encode` and `decode` undo each other."""

from __future__ import annotations

import hashlib
import json
import math
import re
import uuid
from pathlib import Path
from typing import Any

from .errors import TraceError
from .tables import CYCLES, DIMR, EVENTS, TABLES, TOKENS, TREE, read_table, write_table
from .terminal import printable
from .trace import DEFINITIONS, SCHEMA, Trace

RUN_FILE = "run.json"
FILES = (*(table.file for table in TABLES), RUN_FILE)
MAX_ROWS = 500_000  # a file

_MAJOR = re.compile(r"viasd-trace/1(\.[0-9]+)?")


def encode(trace: Trace) -> dict[str, bytes]:
    """File name -> content of the bundle. run.json gains schema, definitions and hashes."""
    run = {"schema": SCHEMA, "run_id": str(uuid.uuid4()), "definitions": DEFINITIONS, **trace.run}
    run.setdefault("finish_reason", trace.finish)
    rows: dict[str, list[Any]] = {
        TOKENS.file: list(trace.tokens),
        CYCLES.file: list(trace.cycles),
        TREE.file: list(trace.tree),
        DIMR.file: list(trace.dimr),
        EVENTS.file: list(trace.events),
    }
    contents = {
        table.file: write_table(table, rows[table.file], str(run["run_id"])).encode() for table in TABLES
    }
    run["files"] = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "rows": len(rows[name])}
        for name, data in contents.items()
    }
    contents[RUN_FILE] = (json.dumps(_plain(run), indent=1, allow_nan=False) + "\n").encode()
    return contents


def _plain(value: Any) -> Any:
    """JSON types only: tuples as lists, numpy scalars as numbers, numbers that are not finite as text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(float(value))
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Path):
        return str(value)
    if callable(getattr(value, "tolist", None)):
        return _plain(value.tolist())
    raise TypeError(f"run.json cannot hold a {type(value).__name__}")


def decode(contents: dict[str, bytes], *, max_rows: int = MAX_ROWS) -> Trace:
    """A Trace from file name -> content, the inverse of `encode`. Raises TraceError."""
    run = _read_run(contents[RUN_FILE])
    recorded = run.pop("files", {})
    problems: list[str] = []
    rows: dict[str, list[Any]] = {}
    for table in TABLES:
        data = contents[table.file]
        rows[table.file], labels = read_table(table, _decode_text(table.file, data), max_rows=max_rows)
        for schema, run_id in sorted(labels):
            _check_schema(table.file, schema)
            if run_id != run.get("run_id"):
                problems.append(
                    f"{table.file} holds rows of run {printable(run_id)!r}, not of run.json's run_id"
                )
        entry = recorded.get(table.file) if isinstance(recorded, dict) else None
        problems += _compare_file(table.file, data, entry)
    return Trace(
        run=run,
        tokens=rows[TOKENS.file],
        cycles=rows[CYCLES.file],
        tree=rows[TREE.file],
        dimr=rows[DIMR.file],
        events=rows[EVENTS.file],
        finish=run.get("finish_reason"),
        problems=problems,
    )


def _read_run(data: bytes) -> dict[str, Any]:
    try:
        run = json.loads(_decode_text(RUN_FILE, data))
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{RUN_FILE} is not valid JSON: {error}") from error
    if not isinstance(run, dict):
        raise TraceError(f"{RUN_FILE} holds a {type(run).__name__}, expected an object")
    _check_schema(RUN_FILE, run.get("schema"))
    return run


def _check_schema(file: str, schema: Any) -> None:
    if not isinstance(schema, str) or not _MAJOR.fullmatch(schema):
        shown = printable(str(schema))[:40]
        raise TraceError(
            f"{file} has the schema '{shown}', this program reads {SCHEMA}; use a matching version"
        )


def _decode_text(file: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        raise TraceError(f"{file} row {row} is not UTF-8 text; save the file as UTF-8") from error


def _compare_file(file: str, data: bytes, entry: Any) -> list[str]:
    if not isinstance(entry, dict) or "sha256" not in entry:
        return [f"run.json holds no sha256 of {file}"]
    if entry["sha256"] != hashlib.sha256(data).hexdigest():
        return [f"{file} does not match its sha256 in run.json; it was changed after it was written"]
    return []

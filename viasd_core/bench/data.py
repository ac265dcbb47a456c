"""Read benchmark files as they were published: JSON, JSON Lines, CSV, SGML test sets; plain or gzipped."""

from __future__ import annotations

import csv
import gzip
import html
import io
import itertools
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..errors import DataError
from .layouts import NAMED, BenchItem, Layout, Record, detect

Numbered = tuple[str, Any]  # where a record stands ("line 3", "record 12"), and the record


def read_items(path: str | Path, *, task: str | None = None, limit: int | None = None) -> list[BenchItem]:
    """The prompts of a file, in its order; the first `limit` of them.

    The layout is recognised from the first record unless `task` names it. Raises DataError: no such file,
    nothing in it, a line that is not JSON, a record that is not of the layout, an unknown `task`.
    """
    path = Path(path)
    if task is not None and task not in NAMED:
        raise DataError(f"task {task!r} is not known; use one of: {', '.join(sorted(NAMED))}")
    text = _read_text(path)
    if not text.strip():
        raise DataError(f"{path} is empty; give a file with at least one prompt")
    chosen = NAMED[task] if task else None
    records = _records(path, text)
    items: list[BenchItem] = []
    for place, record in itertools.islice(records, limit):
        layout = chosen or detect(_mapping(path, place, record))
        if layout is None:
            raise DataError(
                f"{path}, {place}: no known layout has the keys {sorted(record)}; "
                'write lines like {"id": ..., "prompt": ...} or name the layout with --task'
            )
        chosen = layout
        items.append(_item(path, place, layout, _mapping(path, place, record)))
    if not items:
        raise DataError(f"{path} holds no records; give a file with at least one prompt")
    return items


def _item(path: Path, place: str, layout: Layout, record: Record) -> BenchItem:
    try:
        item = layout.read(record, place.replace(" ", "-"))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise DataError(
            f"{path}, {place}: not a {layout.names[0]} record ({type(error).__name__}: {error}); "
            "correct the record or name another layout with --task"
        ) from error
    if not item.prompt.strip():
        raise DataError(f"{path}, {place}: the prompt is empty; write a prompt or remove the record")
    return item


def _mapping(path: Path, place: str, record: object) -> Record:
    if not isinstance(record, dict):
        raise DataError(f"{path}, {place}: expected a JSON object, found {type(record).__name__}")
    return record


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; give the path of a prompt file") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}); give a readable prompt file") from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 text (byte {error.start}); give a JSON, JSON Lines or CSV file"
        ) from error


def _records(path: Path, text: str) -> Iterable[Numbered]:
    name = path.name.removesuffix(".gz")
    if name.endswith((".csv", ".tsv")):
        return _csv_records(text, "\t" if name.endswith(".tsv") else ",")
    if re.search(r"<(srcset|refset|tstset)\b", text[:2000], re.IGNORECASE):
        return _sgml_records(path, text)
    document = _whole_document(path, text)
    if document is None:
        return _json_lines(path, text)
    return _unpacked(path, document)


def _whole_document(path: Path, text: str) -> Any:
    """The file as one JSON value, or None where it is JSON Lines (or one line, which is read as such)."""
    stripped = text.strip()
    nested = any(f'"{layout.root}"' in stripped for layout in NAMED.values() if layout.root)
    if not stripped.startswith("[") and ("\n" not in stripped and not nested):
        return None
    try:
        return json.loads(stripped)
    except json.JSONDecodeError as error:
        first = stripped.partition("\n")[0].rstrip()
        if stripped.startswith("{") and first.endswith("}"):
            return None
        raise DataError(
            f"{path}, line {error.lineno}: not JSON ({error.msg}); write one JSON object a line, or one array"
        ) from error


def _unpacked(path: Path, document: Any) -> Iterator[Numbered]:
    records: Iterable[Any] = [document]
    if isinstance(document, list):
        records = document
    elif isinstance(document, dict):
        nested = next(
            (x for x in NAMED.values() if x.unpack and isinstance(document.get(x.root), list)), None
        )
        if nested is not None and nested.unpack is not None:
            records = nested.unpack(document)
    try:
        for number, record in enumerate(records, 1):
            yield f"record {number}", record
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{path}: its nested records cannot be found ({type(error).__name__}: {error})"
        ) from error


def _json_lines(path: Path, text: str) -> Iterator[Numbered]:
    # Not splitlines(): U+2028 and its like are legal inside a JSON string.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield f"line {number}", json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(
                f"{path}, line {number}: not JSON ({error.msg} at column {error.colno}); "
                "write one JSON object a line"
            ) from error


def _csv_records(text: str, delimiter: str) -> Iterator[Numbered]:
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    for row in rows:
        yield f"line {rows.line_num}", row


def _sgml_records(path: Path, text: str) -> Iterator[Numbered]:
    """WMT's `-src.` test set with the `-ref.` file beside it (...-src.en.sgm and ...-ref.de.sgm)."""
    stem, mark, tail = path.name.partition("-src.")
    others = sorted(path.parent.glob(f"{stem}-ref.*")) if mark else []
    if not others:
        raise DataError(f"{path}: a WMT test set needs its -src. file with the matching -ref. file beside it")
    source, target = tail.split(".")[0], others[0].name.partition("-ref.")[2].split(".")[0]
    sources, targets = _segments(text), _segments(_read_text(others[0]))
    if len(sources) != len(targets):
        raise DataError(
            f"{path} has {len(sources)} segments and {others[0].name} has {len(targets)}; they must match"
        )
    for number, (one, other) in enumerate(zip(sources, targets, strict=True), 1):
        yield f"segment {number}", {"translation": {source: one, target: other}}


def _segments(text: str) -> list[str]:
    found = re.findall(r"<seg\b[^>]*>(.*?)</seg>", text, re.IGNORECASE | re.DOTALL)
    return [html.unescape(segment).strip() for segment in found]

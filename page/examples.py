"""Recorded runs that ship with the project, and bundles that a user brings."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import yaml

from viasd_core.errors import TraceError
from viasd_core.paths import PRESETS
from viasd_core.trace import Trace
from viz.wire import trace_messages

from .runs import as_text

INDEX = "traces.yaml"


@dataclass(frozen=True)
class Example:
    title: str
    path: Path


def examples(folder: Path = PRESETS / "traces") -> list[Example]:
    """The recorded runs in the order of the folder's index, then the bundles that the index does not name."""
    titles: dict[str, str] = {}
    if (folder / INDEX).is_file():
        content = yaml.safe_load((folder / INDEX).read_text("utf-8")) or {}
        titles = {str(item["file"]): str(item["title"]) for item in content.get("traces", [])}
    names = [*titles, *sorted(path.name for path in folder.glob("*.zip") if path.name not in titles)]
    return [
        Example(titles.get(name, Path(name).stem), folder / name)
        for name in names
        if (folder / name).is_file()
    ]


@functools.lru_cache(maxsize=16)
def messages_of(path: Path) -> tuple[Trace, tuple[str, ...]]:
    """A recorded run and its messages as JSON. Raises TraceError."""
    trace = Trace.load(path)
    if not trace.cycles:
        raise TraceError(f"{path.name} holds no cycle; record it again")
    return trace, tuple(map(as_text, trace_messages(trace)))

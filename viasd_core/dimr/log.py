"""The log of a search, JSON lines: what it searches, then every observation as it is made.

A killed search continues from it. The first line names the model, its dtype and device, texts, scoring and
search; a log of another search is refused. A last line that a kill cut short is dropped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..atomic import replace_file
from ..errors import DataError
from ..tier_names import is_bits
from .search import Observation

SCHEMA = "viasd-dimr-log/1"


def log_path(out: Path) -> Path:
    """The log of the search for a mask file."""
    return out.with_suffix(".log.jsonl")


def require_log(path: Path) -> None:
    """Raises DataError when there is no log."""
    if not path.exists():
        raise DataError(f"there is no log {path} to resume; leave --resume out to start a search")


class SearchLog:
    """One log file. `identity` is what two searches must share for one to continue the other."""

    def __init__(self, path: Path, identity: dict[str, Any]) -> None:
        self.path = path
        # Through JSON, so that it compares equal with what is read back.
        self.identity: dict[str, Any] = json.loads(json.dumps({"schema": SCHEMA, **identity}))

    def begin(self) -> list[Observation]:
        """Start a new log; it holds nothing. Raises DataError when one of an unfinished search is there,
        OSError.
        """
        if self.path.exists():
            lines = read_lines(self.path)
            if lines and not lines[-1].get("finished"):
                raise DataError(
                    f"{self.path} is the log of a search that did not finish; give --resume to continue it, "
                    "or delete it"
                )
        self._write([self.identity])
        return []

    def resume(self) -> list[Observation]:
        """What the interrupted search saw; the log is ready for more. Raises DataError, OSError."""
        require_log(self.path)
        lines = read_lines(self.path)
        if not lines:
            raise DataError(f"{self.path} holds nothing to resume; leave --resume out to start a search")
        if lines[0] != self.identity:
            differing = [key for key in self.identity if lines[0].get(key) != self.identity[key]]
            raise DataError(
                f"{self.path} belongs to a search with another {' and '.join(differing)}; use the same "
                "settings and texts, or delete it to search anew"
            )
        past = observations(self.path, lines)
        self._write([self.identity, *(asdict(seen) for seen in past)])
        return past

    def add(self, new: Observation) -> None:
        self._append(asdict(new))

    def finish(self) -> None:
        """Say that the search came to its own end."""
        self._append({"finished": True})

    def _write(self, lines: Iterable[dict[str, Any]]) -> None:
        """The whole log anew; whatever ends this leaves the old one, with all its scores."""
        text = "".join(json.dumps(line) + "\n" for line in lines)
        replace_file(self.path, lambda place: place.write_text(text, encoding="utf-8"))

    def _append(self, line: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a log. Raises DataError for a file that is none."""
    try:
        texts = path.read_text("utf-8").split("\n")[:-1]
        lines = [json.loads(text) for text in texts]
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise DataError(f"{path} is not the log of a search; delete or move it") from None
    if not all(isinstance(line, dict) for line in lines) or (lines and lines[0].get("schema") != SCHEMA):
        raise DataError(f"{path} is not the log of a search; delete or move it")
    return lines


def observations(path: Path, lines: list[dict[str, Any]]) -> list[Observation]:
    """What the lines of the log `path` hold. Raises DataError."""
    try:
        found = [Observation(**line) for line in lines[1:] if not line.get("finished")]
    except TypeError:
        raise DataError(f"{path} is damaged; delete it to search anew") from None
    sizes = {len(seen.mask) if isinstance(seen.mask, str) else 0 for seen in found}
    if not all(_is_whole(seen) for seen in found) or len(sizes) > 1:
        raise DataError(f"{path} is damaged; delete it to search anew")
    if len({seen.mask for seen in found}) < len(found):
        raise DataError(f"{path} is damaged: it scores a mask twice; delete it to search anew")
    return found


def _is_whole(seen: Observation) -> bool:
    """Whether every field is of its kind; a surrogate fitted on anything else fails in mid-search."""
    counts = [seen.t_us, *([] if seen.step is None else [seen.step])]
    costs = [seen.cost, *([] if seen.best_cost is None else [seen.best_cost])]
    return (
        all(type(count) is int and 0 <= count < 2**63 for count in counts)
        and all(type(cost) in (int, float) and abs(cost) < math.inf for cost in costs)
        and isinstance(seen.method, str)
        and isinstance(seen.accepted, bool)
        and is_bits(seen.mask)
    )

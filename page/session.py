"""Who owns which run. A session is a browser tab (or an API client); nothing in it is shared with another."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from viasd_core.trace import DimrRow

from .runs import Run

KEPT_SESSIONS = 256
KEPT_RUNS = 8  # finished runs and replays a session


@dataclass
class Session:
    """`live` is the run that the tab's buttons and sliders act on."""

    runs: OrderedDict[str, Run] = field(default_factory=OrderedDict)
    folders: dict[str, Path] = field(default_factory=dict)
    live: Run | None = None
    searched: list[DimrRow] = field(default_factory=list)  # of the search whose mask was taken last


class Sessions:
    """Sessions by Gradio's session hash. `stop` is called for live runs of a session that goes."""

    def __init__(self, stop: Callable[[Run], None], kept: int = KEPT_SESSIONS) -> None:
        self._stop, self._kept = stop, kept
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._runs: dict[str, tuple[str, Run]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def add(self, owner: str, run: Run, *, live: bool = False) -> None:
        """Register a run. Old finished runs of the session, and the session idle the longest, give way."""
        with self._lock:
            session = self._sessions.setdefault(owner, Session())
            self._sessions.move_to_end(owner)
            session.runs[run.id] = run
            self._runs[run.id] = (owner, run)
            if live:
                session.live = run
            ended = [old for old in session.runs.values() if old.ended and old is not run]
            for old in ended[: max(0, len(session.runs) - KEPT_RUNS)]:
                self._forget(session, old)
            crowd = list(self._sessions)[: max(0, len(self._sessions) - self._kept)]
        for name in crowd:
            self.close(name)

    def live(self, owner: str | None) -> Run | None:
        """The session's run that has not ended."""
        session = self._sessions.get(owner or "")
        run = session.live if session else None
        return run if run is not None and not run.ended else None

    def remember_search(self, owner: str, rows: list[DimrRow]) -> None:
        """Keep the search whose mask the tab's next runs take."""
        with self._lock:
            self._sessions.setdefault(owner, Session()).searched = rows

    def searched(self, owner: str, mask: str) -> list[DimrRow]:
        """The search that the tab took `mask` from; empty when it is from elsewhere."""
        session = self._sessions.get(owner)
        rows = session.searched if session else []
        return rows if any(row.mask == mask for row in rows) else []

    def find(self, run_id: object) -> Run | None:
        """A run by its id, which only its owner knows."""
        entry = self._runs.get(run_id) if isinstance(run_id, str) else None
        return entry[1] if entry else None

    def folder(self, run: Run) -> Path | None:
        """A folder of the run's own for files made from it; gone when the run is."""
        with self._lock:
            entry = self._runs.get(run.id)
            if entry is None:
                return None
            folders = self._sessions[entry[0]].folders
            if run.id not in folders:
                folders[run.id] = Path(tempfile.mkdtemp(prefix="viasd-"))
            return folders[run.id]

    def close(self, owner: str | None) -> None:
        """The tab is gone: stop what runs and drop everything the session held."""
        with self._lock:
            session = self._sessions.pop(owner or "", None)
            if session is None:
                return
            runs = list(session.runs.values())
            for run in runs:
                self._forget(session, run)
        for run in runs:
            if not run.ended:
                self._stop(run)

    def _forget(self, session: Session, run: Run) -> None:
        session.runs.pop(run.id, None)
        self._runs.pop(run.id, None)
        folder = session.folders.pop(run.id, None)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

"""Layer-mask searches as the page sees them: runs that outlive the tab that started them for a while.

A search belongs to whoever knows its id, which a browser tab keeps across a reload. What it scored lies in a
folder of its own, so that it can be resumed, also after a restart of the page.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from viasd_core.errors import DataError, MaskError, ViasdError
from viasd_core.paths import cache_root
from viasd_core.trace import DimrRow
from viz.wire import plain

from .dimr_worker import MASK_FILE
from .job import PairKey, SearchJob
from .runs import Run

KEPT = 32  # ended searches in memory
KEPT_S = 7 * 86400.0  # a folder that nobody touched for longer is deleted
ID = re.compile(r"[A-Za-z0-9_-]{24}")
ASKED_FILE = "search.json"


class SearchRun(Run):
    """Messages: `search` (what is searched), `mask` (one scored mask), `found` (the mask file without its
    history), status. `epoch` tells a resumed search from what it was before.
    """

    gives_way = True
    opening = "getting ready"
    stopping = "stopping behind this mask; the best one so far is kept"

    def __init__(self, job: SearchJob, search_id: str) -> None:
        super().__init__()
        self.id, self.job = search_id, job
        self.epoch = secrets.token_hex(4)
        self.facts: dict[str, Any] = {}
        self.seen: list[dict[str, Any]] = []  # every scored mask, in order
        self.found: dict[str, Any] | None = None

    @property
    def complete(self) -> bool:
        return self.found is not None and self.found["complete"] and self.found["held_out"] is not None

    @property
    def steps(self) -> int:
        """Number of the last mask of the wanted size, 0 before the first."""
        return max((row["step"] for row in self.seen if row["step"] is not None), default=0)

    def rows(self) -> list[DimrRow]:
        """The scored masks of the wanted size, as a trace holds them."""
        keys = ("step", "method", "cost", "best_cost", "mask", "t_us", "accepted")
        return [
            DimrRow(tau=self.facts["window"], **{key: row[key] for key in keys})
            for row in self.seen
            if row["step"] is not None
        ]

    def take(self, kind: str, value: Any, seconds: float) -> None:
        if kind == "doing":
            self.say("running", value)
        elif kind == "start":
            self.facts = value
            self.publish({"kind": "search", "facts": plain(value)})
            self.say("running", "scoring masks")
        elif kind == "mask":
            if self.state == "paused":
                self.say("running", "scoring masks")
            self.seen.append(value)
            self.publish({"kind": "mask", **plain(value)})
        elif kind == "found":
            self.found = value
            self.publish({"kind": "found", "found": plain(value)})

    def note(self, kind: str, text: str = "") -> None:
        """A search has no trace to note it in."""

    def outcome(self) -> str:
        if self.found is None:
            return "stopped before a mask of the wanted size was scored; Resume goes on"
        tried = sum(row["step"] is not None for row in self.seen)  # others skip fewer layers
        best = f"the best of {tried} masks costs {self.found['cost']:.4g} nats a position"
        if self.complete:
            return f"finished: {best}"
        return f"stopped: {best} and is kept, not judged yet; Judge does that, Resume searches on"

    def close(self, state: str, text: str) -> None:
        if not self.ended:
            self.last_words = text
            self.say(state, text)

    def batch(self, last: int, limit: int = 2000) -> dict[str, Any]:
        return super().batch(last, limit) | {"epoch": self.epoch}


class Searches:
    """Searches by id, which only their owner knows."""

    def __init__(self, root: Callable[[], Path] = lambda: cache_root() / "searches") -> None:
        self._root = root
        self._runs: OrderedDict[str, SearchRun] = OrderedDict()

    def new(self, pair: PairKey, asked: dict[str, Any]) -> SearchRun:
        """A search that is not submitted yet; its folder is there. Raises DataError."""
        self._clean()
        search_id = secrets.token_urlsafe(18)
        folder = self._root() / search_id
        content = {"preset": pair.preset, "drafter": pair.drafter, "asked": asked}
        try:
            folder.mkdir(parents=True)
            (folder / ASKED_FILE).write_text(json.dumps(content), encoding="utf-8")
        except OSError as error:
            raise DataError(f"the search cannot be kept in {folder.parent.name}: {error.strerror}") from None
        return SearchRun(SearchJob(pair, asked, str(folder)), search_id)

    def again(self, old: SearchRun, **changes: Any) -> SearchRun:
        """The same search with some of what was asked changed, to be resumed from its log."""
        assert isinstance(old.job, SearchJob)
        log = Path(old.job.folder) / MASK_FILE
        job = SearchJob(
            old.job.pair,
            old.job.asked | changes,
            old.job.folder,
            resume=log.with_suffix(".log.jsonl").exists(),
        )
        return SearchRun(job, old.id)

    def keep(self, run: SearchRun) -> None:
        """Register a search that was submitted."""
        self._runs[run.id] = run
        self._runs.move_to_end(run.id)
        ended = [old for old in self._runs.values() if old.ended]
        for old in ended[: max(0, len(self._runs) - KEPT)]:
            self._runs.pop(old.id, None)

    def find(self, search_id: object) -> SearchRun | None:
        """The search, from its folder when it is not in memory."""
        if not isinstance(search_id, str) or not ID.fullmatch(search_id):
            return None
        run = self._runs.get(search_id)
        if run is None and (run := self._restored(search_id)) is not None:
            self.keep(run)
        return run

    def store(self, run: SearchRun) -> tuple[Path, bool]:
        """Put the mask of an ended search where every run looks, as `dimr` without --out does; the file, and
        whether it took the place of another. Raises MaskError, DataError.
        """
        from viasd_core.dimr.store import check_target, default_path, save_mask

        assert isinstance(run.job, SearchJob)
        try:
            content = json.loads((Path(run.job.folder) / MASK_FILE).read_text("utf-8"))
            mask, granularity = content["mask"], content["granularity"]
            path = default_path(content["model"], mask.count("0") / len(mask), granularity)
        except (OSError, ValueError, KeyError, TypeError):
            raise DataError("the mask file of this search is gone or damaged; search again") from None
        try:
            check_target(path)
        except MaskError:
            raise MaskError(
                f"{path.name} in the mask folder is no mask file and is left alone; move it away first"
            ) from None
        replaced = path.exists()
        save_mask(path, content)
        return path, replaced

    def _restored(self, search_id: str) -> SearchRun | None:
        """An ended search with what its folder holds; None when there is no such folder, or it is damaged."""
        folder = self._root() / search_id
        if not (folder / ASKED_FILE).is_file():
            return None
        from viasd_core.dimr.log import observations, read_lines

        try:
            content = json.loads((folder / ASKED_FILE).read_text("utf-8"))
            key = PairKey(content["preset"], content["drafter"])
            run = SearchRun(SearchJob(key, content["asked"], str(folder)), search_id)
            log = (folder / MASK_FILE).with_suffix(".log.jsonl")
            lines = read_lines(log) if log.is_file() else []
            if lines:
                run.take("start", _facts_of(lines[0], content), 0.0)
            for seen in observations(log, lines):
                run.take("mask", asdict(seen), 0.0)
            if (folder / MASK_FILE).is_file():
                found = json.loads((folder / MASK_FILE).read_text("utf-8"))
                run.take("found", {name: fact for name, fact in found.items() if name != "history"}, 0.0)
        except (ViasdError, OSError, ValueError, KeyError, TypeError):
            return None
        run.close("done" if run.complete else "stopped", run.outcome())
        return run

    def _clean(self) -> None:
        """Delete folders of searches long forgotten."""
        root = self._root()
        for folder in root.iterdir() if root.is_dir() else ():
            if ID.fullmatch(folder.name) and folder.name not in self._runs:
                try:
                    old = time.time() - max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
                except OSError:
                    continue
                if old > KEPT_S:
                    shutil.rmtree(folder, ignore_errors=True)


def _facts_of(identity: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """What a search was, from the first line of its log and from what was asked."""
    from viasd_core.dimr.space import Space

    score, search = identity["score"], identity["search"]
    space = Space(**identity["space"])
    return {
        "preset": Path(content["preset"]).stem,
        "drafter": content["drafter"],
        "layers": space.n_layers,
        "free": list(space.free),
        "granularity": space.granularity,
        "skipped": space.skipped,
        "search": search["kind"],
        "theta": search["theta"],
        "seed": search["seed"],
        "steps": content["asked"]["steps"],
        "patience": content["asked"]["patience"],
        "window": score["window"],
        "slim_kv": score["slim_kv"],
    }

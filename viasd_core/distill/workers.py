"""Answering in several processes: on a CPU, n processes of one thread each outrun one of n threads."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from pathlib import Path
from queue import Empty
from typing import Any

import torch

from ..errors import DataError
from ..layers import BlockRunner
from ..pair import ModelPair, load_pair, verifier_vocab
from ..presets import Preset
from .collect import Plan, collect
from .prompts import Prompt
from .shards import ShardFolder
from .team import Team
from .texts import Texts

Progress = Callable[[int], None]
GOODBYE_S = 10.0  # to end by itself after the last word


@dataclass(frozen=True)
class Work:
    """What a worker needs to load the verifier itself and answer its share."""

    preset: Preset
    dtype: str
    device: str
    prompts: list[Prompt]
    folder: Path
    identity: dict[str, Any]
    plan: Plan
    texts: Texts = field(default_factory=dict)  # answers made before


def answer_all(pair: ModelPair, work: Work, workers: int, team: Team, progress: Progress) -> int:
    """Collect answers with `workers` processes, or as one of a launched team; new tokens made here.

    Raises DataError when a worker fails.
    """
    if team.size > 1 or workers == 1:
        return _collect(pair, work, team.rank, team.size, progress)
    ShardFolder(work.folder, work.identity).summary()  # sets damaged shards aside once, before they all look
    context = get_context("spawn")
    heard: Any = context.Queue()
    crew = [
        context.Process(target=_worker, args=(work, place, workers, heard), daemon=True)
        for place in range(workers)
    ]
    with uninterrupted():
        for process in crew:
            process.start()
    total, running = 0, workers
    try:
        while running:
            try:
                new = heard.get(timeout=1.0)
            except Empty:
                failed = [process.exitcode for process in crew if process.exitcode]
                if failed:
                    raise DataError(
                        f"a worker ended with status {failed[0]} before its share was done; what was "
                        "answered is kept: run the same command again"
                    ) from None
                continue
            if new is None:
                running -= 1
            elif isinstance(new, str):
                raise DataError(new)
            else:
                total += new
                progress(new)
        for process in crew:
            process.join(GOODBYE_S)  # one that is killed instead leaves semaphores behind, and says so
    finally:
        for process in crew:
            process.terminate()
            process.join()
    return total


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Processes that are started here take no notice of Ctrl-C, which reaches all of a terminal's: the one
    that started them ends them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say how signals are taken
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end_with_parent() -> None:
    """A parent that is killed outright cannot end its workers; what they wrote is whole."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _worker(work: Work, place: int, workers: int, heard: Any) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
    try:
        pair = load_pair(work.preset, drafter="none", dtype=work.dtype, device=work.device)
        _collect(pair, work, place, workers, heard.put)
    except Exception as error:  # the parent says it in one sentence
        heard.put(f"a worker failed: {error}")
    heard.put(None)
    while not heard.empty():  # a daemon must not end with words unsaid
        time.sleep(0.05)


def _collect(pair: ModelPair, work: Work, place: int, workers: int, progress: Progress) -> int:
    runner = BlockRunner(pair.verifier.model, vocab_size=verifier_vocab(pair.verifier))
    return collect(
        runner,
        pair.verifier.eos_ids,
        work.prompts,
        ShardFolder(work.folder, work.identity),
        work.plan,
        worker=place,
        workers=workers,
        texts=work.texts,
        progress=progress,
    )


def default_workers(device: str) -> int:
    """One on a card; on a CPU one a core, up to four (each holds the weights once more)."""
    return 1 if device.startswith("cuda") else max(1, min(4, os.cpu_count() or 1))

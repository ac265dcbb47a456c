"""The one place where the page searches a layer mask: a generator of plain values, as `decoder` is."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viasd_core.errors import ViasdError

from .decoder import Decoder, Step
from .job import SearchJob
from .pairs import PairStore
from .slots import Gate, SlotTable

if TYPE_CHECKING:
    from viasd_core.dimr.command import Found, Workplace

MASK_FILE = "mask.json"


def make_searcher(pairs: PairStore, table: SlotTable) -> Decoder:
    """A generator function of a SearchJob and a slot's index. It yields ("doing", sentence, seconds) while it
    prepares and judges, ("start", what is searched, seconds), ("mask", an Observation's fields, seconds) for
    each scored mask, ("found", the mask file's content without its history, seconds) when there is a mask,
    and ("end", None, seconds), or ("problem", sentence, seconds).
    """

    def search_job(job: SearchJob, index: int) -> Iterator[Step]:
        from viasd_core.cli.dimr import read_request
        from viasd_core.cli.main import build_parser
        from viasd_core.dimr.calibration import split
        from viasd_core.dimr.command import Workplace, searching
        from viasd_core.dimr.request import read_texts
        from viasd_core.presets import load_preset

        gate = Gate(table[index].control)
        began = time.perf_counter()

        def at(kind: str, value: Any) -> Step:
            return kind, value, time.perf_counter() - began

        try:
            unasked = vars(build_parser().parse_args(["dimr", f"--preset={job.pair.preset}"]))
            request = read_request(Namespace(**unasked | job.asked))
            texts = (
                split(own)
                if (own := job.asked.get("own"))
                else read_texts(load_preset(job.pair.preset), [], [], request.prompts)
            )
            pair = pairs.now(job.pair)
            preparing = Workplace.preparing(pair, request, texts, Path(job.folder) / MASK_FILE)
            place: Workplace | None = None
            while place is None and gate.open():
                try:
                    yield at("doing", next(preparing))
                except StopIteration as end:
                    place = end.value
            if place is not None:
                yield at("start", described(place, job))
                search = searching(place, resume=job.resume, going=gate.open)
                found: Found | None = None
                while True:
                    try:
                        step = next(search)
                    except StopIteration as end:
                        found = end.value
                        break
                    yield at("doing", step) if isinstance(step, str) else at("mask", asdict(step))
                if found is not None:
                    yield at("found", {key: fact for key, fact in found.content.items() if key != "history"})
        except ViasdError as error:
            yield at("problem", str(error))
            return
        yield at("end", None)

    return search_job


def described(place: Workplace, job: SearchJob) -> dict[str, Any]:
    """What is searched, for whoever watches."""
    search = place.make_search()
    settings = search.settings
    return {
        "preset": place.pair.name,
        "drafter": job.pair.drafter,
        "layers": place.space.n_layers,
        "free": list(place.space.free),
        "granularity": place.space.granularity,
        "skipped": place.space.skipped,
        "search": settings.kind,
        "steps": settings.steps,
        "theta": settings.theta,
        "patience": settings.patience,
        "seed": settings.seed,
        "window": place.scoring.window,
        "slim_kv": place.scoring.slim_kv,
        "texts": len(place.texts.search),
        "tokens": sum(text.new_tokens for text in place.texts.search),
        "planned": search.planned,
        "curve": place.request.curve,
    }

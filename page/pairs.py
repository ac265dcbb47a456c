"""Loaded models: one verifier a preset, shared by all runs, loaded on demand off the page's threads."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from viasd_core.errors import SourceError, ViasdError

from .job import PairKey

if TYPE_CHECKING:
    from viasd_core.pair import ModelPair

log = logging.getLogger(__name__)

KEPT = 2  # presets in memory at once

Loader = Callable[[str], Any]
Answer = Callable[["ModelPair | None", str], None]


def load_preset_pair(preset: str) -> ModelPair:
    """The default loader. Imports torch, so it runs off the page's threads."""
    from viasd_core.pair import load_pair

    return load_pair(preset)


class PairStore:
    """Pairs by preset. A failed load is not remembered: the next run tries again."""

    def __init__(self, loader: Loader = load_preset_pair) -> None:
        self._loader = loader
        self._lock = threading.Lock()
        self._loaded: OrderedDict[str, ModelPair] = OrderedDict()
        self._waiting: dict[str, list[tuple[PairKey, Answer]]] = {}

    def request(self, key: PairKey, answer: Answer) -> None:
        """Call `answer(pair, "")`, or `answer(None, sentence)` when the models cannot be had."""
        with self._lock:
            pair = self._loaded.get(key.preset)
            if pair is None:
                waiting = self._waiting.setdefault(key.preset, [])
                waiting.append((key, answer))
                if len(waiting) > 1:
                    return
        if pair is not None:
            self._give(pair, key, answer)
            return
        threading.Thread(
            target=self._load, args=(key.preset,), name=f"load {key.preset}", daemon=True
        ).start()

    def now(self, key: PairKey) -> ModelPair:
        """The pair, loaded in the calling thread if need be. Raises ViasdError."""
        pair = self._loaded.get(key.preset)
        if pair is None:
            pair = self._loader(key.preset)
            self._keep(key.preset, pair)
        return with_drafter(pair, key.drafter)

    def _keep(self, preset: str, pair: ModelPair) -> None:
        self._loaded[preset] = pair
        self._loaded.move_to_end(preset)
        while len(self._loaded) > KEPT:
            self._loaded.popitem(last=False)

    def _load(self, preset: str) -> None:
        pair, problem = None, ""
        try:
            pair = self._loader(preset)
        except ViasdError as error:
            problem = str(error)
        except ImportError as error:
            problem = f"decoding needs torch and transformers ({error}); recorded runs play without"
        except Exception as error:
            log.exception("loading %s failed", preset)
            problem = f"{preset} could not be loaded ({type(error).__name__}); recorded runs still play"
        with self._lock:
            if pair is not None:
                self._keep(preset, pair)
            waiting = self._waiting.pop(preset)
        for key, answer in waiting:
            if pair is None:
                answer(None, problem)
            else:
                self._give(pair, key, answer)

    def _give(self, pair: ModelPair, key: PairKey, answer: Answer) -> None:
        try:
            chosen = with_drafter(pair, key.drafter)
        except ViasdError as error:
            answer(None, str(error))
            return
        answer(chosen, "")


def with_drafter(pair: ModelPair, drafter: str) -> ModelPair:
    """The same verifier with another kind of drafter. Raises SourceError for one that needs weights."""
    if drafter == "preset":
        return pair
    from viasd_core.presets import parse_drafter

    spec = parse_drafter(drafter)
    if spec.source is not None:
        raise SourceError(
            f"drafter {drafter!r} needs weights of its own; choose lookup, layer-skip or the preset's"
        )
    return replace(pair, drafter=spec, draft_model=None, preset=replace(pair.preset, drafter=spec))

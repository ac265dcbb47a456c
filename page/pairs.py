"""Loaded models: one verifier a preset, shared by all runs, loaded on demand off the page's threads."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from viasd_core.errors import ViasdError

from .job import OWN, PairKey

if TYPE_CHECKING:
    from viasd_core.pair import ModelPair

log = logging.getLogger(__name__)

KEPT = 2  # presets in memory at once

Loader = Callable[[str], Any]
Redrafter = Callable[["ModelPair", str], "ModelPair"]
Answer = Callable[["ModelPair | None", str], None]


def load_preset_pair(preset: str) -> ModelPair:
    """The default loader. Imports torch, so it runs off the page's threads."""
    from viasd_core.pair import load_pair

    return load_pair(preset)


def with_drafter(pair: ModelPair, drafter: str) -> ModelPair:
    """The same verifier with another drafter, given by its word. Raises ViasdError."""
    from viasd_core.pair import with_drafter as redraft
    from viasd_core.presets import parse_drafter

    return redraft(pair, parse_drafter(drafter))


class PairStore:
    """Pairs by preset, and by the drafters that were asked for. A failed load is not remembered: the next run
    tries again.
    """

    def __init__(self, loader: Loader = load_preset_pair, redrafter: Redrafter = with_drafter) -> None:
        self._loader, self._redrafter = loader, redrafter
        self._lock = threading.Lock()
        self._loaded: OrderedDict[str, dict[str, ModelPair]] = OrderedDict()  # preset -> drafter -> pair
        self._waiting: dict[str, list[tuple[PairKey, Answer]]] = {}
        self._checks: dict[PairKey, dict[str, Any] | None] = {}

    def request(self, key: PairKey, answer: Answer) -> None:
        """Call `answer(pair, "")`, or `answer(None, sentence)` when the models cannot be had."""
        with self._lock:
            pair = self._loaded.get(key.preset, {}).get(key.drafter)
            if pair is None:
                waiting = self._waiting.setdefault(key.preset, [])
                waiting.append((key, answer))
                if len(waiting) > 1:
                    return
        if pair is not None:
            answer(pair, "")
            return
        threading.Thread(
            target=self._load, args=(key.preset,), name=f"load {key.preset}", daemon=True
        ).start()

    def now(self, key: PairKey) -> ModelPair:
        """The pair, loaded in the calling thread if need be. Raises ViasdError."""
        pairs = self._loaded.get(key.preset) or {OWN: self._loader(key.preset)}
        if key.drafter not in pairs:
            pairs = {**pairs, key.drafter: self._redrafter(pairs[OWN], key.drafter)}
        with self._lock:
            kept = self._loaded.setdefault(key.preset, {})
            kept |= {drafter: pair for drafter, pair in pairs.items() if drafter not in kept}
            self._loaded.move_to_end(key.preset)
            while len(self._loaded) > KEPT:
                gone, _ = self._loaded.popitem(last=False)
                self._checks = {known: check for known, check in self._checks.items() if known.preset != gone}
            return kept[key.drafter]

    def checked(self, key: PairKey) -> bool:
        return key in self._checks

    def check(self, key: PairKey, pair: ModelPair) -> dict[str, Any] | None:
        """What the drafter's self-check found; made here and now the first time. Raises ViasdError."""
        if key not in self._checks:
            from viasd_core.self_check import self_check

            self._checks[key] = self_check(pair)
        return self._checks[key]

    def remember(self, key: PairKey, facts: Mapping[str, Any]) -> None:
        """Keep what a forked worker found and told in a run's facts, which dies with the worker."""
        if check := facts.get("drafter_check"):
            self._checks.setdefault(key, check)
        pair = self._loaded.get(key.preset, {}).get(key.drafter)
        if pair is not None and (found := facts.get("suffix_choice")):
            from viasd_core.suffix_choice import remember

            remember(pair, found)

    def _load(self, preset: str) -> None:
        """Answer everyone who waits for the preset, also those who came while its verifier was loading."""
        answers = {OWN: self._try(PairKey(preset))}
        while True:
            with self._lock:
                waiting = self._waiting[preset]
                missing = [key for key, _ in waiting if key.drafter not in answers]
                if not missing:
                    del self._waiting[preset]
                    break
            pair, problem = answers[OWN]  # without a verifier no drafter helps
            answers[missing[0].drafter] = (None, problem) if pair is None else self._try(missing[0])
        for key, answer in waiting:
            answer(*answers[key.drafter])

    def _try(self, key: PairKey) -> tuple[ModelPair | None, str]:
        try:
            return self.now(key), ""
        except ViasdError as error:
            return None, str(error)
        except ImportError as error:
            return None, f"decoding needs torch and transformers ({error}); recorded runs play without"
        except Exception as error:
            log.exception("loading %s failed", key.preset)
            return (
                None,
                f"{key.preset} could not be loaded ({type(error).__name__}); recorded runs still play",
            )

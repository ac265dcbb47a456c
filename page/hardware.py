"""Hugging Face Spaces: the optional `spaces` package, which lends a GPU to one call at a time.

This module must be imported before anything that touches CUDA; app.py imports it first.
"""

from __future__ import annotations

import importlib
import math
import os
from dataclasses import replace
from types import ModuleType

from .decoder import Decoder
from .job import Job, SearchJob
from .limits import Limits

SPACE_SECONDS = 60.0  # of a lent GPU, where VIASD_MAX_SECONDS does not say otherwise
SPACE_IDLE = 10.0  # a paused run burns the visitor's quota
START_SECONDS, TOKEN_SECONDS = 10.0, 0.05


def _spaces() -> ModuleType | None:
    try:
        return importlib.import_module("spaces")
    except ImportError:
        return None


SPACES = _spaces()


def lends_gpu() -> bool:
    """Whether this Space has ZeroGPU: decoding then happens in a forked worker."""
    return SPACES is not None and os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


def space_limits(limits: Limits) -> Limits:
    """A Space is shared. On ZeroGPU a run is short and a pause shorter, unless the environment says
    otherwise.
    """
    if os.environ.get("SPACE_ID") or lends_gpu():
        limits = replace(limits, shared=True)
    if not lends_gpu():
        return limits
    return replace(
        limits,
        max_seconds=limits.max_seconds or SPACE_SECONDS,
        idle_seconds=min(limits.idle_seconds, SPACE_IDLE),
    )


def on_lent_gpu(decoder: Decoder, limits: Limits) -> Decoder:
    """The decoder as a ZeroGPU call whose duration follows the tokens asked for; unchanged elsewhere."""
    if SPACES is None:
        return decoder

    def duration(job: Job | SearchJob, index: int) -> int:
        wanted = START_SECONDS + TOKEN_SECONDS * job.length
        return math.ceil(min(limits.max_seconds or SPACE_SECONDS, wanted))

    wrapped: Decoder = SPACES.GPU(decoder, duration=duration)
    return wrapped

"""Decoding methods, one file each; `make_method` finds one by its command-line name."""

from __future__ import annotations

from ..method_options import BLOCK_METHODS
from ..settings import Settings
from .autoregressive import Autoregressive
from .base import Method
from .cure import Cure
from .cure_tiers import CureTiers
from .eagle2 import Eagle2
from .rules import Lossless, Lossy
from .speculative import Speculative
from .via_sd import ViaSd


def make_method(settings: Settings) -> Method:
    """The method a run's settings name."""
    if settings.method == "ar":
        return Autoregressive()
    if settings.method == "sd":
        return Speculative(Lossless())
    if settings.method == "lossy-sd":
        return Speculative(Lossy(settings.alpha, settings.beta))
    if settings.method == "eagle2":
        return Eagle2()
    if settings.method == "cure" and settings.tiers:
        return CureTiers()
    if settings.method in BLOCK_METHODS:
        return Cure(repairs=settings.method == "cure")
    return ViaSd()

"""Plain decoding: one q forward, one token. Oracle of every lossless method, baseline for speed."""

from __future__ import annotations

from .base import Run, full_alone
from .outcome import Outcome


class Autoregressive:
    def cycle(self, run: Run) -> Outcome:
        return full_alone(run, "")

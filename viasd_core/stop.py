"""When a run ends: end-of-sequence ids, stop strings, and the length limit, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .text import Spelling


@dataclass(frozen=True)
class Cut:
    """The first `kept` tokens of a block stand. `finish` is None while the run goes on; `stop_start` is the
    byte of the whole output where a completed stop string begins.
    """

    kept: int
    finish: str | None = None
    stop_start: int | None = None


class StopRules:
    """EOS wins over a stop string, which wins over the limit, when one token completes several."""

    def __init__(
        self,
        eos_ids: frozenset[int],
        stops: Sequence[str],
        max_tokens: int,
        limit_reason: str,
        spell: Spelling,
    ) -> None:
        self.eos_ids = eos_ids
        self.stops = tuple(stop.encode() for stop in stops)
        self.max_tokens = max_tokens  # output tokens at most
        self._limit_reason = (
            limit_reason  # "length", or "context" when the model's context is what ends the run
        )
        self._spell = spell

    def cut(self, output: Sequence[int], block: Sequence[int]) -> Cut:
        """Where `block`, behind `output`, must end."""
        data = b"".join(self._spell[token] for token in output) if self.stops else b""
        for index, token in enumerate(block):
            if token in self.eos_ids:
                return Cut(index + 1, "eos")
            if self.stops:
                before = len(data)
                data += self._spell[token]
                start = self._find_stop(data, before)
                if start is not None:
                    return Cut(index + 1, "stop", start)
            if len(output) + index + 1 >= self.max_tokens:
                return Cut(index + 1, self._limit_reason)
        return Cut(len(block))

    def _find_stop(self, data: bytes, before: int) -> int | None:
        """Earliest stop string that the bytes from `before` on completed."""
        found = [data.find(stop, max(0, before - len(stop) + 1)) for stop in self.stops]
        return min((start for start in found if start >= 0), default=None)

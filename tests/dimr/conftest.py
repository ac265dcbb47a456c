"""The command on the toy pair, and a Ctrl-C at a given mask."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

import viasd_core.pair
from dimr.command_toys import PAIR, Command
from viasd_core.cli.main import main
from viasd_core.dimr.score import Scorer


@pytest.fixture
def dimr(monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """Run `dimr` on the toy pair, whatever the preset names."""
    monkeypatch.setattr(viasd_core.pair, "load_pair", lambda *_, **__: PAIR)
    before = signal.getsignal(signal.SIGTERM)
    yield lambda *arguments: main(["dimr", "--preset", "tiny", *arguments])
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Press Ctrl-C while the n-th mask is scored from now on."""
    plain = Scorer.cost

    def arm(number: int) -> None:
        left = [number]

        def cost(scorer: Scorer, mask: str) -> float:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            return plain(scorer, mask)

        monkeypatch.setattr(Scorer, "cost", cost)

    return arm

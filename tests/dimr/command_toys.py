"""The toy pair and the small search that tests of the `dimr` command share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toys import toy_pair

Command = Callable[..., int]
SEARCH = ("--skip-ratio", "0.4", "--steps", "8", "--theta", "3", "--tokens", "6", "--prompts", "3")
SHORT = (*SEARCH[:2], "--search", "random", "--steps", "1", *SEARCH[6:])
PAIR = toy_pair(layers=8)


def last(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def held_out_cost(path: Path) -> float:
    return float(json.loads(path.read_text("utf-8"))["held_out"]["cost"])

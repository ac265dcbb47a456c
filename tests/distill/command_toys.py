"""The `distill` command on a toy verifier: its arguments, and what it says and leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

SMALL: dict[str, int] = {
    "--tokens": 100000,
    "--max-new-tokens": 6,
    "--longest-prompt": 60,
    "--lanes": 20,
    "--draft-vocab": 120,
}
KINDS: dict[str, dict[str, object]] = {
    "ar": {"--blocks": "0,3,7", "--batch": 8},
    "eagle": {"--blocks": "6", "--batch": 8},
    "block": {"--layers": 1, "--slots": 4, "--domino": None, "--batch": 8},
}
SHAPE = ("--draft-vocab", "--blocks", "--layers", "--slots", "--domino")  # what another drafter has already
Command = Callable[..., int]


def arguments(place: Path, out: Path, kind: str, *more: str) -> list[str]:
    """The whole command; a drafter that `more` starts from has its shape already."""
    fixed = ["distill", "--preset", str(place / "toy.yaml"), "--data", str(place / "prompts.jsonl")]
    fixed += ["--out", str(out), "--workers", "1", "--kind", kind]
    for name, value in (SMALL | KINDS.get(kind, {})).items():
        if "--start" not in more or name not in SHAPE:
            fixed += [name] if value is None else [name, str(value)]
    return [*fixed, *more]


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence a failure ends with."""
    lines = capsys.readouterr().err.rstrip().splitlines()
    assert lines[-1].startswith("error: ") and sum("error:" in line for line in lines) == 1
    assert not any("Traceback" in line for line in lines)
    return lines[-1]


def facts_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model.safetensors")

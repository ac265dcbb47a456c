"""Prompts to distil from: any file the benchmark readers know, or plain text with one prompt a paragraph."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..bench.data import read_items
from ..errors import DataError, PromptError
from ..pair import ModelPair
from ..recording import encode_prompt


@dataclass(frozen=True)
class Prompt:
    """One prompt as the verifier reads it. `index` is its place in the shuffled list: its name everywhere."""

    index: int
    ids: tuple[int, ...]


def read_prompts(paths: Sequence[str | Path], task: str | None = None) -> list[str]:
    """The prompts of all files, in order, without repeats; answers beside them are not read.

    `task` names the layout of records where it cannot be recognised. Raises DataError: no such file, nothing
    in it, not one of the known layouts.
    """
    found: dict[str, None] = {}
    for path in paths:
        text = str(path).endswith(".txt")
        found.update(dict.fromkeys(_paragraphs(path) if text else _records(path, task)))
    return list(found)


def _records(path: str | Path, task: str | None) -> list[str]:
    return [item.prompt.strip() for item in read_items(path, task=task)]


def _paragraphs(path: str | Path) -> list[str]:
    try:
        text = Path(path).read_text("utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; give the path of a prompt file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as UTF-8 text ({error})") from error
    paragraphs = [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]
    if not paragraphs:
        raise DataError(f"{path} is empty; give a file with at least one prompt")
    return paragraphs


def prepare(pair: ModelPair, texts: Sequence[str], *, longest: int, seed: int) -> tuple[list[Prompt], int]:
    """Encode with the verifier's chat template and shuffle; also how many were left out as too long.

    Raises DataError when no prompt is left.
    """
    order = list(texts)
    random.Random(seed).shuffle(order)
    prompts: list[Prompt] = []
    for index, text in enumerate(order):
        try:
            ids = encode_prompt(pair, text)
        except PromptError:
            continue
        if 0 < len(ids) <= longest:
            prompts.append(Prompt(index, tuple(ids)))
    if not prompts:
        raise DataError(
            f"none of {len(order)} prompts has between 1 and {longest} tokens; give shorter prompts or raise "
            "--longest-prompt"
        )
    return prompts, len(order) - len(prompts)

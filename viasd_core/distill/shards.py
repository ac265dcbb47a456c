"""Answers on disk: one safetensors file a shard, written whole or not at all, so that any of them can be
trusted.

A folder of shards belongs to one plan (verifier, prompts, sampling); another plan is refused, not mixed in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ..atomic import replace_file
from ..errors import DataError
from .answers import Answer

PLAN = "plan.json"


@dataclass(frozen=True)
class Shard:
    """`count` answers end to end. `starts` [count + 1] are their first ids; features have one row an id, the
    last id of an answer (which the verifier never ran) zeros.
    """

    index: Tensor  # [count] the prompts' indices
    starts: Tensor  # [count + 1]
    prompt_tokens: Tensor  # [count]
    ids: Tensor  # [tokens]
    features: Tensor  # [tokens, taps, H]
    final: Tensor  # [tokens, H]

    def __len__(self) -> int:
        return self.index.shape[0]

    def answer(self, place: int) -> Answer:
        """The answer at `place` of this shard."""
        first, behind = int(self.starts[place]), int(self.starts[place + 1])
        return Answer(
            int(self.index[place]),
            tuple(self.ids[first:behind].tolist()),
            int(self.prompt_tokens[place]),
            self.features[first : behind - 1],
            self.final[first : behind - 1],
        )


class ShardFolder:
    """The shards under `folder`. Raises DataError when they were made for another plan."""

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / PLAN
        if not path.exists():
            replace_file(path, lambda place: place.write_text(json.dumps(plan, indent=1) + "\n", "utf-8"))
        refuse_another(folder, _read_plan(path), plan)

    def paths(self) -> list[Path]:
        return sorted(self.folder.glob("shard-*.safetensors"))

    def summary(self) -> dict[int, int]:
        """New tokens of every answered prompt, by its index. Damaged shards are set aside and counted as
        missing."""
        found: dict[int, int] = {}
        for path in self.paths():
            try:
                with safe_open(path, "pt") as file:
                    index, starts = file.get_tensor("index"), file.get_tensor("starts")
                    new = starts.diff() - file.get_tensor("prompt_tokens")
            except (SafetensorError, OSError):
                path.rename(path.with_suffix(".damaged"))
                continue
            found.update(zip(index.tolist(), new.tolist(), strict=True))
        return found

    def write(self, name: str, answers: Sequence[Answer]) -> None:
        """One shard `shard-{name}` of one answer or more. Raises OSError on a full disk."""
        lengths = [len(answer.ids) for answer in answers]
        starts = torch.tensor([0, *lengths]).cumsum(0)
        tensors = {
            "index": torch.tensor([answer.index for answer in answers]),
            "starts": starts,
            "prompt_tokens": torch.tensor([answer.prompt_tokens for answer in answers]),
            "ids": torch.tensor([token for answer in answers for token in answer.ids], dtype=torch.int32),
            "features": torch.cat([_one_row_more(answer.features) for answer in answers]),
            "final": torch.cat([_one_row_more(answer.final) for answer in answers]),
        }
        content = save(tensors)
        replace_file(self.folder / f"shard-{name}.safetensors", lambda place: place.write_bytes(content))


def refuse_another(place: Path, kept: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Raises DataError where the answers at `place` were made by another plan."""
    different = sorted(key for key in kept.keys() | plan.keys() if kept.get(key) != plan.get(key))
    if different:
        raise DataError(
            f"{place} holds answers of another plan, which differs in {', '.join(different)}; choose another "
            "place, or the same prompts and settings"
        )


def _read_plan(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text("utf-8"))
    except ValueError:
        kept = None
    if not isinstance(kept, dict):
        raise DataError(
            f"{path} is damaged, so nobody knows what its answers were made with; choose another folder"
        )
    return kept


def read_shard(path: Path) -> Shard:
    """A shard, its tensors mapped from the file rather than read at once."""
    with safe_open(path, "pt") as file:
        return Shard(**{name: file.get_tensor(name) for name in Shard.__dataclass_fields__})


def _one_row_more(rows: Tensor) -> Tensor:
    return torch.cat([rows, torch.zeros_like(rows[:1])])


def batches(answers: Iterator[Answer], tokens: int) -> Iterator[list[Answer]]:
    """Group answers into lists of at least `tokens` ids; the last may be smaller."""
    held: list[Answer] = []
    size = 0
    for answer in answers:
        held.append(answer)
        size += len(answer.ids)
        if size >= tokens:
            yield held
            held, size = [], 0
    if held:
        yield held

"""Answers from shards as padded batches, in an order that a seed and an epoch decide.

One shard is open at a time, so memory does not grow with the data. Answers of similar length share a batch.
Every 32nd prompt is held out: no drafter is trained on it, and acceptance is measured on nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from .answers import Answer
from .shards import read_shard

HELD_OUT = 32


@dataclass(frozen=True)
class Batch:
    """b answers padded to s ids. Row i of an answer predicts id i + 1; row `lengths - 1` was never run."""

    ids: Tensor  # [b, s]
    lengths: Tensor  # [b]
    prompt_tokens: Tensor  # [b]
    features: Tensor  # [b, s - 1, taps, H], as stored
    final: Tensor  # [b, s - 1, H]

    def predicting(self) -> Tensor:
        """[b, s - 1]: rows whose next id the verifier made (prompt ids are nobody's prediction)."""
        rows = torch.arange(self.ids.shape[1] - 1, device=self.ids.device)
        return (rows >= self.prompt_tokens[:, None] - 1) & (rows < self.lengths[:, None] - 1)

    def to(self, device: torch.device) -> Batch:
        return Batch(**{name: getattr(self, name).to(device) for name in self.__dataclass_fields__})


def held_out(index: int) -> bool:
    return index % HELD_OUT == 0


def training_batches(paths: Sequence[Path], size: int, seed: int | str, epoch: int) -> Iterator[Batch]:
    """Every training answer once, `size` a batch."""
    order = random.Random(f"{seed}/{epoch}")
    shards = list(paths)
    order.shuffle(shards)
    for path in shards:
        shard = read_shard(path)
        places = [place for place in range(len(shard)) if not held_out(int(shard.index[place]))]
        places.sort(key=lambda place: int(shard.starts[place + 1] - shard.starts[place]))
        groups = [places[first : first + size] for first in range(0, len(places), size)]
        order.shuffle(groups)
        for group in groups:
            yield collate([shard.answer(place) for place in group])


def count_batches(paths: Sequence[Path], size: int) -> int:
    """Batches of one epoch."""
    total = 0
    for path in paths:
        answers = sum(not held_out(index) for index in read_shard(path).index.tolist())
        total += -(-answers // size)
    return total


def held_out_batches(paths: Sequence[Path], size: int, limit: int) -> Iterator[Batch]:
    """The first `limit` held-out answers."""
    found: list[Answer] = []
    for path in paths:
        shard = read_shard(path)
        found += [shard.answer(place) for place in range(len(shard)) if held_out(int(shard.index[place]))]
        if len(found) >= limit:
            break
    found = sorted(found[:limit], key=lambda answer: len(answer.ids))
    for first in range(0, len(found), size):
        yield collate(found[first : first + size])


def collate(answers: Sequence[Answer]) -> Batch:
    return Batch(
        ids=pad_sequence([torch.tensor(answer.ids) for answer in answers], batch_first=True),
        lengths=torch.tensor([len(answer.ids) for answer in answers]),
        prompt_tokens=torch.tensor([answer.prompt_tokens for answer in answers]),
        features=pad_sequence([answer.features for answer in answers], batch_first=True),
        final=pad_sequence([answer.final for answer in answers], batch_first=True),
    )


def feature_scale(path: Path) -> Tensor:
    """Root mean square [taps, H] of the features at the rows of a shard that predict (never the first rows,
    where some models hide huge values).
    """
    shard = read_shard(path)
    total, rows = torch.zeros(shard.features.shape[1:]), 0
    for place in range(len(shard)):
        answer = shard.answer(place)
        chosen = answer.features[answer.prompt_tokens - 1 :].float()
        total += chosen.square().sum(0)
        rows += len(chosen)
    return (total / max(rows, 1)).sqrt().clamp_min(1e-6)


def id_counts(paths: Sequence[Path], vocab_size: int) -> Tensor:
    """How often the verifier wrote each id [V] in training answers (prompts not counted)."""
    counts = torch.zeros(vocab_size, dtype=torch.long)
    for path in paths:
        shard = read_shard(path)
        for place in range(len(shard)):
            if not held_out(int(shard.index[place])):
                first = int(shard.starts[place] + shard.prompt_tokens[place])
                written = shard.ids[first : int(shard.starts[place + 1])].long()
                counts += torch.bincount(written, minlength=vocab_size)
    return counts

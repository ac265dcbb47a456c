"""What a drafter is trained on, and what it is only ever measured on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from distill.distill_toys import PLAN, TAPS, toy_shards, toy_target
from viasd_core.distill.answers import Answer
from viasd_core.distill.batches import (
    collate,
    count_batches,
    held_out,
    held_out_batches,
    id_counts,
    training_batches,
)
from viasd_core.distill.shards import ShardFolder, read_shard

Texts = list[tuple[int, ...]]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return toy_shards(tmp_path_factory.mktemp("answers"), toy_target(layers=4), count=70)


def texts(batches: list[torch.Tensor]) -> Texts:
    return [tuple(row) for batch in batches for row in batch.tolist()]


def epoch(paths: list[Path], size: int, seed: int, number: int) -> Texts:
    """Every text of an epoch, in order, without its padding."""
    found: Texts = []
    for batch in training_batches(paths, size, seed, number):
        lengths = batch.lengths.tolist()
        found += [tuple(row[:length]) for row, length in zip(batch.ids.tolist(), lengths, strict=True)]
    return found


def stored(paths: list[Path]) -> dict[int, Answer]:
    shards = [read_shard(path) for path in paths]
    return {one.index: one for shard in shards for one in map(shard.answer, range(len(shard)))}


def test_an_epoch_holds_every_training_answer_once_and_no_other(paths: list[Path]) -> None:
    wanted = sorted(one.ids for index, one in stored(paths).items() if not held_out(index))
    assert sorted(epoch(paths, 4, 0, 0)) == wanted and len(wanted) == 70 - 3


def test_every_32nd_prompt_is_held_out(paths: list[Path]) -> None:
    answers = stored(paths)
    found = [batch for batch in held_out_batches(paths, 2, 99)]
    ids = [row[:length] for batch in found for row, length in zip(batch.ids, batch.lengths, strict=True)]
    assert sorted(tuple(row.tolist()) for row in ids) == sorted(answers[index].ids for index in (0, 32, 64))
    assert [len(batch.lengths) for batch in found] == [2, 1]
    assert [len(batch.lengths) for batch in held_out_batches(paths, 5, 2)] == [2]


def test_the_order_is_the_seeds_and_the_epochs(paths: list[Path]) -> None:
    first = epoch(paths, 4, 0, 0)
    assert epoch(paths, 4, 0, 0) == first
    others = [epoch(paths, 4, 1, 0), epoch(paths, 4, 0, 1)]
    assert all(other != first and sorted(other) == sorted(first) for other in others)


@pytest.mark.parametrize("size", [1, 4, 100])
def test_batches_are_counted_without_being_made(size: int, paths: list[Path]) -> None:
    assert count_batches(paths, size) == len(list(training_batches(paths, size, 0, 0)))


def test_a_batch_pads_behind_each_answer(paths: list[Path]) -> None:
    answers = [stored(paths)[index] for index in (3, 8, 20)]
    batch = collate(answers)
    longest = max(len(one.ids) for one in answers)
    assert batch.ids.shape == (3, longest) and batch.final.shape == (3, longest - 1, 32)
    assert batch.features.shape == (3, longest - 1, len(TAPS), 32)
    for row, one in enumerate(answers):
        count = len(one.ids)
        assert tuple(batch.ids[row, :count].tolist()) == one.ids
        assert not batch.ids[row, count:].any() and not batch.features[row, count - 1 :].any()
        assert torch.equal(batch.features[row, : count - 1], one.features)
        assert torch.equal(batch.final[row, : count - 1], one.final)


def test_rows_that_predict_are_those_before_a_token_the_verifier_wrote() -> None:
    def one(prompt: int, whole: int) -> Answer:
        return Answer(
            1, tuple(range(whole)), prompt, torch.zeros(whole - 1, 2, 32), torch.zeros(whole - 1, 32)
        )

    rows = collate([one(3, 6), one(1, 3), one(4, 5)]).predicting()
    assert rows.int().tolist() == [[0, 0, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 1, 0]]


def test_ids_are_counted_where_the_verifier_wrote_them_in_training_answers(tmp_path: Path) -> None:
    def one(index: int, ids: tuple[int, ...], prompt: int) -> Answer:
        return Answer(
            index, ids, prompt, torch.zeros(len(ids) - 1, 2, 4), torch.zeros(len(ids) - 1, 4)
        )  # fmt: skip

    folder = ShardFolder(tmp_path, PLAN)
    folder.write("a", [one(0, (5, 5, 5), 1), one(1, (5, 2, 2, 3), 1)])
    folder.write("b", [one(33, (6, 6, 2), 2)])
    assert id_counts(folder.paths(), 8).tolist() == [0, 0, 3, 1, 0, 0, 0, 0]

"""Answers on disk: whole or not there, of one plan, and usable after damage."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch

from distill.distill_toys import PLAN, TAPS, answer, toy_prompts, toy_target
from viasd_core.distill.answers import Answer
from viasd_core.distill.shards import ShardFolder, batches, read_shard
from viasd_core.errors import DataError


@pytest.fixture(scope="module")
def answers() -> list[Answer]:
    return answer(toy_target(), toy_prompts(6), taps=TAPS, eos=frozenset(range(6)))


def test_a_shard_gives_back_the_answers_it_was_made_of(answers: list[Answer], tmp_path: Path) -> None:
    folder = ShardFolder(tmp_path / "new" / "folder", PLAN)
    folder.write("0-1", answers)
    (path,) = folder.paths()
    shard = read_shard(path)
    assert len(shard) == 6
    for place, one in enumerate(answers):
        found = shard.answer(place)
        assert (found.index, found.ids, found.prompt_tokens) == (one.index, one.ids, one.prompt_tokens)
        assert torch.equal(found.features, one.features) and torch.equal(found.final, one.final)
    assert folder.summary() == {one.index: one.new_tokens for one in answers}


def test_a_folder_is_opened_again_with_the_same_plan(answers: list[Answer], tmp_path: Path) -> None:
    ShardFolder(tmp_path, PLAN).write("0-1", answers)
    assert len(ShardFolder(tmp_path, dict(reversed(PLAN.items()))).summary()) == 6


@pytest.mark.parametrize(
    ("plan", "named"),
    [
        ({"seed": 1, "taps": [1, 3]}, "differs in seed;"),
        ({"seed": 1, "taps": [1, 2]}, "differs in seed, taps;"),
        ({"seed": 0}, "differs in taps;"),
        ({"seed": 0, "taps": [1, 3], "prompts": "ab"}, "differs in prompts;"),
    ],
)
def test_another_plan_is_refused_by_what_differs(plan: dict[str, Any], named: str, tmp_path: Path) -> None:
    ShardFolder(tmp_path, PLAN)
    with pytest.raises(DataError, match=named) as caught:
        ShardFolder(tmp_path, plan)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "{", "[1]"])
def test_a_damaged_plan_is_refused_in_a_sentence(content: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(DataError, match=r"plan\.json is damaged") as caught:
        ShardFolder(tmp_path, PLAN)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kept", [0, 7, -40])
def test_a_damaged_shard_is_set_aside_and_its_prompts_are_open_again(
    kept: int, answers: list[Answer], tmp_path: Path
) -> None:
    folder = ShardFolder(tmp_path, PLAN)
    folder.write("0-1", answers[:3])
    folder.write("0-2", answers[3:])
    damaged = tmp_path / "shard-0-1.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:kept])
    assert sorted(folder.summary()) == [one.index for one in answers[3:]]
    assert [path.name for path in folder.paths()] == ["shard-0-2.safetensors"]
    assert (tmp_path / "shard-0-1.damaged").exists(), "nothing is deleted"


def test_a_full_disk_leaves_nothing_half_written(
    answers: list[Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ShardFolder(tmp_path, PLAN)
    folder.write("0-1", answers[:3])
    plain = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        plain(path, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        folder.write("0-2", answers[3:])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.json", "shard-0-1.safetensors"]
    assert sorted(folder.summary()) == [one.index for one in answers[:3]]


def test_answers_are_grouped_into_shards_of_enough_tokens(answers: list[Answer]) -> None:
    groups = list(batches(iter(answers), 30))
    assert [one.index for group in groups for one in group] == [one.index for one in answers]
    sizes = [sum(len(one.ids) for one in group) for group in groups]
    assert len(sizes) > 1 and all(size >= 30 for size in sizes[:-1])
    assert all(size - len(group[-1].ids) < 30 for size, group in zip(sizes, groups, strict=True))
    assert list(batches(iter([]), 30)) == []

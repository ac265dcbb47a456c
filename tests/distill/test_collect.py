"""Answering prompts until there is enough: nothing is made twice, and an interruption changes nothing."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from distill.distill_toys import TAPS, toy_prompts, toy_target
from viasd_core.distill import collect as collecting
from viasd_core.distill.answers import Answer
from viasd_core.distill.collect import Plan, collect, common_opening
from viasd_core.distill.prompts import Prompt
from viasd_core.distill.shards import ShardFolder, read_shard

PROMPTS = toy_prompts(24, opening=(9, 3))
EVERYTHING = 10**6
EOS = frozenset({1, 2, 3, 4})


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "SHARD_TOKENS", 60)


def run(
    folder: Path, tokens: int, *, prompts: Sequence[Prompt] = PROMPTS, lanes: int = 3, **options: Any
) -> int:
    plan = Plan(
        tokens=tokens, lanes=lanes, longest_prompt=12, max_new_tokens=10, temperatures=(0.0, 0.8), taps=TAPS
    )
    shards = ShardFolder(folder, plan.identity({"id": "toy"}, "digest"))
    return collect(toy_target().runner, EOS, prompts, shards, plan, **options)


def made(folder: Path) -> dict[int, Answer]:
    """Every answer of a folder by its prompt; none may be there twice."""
    found: dict[int, Answer] = {}
    for path in sorted(folder.glob("shard-*.safetensors")):
        shard = read_shard(path)
        for place in range(len(shard)):
            one = shard.answer(place)
            assert one.index not in found, "a prompt was answered twice"
            # A shard is mapped from its file, which some tests overwrite.
            found[one.index] = replace(one, features=one.features.clone(), final=one.final.clone())
    return found


def same(found: dict[int, Answer], wanted: dict[int, Answer]) -> None:
    assert sorted(found) == sorted(wanted)
    for index, one in wanted.items():
        assert found[index].ids == one.ids and found[index].prompt_tokens == one.prompt_tokens
        torch.testing.assert_close(found[index].features, one.features)
        torch.testing.assert_close(found[index].final, one.final)


def stopping_at(shards: int) -> Callable[[int], None]:
    """Progress that is interrupted when so many shards are written; it first hears of what was there."""
    heard = []

    def progress(new: int) -> None:
        heard.append(new)
        if len(heard) == shards + 1:
            raise KeyboardInterrupt

    return progress


def test_answering_stops_when_there_is_enough(tmp_path: Path) -> None:
    heard: list[int] = []
    total = run(tmp_path, 80, progress=heard.append)
    assert total == sum(heard) == sum(one.new_tokens for one in made(tmp_path).values())
    assert 80 <= total < 80 + 60 + 10 and len(made(tmp_path)) < len(PROMPTS)


def test_a_small_order_is_not_rounded_up_to_a_whole_shard(tmp_path: Path) -> None:
    assert 5 <= run(tmp_path, 5) < 25


def test_it_ends_early_when_prompts_run_out(tmp_path: Path) -> None:
    total = run(tmp_path, EVERYTHING)
    assert sorted(made(tmp_path)) == list(range(24)) and total < EVERYTHING


def test_enough_is_not_made_again_and_more_is_added_to_what_is_there(tmp_path: Path) -> None:
    first = run(tmp_path, 60)
    before = sorted(tmp_path.iterdir())
    assert run(tmp_path, 60) == first and sorted(tmp_path.iterdir()) == before
    more = run(tmp_path, 110, lanes=5)
    assert more >= 110 and sum(one.new_tokens for one in made(tmp_path).values()) == more


@pytest.mark.parametrize("shards", [1, 3])
def test_what_an_interrupted_run_leaves_is_finished_as_if_nothing_had_happened(
    shards: int, tmp_path: Path
) -> None:
    run(tmp_path / "whole", EVERYTHING)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", EVERYTHING, progress=stopping_at(shards))
    assert len(list((tmp_path / "cut").glob("shard-*"))) == shards
    run(tmp_path / "cut", EVERYTHING)
    same(made(tmp_path / "cut"), made(tmp_path / "whole"))


def test_the_prompts_of_a_damaged_shard_are_answered_again(tmp_path: Path) -> None:
    run(tmp_path, EVERYTHING)
    wanted = made(tmp_path)
    path = sorted(tmp_path.glob("shard-*"))[1]
    path.write_bytes(path.read_bytes()[:50])
    run(tmp_path, EVERYTHING)
    same(made(tmp_path), wanted)


def test_what_was_written_before_the_disk_was_full_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ShardFolder.write

    def full(folder: ShardFolder, name: str, answers: Sequence[Answer]) -> None:
        if len(folder.paths()) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        plain(folder, name, answers)

    with monkeypatch.context() as patch:
        patch.setattr(ShardFolder, "write", full)
        with pytest.raises(OSError, match="No space"):
            run(tmp_path / "full", EVERYTHING)
    kept = made(tmp_path / "full")
    run(tmp_path / "full", EVERYTHING)
    run(tmp_path / "whole", EVERYTHING)
    assert kept.keys() < made(tmp_path / "full").keys()
    same(made(tmp_path / "full"), made(tmp_path / "whole"))


def test_workers_share_the_prompts_and_the_tokens_between_them(tmp_path: Path) -> None:
    for worker in range(3):
        run(tmp_path, EVERYTHING, worker=worker, workers=3)
        assert {index % 3 for index in made(tmp_path)} == set(range(worker + 1))
    run(tmp_path / "alone", EVERYTHING)
    same(made(tmp_path), made(tmp_path / "alone"))
    totals = [run(tmp_path / "some", 50, worker=worker, workers=3) for worker in range(3)]
    assert sum(totals) >= 50 and min(totals) >= 16


def test_the_common_opening_leaves_a_prompt_something_to_run() -> None:
    assert common_opening([(1, 2, 3), (1, 2), (1, 2, 4, 4)]) == (1, 2)
    assert common_opening([(1, 2)]) == (1, 2)
    assert common_opening([(), (1,)]) == common_opening([(2,), (1,)]) == ()

"""Answers kept without features: small, bound to their plan, and as good as the shards they came from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from distill.distill_toys import toy_prompts, toy_target
from viasd_core.distill import collect as collecting
from viasd_core.distill.collect import Plan, collect
from viasd_core.distill.shards import ShardFolder, read_shard
from viasd_core.distill.texts import Texts, read_texts, write_texts
from viasd_core.errors import DataError
from viasd_core.paths import PRESETS

PROMPTS = toy_prompts(15, opening=(9, 3))
TARGET = toy_target()
VOCAB = TARGET.runner.vocab_size


def answered(
    folder: Path, taps: tuple[int, ...], texts: Texts | None = None, tokens: int = 10**6
) -> ShardFolder:
    plan = Plan(tokens=tokens, lanes=3, longest_prompt=12, max_new_tokens=10, temperatures=(0.7,), taps=taps)
    shards = ShardFolder(folder, plan.identity({"id": "toy"}, "digest"))
    collect(TARGET.runner, frozenset({1, 2, 3}), PROMPTS, shards, plan, texts=texts)
    return shards


def plan_of(taps: tuple[int, ...] = (1,), **changes: Any) -> dict[str, Any]:
    plan = Plan(longest_prompt=12, max_new_tokens=10, temperatures=(0.7,), taps=taps, **changes)
    return plan.identity({"id": "toy"}, "digest")


def rows(shards: ShardFolder) -> dict[int, Any]:
    found = [read_shard(path) for path in shards.paths()]
    return {one.index: one for shard in found for one in map(shard.answer, range(len(shard)))}


def test_texts_give_the_same_answers_with_features_of_other_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = answered(tmp_path / "first", (1, 3))
    assert write_texts(tmp_path / "kept.npz", written, plan_of(), {}) == len(PROMPTS)
    texts = read_texts(tmp_path / "kept.npz", plan_of((0, 3)), VOCAB)
    wanted = rows(written)

    class Nobody:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def answers(self, prompts: Any) -> list[Any]:
            assert not list(prompts), "a text that was known is written again"
            return []

    monkeypatch.setattr(collecting, "Answering", Nobody)
    again = rows(answered(tmp_path / "again", (0, 3), texts))
    assert again.keys() == wanted.keys()
    for index, one in wanted.items():
        assert again[index].ids == one.ids and again[index].prompt_tokens == one.prompt_tokens
        torch.testing.assert_close(again[index].features[:, 1], one.features[:, 1])
        torch.testing.assert_close(again[index].final, one.final)


def test_known_texts_count_and_only_the_others_are_written_anew(tmp_path: Path) -> None:
    wanted = rows(answered(tmp_path / "whole", (1,)))
    some = {index: one.ids[one.prompt_tokens :] for index, one in list(wanted.items())[:6]}
    found = rows(answered(tmp_path / "mixed", (1,), some))
    assert {index: one.ids for index, one in found.items()} == {i: one.ids for i, one in wanted.items()}


def test_writing_keeps_what_no_shard_holds(tmp_path: Path) -> None:
    """A text file may hold more than this folder: a smaller --tokens must not shrink it."""
    part = answered(tmp_path / "part", (1,), tokens=20)
    have = len(rows(part))
    assert 0 < have < len(PROMPTS)
    known: Texts = {900: (5, 6, 7)}
    assert write_texts(tmp_path / "kept.npz", part, plan_of(), known) == have + 1
    assert read_texts(tmp_path / "kept.npz", plan_of(), VOCAB)[900] == (5, 6, 7)


def test_no_file_is_no_texts(tmp_path: Path) -> None:
    assert read_texts(tmp_path / "none.npz", plan_of(), VOCAB) == {}


def test_texts_of_another_plan_are_refused_by_name(tmp_path: Path) -> None:
    write_texts(tmp_path / "kept.npz", answered(tmp_path / "a", (1,)), plan_of(), {})
    with pytest.raises(DataError, match="holds answers of another plan, which differs in seed; choose"):
        read_texts(tmp_path / "kept.npz", plan_of(seed=3), VOCAB)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def without_ids(path: Path) -> None:
    np.savez(path, plan=np.array("{}"))


def of_objects(path: Path) -> None:
    np.savez(path, plan=np.array([{"code": "could run"}], dtype=object))


def no_zip(path: Path) -> None:
    path.write_text("texts")


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    start = content.index(b"ids.npy") + 40
    content[start : start + 16] = bytes(255 - byte for byte in content[start : start + 16])
    path.write_bytes(content)


def one_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.arange(3))


def no_dimension(path: Path) -> None:
    plan = np.load(path)["plan"]
    np.savez(path, plan=plan, index=np.array([0]), ends=np.array(1), ids=np.array([3]))


def list_as_plan(path: Path) -> None:
    np.savez(path, plan=np.array("[1]"), index=np.array([0]), ends=np.array([1]), ids=np.array([3]))


def fractions(path: Path) -> None:
    np.savez(path, plan=np.array("{}"), index=np.array([0.5]), ends=np.array([1.5]), ids=np.array([3.0]))


@pytest.mark.parametrize(
    "damage",
    [cut, without_ids, of_objects, no_zip, flipped, one_array, no_dimension, list_as_plan, fractions],
)
def test_a_damaged_file_is_refused_in_a_sentence(damage: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "kept.npz"
    write_texts(path, answered(tmp_path / "a", (1,)), plan_of(), {})
    damage(path)
    with pytest.raises(DataError, match=r"kept\.npz is damaged or no file of texts"):
        read_texts(path, plan_of(), VOCAB)


@pytest.mark.parametrize(
    ("index", "ends", "ids"),
    [
        ([0, 1], [2, 4], [5, 6, 7]),  # too few ids
        ([0, 1], [2, 3], [5, 6, 7, 8]),  # too many
        ([0], [1, 2], [5, 6]),  # a text of no prompt
        ([0, 1], [2, 1], [5]),  # backwards
        ([0, 1], [1, 1], [5]),  # an empty text
        ([0], [2], [5, VOCAB]),  # an id the verifier does not have
        ([0], [2], [5, -1]),
        ([0], [11], [5] * 11),  # longer than any answer
        ([[0]], [[1]], [5]),
        ([0, 0], [1, 2], [5, 6]),  # two texts of one prompt
    ],
)
def test_texts_that_cannot_be_the_verifiers_are_refused(
    index: list[Any], ends: list[Any], ids: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "kept.npz"
    write_texts(path, answered(tmp_path / "a", (1,)), plan_of(), {})
    plan = np.load(path)["plan"]
    np.savez(path, plan=plan, index=np.array(index), ends=np.array(ends), ids=np.array(ids))
    with pytest.raises(DataError, match=r"kept\.npz holds texts that this verifier cannot have written"):
        read_texts(path, plan_of(), VOCAB)


def test_the_texts_that_ship_are_whole() -> None:
    path = PRESETS / "texts" / "smollm2-135m.npz"
    with np.load(path, allow_pickle=False) as file:
        plan = json.loads(str(file["plan"]))
    texts = read_texts(path, plan, 49_152)
    assert len(texts) == 5932 and sum(map(len, texts.values())) == 1_010_403

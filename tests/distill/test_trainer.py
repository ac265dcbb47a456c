"""Training that may be killed at any step: what it resumes from, what it refuses, and what it keeps."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from distill.distill_toys import PLAN, TAPS, answer, toy_prompts, toy_shards, toy_target
from viasd_core.distill import train
from viasd_core.distill.ar import ArObjective
from viasd_core.distill.batches import held_out_batches
from viasd_core.distill.block import BlockObjective
from viasd_core.distill.eagle import EagleObjective
from viasd_core.distill.objective import HeldOut, Objective
from viasd_core.distill.shards import ShardFolder
from viasd_core.distill.train import Trainer, Training
from viasd_core.drafters.checkpoints import Target
from viasd_core.errors import DataError

Heard = list[tuple[str, dict[str, Any]]]
SHORT = Training(epochs=2, batch=8, learning_rate=3e-3, measure_every=4, save_every=3, measure_on=9)


@pytest.fixture(scope="module")
def target() -> Target:
    return toy_target(dtype=torch.float32)


@pytest.fixture(scope="module")
def paths(target: Target, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return toy_shards(tmp_path_factory.mktemp("answers"), target, count=42)


def objective(target: Target, kind: str = "ar", width: int = 30) -> Objective:
    torch.manual_seed(0)
    ids = torch.arange(width)
    if kind == "ar":
        return ArObjective(target, (0, 3), ids)
    if kind == "eagle":
        return EagleObjective(target, TAPS, 0, ids, anchors=3)
    sizes = (12, 5) if kind == "domino" else ()
    return BlockObjective(target, TAPS, (0,), ids, slots=4, mask_token=39, anchors=3, domino=sizes)


def weights(trained: Objective) -> dict[str, Tensor]:
    return {name: weight.clone() for name, weight in trained.module.state_dict().items()}


def interrupted_at(step: int) -> Callable[[str, dict[str, Any]], None]:
    def report(kind: str, facts: dict[str, Any]) -> None:
        if kind == "step" and facts["step"] == step:
            raise KeyboardInterrupt

    return report


def noted(heard: Heard) -> Callable[[str, dict[str, Any]], None]:
    return lambda kind, facts: heard.append((kind, facts))


@pytest.mark.parametrize("kind", ["ar", "eagle", "block", "domino"])
@pytest.mark.parametrize("steps", [(1,), (5, 6), (12,)])
def test_a_training_killed_at_any_step_ends_where_an_uninterrupted_one_ends(
    steps: tuple[int, ...], kind: str, target: Target, paths: list[Path], tmp_path: Path
) -> None:
    whole = objective(target, kind)
    told = Trainer(whole, paths, SHORT, tmp_path / "whole.pt", noted([])).run()
    assert told.step == 12
    for step in steps:
        with pytest.raises(KeyboardInterrupt):
            cut = objective(target, kind)
            Trainer(cut, paths, SHORT, tmp_path / "cut.pt", interrupted_at(step)).run()
    resumed = objective(target, kind)
    found = Trainer(resumed, paths, SHORT, tmp_path / "cut.pt", noted([])).run()
    assert found == told
    for name, weight in weights(whole).items():
        assert torch.equal(weights(resumed)[name], weight), name


def test_a_resumed_training_goes_on_from_its_last_save(
    target: Target, paths: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        Trainer(objective(target), paths, SHORT, tmp_path / "s.pt", interrupted_at(8)).run()
    heard: Heard = []
    Trainer(objective(target), paths, SHORT, tmp_path / "s.pt", noted(heard)).run()
    assert heard[0] == ("resume", {"step": 6, "steps": 12})
    assert [facts["step"] for kind, facts in heard if kind == "step"] == [7, 8, 9, 10, 11, 12]


def test_a_finished_training_is_not_trained_on(target: Target, paths: list[Path], tmp_path: Path) -> None:
    done = objective(target)
    Trainer(done, paths, SHORT, tmp_path / "s.pt", noted([])).run()
    heard: Heard = []
    again = objective(target)
    Trainer(again, paths, SHORT, tmp_path / "s.pt", noted(heard)).run()
    assert [kind for kind, _ in heard] == ["resume"]
    assert all(torch.equal(weights(again)[name], weight) for name, weight in weights(done).items())


def test_the_rate_warms_up_and_falls_along_a_cosine(
    target: Target, paths: list[Path], tmp_path: Path
) -> None:
    trainer = Trainer(objective(target), paths, SHORT, tmp_path / "s.pt", noted([]))
    rates = [trainer._schedule(step) for step in range(12)]
    assert rates[0] == 1.0 and rates == sorted(rates, reverse=True) and 0.02 < rates[-1] < 0.06
    trainer.steps = 1000
    assert [trainer._schedule(step) for step in (0, 14, 29)] == pytest.approx([1 / 30, 0.5, 1.0])


def score(trained: Objective, paths: list[Path]) -> float:
    found = HeldOut()
    with torch.no_grad():
        for batch in held_out_batches(paths, 8, 9):
            trained.measure(batch, found)
    return found.score


@pytest.mark.parametrize(
    ("scores", "best"), [((0.9, 0.2, 0.6, 0.5, 0.4), (0, 0.9)), ((0.5, 0.2, 0.6, 0.5, 0.4), (4, 0.6))]
)
def test_patience_counts_from_what_steps_led_to_not_from_the_drafter_gone_on_from(
    scores: tuple[float, ...], best: tuple[int, float], target: Target, paths: list[Path], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A finished drafter gets worse before it gets better; where it stays the best, it comes out again."""
    told = iter(scores)

    class Scripted(HeldOut):
        scripted: float | None = None

        @property
        def score(self) -> float:
            self.scripted = next(told) if self.scripted is None else self.scripted
            return self.scripted

    monkeypatch.setattr(train, "HeldOut", Scripted)
    made = objective(target)
    before = weights(made)
    training = Training(
        epochs=9, batch=8, learning_rate=3e-3, measure_every=2, measure_on=9, patience=2, start="digest"
    )
    progress = Trainer(made, paths, training, tmp_path / "s.pt", noted([])).run()
    assert (progress.best_step, progress.best_score, progress.step) == (*best, 8)
    assert torch.equal(weights(made)["norm.weight"], before["norm.weight"]) == (best[0] == 0)


def test_an_early_stop_keeps_the_best_weights_seen(
    target: Target, paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores are scripted to peak at the second measurement."""
    scores = iter([0.2, 0.6, 0.5, 0.4, 0.3, 0.2])
    kept: list[dict[str, Tensor]] = []
    made = objective(target)

    class Scripted(HeldOut):
        scripted: float | None = None

        @property
        def score(self) -> float:
            if self.scripted is None:
                kept.append(weights(made))
                self.scripted = next(scores)
            return self.scripted

    monkeypatch.setattr(train, "HeldOut", Scripted)
    heard: Heard = []
    training = Training(epochs=9, batch=8, learning_rate=3e-3, measure_every=2, measure_on=9, patience=2)
    progress = Trainer(made, paths, training, tmp_path / "s.pt", noted(heard)).run()
    assert heard[-1] == ("stop", {"step": 8, "stale": 2})
    assert (progress.best_step, progress.best_score, progress.step) == (4, 0.6, 8)
    best = next(state for state in kept if torch.equal(state["norm.weight"], weights(made)["norm.weight"]))
    assert all(torch.equal(best[name], weight) for name, weight in weights(made).items())
    assert any(not torch.equal(kept[-1][name], weight) for name, weight in weights(made).items())


def test_figures_told_are_those_of_the_weights_kept(
    target: Target, paths: list[Path], tmp_path: Path
) -> None:
    made = objective(target)
    progress = Trainer(made, paths, SHORT, tmp_path / "s.pt", noted([])).run()
    assert score(made, paths) == pytest.approx(progress.best_score)
    assert progress.best["agree"] == pytest.approx([progress.best_score])
    assert [entry["step"] for entry in progress.history] == [4, 8, 12]


def test_a_drafter_that_is_gone_on_from_sees_the_answers_in_another_order(
    target: Target, paths: list[Path], tmp_path: Path
) -> None:
    def order(start: str) -> list[list[int]]:
        training = Training(**{**vars(SHORT), "start": start})
        trainer = Trainer(objective(target), paths, training, tmp_path / "s.pt", noted([]))
        return [batch.ids.flatten().tolist() for _, batch in trainer._batches(0)]

    assert order("a") == order("a") and order("a") not in (order(""), order("b"))


SPOILT: dict[str, Callable[[dict[str, Any]], object]] = {
    "a list": lambda state: [1],
    "another progress": lambda state: state | {"progress": {"speed": 3}},
    "no best": lambda state: {name: value for name, value in state.items() if name != "best"},
    "no weights": lambda state: state | {"module": {}},
    "other best": lambda state: state | {"best": {"weight": torch.zeros(2)}},
    "no optimizer": lambda state: state | {"optimizer": {}},
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_state_that_lacks_something_is_refused_in_a_sentence(
    what: str, target: Target, paths: list[Path], tmp_path: Path
) -> None:
    state = tmp_path / "s.pt"
    with pytest.raises(KeyboardInterrupt):
        Trainer(objective(target), paths, SHORT, state, interrupted_at(8)).run()
    torch.save(SPOILT[what](torch.load(state, weights_only=True)), state)
    with pytest.raises(DataError, match=r"s\.pt is damaged.*delete it"):
        Trainer(objective(target), paths, SHORT, state, noted([])).run()


@pytest.mark.parametrize("content", [b"", b"garbage", b"hello", None])
def test_a_damaged_state_is_refused_in_a_sentence(
    content: bytes | None, target: Target, paths: list[Path], tmp_path: Path
) -> None:
    state = tmp_path / "s.pt"
    if content is None:
        Trainer(objective(target), paths, SHORT, state, noted([])).run()
        content = state.read_bytes()[:-500]
    state.write_bytes(content)
    with pytest.raises(DataError, match=r"s\.pt is damaged.*delete it") as caught:
        Trainer(objective(target), paths, SHORT, state, noted([])).run()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("what", ["kind", "width", "rate", "answers"])
def test_the_state_of_another_training_is_refused_in_a_sentence(
    what: str, target: Target, paths: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        Trainer(objective(target), paths, SHORT, tmp_path / "s.pt", interrupted_at(4)).run()
    other = objective(target, "block" if what == "kind" else "ar", 29 if what == "width" else 30)
    training = Training(**{**vars(SHORT), "learning_rate": 1e-3}) if what == "rate" else SHORT
    chosen = paths[:-1] if what == "answers" else paths
    with pytest.raises(DataError, match="belongs to a training with other settings or answers") as caught:
        Trainer(other, chosen, training, tmp_path / "s.pt", noted([])).run()
    assert "\n" not in str(caught.value)


def test_without_a_held_out_answer_there_is_nothing_to_measure_on(target: Target, tmp_path: Path) -> None:
    shards = ShardFolder(tmp_path, PLAN)
    shards.write("a", answer(target, toy_prompts(5)[1:], taps=TAPS))
    with pytest.raises(DataError, match="no answer is held out"):
        Trainer(objective(target), shards.paths(), SHORT, tmp_path / "s.pt", noted([]))


def test_a_full_disk_leaves_the_last_state_to_resume_from(
    target: Target, paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = objective(target)
    Trainer(whole, paths, SHORT, tmp_path / "whole.pt", noted([])).run()
    plain, saves = Path.write_bytes, []

    def full(path: Path, content: bytes) -> int:
        saves.append(path)
        plain(path, content if len(saves) < 3 else content[:1000])
        if len(saves) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return len(content)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space"):
            Trainer(objective(target), paths, SHORT, tmp_path / "full.pt", noted([])).run()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full.pt", "whole.pt"]
    resumed = objective(target)
    Trainer(resumed, paths, SHORT, tmp_path / "full.pt", noted([])).run()
    assert all(torch.equal(weights(resumed)[name], weight) for name, weight in weights(whole).items())


def test_a_loss_that_is_not_finite_moves_nothing(
    target: Target, paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = objective(target)
    before, plain = weights(made), made.loss
    monkeypatch.setattr(made, "loss", lambda batch, random: plain(batch, random) * float("nan"))
    Trainer(made, paths, SHORT, tmp_path / "s.pt", noted([])).run()
    assert all(torch.equal(weights(made)[name], weight) for name, weight in before.items())


def test_a_long_training_is_measured_more_seldom(
    target: Target, paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else noise between measurements would use up its patience."""
    monkeypatch.setattr(train, "MEASUREMENTS", 2)
    progress = Trainer(objective(target), paths, SHORT, tmp_path / "s.pt", noted([])).run()
    assert [entry["step"] for entry in progress.history] == [6, 12]

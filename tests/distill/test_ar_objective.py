"""What an autoregressive drafter learns from: the verifier's law on its own texts, and what it moves."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from distill.distill_toys import toy_shards, toy_target
from viasd_core.distill.ar import ArObjective, most_important
from viasd_core.distill.batches import Batch, collate, training_batches
from viasd_core.distill.objective import HeldOut, compare
from viasd_core.distill.shards import read_shard
from viasd_core.drafters.checkpoints import Target

ORIGINS = (0, 2)
IDS = torch.tensor([0, 1, 2, 3, 5, 8, 13, 20, 21, 30, 34, 39])


@pytest.fixture(scope="module")
def target() -> Target:
    return toy_target(layers=4, dtype=torch.float32)


@pytest.fixture(scope="module")
def paths(target: Target, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return toy_shards(tmp_path_factory.mktemp("answers"), target)


def random() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def first_batch(paths: list[Path], size: int = 4) -> Batch:
    return next(training_batches(paths, size, 0, 0))


def descend(objective: ArObjective, batch: Batch, steps: int) -> list[float]:
    """Losses along plain Adam steps on one batch."""
    parameters = [parameter.requires_grad_(True) for parameter in objective.module.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=3e-3)
    losses = []
    for _ in range(steps):
        loss = objective.loss(batch, random())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def test_the_loss_is_the_divergence_from_the_verifiers_law_over_the_draft_ids(
    target: Target, paths: list[Path]
) -> None:
    """By hand on one text: rows before the tokens that the verifier wrote, laws renormalised over the ids."""
    one = read_shard(paths[0]).answer(3)
    objective = ArObjective(target, ORIGINS, IDS)
    model: Any = copy.deepcopy(target.runner.model)
    model.model.layers = nn.ModuleList(model.model.layers[origin] for origin in ORIGINS)
    model.config.num_hidden_layers = len(ORIGINS)
    with torch.no_grad():
        student = model(torch.tensor([one.ids]), use_cache=False).logits[0][:, IDS].log_softmax(-1)
        teacher = (one.final.float() @ target.head.weight[IDS].T).log_softmax(-1)
        total, rows = 0.0, range(one.prompt_tokens - 1, len(one.ids) - 1)
        for row in rows:
            total += float((teacher[row].exp() * (teacher[row] - student[row])).sum())
        found = float(objective.loss(collate([one]), random()))
    assert found == pytest.approx(total / len(rows), rel=1e-4) and found > 0.01


def test_padding_and_neighbours_do_not_change_a_texts_loss(target: Target, paths: list[Path]) -> None:
    shard = read_shard(paths[0])
    answers = [shard.answer(place) for place in (1, 2, 5, 9)]
    assert len({len(one.ids) for one in answers}) > 1
    objective = ArObjective(target, ORIGINS, IDS)
    with torch.no_grad():
        alone = [float(objective.loss(collate([one]), random())) * one.new_tokens for one in answers]
        together = float(objective.loss(collate(answers), random()))
    assert together == pytest.approx(sum(alone) / sum(one.new_tokens for one in answers), rel=1e-4)


def test_a_drafter_of_every_block_starts_at_no_loss(target: Target, paths: list[Path]) -> None:
    """The stored rows are bfloat16, hence not exactly none."""
    objective = ArObjective(target, range(4), torch.arange(40))
    with torch.no_grad():
        assert float(objective.loss(first_batch(paths), random())) < 1e-2
        found = HeldOut()
        objective.measure(first_batch(paths), found)
    assert found.shares("agree")[0] > 0.9 and found.shares("overlap")[0] > 0.97 and len(found.rows) == 1


def test_training_teaches_and_touches_nothing_of_the_verifier(target: Target, paths: list[Path]) -> None:
    before = {name: weight.clone() for name, weight in target.runner.model.state_dict().items()}
    objective = ArObjective(target, ORIGINS, IDS)
    borrowed = [objective.model.model.embed_tokens.weight, objective.model.lm_head.weight]
    kept = [weight.clone() for weight in borrowed]
    names = {name for name, _ in objective.module.named_parameters()}
    started = {name: weight.clone() for name, weight in objective.module.state_dict().items()}
    losses = descend(objective, first_batch(paths), 25)
    assert losses[-1] < 0.7 * losses[0]
    assert all(weight.grad is None for weight in borrowed)
    assert all(torch.equal(weight, old) for weight, old in zip(borrowed, kept, strict=True))
    for name, weight in target.runner.model.state_dict().items():
        assert torch.equal(weight, before[name]), name
    moved = objective.module.state_dict()
    assert all(not torch.equal(moved[name], started[name]) for name in names)
    assert names == {name for name in started if "rotary" not in name}, "a weight of the file is not trained"


def test_a_verifier_in_another_dtype_is_trained_for_in_float32(paths: list[Path]) -> None:
    narrow = toy_target(layers=4, dtype=torch.bfloat16)
    objective = ArObjective(narrow, ORIGINS, IDS)
    assert {weight.dtype for weight in objective.module.parameters()} == {torch.float32}
    assert {weight.dtype for weight in narrow.runner.model.parameters()} == {torch.bfloat16}
    assert descend(objective, first_batch(paths), 3)[-1] > 0


def test_overlap_is_the_chance_that_a_draft_is_accepted() -> None:
    student = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]).log()
    teacher = torch.tensor([[0.2, 0.0, 0.4, 0.1, 0.3], [0.0, 0.0, 0.3, 0.7, 0.0]]).log()
    agree, overlap = compare(student, teacher, torch.tensor([0, 2, 3]))
    assert agree.tolist() == [False, True]
    torch.testing.assert_close(overlap, torch.tensor([0.2 + 0.3 + 0.1, 0.1 + 0.7]))


def test_a_token_the_drafter_cannot_say_counts_against_it() -> None:
    teacher = torch.tensor([[0.1, 0.9, 0.0]]).log()
    agree, overlap = compare(torch.tensor([[0.6, 0.4]]).log(), teacher, torch.tensor([0, 2]))
    assert not agree.item()
    torch.testing.assert_close(overlap, torch.tensor([0.1]))


def test_held_out_figures_are_kept_by_position_and_summed_over_rows() -> None:
    found = HeldOut()
    found.add(1, torch.tensor([True, False, True, True]), torch.tensor([0.5, 0.5, 1.0, 1.0]))
    found.add(3, torch.tensor([True, False]), torch.tensor([0.2, 0.4]))
    found.add(1, torch.tensor([False] * 4), torch.tensor([0.0] * 4))
    assert found.shares("agree") == [3 / 8, 0.0, 0.5]
    assert found.shares("overlap") == pytest.approx([3 / 8, 0.0, 0.3])
    full = HeldOut()
    full.add(1, torch.tensor([True, True]), torch.ones(2))
    full.add(2, torch.tensor([True, False]), torch.ones(2))
    assert full.score == 1 + 0.5, "a greedy cycle keeps one token, and half the time a second"


def test_the_blocks_that_turn_their_input_most_are_the_important_ones(paths: list[Path]) -> None:
    target = toy_target(layers=5, dtype=torch.float32)
    model: Any = target.runner.model
    with torch.no_grad():
        for quiet in (1, 2):  # these blocks pass their input on unchanged
            model.model.layers[quiet].self_attn.o_proj.weight.zero_()
            model.model.layers[quiet].mlp.down_proj.weight.zero_()
    texts = [read_shard(paths[0]).answer(place).ids for place in range(4)]
    assert most_important(target, texts, 3) == [0, 3, 4]


def test_the_config_says_what_the_blocks_are_and_names_no_place(
    target: Target, tmp_path: Path
) -> None:  # fmt: skip
    lent = Target(target.name, target.runner, copy.deepcopy(target.config))
    lent.config._name_or_path = str(tmp_path)
    config = ArObjective(lent, ORIGINS, IDS).config()
    assert config["architectures"] == ["ViasdArDrafter"] and config["num_hidden_layers"] == 2
    assert config["draft_vocab_size"] == len(IDS) and config["initialised_from_layers"] == [0, 2]
    assert config["vocab_size"] == 40 and str(tmp_path) not in str(config)

"""What a drafter that reads features learns from: chains that see what they will see when they draft."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from distill.distill_toys import exact_answers, toy_prompts
from drafters.checkpoint_files import saved, target_of
from drafters.runs import first_draft, texts_agree
from toys import toy_pair
from viasd_core.distill.answers import Answer
from viasd_core.distill.batches import Batch, collate
from viasd_core.distill.eagle import DECAY, EagleObjective
from viasd_core.distill.objective import HeldOut
from viasd_core.drafters.borrowed import cut_head
from viasd_core.drafters.checkpoints import Trained
from viasd_core.drafters.eagle import fits, load
from viasd_core.errors import PairError
from viasd_core.pair import ModelPair

TAPS, IDS = (1, 3, 4), torch.arange(1, 40)


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    return toy_pair(drafter="none", layers=6, vocab=40)


@pytest.fixture(scope="module")
def answers(pair: ModelPair) -> list[Answer]:
    """Texts of different lengths."""
    found = exact_answers(target_of(pair), toy_prompts(6, opening=(7, 8)), TAPS)
    kept = [one for one in found if one.new_tokens > 3]
    assert len({len(one.ids) for one in kept}) > 2
    return kept


def exact(pair: ModelPair, *, steps: int = 3, anchors: int = 4) -> EagleObjective:
    """An objective in float64 whose features are scaled in training, as they are not in decoding."""
    target = target_of(pair)
    torch.manual_seed(0)
    scale = torch.rand(len(TAPS), 32, dtype=torch.float64) + 0.5
    objective = EagleObjective(target, TAPS, 4, IDS, scale=scale, steps=steps, anchors=anchors)
    objective.module.double()
    objective.head, objective.embedding = cut_head(target.head, IDS), target.embedding
    return objective


def trained(objective: EagleObjective, folder: Path) -> Trained:
    """The same drafter as decoding loads it, without the loss of bfloat16."""
    assert fits(objective.config())
    tensors = objective.weights() | objective.extra_tensors()
    return load(saved(folder, objective.config(), tensors), objective.target)


def followed(one: Answer, anchor: int, tokens: list[int]) -> Batch:
    """The text up to the token behind row `anchor`, then `tokens`; no features behind the anchor."""
    ids = (*one.ids[: anchor + 2], *tokens)
    features = torch.zeros(len(ids) - 1, len(TAPS), 32, dtype=torch.float64)
    features[: anchor + 1] = one.features[: anchor + 1]
    return collate([Answer(1, ids, anchor + 2, features, features[:, 0])])


@torch.no_grad()
def test_a_chain_along_the_drafted_tokens_is_the_one_that_drafted_them(
    pair: ModelPair, answers: list[Answer], tmp_path: Path
) -> None:
    objective = exact(pair, steps=4)
    drafter = trained(objective, tmp_path)
    for one in answers:
        anchor = one.prompt_tokens
        draft = first_draft(pair, drafter, one.ids[: anchor + 2], 4)
        assert draft.logits is not None
        batch = followed(one, anchor, draft.tokens.tolist())
        found = [law[0] for law, _ in objective._chain(batch, torch.tensor([[anchor]]))]
        wanted = draft.logits[:, IDS].log_softmax(-1)
        torch.testing.assert_close(torch.stack(found), wanted.float(), atol=1e-5, rtol=0.0)


@torch.no_grad()
def test_a_step_learns_the_verifiers_law_of_the_token_it_stands_for(
    pair: ModelPair, answers: list[Answer]
) -> None:
    """The final hidden states handed out are those of the row before that token."""
    objective, one = exact(pair), answers[0]
    first = one.prompt_tokens - 2
    chain = objective._chain(collate([one]), torch.tensor([[first, first + 1]]))
    assert torch.equal(chain[0][1], one.final[first + 1 :])
    for step in (1, 2):
        assert torch.equal(chain[step][1], one.final[[first + step + 1, first + step + 2]])


@torch.no_grad()
def test_nothing_behind_an_anchors_feature_enters_its_chain(pair: ModelPair, answers: list[Answer]) -> None:
    objective, one = exact(pair), answers[0]
    anchor, batch = answers[0].prompt_tokens, collate([answers[0]])

    def chain(other: Batch) -> list[Tensor]:
        return [law[0] for law, _ in objective._chain(other, torch.tensor([[anchor]]))[1:]]

    features = batch.features.clone()
    features[0, anchor + 1 :] += 3.0
    for found, wanted in zip(chain(replace(batch, features=features)), chain(batch), strict=True):
        torch.testing.assert_close(found, wanted)
    features[0, anchor] += 3.0
    assert not torch.allclose(chain(replace(batch, features=features))[0], chain(batch)[0])
    assert len(one.ids) > anchor + 4


@torch.no_grad()
def test_padding_and_neighbours_do_not_change_a_texts_first_step(
    pair: ModelPair, answers: list[Answer]
) -> None:
    objective = exact(pair, steps=1)
    random = torch.Generator().manual_seed(0)
    alone = sum(float(objective.loss(collate([one]), random)) * one.new_tokens for one in answers)
    together = float(objective.loss(collate(answers), random))
    assert together == pytest.approx(alone / sum(one.new_tokens for one in answers), rel=1e-5)


@torch.no_grad()
def test_later_steps_weigh_less(pair: ModelPair, answers: list[Answer]) -> None:
    """The loss of three steps is the weighted mean of the three steps' own divergences."""
    objective, batch = exact(pair), collate(answers)
    anchors = objective._anchors(batch, torch.Generator().manual_seed(5))
    means = []
    for student, final in objective._chain(batch, anchors):
        teacher = objective.head(final).log_softmax(-1)
        means.append(float((teacher.exp() * (teacher - student)).sum(-1).mean()))
    wanted = (means[0] + DECAY * means[1] + DECAY**2 * means[2]) / (1 + DECAY + DECAY**2)
    assert float(objective.loss(batch, torch.Generator().manual_seed(5))) == pytest.approx(wanted, rel=1e-5)


@torch.no_grad()
def test_held_out_figures_have_one_position_a_step(pair: ModelPair, answers: list[Answer]) -> None:
    found = HeldOut()
    exact(pair, steps=4).measure(collate(answers), found)
    assert len(found.rows) == 4 and found.rows[0] == sum(one.new_tokens for one in answers)


def test_training_teaches_every_weight_and_touches_nothing_of_the_verifier(
    pair: ModelPair, answers: list[Answer]
) -> None:
    objective, batch = exact(pair), collate(answers)
    model = objective.target.runner.model
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    started = {name: weight.clone() for name, weight in objective.module.state_dict().items()}
    parameters = [parameter.requires_grad_(True) for parameter in objective.module.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=3e-3)
    losses = []
    for _ in range(25):
        loss = objective.loss(batch, torch.Generator().manual_seed(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    moved = objective.module.state_dict()
    assert not [name for name, weight in started.items() if torch.equal(moved[name], weight)]


def test_what_is_saved_drafts_without_changing_the_text(pair: ModelPair, tmp_path: Path) -> None:
    texts_agree(pair, trained(exact(pair), tmp_path), [5, 9, 7, 30], method="sd", gamma=3)


def test_a_borrowed_head_needs_a_verifier_of_the_same_width(pair: ModelPair, tmp_path: Path) -> None:
    objective = exact(pair)
    tensors = objective.weights() | objective.extra_tensors()
    other = target_of(toy_pair(drafter="none", layers=6, vocab=41))
    with pytest.raises(PairError, match="vocabulary size"):
        load(saved(tmp_path, objective.config(), tensors), other)

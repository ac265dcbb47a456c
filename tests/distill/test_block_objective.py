"""What a block drafter learns from: blocks that see what they will see when they draft, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from distill.distill_toys import exact_answers, toy_prompts
from drafters.checkpoint_files import saved, target_of
from drafters.runs import first_draft
from toys import toy_pair
from viasd_core.distill.answers import Answer
from viasd_core.distill.batches import Batch, collate
from viasd_core.distill.block import DECAY, BlockObjective, Blocks
from viasd_core.distill.objective import HeldOut
from viasd_core.drafters.block import load
from viasd_core.drafters.borrowed import cut_head
from viasd_core.drafters.checkpoints import Trained
from viasd_core.pair import ModelPair

TAPS, IDS, SLOTS, MASK = (1, 3, 4), torch.arange(1, 40), 5, 39


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    return toy_pair(drafter="none", layers=6, vocab=40)


@pytest.fixture(scope="module")
def answers(pair: ModelPair) -> list[Answer]:
    """Texts of different lengths, longest first."""
    return sorted(exact_answers(target_of(pair), toy_prompts(5), TAPS), key=lambda one: -one.new_tokens)


def exact(
    pair: ModelPair, *, slots: int = SLOTS, anchors: int = 4, domino: Sequence[int] = (), shift: bool = False
) -> BlockObjective:
    """An objective in float64, its causal correction (if any) not zero as it starts."""
    target = target_of(pair)
    torch.manual_seed(0)
    objective = BlockObjective(
        target, TAPS, (0, 4), IDS, slots=slots, mask_token=MASK, anchors=anchors, domino=domino, shift=shift
    )
    if objective.domino is not None:
        objective.domino.up.weight.data.normal_(0, 1)
    objective.module.double()
    objective.head, objective.embedding = cut_head(target.head, IDS), target.embedding
    return objective


def at(
    batch: Batch, anchors: Sequence[Sequence[int]], known: Sequence[Sequence[int]], slots: int = SLOTS
) -> Blocks:
    """Blocks at chosen places."""
    first, held = torch.tensor(anchors), torch.tensor(known)
    places = first[..., None] + torch.arange(slots)
    taught = (torch.arange(1, slots) > held[..., None]) & (places[..., 1:] < batch.lengths[:, None, None])
    return Blocks(first, held, places, taught)


def trained(objective: BlockObjective, folder: Path) -> Trained:
    """The same drafter as decoding loads it, without the loss of bfloat16."""
    tensors = objective.weights() | objective.extra_tensors()
    return load(saved(folder, objective.config(), tensors), objective.target)


@torch.no_grad()
@pytest.mark.parametrize("shift", [False, True])
def test_a_batch_of_blocks_is_what_decoding_drafts_at_the_same_anchors(
    pair: ModelPair, answers: list[Answer], tmp_path: Path, shift: bool
) -> None:
    """Also with features that were scaled in training and are not in decoding (the norm behind `fc` rounds to
    float32).
    """
    objective = exact(pair, shift=shift)
    objective.scale = torch.rand(objective.scale.shape, dtype=torch.float64) + 0.5
    drafter, batch = trained(objective, tmp_path), collate(answers)
    blocks = objective._cut(batch, None)
    hidden = objective._forward(batch, blocks)
    assert hidden.shape == (5, 4, SLOTS, 32)
    for row, one in enumerate(answers):
        for place, anchor in enumerate(blocks.anchors[row].tolist()):
            draft = first_draft(pair, drafter, one.ids[: anchor + 1], SLOTS - 1)
            assert draft.logits is not None
            chosen = hidden[row, place, :-1] if shift else hidden[row, place, 1:]
            found = objective.head(chosen)
            torch.testing.assert_close(found, draft.logits[:, IDS], atol=1e-5, rtol=0.0)


@torch.no_grad()
def test_layers_start_with_heads_as_large_as_the_verifiers_own() -> None:
    """Ours norms heads that the toy's family does not: without a size of their own, attention would start out
    even.
    """
    target = target_of(toy_pair(drafter="none", layers=6, vocab=40))
    random = torch.Generator().manual_seed(0)
    for theirs in target.runner.model.model.layers:
        theirs.input_layernorm.weight.uniform_(0.5, 3.0, generator=random)
    made = BlockObjective(target, TAPS, (0, 4), IDS, slots=SLOTS, mask_token=MASK)
    rows = torch.randn(4000, 32, generator=random, dtype=torch.float64)
    for layer, origin in zip(made.network.layers, (0, 4), strict=True):
        theirs = target.runner.model.model.layers[origin]
        for name in ("q", "k"):
            heads = getattr(theirs.self_attn, f"{name}_proj")(theirs.input_layernorm(rows))
            size = getattr(layer.self_attn, f"{name}_norm").weight
            assert len(size.unique()) == 1
            assert float(size[0]) == pytest.approx(float(heads.square().mean().sqrt()), rel=0.03)
    last = target.runner.model.model.layers[4].input_layernorm.weight
    torch.testing.assert_close(made.network.hidden_norm.weight.double(), last)


@pytest.mark.parametrize("slots", [2, 3, SLOTS])
def test_the_config_says_whether_blocks_had_known_tokens_and_decoding_reads_it(
    pair: ModelPair, answers: list[Answer], tmp_path: Path, slots: int
) -> None:
    objective, random = exact(pair, slots=slots), torch.Generator().manual_seed(0)
    seen = max(int(objective._cut(collate(answers), random).known.max()) for _ in range(20))
    assert objective.config()["dflash_config"]["known_prefix"] is (seen > 0)
    assert trained(objective, tmp_path).known_prefix is (seen > 0) is (slots > 2)


@torch.no_grad()
def test_the_correction_told_the_drafted_tokens_is_the_one_that_drafted_them(
    pair: ModelPair, answers: list[Answer], tmp_path: Path
) -> None:
    objective = exact(pair, domino=(12, 5))
    one, anchor = answers[0], answers[0].prompt_tokens
    draft = first_draft(pair, trained(objective, tmp_path), one.ids[: anchor + 1], SLOTS - 1)
    rows = torch.zeros(anchor + SLOTS - 1, len(TAPS), 32, dtype=torch.float64)
    rows[:anchor] = one.features[:anchor]
    ids = (*one.ids[: anchor + 1], *draft.tokens.tolist())
    batch = collate([Answer(1, ids, one.prompt_tokens, rows, rows[:, 0])])
    blocks = at(batch, [[anchor]], [[0]])
    hidden = objective._forward(batch, blocks)[:, :, 1:]
    found = objective.head(hidden) + objective._correction(batch, blocks, hidden)
    assert draft.logits is not None
    torch.testing.assert_close(found[0, 0], draft.logits[:, IDS], atol=1e-9, rtol=0.0)
    assert not torch.equal(found[0, 0, 1:], objective.head(hidden)[0, 0, 1:])


def changed(batch: Batch, rows: Sequence[int] = (), ids: Sequence[int] = ()) -> Batch:
    """The first text with other features at `rows` and other tokens at `ids`."""
    features, tokens, final = batch.features.clone(), batch.ids.clone(), batch.final.clone()
    for row in rows:
        features[0, row] += 3.0
        final[0, row] += 3.0
    for place in ids:
        tokens[0, place] = (tokens[0, place] + 7) % 38
    return replace(batch, features=features, final=final, ids=tokens)


@torch.no_grad()
def test_no_slot_sees_the_text_behind_its_anchor(pair: ModelPair, answers: list[Answer]) -> None:
    objective, batch = exact(pair), collate(answers)
    anchor, last = answers[0].prompt_tokens, len(answers[0].ids)
    blocks = at(batch, [[anchor]] * 5, [[0]] * 5)

    def hidden(other: Batch) -> Tensor:
        return objective._forward(other, blocks)[0]

    wanted = hidden(batch)
    later = changed(batch, range(anchor, last - 1), range(anchor + 1, last))
    assert torch.equal(hidden(later), wanted)
    assert not torch.equal(hidden(changed(batch, [anchor - 1])), wanted), "the last row of the context"
    assert not torch.equal(hidden(changed(batch, [], [anchor])), wanted), "the anchor's token"
    assert torch.equal(hidden(changed(batch, [], range(anchor))), wanted), "features tell of earlier tokens"


@torch.no_grad()
def test_blocks_of_one_text_do_not_see_each_other(pair: ModelPair, answers: list[Answer]) -> None:
    objective, batch = exact(pair), collate(answers[:1])
    first = answers[0].prompt_tokens
    anchors, known = [first, first + 1, first + 3, first], [0, 2, 1, 3]
    together = objective._forward(batch, at(batch, [anchors], [known]))[0]
    for place in range(4):
        alone = objective._forward(batch, at(batch, [[anchors[place]]], [[known[place]]]))[0, 0]
        torch.testing.assert_close(together[place], alone, atol=1e-9, rtol=0.0)


@torch.no_grad()
def test_a_known_prefix_is_read_and_what_follows_it_is_not(pair: ModelPair, answers: list[Answer]) -> None:
    objective, batch = exact(pair), collate(answers[:1])
    anchor = answers[0].prompt_tokens
    blocks = at(batch, [[anchor]], [[2]])
    assert blocks.taught.tolist() == [[[False, False, True, True]]]
    wanted = objective._forward(batch, blocks)
    for slot in (1, 2):
        assert not torch.equal(objective._forward(changed(batch, [], [anchor + slot]), blocks), wanted)
    assert torch.equal(objective._forward(changed(batch, [], [anchor + 3, anchor + 4]), blocks), wanted)


def test_the_loss_is_the_weighted_divergence_at_the_masked_slots(
    pair: ModelPair, answers: list[Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand: slot s of anchor a is taught what the verifier's row a + s - 1 says."""
    objective, one = exact(pair), answers[0]
    batch, anchors, known = collate([one]), [one.prompt_tokens - 1, len(one.ids) - 3], [1, 0]
    blocks = at(batch, [anchors], [known])
    monkeypatch.setattr(objective, "_cut", lambda *_: blocks)
    with torch.no_grad():
        hidden = objective._forward(batch, blocks)[0]
        found = float(objective.loss(batch, torch.Generator()))
        total = weights = 0.0
        for place, (anchor, told) in enumerate(zip(anchors, known, strict=True)):
            for slot in range(told + 1, SLOTS):
                if anchor + slot >= len(one.ids):
                    continue
                student = objective.head(hidden[place, slot]).float().log_softmax(-1)
                teacher = objective.head(one.final[anchor + slot - 1]).float().log_softmax(-1)
                weight = DECAY ** (slot - 1 - told)
                total += weight * float((teacher.exp() * (teacher - student)).sum())
                weights += weight
    assert weights == pytest.approx(1 + 0.8 + 0.8**2 + 1 + 0.8)
    assert found == pytest.approx(total / weights, rel=1e-4)


@pytest.mark.parametrize("slots", [2, 3, 8])
def test_blocks_are_cut_inside_the_answer_and_leave_something_to_learn(
    slots: int, pair: ModelPair, answers: list[Answer]
) -> None:
    objective, batch = exact(pair, slots=slots, anchors=150), collate(answers)
    blocks = objective._cut(batch, torch.Generator().manual_seed(1))
    for row, one in enumerate(answers):
        assert set(blocks.anchors[row].tolist()) == set(range(one.prompt_tokens - 1, len(one.ids) - 1))
    assert set(blocks.known.flatten().tolist()) == set(range(slots - 1))
    share = float((blocks.known > 0).float().mean())
    assert share == 0 if slots == 2 else 0.2 < share < 0.4
    masked = torch.arange(1, slots) > blocks.known[..., None]
    assert torch.equal(blocks.taught, masked & (blocks.slots[..., 1:] < batch.lengths[:, None, None]))
    assert float(objective.loss(batch, torch.Generator().manual_seed(1)).detach()) > 0


def test_held_out_blocks_are_the_same_every_time_and_know_nothing(
    pair: ModelPair, answers: list[Answer]
) -> None:
    objective, batch = exact(pair), collate(answers)
    first, second = objective._cut(batch, None), objective._cut(batch, None)
    assert torch.equal(first.anchors, second.anchors) and not first.known.any()
    found = HeldOut()
    with torch.no_grad():
        objective.measure(batch, found)
    taught = first.taught.sum((0, 1))
    assert found.rows == taught.tolist() and len(found.rows) == SLOTS - 1


@pytest.mark.parametrize("domino", [(), (12, 5)])
def test_training_teaches_and_touches_nothing_of_the_verifier(
    domino: tuple[int, ...], pair: ModelPair, answers: list[Answer]
) -> None:
    before = {name: weight.clone() for name, weight in pair.verifier.model.state_dict().items()}
    torch.manual_seed(0)
    objective = BlockObjective(
        target_of(pair), TAPS, (0, 4), IDS, slots=SLOTS, mask_token=MASK, domino=domino
    )
    kept = objective.head.weight.clone(), objective.embedding.clone()
    started = {name: weight.clone() for name, weight in objective.module.state_dict().items()}
    optimizer = torch.optim.Adam(objective.module.parameters(), lr=3e-3)
    losses = []
    for _ in range(25):
        loss = objective.loss(collate(answers), torch.Generator().manual_seed(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]
    assert objective.head.weight.grad is None and objective.embedding.grad is None
    assert torch.equal(objective.head.weight, kept[0]) and torch.equal(objective.embedding, kept[1])
    for name, weight in pair.verifier.model.state_dict().items():
        assert torch.equal(weight, before[name]), name
    still = [
        name for name, weight in objective.module.state_dict().items() if torch.equal(weight, started[name])
    ]
    assert still == [], "a weight of the file is not trained"
    assert any(name.startswith("domino.") for name in started) is bool(domino)

"""Gemma2's caps: on logits wherever they are made, on attention scores or the model is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from distill.distill_toys import toy_shards, toy_target
from drafters.checkpoint_files import target_of
from drafters.own_files import borrowed
from toys import toy_model, toy_pair
from viasd_core.distill.ar import ArObjective
from viasd_core.distill.batches import training_batches
from viasd_core.distill.command import check_shape
from viasd_core.distill.objective import law
from viasd_core.distill.request import Kind, Request
from viasd_core.drafters.borrowed import BorrowedModel, cut_head, load, whole_model
from viasd_core.errors import PairError, SettingsError
from viasd_core.layers import BlockRunner

CAP = 4.0
HIDDEN = 100 * torch.randn(7, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_head_caps_as_the_model_does() -> None:
    model: Any = toy_model("gemma2")
    raw = model.lm_head(HIDDEN)
    assert raw.abs().max() > 10 * CAP
    capped = BlockRunner(model).head(HIDDEN)
    torch.testing.assert_close(capped, CAP * torch.tanh(raw / CAP))
    assert not hasattr(model.lm_head, "cap"), "the model itself is not touched"


def test_a_head_cut_to_some_ids_caps_alike() -> None:
    head, ids = BlockRunner(toy_model("gemma2")).head, torch.tensor([3, 8, 40])
    torch.testing.assert_close(cut_head(head, ids)(HIDDEN), head(HIDDEN)[:, ids])


def test_a_verifiers_stored_law_is_the_capped_one() -> None:
    target = toy_target("gemma2")
    assert torch.equal(law(HIDDEN, target.head), target.head(HIDDEN).float().log_softmax(-1))


def test_an_attention_that_drops_the_cap_is_refused() -> None:
    model = toy_model("gemma2")
    model.config._attn_implementation = "sdpa"
    with pytest.raises(PairError, match="caps its attention scores, which sdpa attention drops"):
        BlockRunner(model)


def test_a_drafter_in_training_leaves_the_verifiers_scaled_embedding_alone(tmp_path: Path) -> None:
    """Its own copy goes to float32; the verifier's stays, and both scale by the same factor."""
    target = toy_target("gemma2", layers=4, dtype=torch.bfloat16)
    objective = ArObjective(target, (0, 2), torch.arange(40))
    theirs, ours = target.runner.body.embed_tokens, objective.model.model.embed_tokens
    assert theirs.weight.dtype == torch.bfloat16 and ours.weight.dtype == torch.float32
    ids = torch.arange(40)
    torch.testing.assert_close(ours(ids), theirs(ids).float(), atol=0.0, rtol=0.02)
    paths = toy_shards(tmp_path, toy_target("gemma2", layers=4, dtype=torch.float32))
    loss = objective.loss(next(training_batches(paths, 4, 0, 0)), torch.Generator().manual_seed(0))
    assert loss.isfinite()


def test_a_drafters_export_is_hugging_faces_own_arithmetic(tmp_path: Path) -> None:
    pair = toy_pair("gemma2", drafter="none", layers=4)
    trained = load(borrowed(tmp_path, pair, range(4), range(267)), target_of(pair))
    assert isinstance(trained.module, BorrowedModel)
    whole, text = whole_model(trained.module, pair.verifier.model), torch.tensor([[5, 9, 7, 30, 41]])
    torch.testing.assert_close(whole(text).logits, pair.verifier.model(text).logits)


@pytest.mark.parametrize("kind", ["eagle", "block"])
def test_drafters_made_of_llamas_blocks_are_refused_for_gemma2(kind: Kind) -> None:
    with pytest.raises(SettingsError, match=f"kind {kind} starts from blocks of Llama's shape"):
        check_shape(Request(kind=kind), toy_target("gemma2"))

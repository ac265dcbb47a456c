"""Decoding with a block drafter: the verifier's text and law, and a context that never goes stale."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from drafters.checkpoint_files import saved, target_of
from drafters.own_files import SLOTS, block_parts
from drafters.runs import (
    CYCLES,
    GREEDY,
    block_drafter,
    cycle_settings,
    first_draft,
    noise,
    parts_with,
    sampled_p_values,
    state_follows_from_the_text,
    texts_agree,
    trace_of_replaced_text,
)
from scripted import run
from toys import toy_pair
from viasd_core.decode import Loop
from viasd_core.drafters.block import BlockDrafter, load
from viasd_core.errors import SourceError
from viasd_core.live import LiveSettings
from viasd_core.probs import Sampling
from viasd_core.settings import Settings
from viasd_core.trace_check import check
from viasd_core.verifier import Verifier

MASKED = "11011101"
KINDS = ("plain", "domino", "reduced", "reduced domino", "second")


def test_greedy_text_is_plain_decodings_for_every_family(family: str, tmp_path: Path) -> None:
    pair, trained = block_drafter(tmp_path, family=family)
    accepted = [texts_agree(pair, trained, [5, 1, 7, 3], method="sd", gamma=gamma) for gamma in (1, 9)]
    assert min(accepted) > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slim_kv", ["shared", pytest.param("own", marks=pytest.mark.slow)])
def test_strict_three_tier_text_is_plain_decodings(kind: str, slim_kv: str, tmp_path: Path) -> None:
    pair, trained = block_drafter(tmp_path, kind)
    assert texts_agree(pair, trained, [2, 6, 1], mask=MASKED, strict=True, gamma=3, slim_kv=slim_kv) > 0
    assert texts_agree(pair, trained, [2, 6, 1], method="sd", gamma=4) > 0


def test_a_block_is_never_longer_than_the_drafter_was_made_for(tmp_path: Path) -> None:
    pair, trained = block_drafter(tmp_path)
    trace = run(parts_with(pair, trained), [1, 2], Settings(method="sd", gamma=20, max_new_tokens=30))
    assert max(cycle.drafted for cycle in trace.cycles) == SLOTS - 1
    assert {cycle.draft_forwards for cycle in trace.cycles if cycle.drafted} == {1}
    assert check(trace) == []


def test_a_text_that_fills_the_context_ends_with_it(tmp_path: Path) -> None:
    pair, trained = block_drafter(tmp_path)
    prompt = [number * 5 % 8 for number in range(495)]
    trace = run(parts_with(pair, trained), prompt, Settings(method="sd", gamma=4, max_new_tokens=40))
    plain = run(parts_with(pair, trained), prompt, Settings(method="ar", max_new_tokens=40))
    assert trace.token_ids == plain.token_ids and len(trace.token_ids) == 512 - 495
    assert trace.finish == "context"


@pytest.mark.parametrize("kind", ["plain", "reduced domino", "second"])
def test_sampled_text_follows_the_verifiers_law(kind: str, tmp_path: Path) -> None:
    """By `sd`, whose blocks are drawn; those of first choices (X4) are sampled in cure/test_cure_cycle.py."""
    pair, trained = block_drafter(tmp_path, kind, vocab=4, verifier_layers=2, taps=(0, 1))
    ours, other = sampled_p_values(pair, trained, [1, 3, 0], runs=150)
    assert ours > 1e-3 and other < 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_every_token_is_drawn_from_the_row_it_reports(kind: str, tmp_path: Path) -> None:
    pair, trained = block_drafter(tmp_path, kind, vocab=12)
    known = 3 if kind == "second" else 11 if "reduced" in kind else 12
    for length in range(3, 9):
        draft = first_draft(pair, trained, [*range(length)], 4, Sampling(1.0))
        assert draft.logits is not None
        torch.testing.assert_close(draft.probs, draft.logits.softmax(-1))
        assert (draft.probs > 0).sum(-1).tolist() == [known] * 4
        assert bool((draft.probs.gather(-1, draft.tokens[:, None]) > 0).all())


@pytest.mark.parametrize("name", CYCLES)
@pytest.mark.parametrize("kind", ["plain", "domino", "second"])
def test_after_every_cycle_the_next_draft_is_that_of_a_fresh_replay(
    kind: str, name: str, tmp_path: Path
) -> None:
    """Behind rejections, rewinds, strict corrections, and q's features in place of provisional ones."""
    pair, trained = block_drafter(tmp_path, kind)
    settings = cycle_settings(name, MASKED)
    debts = state_follows_from_the_text(pair, trained, settings, cycles=18)
    assert len(debts) > 8
    if settings.method == "via-sd":
        assert max(debts) > 0 and min(debts) == 0, "no debt was made, or none was paid"


def same_rows(found: BlockDrafter, wanted: BlockDrafter, rows: int) -> None:
    """The context rows below `rows` agree in every layer."""
    for layer in found._slots.keys:
        for name in ("keys", "values"):
            ours, theirs = getattr(found._slots, name)[layer], getattr(wanted._slots, name)[layer]
            torch.testing.assert_close(
                ours[:, :, 1 : rows + 1], theirs[:, :, 1 : rows + 1], atol=1e-9, rtol=0.0
            )


@pytest.mark.parametrize("name", CYCLES)
def test_rows_below_the_watermark_are_those_of_a_replay_of_q_alone(name: str, tmp_path: Path) -> None:
    """Rows made of q' features never count as kept, however far the debt reaches."""
    pair, trained = block_drafter(tmp_path)
    settings = cycle_settings(name, MASKED)
    loop = Loop(parts_with(pair, trained), [5, 1, 7, 3], settings, LiveSettings(settings))
    kept = []
    for _ in range(12):
        if loop.step().finish is not None:
            break
        run_, drafter = loop.run, loop.run.drafter
        assert isinstance(drafter, BlockDrafter)
        kept.append(drafter.rows)
        assert drafter.rows <= run_.verifier.n_q
        with torch.inference_mode():
            alone = Verifier(run_.verifier.runner, run_.limit, taps=trained.taps)
            alone.prefill(run_.tokens[:-1])
            fresh = trained.make(alone, run_.limit)
            assert isinstance(fresh, BlockDrafter)
            fresh.begin(run_.tokens)
            fresh.draft(1, GREEDY, noise())
        same_rows(drafter, fresh, drafter.rows)
    assert kept[-1] > 8


@pytest.mark.parametrize("start", [2, 6, 9])
def test_text_that_replaces_what_was_read_leaves_no_trace_of_it(start: int, tmp_path: Path) -> None:
    pair, trained = block_drafter(tmp_path)
    assert trace_of_replaced_text(pair, trained, start) < 1e-9


@torch.inference_mode()
@pytest.mark.parametrize("length", [0, 1, 4, 7])
def test_a_rewind_to_any_row_is_made_good_by_the_next_draft(length: int, tmp_path: Path) -> None:
    pair, trained = block_drafter(tmp_path)
    text = [1, 4, 2, 7, 7, 0, 3, 5, 6]
    verifier = Verifier(parts_with(pair, trained).runner, 64, taps=trained.taps)
    verifier.prefill(text[:-1])
    drafter = trained.make(verifier, 64)
    drafter.begin(text)
    before = drafter.draft(4, GREEDY, noise()).logits
    drafter.rewind(length)
    assert isinstance(drafter, BlockDrafter) and drafter.rows == length
    after = drafter.draft(4, GREEDY, noise()).logits
    assert before is not None and after is not None
    torch.testing.assert_close(after, before, atol=1e-9, rtol=0.0)


def test_a_prompt_of_one_token_is_drafted_behind_without_any_context(tmp_path: Path) -> None:
    pair, trained = block_drafter(tmp_path)
    assert texts_agree(pair, trained, [3], method="sd", gamma=4) > 0


DAMAGED = {
    "ids twice": (-torch.arange(7), "distinct ids"),
    "ids beyond": (torch.full((7,), 5), "distinct ids"),
    "ids below": (torch.full((7,), -1), "distinct ids"),
    "no ids": (torch.zeros(0, dtype=torch.long), "distinct ids"),
    "a table": (torch.zeros(7, 2, dtype=torch.long), "distinct ids"),
    "one number": (torch.tensor(3), "distinct ids"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_an_unusable_id_map_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    tensor, said = DAMAGED[name]
    target = target_of(toy_pair(drafter="none", layers=8, vocab=8))
    config, tensors = block_parts(target.config, (1, 3), seed=1)
    with pytest.raises(SourceError, match=said) as caught:
        load(saved(tmp_path, config, tensors | {"d2t": tensor}), target)
    assert "\n" not in str(caught.value)

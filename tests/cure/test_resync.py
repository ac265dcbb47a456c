"""Real networks: greedy text in float64, what the caches hold after many trees, what the drafter reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from drafters.runs import GREEDY, begun, block_drafter, noise, parts_with, texts_agree
from laws.test_caches import caches_follow_from_the_text
from viasd_core.decode import Loop
from viasd_core.drafters.base import BlockParallel, Draft
from viasd_core.drafters.checkpoints import Trained
from viasd_core.live import LiveSettings
from viasd_core.pair import ModelPair
from viasd_core.settings import Settings
from viasd_core.trace import CycleEvent
from viasd_core.verifier import Verifier

PROMPT = [5, 1, 7, 3]
CHAINED = ("domino", "reduced domino", "second")  # a token depends on those chosen before it
KINDS = ("plain", "domino", "reduced", "reduced domino", "second")


def repaired(event: CycleEvent) -> bool:
    return any(row.branch and row.on_best_path for row in event.tree)


@pytest.mark.parametrize("method", ["block", "cure"])
def test_greedy_text_is_plain_decodings_for_every_family(method: str, family: str, tmp_path: Path) -> None:
    """C9 and I1, in float64."""
    pair, trained = block_drafter(tmp_path, family=family)
    assert texts_agree(pair, trained, PROMPT, method=method) > 0


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [(kind, suffix) for kind in KINDS for suffix in ("S1", "S2", "S4") if suffix != "S4" or kind in CHAINED],
)
def test_greedy_text_is_plain_decodings_for_every_drafter_and_suffix(
    kind: str, suffix: str, tmp_path: Path
) -> None:
    pair, trained = block_drafter(tmp_path, kind)
    assert (
        texts_agree(pair, trained, PROMPT, method="cure", suffix=suffix, max_positions=2, tau_margin=3.0) > 0
    )


@torch.inference_mode()
def fresh_draft(pair: ModelPair, trained: Trained, tokens: Sequence[int]) -> Draft:
    verifier = Verifier(parts_with(pair, trained).runner, len(tokens) + 8, taps=trained.taps)
    verifier.prefill(tokens[:-1])
    drafter = trained.make(verifier, len(tokens) + 8)
    drafter.begin(tokens)
    return drafter.draft(4, GREEDY, noise())


@torch.inference_mode()
def gap_after(loop: Loop, pair: ModelPair, trained: Trained) -> float:
    """How far the next draft's logits are from those of a fresh run over the same text."""
    assert loop.run.drafter is not None
    found = loop.run.drafter.draft(4, GREEDY, noise()).logits
    wanted = fresh_draft(pair, trained, loop.run.tokens).logits
    assert found is not None and wanted is not None
    return float((found - wanted)[wanted.isfinite()].abs().max())


def gaps_after_repairs(tmp_path: Path, **options: Any) -> list[float]:
    pair, trained = block_drafter(tmp_path)
    settings = Settings(method="cure", max_new_tokens=120, tau_margin=3.0, **options)
    loop = Loop(parts_with(pair, trained), PROMPT, settings, LiveSettings(settings))
    gaps = []
    for _ in range(60):
        event = loop.step()
        if event.finish is not None:
            break
        gap = gap_after(loop, pair, trained)
        if repaired(event):
            gaps.append(gap)
        elif options.get("resync", True):
            assert gap < 1e-9
    assert len(gaps) > 2
    return gaps


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_after_a_repair_the_drafter_reads_the_features_of_the_winning_rows(
    temperature: float, tmp_path: Path
) -> None:
    """C6."""
    assert max(gaps_after_repairs(tmp_path, temperature=temperature)) < 1e-9


def test_without_resynchronisation_it_reads_those_of_other_tokens(tmp_path: Path) -> None:
    """C6, the ablation of Table 4; the text is still the verifier's, whose own rows are moved."""
    assert min(gaps_after_repairs(tmp_path, resync=False)) > 1e-6
    pair, trained = block_drafter(tmp_path)
    assert texts_agree(pair, trained, PROMPT, method="cure", resync=False, tau_margin=3.0) > 0


def test_where_branch_0_wins_nothing_is_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C7: the rows of branch 0 already lie one behind the other."""
    pair, trained = block_drafter(tmp_path)
    settings = Settings(method="cure", max_new_tokens=60, tau_margin=3.0)
    loop = Loop(parts_with(pair, trained), PROMPT, settings, LiveSettings(settings))
    seen: list[bool] = []
    slots = loop.run.verifier.stack.slots
    compact = slots.compact

    def watched(rows: Sequence[int], start: int, *, features: bool = True) -> None:
        before = [tensor.clone() for tensor in (slots.features, *slots.keys.values())]
        compact(rows, start, features=features)
        after = (slots.features, *slots.keys.values())
        seen.append(any(not torch.equal(one, two) for one, two in zip(before, after, strict=True)))

    monkeypatch.setattr(slots, "compact", watched)
    moved = {False: set[bool](), True: set[bool]()}
    for _ in range(40):
        seen.clear()
        event = loop.step()
        moved[repaired(event)] |= set(seen)
        if event.finish is not None:
            break
    assert moved == {False: {False}, True: {True}}


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_after_200_trees_every_row_is_that_of_a_recompute(temperature: float, tmp_path: Path) -> None:
    """T4 and I2: keys, values and features of all layers."""
    pair, trained = block_drafter(tmp_path)
    settings = Settings(
        method="cure",
        max_new_tokens=480,
        temperature=temperature,
        tau_margin=3.0,
        max_positions=2,
        trace=False,
    )
    loop = Loop(parts_with(pair, trained), PROMPT, settings, LiveSettings(settings))
    for cycle in range(200):
        if loop.step().finish is not None:
            break
        if cycle % 50 == 0:
            caches_follow_from_the_text(loop)
    assert cycle > 150
    caches_follow_from_the_text(loop)
    rows, tokens = loop.run.verifier.n_q, loop.run.tokens
    with torch.inference_mode():
        fresh = Verifier(loop.run.verifier.runner, loop.run.limit, taps=trained.taps)
        fresh.prefill(tokens[:rows])
        torch.testing.assert_close(
            loop.run.verifier.features(0, rows), fresh.features(0, rows), atol=1e-9, rtol=0.0
        )


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
def test_a_redrawn_block_is_the_one_a_pass_of_its_own_would_give(kind: str, tmp_path: Path) -> None:
    """Several known prefixes in one batch, against one pass each; known tokens are kept as they are. X1: the
    context keeps no row of it.
    """
    pair, trained = block_drafter(tmp_path, kind)
    drafter: BlockParallel = begun(pair, trained, [1, 4, 2, 7, 7, 0, 3, 5, 6])
    before = drafter.draft(4, GREEDY, noise())
    known = [[3], [3, 1], [6, 6, 2], [*before.tokens.tolist()[:2], 5]]
    together = drafter.redraw(known, 4, GREEDY, noise())
    for lane, told in enumerate(known):
        alone = drafter.redraw([told], 4, GREEDY, noise())
        assert alone.tokens[0].tolist() == together.tokens[lane].tolist()
        assert together.tokens[lane, : len(told)].tolist() == told
        torch.testing.assert_close(alone.logp[0], together.logp[lane], atol=1e-9, rtol=0.0)
        torch.testing.assert_close(alone.margin[0], together.margin[lane], atol=1e-9, rtol=0.0)
    again = drafter.draft(4, GREEDY, noise())
    assert before.logits is not None and again.logits is not None
    torch.testing.assert_close(again.logits, before.logits, atol=1e-9, rtol=0.0)


@torch.inference_mode()
def test_an_unchanged_prefix_redrawn_or_rerolled_gives_the_draft_again(tmp_path: Path) -> None:
    """Redoing Domino's correction behind the draft's own tokens changes nothing; a block whose slots are all
    masks is the draft.
    """
    pair, trained = block_drafter(tmp_path, "domino")
    drafter: BlockParallel = begun(pair, trained, PROMPT)
    draft = drafter.draft(4, GREEDY, noise())
    own = draft.tokens.tolist()
    assert draft.logits is not None
    logp = draft.logits.log_softmax(-1).gather(-1, draft.tokens[:, None])[:, 0]
    for drawn in (drafter.reroll([own[:2]], 4, GREEDY, noise()), drafter.redraw([[]], 4, GREEDY, noise())):
        assert drawn.tokens[0].tolist() == own
        torch.testing.assert_close(drawn.logp[0], logp, atol=1e-9, rtol=0.0)
    changed = drafter.reroll([[own[0] ^ 1]], 4, GREEDY, noise())
    assert not torch.equal(changed.logp[0, 1:], logp[1:])

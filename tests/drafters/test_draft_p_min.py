"""Drafts that end before a token the drafter is unsure of: what they end at, what they cost, and that the
output keeps its law.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from drafters.runs import (
    GREEDY,
    begun,
    block_drafter,
    cycle_settings,
    noise,
    parts_with,
    sampled_p_values,
    state_follows_from_the_text,
)
from drafters.small import eagle_pair
from oracle import models
from scripted import run
from viasd_core.drafters.checkpoints import Trained
from viasd_core.errors import SettingsError
from viasd_core.method_options import refuse_unused
from viasd_core.pair import ModelPair
from viasd_core.probs import Sampling
from viasd_core.settings import Settings
from viasd_core.trace import Trace
from viasd_core.trace_check import check

PROMPT = [5, 1, 7, 3]


def small(tmp_path: Path, kind: str, vocab: int = 8) -> tuple[ModelPair, Trained]:
    return block_drafter(tmp_path, vocab=vocab) if kind == "block" else eagle_pair(tmp_path, vocab)


def likeliest(trace: Trace) -> list[list[float]]:
    """The chance of each cycle's drafted tokens under the drafter: greedy ones are its likeliest."""
    found: list[list[float]] = [[] for _ in trace.cycles]
    for row in trace.tokens:
        if row.source == "draft" and row.logp_draft is not None:
            found[row.cycle].append(float(torch.tensor(row.logp_draft).exp()))
    return found


@pytest.mark.parametrize(
    ("drafter", "method"),
    [(drafter, method) for drafter in ("model", "nested", "own") for method in ("sd", "via-sd")]
    + [("model", "lossy-sd")],
)
@pytest.mark.parametrize("p_min", [0.2, 0.6])
def test_the_text_stays_the_verifiers_and_no_doubtful_token_is_drafted(
    drafter: str, method: str, p_min: float
) -> None:
    """SD, lossy SD without slack and strict VIA-SD give plain decoding's text."""
    pair, ids = models.pair("llama", drafter), models.prompt(7)
    more: dict[str, Any] = {"strict": True, "mask": "even", "skip_ratio": 0.5} if method == "via-sd" else {}
    plain = models.run(pair, ids, Settings(method="ar", max_new_tokens=40))
    whole, cut = (
        models.run(pair, ids, Settings(method=method, max_new_tokens=40, draft_p_min=least, **more))
        for least in (0.0, p_min)
    )
    assert cut.token_ids == whole.token_ids == plain.token_ids
    assert min(chance for chances in likeliest(whole) for chance in chances) < p_min
    assert min((chance for chances in likeliest(cut) for chance in chances), default=1.0) >= p_min
    assert any(cycle.drafted == 0 and cycle.draft_forwards == 1 for cycle in cut.cycles), (
        "an empty draft costs"
    )
    for cycle in cut.cycles:
        assert cycle.draft_forwards - cycle.drafted in (0, 1)


@pytest.mark.parametrize("kind", ["eagle", "block"])
def test_trained_drafters_end_where_their_rows_are_flat(kind: str, tmp_path: Path) -> None:
    """A block costs one pass wherever it ends; a chain saves the passes behind its end."""
    pair, trained = small(tmp_path, kind)
    plain = run(parts_with(pair, trained), PROMPT, Settings(method="ar", max_new_tokens=40))
    settings = Settings(method="sd", gamma=4, max_new_tokens=40)
    whole = run(parts_with(pair, trained), PROMPT, settings)
    middle = sorted(chance for chances in likeliest(whole) for chance in chances)[len(whole.cycles)]
    cut = run(parts_with(pair, trained), PROMPT, settings.with_(draft_p_min=middle))
    assert cut.token_ids == whole.token_ids == plain.token_ids and check(cut) == []
    assert min(chance for chances in likeliest(cut) for chance in chances) >= middle
    lengths = {cycle.drafted for cycle in cut.cycles}
    assert len(lengths) > 2 and 0 in lengths
    for cycle in cut.cycles[:-1]:  # the last may have no room for a draft
        saved = cycle.drafted + 1 - cycle.draft_forwards
        assert cycle.draft_forwards == 1 if kind == "block" else saved in (0, 1)


@pytest.mark.parametrize("name", ["sd", "via-sd", "own slim cache", "strict"])
def test_the_drafters_state_is_that_of_a_fresh_replay_behind_cut_drafts(name: str, tmp_path: Path) -> None:
    pair, trained = small(tmp_path, "eagle")
    settings = cycle_settings(name, "110101").with_(draft_p_min=0.3)
    assert len(state_follows_from_the_text(pair, trained, settings, cycles=18)) > 8


@pytest.mark.parametrize("kind", ["eagle", pytest.param("block", marks=pytest.mark.slow)])
def test_the_sampled_law_does_not_change(kind: str, tmp_path: Path) -> None:
    """Were the end told by the drawn token, unlikely tokens would be drafted too rarely."""
    pair, trained = small(tmp_path, kind, vocab=4)
    method: dict[str, Any] = {"method": "sd", "gamma": 3, "bonus": "none", "draft_p_min": 0.45}
    ours, other = sampled_p_values(pair, trained, [1, 3, 0], 400, **method)
    assert ours > 1e-3 and other < 1e-3


@torch.inference_mode()
def test_a_draft_ends_by_its_rows_whatever_is_drawn_from_them(tmp_path: Path) -> None:
    """At a high temperature unlikely tokens are drawn: a sure row is kept with them."""
    pair, trained = small(tmp_path, "block")
    drafted = begun(pair, trained, PROMPT).draft(5, Sampling(50.0), noise(), 0.0)
    top = drafted.logits.softmax(-1).amax(-1)
    assert drafted.confident(float(top.min()) - 1e-9).length == drafted.length
    place = int(top.argmin())
    ended = drafted.confident(float(top.min()) + 1e-9)
    assert ended.length == place and ended.forwards == drafted.forwards
    assert ended.tokens.tolist() == drafted.tokens[:place].tolist()
    assert drafted.tokens.tolist() != begun(pair, trained, PROMPT).draft(5, GREEDY, noise()).tokens.tolist()


def test_it_is_refused_where_it_means_nothing() -> None:
    with pytest.raises(SettingsError, match=r"draft_p_min is 1\.5"):
        Settings(method="sd", draft_p_min=1.5)
    for method in ("ar", "block", "cure", "eagle2"):
        with pytest.raises(SettingsError, match="--draft-p-min is not used by method"):
            refuse_unused(method, {"draft_p_min"})
    assert Settings(method="sd", draft_p_min=0.3).as_dict()["draft_p_min"] == 0.3
    assert "draft_p_min" not in Settings(method="block", draft_p_min=0.3).as_dict()

"""A repeated passage is copied before the drafter is asked: what is copied, and that nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drafters.runs import (
    block_drafter,
    cycle_settings,
    parts_with,
    sampled_p_values,
    state_follows_from_the_text,
)
from drafters.small import eagle_pair
from oracle import models
from scripted import run
from viasd_core.drafters.lookup import find_continuation
from viasd_core.errors import SettingsError
from viasd_core.method_options import refuse_unused
from viasd_core.settings import Settings
from viasd_core.trace import Trace
from viasd_core.trace_check import check

PROMPT = [5, 1, 7, 3, 5, 1]  # its end stands in it before


def copied_cycles(trace: Trace, prompt: list[int]) -> int:
    """How many drafts were copies; each cycle's draft is told apart and compared with the text so far."""
    text, count = list(prompt), 0
    for number, _ in enumerate(trace.cycles):
        rows = [row for row in trace.tokens if row.cycle == number]
        drafted = [row for row in rows if row.source == "draft"]
        found = find_continuation(np.asarray(text), max(1, len(drafted))).tolist()
        if drafted and found:
            assert [row.token_id for row in drafted] == found[: len(drafted)]
            assert all(row.logp_draft is None for row in drafted)
            count += 1
        elif drafted:
            assert all(row.logp_draft is not None for row in drafted)
        text += [row.token_id for row in sorted(rows, key=lambda row: row.out_pos or 0) if row.emitted]
    return count


@pytest.mark.parametrize("kind", ["eagle", "block"])
def test_what_repeats_is_copied_and_the_rest_is_the_drafters(kind: str, tmp_path: Path) -> None:
    pair, trained = eagle_pair(tmp_path) if kind == "eagle" else block_drafter(tmp_path)
    parts = parts_with(pair, trained)
    plain = run(parts, PROMPT, Settings(method="ar", max_new_tokens=40))
    trace = run(parts, PROMPT, Settings(method="sd", gamma=3, max_new_tokens=40, lookup_first=True))
    assert trace.token_ids == plain.token_ids and check(trace) == []
    assert 0 < copied_cycles(trace, PROMPT) < len(trace.cycles)
    for cycle in trace.cycles:
        copied = all(row.logp_draft is None for row in trace.tokens if row.cycle == cycle.cycle)
        assert (cycle.draft_forwards == 0) == copied


@pytest.mark.parametrize("drafter", ["model", "nested", "own"])
@pytest.mark.parametrize("method", ["sd", "lossy-sd", "via-sd"])
def test_the_text_stays_the_verifiers(drafter: str, method: str) -> None:
    """Also where the drafter sits several cycles out and has much to read afterwards."""
    pair, ids = models.pair("llama", drafter), [*models.prompt(7), *models.prompt(7)]
    more: dict[str, Any] = {"strict": True, "mask": "even", "skip_ratio": 0.5} if method == "via-sd" else {}
    plain = models.run(pair, ids, Settings(method="ar", max_new_tokens=48))
    found = models.run(pair, ids, Settings(method=method, max_new_tokens=48, lookup_first=True, **more))
    assert found.token_ids == plain.token_ids
    assert any(row.source == "draft" and row.logp_draft is None for row in found.tokens)


@pytest.mark.parametrize("name", ["sd", "via-sd", "own slim cache", "strict"])
def test_the_drafters_state_is_that_of_a_fresh_replay_behind_copies(name: str, tmp_path: Path) -> None:
    pair, trained = eagle_pair(tmp_path)
    settings = cycle_settings(name, "110101").with_(lookup_first=True)
    assert len(state_follows_from_the_text(pair, trained, settings, cycles=18)) > 8


def test_the_sampled_law_does_not_change(tmp_path: Path) -> None:
    pair, trained = eagle_pair(tmp_path, vocab=4)
    method: dict[str, Any] = {"method": "sd", "gamma": 3, "bonus": "none", "lookup_first": True}
    ours, other = sampled_p_values(pair, trained, [1, 3, 0, 1, 3], 400, **method)
    assert ours > 1e-3 and other < 1e-3


def test_it_is_refused_where_it_means_nothing() -> None:
    for method in ("ar", "block", "cure", "eagle2"):
        with pytest.raises(SettingsError, match="--lookup-first is not used by method"):
            refuse_unused(method, {"lookup_first"})
    with pytest.raises(SettingsError, match="lookup_first is 1; give true or false"):
        Settings(method="sd", lookup_first=1)  # type: ignore[arg-type]
    assert Settings(method="sd", lookup_first=True).as_dict()["lookup_first"] is True

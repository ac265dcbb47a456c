"""CURE's trees through VIA-SD's tiers: what they reduce to, the law at every node, debt, caches, features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cure.cure_toys import table_parts
from drafters.runs import block_drafter, parts_with, state_follows_from_the_text, texts_agree
from laws.chi_square import statistic, survival
from laws.test_caches import caches_follow_from_the_text
from laws.test_output_laws import chain, via_sd_law
from scripted import Table, TableRunner, greedy_text, near, random_table, run
from viasd_core.cure.growth import Step, grow
from viasd_core.decode import Loop
from viasd_core.live import LiveSettings
from viasd_core.methods.tree_gates import Gates, Verdicts, follow_gates
from viasd_core.settings import Settings
from viasd_core.trace import Trace
from viasd_core.trace_check import check

VOCAB = 8
MASKED = "11011101"
VIA: dict[str, Any] = {"method": "cure", "tiers": ("via-sd",), "mask": "101", "tau_margin": 2.0}
ALWAYS_C = (2.0, 2.0)


def tables(seed: int) -> tuple[Table, Table, Table]:
    q = random_table(VOCAB, 2, seed, scale=1.5)
    return q, near(q, 0.4, seed + 1), near(q, 0.6, seed + 2)


def trace_of(seed: int, **changes: Any) -> Trace:
    q, slim, drafter = tables(seed)
    settings = Settings(**{"max_new_tokens": 60, **VIA, **changes})
    return run(table_parts(TableRunner(q, slim), drafter), [seed % VOCAB], settings)


@pytest.mark.parametrize("slim_kv", ["shared", "own"])
def test_thresholds_above_one_give_cures_output(slim_kv: str) -> None:
    for seed in range(5):
        trace = trace_of(seed, core_thresholds=ALWAYS_C, slim_kv=slim_kv)
        q, _, drafter = tables(seed)
        settings = Settings(method="cure", tau_margin=2.0, max_new_tokens=60)
        plain = run(table_parts(TableRunner(q), drafter), [seed % VOCAB], settings)
        assert trace.token_ids == plain.token_ids == greedy_text(q, [seed % VOCAB], 60)
        assert [row.token_id for row in trace.tree] == [row.token_id for row in plain.tree]
        assert [row.accepted for row in trace.tree] == [row.accepted for row in plain.tree]
        assert check(trace) == []


@pytest.mark.parametrize("cap", [None, 0, 4])
def test_strict_gives_the_verifiers_greedy_text(cap: int | None) -> None:
    """V14 for trees."""
    for seed in range(6):
        trace = trace_of(seed, strict=True, debt_cap=cap)
        assert trace.token_ids == greedy_text(tables(seed)[0], [seed % VOCAB], 60)
        assert check(trace) == []


@pytest.mark.parametrize(
    "changes",
    [{}, {"slim_kv": "own"}, {"regenerate": False}, {"debt_cap": 5}, {"temperature": 1.0}, {"suffix": "S1"}],
    ids=str,
)
def test_traces_are_sound_and_q_runs_only_when_it_is_needed(changes: dict[str, Any]) -> None:
    """V7: at most one call a cycle; without a cap and a final audit none unless a path meets region C."""
    called = idle = 0
    for seed in range(5):
        assert check(trace_of(seed, **changes)) == []
        bare = trace_of(seed, **{"debt_cap": 0, **changes}, final_audit=False)
        assert check(bare) == []
        for cycle in bare.cycles:
            assert cycle.full_forwards + cycle.settle_forwards <= 1
            if "debt_cap" not in changes and cycle.drafted:
                assert (cycle.full_forwards > 0) == (cycle.region_c > 0)
            called, idle = called + cycle.full_forwards, idle + (not cycle.full_forwards)
    assert called and idle


def test_repaired_branches_are_won_by_either_tier() -> None:
    for changes, verdict in (({}, "accepted_slim"), ({"core_thresholds": ALWAYS_C}, "accepted_full")):
        rows = [row for seed in range(4) for row in trace_of(seed, **changes).tokens]
        assert verdict in {row.verdict for row in rows if row.branch and row.emitted}


def test_greedy_paths_follow_the_child_with_the_largest_ratio() -> None:
    """Of siblings the likeliest under q' is the one that is gated; branch 0 on a tie."""
    tree = grow([Step(1, -1.0), Step(2, -1.0)], [[Step(3, -1.0), Step(4, -1.0)]], beam=5, budget=9)
    gates = Gates(0.5, 0.3, regenerate=True, greedy=True)
    assert follow_gates(tree, [0.9, 0.6, 1.0, 0.2], gates, None).path == (2,)
    assert follow_gates(tree, [1.0, 0.6, 1.0, 0.9], gates, None).path == (0, 1)
    asked = follow_gates(tree, [0.1, 0.9, 0.2, 0.9], gates, None)
    assert (asked.path, asked.node, asked.end) == ((), 2, "ask")


def test_in_region_c_a_sibling_that_q_says_is_entered_and_gated_on() -> None:
    tree = grow([Step(1, -1.0), Step(2, -1.0)], [[Step(3, -1.0), Step(4, -1.0)]], beam=5, budget=9)
    ratios, draws = [0.1, 0.9, 0.2, 0.4], [3, 0, 0, 0, 0]
    for greedy in (True, False):
        gates = Gates(0.5, 0.3, regenerate=True, greedy=greedy)
        found = follow_gates(tree, ratios, gates, Verdicts([0] * 5, draws))
        assert (found.path, found.regions, found.node, found.end) == ((2,), ("C", "B"), 3, "B")
    sampled_gates = Gates(0.5, 0.3, regenerate=True, greedy=False)
    found = follow_gates(tree, ratios, sampled_gates, Verdicts([1, 0, 0, 0, 0], draws))
    assert (found.path, found.end) == ((0, 1), "leaf")


def draws_inside_blocks(trace: Trace, prompt: list[int]) -> list[tuple[list[int], int]]:
    """(text, token) of every output token that a gate decided; bonus and last token are q's own draws."""
    text = prompt + trace.token_ids
    return [
        (text[: len(prompt) + place], row.token_id)
        for place, row in enumerate(trace.emitted)
        if row.verdict not in ("bonus", "target")
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("thresholds", "suffix"), [((0.6, 0.35), "S2"), ((0.5, 0.7), "S2"), (ALWAYS_C, "S1")]
)
def test_sampled_text_has_the_one_step_law_of_via_sd_at_every_node(
    suffix: str, thresholds: tuple[float, float]
) -> None:
    """V3 for trees, on branch 0 and on repairs; thresholds above 1 give q's own law, also behind a suffix
    that was drawn for another text.
    """
    q, slim, drafter = chain(5, 31)
    laws: dict[int, np.ndarray] = {}
    counts: dict[int, np.ndarray] = {}
    repaired = 0
    for seed in range(4):
        settings = Settings(
            **VIA | {"suffix": suffix, "core_thresholds": thresholds, "temperature": 1.0, "debt_cap": 0},
            max_new_tokens=700,
            seed=seed,
        )
        trace = run(table_parts(TableRunner(q, slim), drafter, longest=5), [0], settings)
        repaired += sum(row.branch > 0 and row.emitted for row in trace.tokens)
        for text, token in draws_inside_blocks(trace, [0]):
            p, s, full = drafter.probs(text), slim.probs(text), q.probs(text)
            laws[q.row(text)] = via_sd_law(p, s, full, s, *thresholds)
            counts.setdefault(q.row(text), np.zeros(5))[token] += 1
    parts = [statistic(counts[row], laws[row]) for row in laws]
    assert survival(sum(part[0] for part in parts), sum(part[1] for part in parts)) > 1e-3
    other = [statistic(counts[row], drafter.probs([row - 1])) for row in laws]
    assert survival(sum(part[0] for part in other), sum(part[1] for part in other)) < 1e-3
    assert repaired > 20


@pytest.mark.parametrize("options", [{}, {"strict": True}, {"temperature": 1.0}], ids=str)
@pytest.mark.parametrize("kind", ["plain", "domino"])
def test_after_every_cycle_the_drafters_state_is_that_of_a_fresh_replay(
    kind: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """Features of winning nodes, q's in place of the provisional ones of q' once it has run."""
    pair, trained = block_drafter(tmp_path, kind)
    settings = Settings(
        **VIA | {"mask": MASKED}, max_new_tokens=60, alpha1=0.05, alpha2=0.01, debt_cap=6, **options
    )
    debts = state_follows_from_the_text(pair, trained, settings, cycles=18)
    assert len(debts) > 6 and max(debts) > 0 and min(debts) == 0


@pytest.mark.parametrize("slim_kv", ["shared", "own"])
def test_rows_that_only_q_prime_wrote_are_moved_with_their_path(slim_kv: str, tmp_path: Path) -> None:
    """Compaction, debt and settles: every cache equals a recompute from its definition."""
    pair, trained = block_drafter(tmp_path)
    settings = Settings(
        **VIA | {"mask": MASKED},
        max_new_tokens=90,
        alpha1=0.05,
        alpha2=0.02,
        debt_cap=8,
        slim_kv=slim_kv,
        max_positions=2,
    )
    loop = Loop(parts_with(pair, trained), [5, 1, 7, 3], settings, LiveSettings(settings))
    repaired, debts = 0, set()
    for _ in range(40):
        event = loop.step()
        caches_follow_from_the_text(loop)
        debts.add(event.cycle.debt)
        repaired += any(row.branch and row.on_best_path for row in event.tree) and event.cycle.debt > 0
        if event.finish is not None:
            break
    assert repaired and {0} < debts


@pytest.mark.parametrize("slim_kv", ["shared", "own"])
def test_strict_text_is_plain_decodings_with_real_networks(slim_kv: str, tmp_path: Path) -> None:
    pair, trained = block_drafter(tmp_path)
    options = {**VIA, "mask": MASKED, "slim_kv": slim_kv}
    assert texts_agree(pair, trained, [2, 6, 1], strict=True, **options) > 0
    assert texts_agree(pair, trained, [2, 6, 1], core_thresholds=ALWAYS_C, **options) > 0

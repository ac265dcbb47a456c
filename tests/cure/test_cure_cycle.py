"""Whole runs of CURE over table models: greedy text, exact law, the shape of every tree, the ablations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cure.cure_toys import SLOTS, kept, kept_on_branch_0, table_parts, trees
from laws.chi_square import episode_p_value
from laws.test_output_laws import joint_law
from scripted import Table, TableRunner, greedy_text, near, random_table, run, sampled, scripted_parts
from viasd_core.decode import decode
from viasd_core.errors import PairError
from viasd_core.live import LiveSettings
from viasd_core.settings import Settings
from viasd_core.trace import Trace
from viasd_core.trace_check import check

VOCAB = 8
GREEDY = Settings(method="cure", max_new_tokens=60)
VARIANTS: dict[str, dict[str, Any]] = {
    "fast_margin100": {},
    "reused suffixes": {"suffix": "S1"},
    "redone corrections": {"suffix": "S4"},
    "three positions": {"max_positions": 3, "tau_margin": 2.0},
    "no branch 0": {"branch0": False},
    "no resynchronisation": {"resync": False},
    "small budget": {"v_max": 9, "tau_margin": 3.0},
    "narrow beam": {"beam": 2, "max_positions": 4, "tau_margin": 3.0},
    "block": {"method": "block"},
}


def tables(seed: int) -> tuple[Table, Table]:
    q = random_table(VOCAB, 2, seed, scale=1.5)
    return q, near(q, 0.6, seed + 1)


def trace_of(seed: int, **changes: Any) -> Trace:
    q, drafter = tables(seed)
    settings = Settings(**{"method": "cure", "max_new_tokens": 60, **changes})
    return run(table_parts(TableRunner(q), drafter), [seed % VOCAB], settings)


@pytest.mark.parametrize("name", VARIANTS)
def test_greedy_text_is_the_verifiers_and_the_trace_is_sound(name: str) -> None:
    """C9 at temperature 0, for every option."""
    for seed in range(8):
        trace = trace_of(seed, **VARIANTS[name])
        assert trace.token_ids == greedy_text(tables(seed)[0], [seed % VOCAB], 60)
        assert check(trace) == []


@pytest.mark.parametrize("name", VARIANTS)
def test_sampled_traces_are_sound(name: str) -> None:
    for seed in range(4):
        assert check(trace_of(seed, temperature=1.0, **VARIANTS[name])) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_sampled_text_has_exactly_the_verifiers_law(name: str) -> None:
    """C9 and T3: joint law of pairs of tokens, in trees with several children; X4 for a block of first
    choices (`block`).
    """
    q = random_table(4, 1, 71, scale=1.2, episode=2)
    drafter = near(q, 0.5, 72)
    settings = Settings(**{"method": "cure", "temperature": 1.0, "seed": 5, **VARIANTS[name]})
    outputs = sampled(table_parts(TableRunner(q), drafter, longest=4), settings, count=20_000)
    assert episode_p_value(outputs, joint_law(q, 2)) > 1e-3
    assert episode_p_value(outputs, joint_law(drafter, 2)) < 1e-3, "the test has no power"


def test_no_uncertain_position_means_the_plain_block_method() -> None:
    """C2."""
    for seed in range(5):
        bare, block = trace_of(seed, tau_margin=0.0), trace_of(seed, method="block")
        assert {row.branch for row in bare.tree} == {0}
        assert [cycle.committed for cycle in bare.cycles] == [cycle.committed for cycle in block.cycles]
        assert bare.token_ids == block.token_ids
        assert [cycle.draft_forwards for cycle in bare.cycles] == [cycle.drafted for cycle in bare.cycles]


def test_trees_keep_their_bounds_and_repair_the_most_uncertain_position() -> None:
    """C4, and branch 0 in every tree."""
    repaired = 0
    for seed in range(6):
        for nodes in trees(trace_of(seed)).values():
            main = [row for row in nodes if row.branch == 0]
            assert [row.depth for row in main] == list(range(1, len(main) + 1))
            assert max(row.depth for row in nodes) <= SLOTS - 1
            heads = [row for row in nodes if row.branch and (row.parent < 0 or not nodes[row.parent].branch)]
            assert len({row.depth for row in heads}) <= 1 and len(heads) <= 5
            if heads:
                repaired += 1
                margins = {row.depth: row.margin for row in main}
                least = min(margins, key=lambda depth: (margins[depth], depth))
                assert heads[0].depth == least
                tokens = [row.token_id for row in (*heads, main[least - 1])]
                assert len(set(tokens)) == len(tokens)
    assert repaired > 20


def test_a_gain_needs_branch_0_to_fail_first_where_it_was_repaired() -> None:
    """C5."""
    gains = 0
    for seed in range(10):
        for nodes in trees(trace_of(seed, tau_margin=2.0)).values():
            gain = kept(nodes) - kept_on_branch_0(nodes)
            assert gain >= 0
            if gain:
                gains += 1
                first = next(row for row in nodes if row.accepted and row.branch)
                assert first.depth == kept_on_branch_0(nodes) + 1
                main = next(row for row in nodes if row.branch == 0 and row.depth == first.depth)
                assert main.is_ufp and not main.accepted
    assert gains > 10


def test_a_repaired_token_says_so_and_what_it_replaced_stands_beside_it() -> None:
    wins = 0
    for seed in range(8):
        trace = trace_of(seed, tau_margin=2.0)
        won = [cycle for cycle, nodes in trees(trace).items() if kept(nodes) > kept_on_branch_0(nodes)]
        assert trace.summary()["repair"]["won"] == len(won)
        wins += len(won)
        for cycle in won:
            rows = [row for row in trace.tokens if row.cycle == cycle]
            repairs = [row for row in rows if row.branch]
            assert {row.source for row in repairs} == {"repair"}
            beside = [row for row in rows if row.source == "draft" and row.slot >= repairs[0].slot]
            assert {row.verdict for row in beside} == {"discarded"}
            assert beside[0].slot == repairs[0].slot and beside[0].is_ufp
            assert repairs[0].token_id in [token for token, _ in beside[0].alt]
    assert wins > 5


def test_without_branch_0_a_block_that_is_sure_of_itself_is_verified_all_the_same() -> None:
    for nodes in trees(trace_of(2, branch0=False)).values():
        heads = [row for row in nodes if row.branch]
        leaves = {row.node for row in nodes} - {row.parent for row in nodes}
        if heads:
            assert all(nodes[leaf].branch for leaf in leaves)
        else:
            assert len(leaves) == 1


@pytest.mark.parametrize("suffix", ["S1", "S4"])
def test_suffixes_that_need_no_pass_cost_none(suffix: str) -> None:
    plain = trace_of(4)
    trace = trace_of(4, suffix=suffix)
    draft = SLOTS - 1  # a table drafts token by token
    assert max(cycle.draft_forwards for cycle in trace.cycles) == draft
    assert max(cycle.draft_forwards for cycle in plain.cycles) == draft + 1


def test_an_end_of_the_text_on_any_branch_ends_the_text_there() -> None:
    for seed in range(12):
        q, drafter = tables(seed)
        parts = table_parts(TableRunner(q), drafter, eos=(5,))
        trace = run(parts, [1], GREEDY.with_(tau_margin=2.0))
        assert trace.token_ids == greedy_text(q, [1], 60, eos=(5,))
        assert check(trace) == []
        for nodes in trees(trace).values():
            parents = {row.parent for row in nodes}
            assert not [row for row in nodes if row.token_id == 5 and row.node in parents]


def test_the_last_tokens_of_a_run_are_drafted_in_shorter_blocks() -> None:
    for limit in (1, 2, 3, 5):
        trace = trace_of(1, max_new_tokens=limit)
        assert len(trace.token_ids) == limit and trace.finish == "length"
        assert all(cycle.drafted < limit for cycle in trace.cycles)


def test_a_knob_turned_during_a_run_moves_the_next_tree() -> None:
    q, drafter = tables(6)
    settings = GREEDY.with_(tau_margin=0.0, max_new_tokens=80)
    live = LiveSettings(settings)
    trace = Trace()
    turns: list[tuple[dict[str, Any], Callable[[int], bool]]] = [
        ({"tau_margin": 50.0}, lambda nodes: nodes > SLOTS - 1),
        ({"v_max": SLOTS - 1}, lambda nodes: nodes == SLOTS - 1),
        ({"v_max": 90, "b_max": 1, "max_positions": 2}, lambda nodes: SLOTS < nodes <= 3 * (SLOTS - 1)),
    ]
    events = decode(table_parts(TableRunner(q), drafter), [1], settings, live)
    trace.add(next(events))
    assert trace.cycles[0].tree_nodes == SLOTS - 1
    for changes, holds in turns:
        version = live.update(**changes)
        trace.add(next(events))
        row = trace.cycles[-1]
        assert holds(row.tree_nodes), (changes, row.tree_nodes)
        assert row.param_version == version
    assert (trace.cycles[1].tau_margin, trace.cycles[2].v_max) == (50.0, SLOTS - 1)


def test_a_drafter_that_goes_token_by_token_is_refused_in_a_sentence() -> None:
    q, drafter = tables(0)
    for method in ("block", "cure"):
        with pytest.raises(PairError, match=f"'{method}' needs a drafter that proposes whole blocks"):
            run(scripted_parts(TableRunner(q), drafter), [0], Settings(method=method))
    with pytest.raises(PairError, match="DFlash2's choice, and table has none; use S1 or S2"):
        run(table_parts(TableRunner(q), drafter, rerolls=False), [0], GREEDY.with_(suffix="S4"))

"""What branch 0 alone would have kept: known where the verifiers' rows say it, equal to a lone block's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cure.cure_toys import kept, kept_on_branch_0, table_parts, trees
from cure.test_tiers import VIA, VOCAB, tables
from sample_traces import finish_run
from scripted import TableRunner, run
from viasd_core.cure.growth import Step, grow
from viasd_core.decode import Loop
from viasd_core.live import LiveSettings
from viasd_core.methods.tree_gates import Gates, Verdicts, branch0_length, follow_gates
from viasd_core.rows import CycleEvent, CycleRow
from viasd_core.settings import Settings
from viasd_core.trace import Trace
from viasd_core.trace_check import check

TOKENS = 60
PLAIN: dict[str, Any] = {"method": "cure", "tau_margin": 2.0}
MODES: dict[str, dict[str, Any]] = {
    "cure": PLAIN,
    "three positions": PLAIN | {"max_positions": 3},
    "tiers": VIA,
    "tiers, reused suffixes": VIA | {"suffix": "S1"},
    "tiers, no regeneration": VIA | {"regenerate": False},
    "tiers, settles": VIA | {"debt_cap": 5},
    "tiers, strict thresholds": VIA | {"core_thresholds": (0.9, 0.6), "max_positions": 2},
}
GREEDY_GATES = Gates(0.5, 0.3, regenerate=True, greedy=True)


def parts_of_seed(seed: int, eos: tuple[int, ...] = ()) -> Any:
    q, slim, drafter = tables(seed)
    return table_parts(TableRunner(q, slim), drafter, eos=eos)


def trace_of(seed: int, eos: tuple[int, ...] = (), **changes: Any) -> Trace:
    settings = Settings(**{"max_new_tokens": TOKENS, **changes})
    return run(parts_of_seed(seed, eos), [seed % VOCAB], settings)


def first_cycle(
    seed: int, text: list[int], left: int, eos: tuple[int, ...], mode: dict[str, Any]
) -> CycleEvent:
    """One cycle behind `text` of a block whose tree has no room for a repair."""
    settings = Settings(**{**mode, "v_max": 1, "branch0": True, "max_new_tokens": left, "final_audit": False})
    return Loop(parts_of_seed(seed, eos), text, settings, LiveSettings(settings)).step()


def beside_branch0_alone(
    trace: Trace, seed: int, mode: dict[str, Any], eos: tuple[int, ...] = ()
) -> list[tuple[CycleRow, CycleEvent]]:
    """Each cycle that grew a tree, and the same block verified alone behind the same text."""
    found = []
    text = [seed % VOCAB]
    for cycle in trace.cycles:
        if cycle.tree_nodes:
            left = TOKENS - len(text) + 1
            found.append((cycle, first_cycle(seed, list(text), left, eos, mode)))
        text += [row.token_id for row in trace.emitted if row.cycle == cycle.cycle]
    return found


@pytest.mark.parametrize("eos", [(), (3,)], ids=["", "with ends"])
@pytest.mark.parametrize("name", MODES)
def test_it_is_what_the_block_alone_keeps_behind_the_same_text(name: str, eos: tuple[int, ...]) -> None:
    """Where nothing is known of branch 0, the block alone would have asked q, which the tree did not."""
    mode = MODES[name]
    known = 0
    for seed in range(4):
        trace = trace_of(seed, eos, **mode)
        assert check(trace) == []
        for cycle, alone in beside_branch0_alone(trace, seed, mode, eos):
            if cycle.branch0_kept is None:
                assert alone.cycle.full_forwards and not cycle.full_forwards
                continue
            known += 1
            assert cycle.branch0_kept == sum(row.accepted for row in alone.tree)
            assert cycle.ufps == sum(row.is_ufp for row in alone.tree)
    assert known > 8


def test_the_path_of_the_tiers_may_keep_less_than_branch_0_alone() -> None:
    """The gate follows the child of ratio 1 and is refused behind it; branch 0 would have passed twice."""
    tree = grow([Step(1, -1.0), Step(2, -1.0)], [[Step(3, -1.0), Step(4, -1.0)]], beam=5, budget=9)
    ratios = [0.9, 0.6, 1.0, 0.2]
    verdicts = Verdicts([0] * 5, [0, 0, 0, 7, 0])
    assert follow_gates(tree, ratios, GREEDY_GATES, verdicts).path == (2,)
    assert branch0_length(tree, ratios, GREEDY_GATES, None) == 2
    assert branch0_length(tree, [0.4, 0.6, 1.0, 0.2], GREEDY_GATES, None) == 0, "region B ends it"
    refused = [0.9, 0.1, 1.0, 0.8]
    assert branch0_length(tree, refused, GREEDY_GATES, None) is None, "q was not asked"
    assert branch0_length(tree, refused, GREEDY_GATES, Verdicts([0] * 5, [0, 2, 0, 0, 0])) == 2
    assert branch0_length(tree, refused, GREEDY_GATES, Verdicts([0] * 5, [0, 4, 0, 0, 0])) == 1


def test_tiers_have_cycles_where_accepted_nodes_of_branch_0_are_fewer() -> None:
    """What the tree marks is then not what branch 0 would have kept; neither is a gain taken from it."""
    fewer = 0
    for seed in range(4):
        trace = trace_of(seed, **MODES["tiers, reused suffixes"])
        grown = trees(trace)
        known = {row.cycle: row.branch0_kept for row in trace.cycles if row.branch0_kept is not None}
        fewer += sum(kept_on_branch_0(grown[cycle]) < length for cycle, length in known.items())
        if len(known) == len(grown):
            gains = [kept(grown[cycle]) - length for cycle, length in known.items()]
            assert trace.summary()["repair"]["extra_tokens"] == sum(max(0, gain) for gain in gains)
            assert trace.summary()["repair"]["won"] == sum(gain > 0 for gain in gains)
    assert fewer


def test_sampled_tiers_keep_of_branch_0_what_it_alone_would_have_kept() -> None:
    for seed in range(3):
        trace = trace_of(seed, **VIA, temperature=1.0)
        grown = trees(trace)
        for cycle in trace.cycles:
            if cycle.tree_nodes:
                assert cycle.branch0_kept == kept_on_branch_0(grown[cycle.cycle])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_without_branch_0_its_length_and_the_gain_are_not_known(temperature: float) -> None:
    mode = PLAIN | {"branch0": False, "temperature": temperature}
    for seed in range(3):
        trace = trace_of(seed, **mode)
        assert check(trace) == []
        grown = trees(trace)
        for cycle in trace.cycles:
            repaired = any(row.branch for row in grown.get(cycle.cycle, ()))
            assert (cycle.branch0_kept is None) == (repaired or not cycle.tree_nodes)
        repair = trace.summary()["repair"]
        assert (repair["won"], repair["extra_tokens"]) == (None, None)
        if not temperature:
            blocks = [(cycle, alone) for cycle, alone in beside_branch0_alone(trace, seed, mode)]
            assert repair["ufps"] == sum(row.is_ufp for _, alone in blocks for row in alone.tree)
            assert repair["ufps"] > sum(row.is_ufp for row in trace.tree), "those left out count too"


def test_methods_without_trees_say_nothing_of_branch_0() -> None:
    for cycle in trace_of(1, method="block").cycles:
        assert cycle.branch0_kept is None and cycle.ufps is None


def without_columns(trace: Trace, settings: dict[str, Any]) -> Trace:
    """As the trace was before `branch0_kept` and `ufps`: gains by accepted nodes, other definitions."""
    trace.cycles = [replace(row, branch0_kept=None, ufps=None) for row in trace.cycles]
    old = finish_run(trace, "cure", settings)
    nodes = trees(trace).values()
    gains = [max(0, kept(one) - kept_on_branch_0(one)) for one in nodes]
    old.run["totals"]["repair"] |= {
        "ufps": sum(row.is_ufp for row in trace.tree),
        "won": sum(gain > 0 for gain in gains),
        "extra_tokens": sum(gains),
    }
    old.run["definitions"] = {name: f"older: {words}" for name, words in old.run["definitions"].items()}
    return old


@pytest.mark.parametrize(
    "mode", [PLAIN, VIA, PLAIN | {"branch0": False}], ids=["cure", "tiers", "no branch 0"]
)
def test_traces_from_before_the_columns_hold_and_claim_no_more_than_their_rows(mode: dict[str, Any]) -> None:
    trace = trace_of(2, **mode)
    now = trace.summary()["repair"]
    layers, mask = trace.run["n_layers"], trace.run.get("mask")
    old = without_columns(trace, Settings(**{"max_new_tokens": TOKENS, **mode}).as_dict())
    old.run |= {"prompt_token_ids": [2], "prompt_tokens": 1, "n_layers": layers, "mask": mask}
    assert [problem for problem in check(old) if "repair" in problem or "branch0" in problem] == []
    summary = old.summary()["repair"]
    if mode is PLAIN:
        assert summary == now
    else:
        assert (summary["won"], summary["extra_tokens"]) == (None, None)
    old.run["totals"]["repair"]["nodes"] += 1
    assert any("repair.nodes" in problem for problem in check(old))

"""EAGLE-2's trees: each candidate by a chain of its own, the best of them, the verifier's text and law."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from cure.cure_toys import TableTreeDrafter, tree_parts
from drafters.checkpoint_files import eagle, target_of
from drafters.runs import (
    GREEDY,
    begun,
    block_drafter,
    noise,
    parts_with,
    sampled_p_values,
    state_follows_from_the_text,
    texts_agree,
)
from laws.chi_square import episode_p_value
from laws.test_output_laws import joint_law
from scripted import TableRunner, near, random_table, run, sampled
from toys import toy_pair
from viasd_core import tree
from viasd_core.cure.dynamic import rerank
from viasd_core.drafters.base import Candidate
from viasd_core.drafters.checkpoints import Trained
from viasd_core.drafters.eagle import EagleDrafter, load
from viasd_core.errors import PairError, SettingsError
from viasd_core.masks import chain_pass
from viasd_core.pair import ModelPair
from viasd_core.settings import Settings
from viasd_core.trace_check import check
from viasd_core.transfer import to_device

TEXT = [1, 4, 2, 7, 7, 0, 3, 5, 6]


def small(tmp_path: Path, family: str = "llama", vocab: int = 8) -> tuple[ModelPair, Trained]:
    pair = toy_pair(family, drafter="none", layers=6, vocab=vocab)
    target = target_of(pair)
    return pair, load(eagle(tmp_path, target.config, vocab - 2, seed=5), target)


def forced_chain(drafter: EagleDrafter, path: Sequence[int]) -> list[float]:
    """Raw log-probabilities of `path` when the drafter goes down it token by token."""
    length, start = len(drafter._context) - 1, drafter._pending()
    embeds, hidden = drafter._inputs(start, length)
    said = []
    for end, token in enumerate(path, start=length):
        plan = chain_pass(start, end - start, embeds.device)
        hidden = drafter._reader.network(embeds, hidden, plan, drafter._slots)
        said.append(float(drafter._reader.logits(hidden).log_softmax(-1)[0, token]))
        start, embeds = end, drafter._reader.embed(to_device([token], embeds.device))
    return said


@torch.inference_mode()
def test_every_candidate_has_the_chance_that_a_chain_down_to_it_gives(tmp_path: Path) -> None:
    pair, trained = small(tmp_path)
    drafter: EagleDrafter = begun(pair, trained, TEXT)
    found, forwards = drafter.draft_tree(4, 3)
    assert forwards == 4 and len(found) == 3 + 3 * 9
    parents = [one.parent for one in found]
    tree.check(parents)
    for index, one in enumerate(found):
        path = [found[node].token for node in tree.path(parents, index)]
        said = forced_chain(begun(pair, trained, TEXT), path)
        assert one.logp == pytest.approx(said[-1], abs=1e-9)
        assert one.value == pytest.approx(sum(said), abs=1e-9)


@torch.inference_mode()
def test_a_tree_of_width_one_is_the_greedy_chain(tmp_path: Path) -> None:
    pair, trained = small(tmp_path)
    found, _ = begun(pair, trained, TEXT).draft_tree(5, 1)
    chain = begun(pair, trained, TEXT).draft(5, GREEDY, noise())
    assert [one.token for one in found] == chain.tokens.tolist()
    assert [one.parent for one in found] == [-1, 0, 1, 2, 3]


@torch.inference_mode()
def test_each_level_expands_its_most_valuable_nodes(tmp_path: Path) -> None:
    pair, trained = small(tmp_path)
    found, _ = begun(pair, trained, TEXT).draft_tree(4, 2)
    levels = tree.depths([one.parent for one in found])
    for level in range(1, 3):
        here = [index for index, at in enumerate(levels) if at == level]
        best = sorted(here, key=lambda index: -found[index].value)[:2]
        assert {one.parent for one in found if one.parent in here} == set(best)


def test_the_best_candidates_make_a_tree_of_the_budgets_size() -> None:
    """T1 and T2: ancestors stand, values do not rise along a path, siblings differ."""
    found = [
        Candidate(5, -1, -0.1, -0.1), Candidate(6, -1, -2.0, -2.0), Candidate(1, 0, -0.2, -0.3),
        Candidate(2, 0, -1.0, -1.1), Candidate(1, 1, -0.1, -2.1), Candidate(7, 2, -0.5, -0.8),
    ]  # fmt: skip
    grown = rerank(found, 4, frozenset())
    assert grown.tokens == (5, 1, 2, 7) and grown.parents == (-1, 0, 0, 1)
    assert [node.branch for node in grown.nodes] == [0, 0, 1, 0]
    for node in grown.nodes:
        assert node.parent < 0 or node.total <= grown.nodes[node.parent].total
    assert len(rerank(found, 99, frozenset()).nodes) == 6
    assert rerank(found, 99, frozenset({1})).tokens == (5, 6, 1, 2, 1)


def test_greedy_text_is_plain_decodings_for_every_family(family: str, tmp_path: Path) -> None:
    pair, trained = small(tmp_path, family)
    assert texts_agree(pair, trained, [5, 1, 7, 3], method="eagle2", gamma=4, v_max=20, beam=3) > 0


def test_a_tree_keeps_more_than_its_greedy_chain(tmp_path: Path) -> None:
    pair, trained = small(tmp_path)
    parts = parts_with(pair, trained)
    options: dict[str, Any] = {"max_new_tokens": 60, "gamma": 4}
    wide = run(parts, [5, 1, 7, 3], Settings(method="eagle2", beam=4, v_max=40, **options))
    chain = run(parts, [5, 1, 7, 3], Settings(method="eagle2", beam=1, v_max=4, **options))
    assert len(wide.cycles) < len(chain.cycles)
    assert max(cycle.tree_nodes for cycle in wide.cycles) == 40


def test_sampled_text_follows_the_verifiers_law(tmp_path: Path) -> None:
    """T3."""
    pair = toy_pair(drafter="none", layers=6, vocab=4)
    target = target_of(pair)
    trained = load(eagle(tmp_path, target.config, 3, seed=5), target)
    options: dict[str, Any] = {"method": "eagle2", "gamma": 3, "beam": 2, "v_max": 8}
    ours, other = sampled_p_values(pair, trained, [1, 3, 0], runs=150, **options)
    assert ours > 1e-3 and other < 1e-3


SHAPES: dict[str, dict[str, Any]] = {
    "two of four": {"gamma": 3, "beam": 2, "v_max": 8},
    "three of four": {"gamma": 2, "beam": 3, "v_max": 12},
    "cut by the budget": {"gamma": 4, "beam": 3, "v_max": 5},
    "one chain": {"gamma": 3, "beam": 1, "v_max": 8},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_sampled_trees_have_exactly_the_verifiers_joint_law(name: str) -> None:
    """T3: joint law of pairs in 20,000 tokens, kept on branch 0 and on others."""
    q = random_table(4, 1, 81, scale=1.2, episode=2)
    drafter = near(q, 0.5, 82)
    parts = tree_parts(TableRunner(q), drafter)
    settings = Settings(method="eagle2", temperature=1.0, seed=5, **SHAPES[name])
    trace = run(parts, [0], settings.with_(max_new_tokens=200))
    assert check(trace) == []
    kept = {row.branch > 0 for row in trace.tree if row.accepted}
    assert kept == ({False} if name == "one chain" else {False, True})
    outputs = sampled(parts, settings, count=20_000)
    assert episode_p_value(outputs, joint_law(q, 2)) > 1e-3
    assert episode_p_value(outputs, joint_law(drafter, 2)) < 1e-3, "the test has no power"


def test_a_table_grows_the_candidates_that_the_paper_describes() -> None:
    """What the law above is tested with: levels of the most valuable nodes, values that add up."""
    drafter = TableTreeDrafter(random_table(4, 2, 83))
    drafter.begin([1, 2])
    found, forwards = drafter.draft_tree(3, 2)
    assert forwards == 3 and len(found) == 2 + 4 + 4
    tree.check([one.parent for one in found])
    for one in found:
        above = found[one.parent].value if one.parent >= 0 else 0.0
        assert one.value == pytest.approx(above + one.logp)
    second = found[2:6]
    best = sorted(second, key=lambda one: -one.value)[:2]
    assert {one.parent for one in found[6:]} == {found.index(one) for one in best}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_after_every_cycle_the_next_draft_is_that_of_a_fresh_replay(
    temperature: float, tmp_path: Path
) -> None:
    pair, trained = small(tmp_path)
    settings = Settings(
        method="eagle2", max_new_tokens=50, gamma=4, beam=3, v_max=16, temperature=temperature
    )
    assert len(state_follows_from_the_text(pair, trained, settings, cycles=18)) > 8


def test_a_drafter_without_trees_and_a_tree_too_wide_are_refused(tmp_path: Path) -> None:
    pair, trained = block_drafter(tmp_path)
    with pytest.raises(PairError, match="'eagle2' needs a drafter that grows trees"):
        run(parts_with(pair, trained), [1, 2], Settings(method="eagle2"))
    with pytest.raises(SettingsError, match="gamma 60 times beam 5 expands more than 256 nodes"):
        Settings(method="eagle2", gamma=60)

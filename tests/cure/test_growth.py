"""The repair tree: a trie, branch 0 never lost, and its bounds by depth and size."""

from __future__ import annotations

import random
from typing import Any

import pytest

from viasd_core import tree
from viasd_core.cure.growth import DraftTree, Step, grow, until_end

DEPTH = 15
WIDE: dict[str, Any] = {"beam": 64, "budget": 256}


def steps(*tokens: int, logp: float = -1.0) -> list[Step]:
    return [Step(token, logp) for token in tokens]


def main_line() -> list[Step]:
    return steps(*range(DEPTH))


def repaired(place: int, count: int) -> list[list[Step]]:
    """`count` whole paths that leave the block at `place`, each with tokens of its own."""
    return [
        [*main_line()[:place], *steps(*(100 * branch + depth for depth in range(place, DEPTH)), logp=-branch)]
        for branch in range(1, count + 1)
    ]


def paths(grown: DraftTree) -> set[tuple[int, ...]]:
    """Every path from the anchor to a leaf, as tokens."""
    leaves = set(range(len(grown.nodes))) - set(grown.parents)
    return {tuple(grown.tokens[node] for node in tree.path(grown.parents, leaf)) for leaf in leaves}


@pytest.mark.parametrize("place", range(1, DEPTH + 1))
@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_shared_prefix_is_stored_once(place: int, count: int) -> None:
    """C10: 15 + sum over branches (15 - i + 1) nodes, i counted from 1."""
    grown = grow(main_line(), repaired(place - 1, count), **WIDE)
    assert len(grown.nodes) == DEPTH + count * (DEPTH - place + 1)
    wanted = [main_line(), *repaired(place - 1, count)]
    assert paths(grown) == {tuple(step.token for step in path) for path in wanted}


def test_equal_paths_and_equal_prefixes_of_repairs_merge() -> None:
    grown = grow(steps(1, 2), [steps(1, 3, 4), steps(1, 3, 5), steps(1, 2)], **WIDE)
    assert grown.tokens == (1, 2, 3, 4, 5)
    assert [node.branch for node in grown.nodes] == [0, 0, 1, 1, 2]
    assert [node.depth for node in grown.nodes] == [1, 2, 2, 3, 3]


def test_a_budget_of_the_blocks_length_leaves_branch_0_alone() -> None:
    for budget in (1, DEPTH):
        assert paths(grow(main_line(), repaired(3, 5), beam=5, budget=budget)) == {tuple(range(DEPTH))}


def test_the_last_chain_is_cut_short_by_the_budget() -> None:
    grown = grow(main_line(), repaired(5, 3), beam=5, budget=DEPTH + 10 + 4)
    lengths = [sum(node.branch == branch for node in grown.nodes) for branch in range(4)]
    assert lengths == [DEPTH, 10, 4, 0]


def test_the_beam_drops_the_least_likely_repair_with_all_that_follows() -> None:
    grown = grow(main_line(), repaired(5, 4), beam=3, budget=256)
    assert {node.branch for node in grown.nodes} == {0, 1, 2, 3}
    assert len(grown.nodes) == DEPTH + 3 * 10


def test_the_beam_counts_by_depth_and_not_by_position() -> None:
    """A likely late repair displaces the node of an unlikely early one at the same depth."""
    early = [steps(9, 8, 7, logp=-5.0)]
    late = [[*steps(0, 1), *steps(50, logp=-0.1)]]
    grown = grow(steps(0, 1, 2), [*early, *late], beam=1, budget=256)
    assert paths(grown) == {(0, 1, 2), (9, 8), (0, 1, 50)}


def test_without_branch_0_only_the_repaired_paths_stand() -> None:
    grown = grow(main_line(), repaired(4, 2), branch0=False, **WIDE)
    assert paths(grown) == {tuple(step.token for step in path) for path in repaired(4, 2)}
    assert sum(node.branch == 0 for node in grown.nodes) == 4


def test_without_branch_0_and_without_a_repair_the_block_stands() -> None:
    assert paths(grow(main_line(), [], branch0=False, **WIDE)) == {tuple(range(DEPTH))}


def test_random_trees_keep_every_bound() -> None:
    """C4 and T1: ancestors stand, branch 0 is whole, at most `beam` repairs a depth, at most the budget."""
    for seed in range(200):
        dice = random.Random(seed)
        depth = dice.randint(1, DEPTH)
        block = [Step(dice.randrange(4), -dice.random()) for _ in range(depth)]
        repairs = []
        for _ in range(dice.randrange(6)):
            place = dice.randrange(depth)
            tail = [Step(dice.randrange(4), -dice.random()) for _ in range(depth - place)]
            repairs.append([*block[:place], *tail])
        beam, budget = dice.randint(1, 4), dice.randint(1, 40)
        grown = grow(block, repairs, beam=beam, budget=budget)
        tree.check(grown.parents)
        assert [node.depth - 1 for node in grown.nodes] == tree.depths(grown.parents)
        assert [node.token for node in grown.nodes if node.branch == 0] == [step.token for step in block]
        assert len(grown.nodes) <= max(budget, depth)
        for level in range(1, depth + 1):
            assert sum(node.branch > 0 and node.depth == level for node in grown.nodes) <= beam
        siblings = [(node.parent, node.token) for node in grown.nodes]
        assert len(set(siblings)) == len(siblings)


def test_nothing_is_drafted_behind_the_end_of_the_text() -> None:
    assert until_end(steps(1, 9, 2, 9), {9}) == steps(1, 9)
    assert until_end(steps(1, 2), {9}) == steps(1, 2)


def test_the_main_line_goes_on_with_the_lowest_branch() -> None:
    grown = grow(steps(1, 2, 3), [steps(1, 5, 6)], **WIDE)
    assert grown.main_line([]) == [0, 1, 2]
    assert grown.main_line([0, 3]) == [0, 3, 4]

"""Where the nodes of a repair tree stand: the layout as a pure function, in the browser's own language."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from playwright.sync_api import Page

import sample_trees
from viasd_core.trace import TreeRow
from viz import viewer

Layout = Callable[[list[TreeRow]], dict[str, Any]]
SEEDS = range(12)


@pytest.fixture
def layout(page: Page) -> Layout:
    """layoutTree of the viewer's module, which imports nothing."""
    source = (viewer.STATIC / "tree_layout.js").read_text(encoding="utf-8")

    def place(rows: list[TreeRow]) -> dict[str, Any]:
        found: dict[str, Any] = page.evaluate(
            """async ([source, rows]) => {
              const module = await import(`data:text/javascript,${encodeURIComponent(source)}`);
              return module.layoutTree(rows);
            }""",
            [source, [asdict(row) for row in rows]],
        )
        return found

    return place


def tree(seed: int, positions: int = 3) -> list[TreeRow]:
    return list(sample_trees.grow(0, sample_trees.block_of(seed, 15, 90, positions=positions)))


def places(found: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """Node -> (depth, line)."""
    return {place["row"]["node"]: (place["depth"], place["line"]) for place in found["places"]}


def row(node: int, parent: int, depth: int, branch: int) -> TreeRow:
    return TreeRow(0, node, parent, depth, branch, node, f"t{node}")


def test_branch_0_is_the_base_line_and_repairs_take_the_next_free_lines(layout: Layout) -> None:
    rows = [row(0, -1, 1, 0), row(1, 0, 2, 0), row(2, 1, 3, 0)]
    rows += [row(3, 0, 2, 1), row(4, 3, 3, 1), row(5, 0, 2, 2), row(6, 1, 3, 3)]
    found = layout(rows)
    assert places(found) == {
        0: (1, 0), 1: (2, 0), 2: (3, 0), 6: (3, 1), 3: (2, 2), 4: (3, 2), 5: (2, 3),
    }  # fmt: skip
    assert (found["depth"], found["lines"], found["left"]) == (3, 4, 0)
    assert [place["row"]["node"] for place in found["places"] if place["first"]] == [3, 5, 6]


def test_a_branch_uses_a_line_again_where_the_one_before_it_has_ended(layout: Layout) -> None:
    main = [row(node, node - 1, node + 1, 0) for node in range(8)]
    found = places(layout([*main, row(8, 0, 2, 1), row(9, 8, 3, 1), row(10, 5, 7, 2)]))
    assert found[10][1] == found[8][1] == found[9][1] == 1


def test_two_branches_side_by_side_on_a_line_never_look_joined(layout: Layout) -> None:
    main = [row(node, node - 1, node + 1, 0) for node in range(8)]
    found = places(layout([*main, row(8, 0, 2, 1), row(9, 8, 3, 1), row(10, 2, 4, 2)]))
    assert found[10][1] != found[9][1]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_two_nodes_share_a_place_and_x_is_the_depth(layout: Layout, seed: int) -> None:
    rows = tree(seed)
    found = places(layout(rows))
    assert len(set(found.values())) == len(rows)
    assert {node: depth for node, (depth, _) in found.items()} == {row.node: row.depth for row in rows}
    assert {row.node for row in rows if row.branch == 0} == {
        node for node, (_, line) in found.items() if line == 0
    }


def any_tree(seed: int) -> list[TreeRow]:
    """A tree that forks anywhere; every child but a node's first starts a branch."""
    numbers = random.Random(seed)
    rows: list[TreeRow] = []
    forked: set[int] = set()
    branch = 0
    for node in range(numbers.randint(10, 60)):
        parent = numbers.randrange(-1, node) if numbers.random() < 0.5 else node - 1
        if parent in forked:
            branch += 1
        inherited = rows[parent].branch if parent >= 0 else 0
        depth = rows[parent].depth + 1 if parent >= 0 else 1
        rows.append(row(node, parent, depth, branch if parent in forked else inherited))
        forked.add(parent)
    return rows


@pytest.mark.parametrize("make", [tree, any_tree])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_edge_crosses_another_branch(
    layout: Layout, make: Callable[[int], list[TreeRow]], seed: int
) -> None:
    rows = make(seed)
    at = places(layout(rows))
    assert len(set(at.values())) == len(rows)
    entered = {at[row.node]: row.parent for row in rows}
    downs = [row for row in rows if above(row, at) != at[row.node][1]]
    passed: dict[tuple[int, int], int] = {}
    for fork in downs:
        depth, line = at[fork.node]
        assert above(fork, at) < line
        for between in range(above(fork, at) + 1, line):
            # Only a sibling may be entered where the edge comes down, and only siblings share their way down.
            assert entered.get((depth, between), fork.parent) == fork.parent
            assert passed.setdefault((depth, between), fork.parent) == fork.parent


def above(row: TreeRow, at: dict[int, tuple[int, int]]) -> int:
    return at[row.parent][1] if row.parent >= 0 else 0


def test_the_order_of_the_rows_does_not_matter(layout: Layout) -> None:
    rows = tree(4)
    expected = layout(rows)
    shuffled = random.Random(1).sample(rows, len(rows))
    assert layout(shuffled) == expected


def test_a_repair_of_the_first_position_hangs_on_the_anchor(layout: Layout) -> None:
    found = places(layout([row(0, -1, 1, 0), row(1, -1, 1, 1), row(2, 1, 2, 1)]))
    assert found == {0: (1, 0), 1: (1, 1), 2: (2, 1)}


def test_repairs_without_branch_0_leave_the_base_line_free(layout: Layout) -> None:
    found = places(layout([row(0, -1, 1, 1), row(1, 0, 2, 1)]))
    assert found == {0: (1, 1), 1: (2, 1)}


def test_a_branch_may_fork_again(layout: Layout) -> None:
    rows = [row(0, -1, 1, 0), row(1, -1, 1, 1), row(2, 1, 2, 1), row(3, 1, 2, 2), row(4, 1, 2, 1)]
    found = places(layout(rows))
    assert found[2] == (2, 1)
    assert len(set(found.values())) == 5


def test_rows_that_hang_nowhere_or_come_twice_are_left_out_and_counted(layout: Layout) -> None:
    circle = [row(5, 6, 3, 1), row(6, 5, 4, 1)]
    found = layout([row(0, -1, 1, 0), row(0, -1, 1, 0), row(3, 99, 2, 1), row(-1, -1, 1, 0), *circle])
    assert found["left"] == 4
    assert set(places(found)) == {-1, 0}


def test_a_tree_of_any_size_is_drawn_up_to_a_limit(layout: Layout) -> None:
    found = layout([row(node, node - 1, node + 1, 0) for node in range(5000)])
    assert len(found["places"]) == 600
    assert found["left"] == 4400


def test_an_empty_tree_has_no_lines(layout: Layout) -> None:
    assert layout([]) == {"places": [], "depth": 0, "lines": 0, "left": 0}

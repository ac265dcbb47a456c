"""Parent lists: a chain is the tree with one branch."""

from __future__ import annotations

import pytest

from viasd_core import tree

#        0     1  2      3     4
FORK = (-1, 0, 0, 2, 2)


def test_a_chain_is_a_tree_whose_nodes_follow_each_other() -> None:
    assert tree.chain(4) == (-1, 0, 1, 2)
    assert tree.is_chain(tree.chain(4)) and not tree.is_chain(FORK)
    assert tree.chain(0) == () and tree.is_chain(())


def test_depths_count_from_the_prefix() -> None:
    assert tree.depths(FORK) == [0, 1, 1, 2, 2]
    assert tree.depths(tree.chain(3)) == [0, 1, 2]
    assert tree.depths((-1, -1)) == [0, 0]


def test_a_path_leads_from_the_prefix_to_the_node() -> None:
    assert tree.path(FORK, 4) == [0, 2, 4]
    assert tree.path(FORK, 1) == [0, 1]
    assert tree.path(FORK, -1) == []


def test_a_node_sees_its_ancestors_and_itself_and_nothing_else() -> None:
    seen = tree.ancestors(FORK)
    for node in range(len(FORK)):
        assert [index for index, visible in enumerate(seen[node]) if visible] == tree.path(FORK, node)


def test_rows_of_the_ancestor_matrix_are_not_shared() -> None:
    seen = tree.ancestors(FORK)
    seen[0][4] = True
    assert not seen[1][4]


@pytest.mark.parametrize("parents", [(0,), (-1, 1), (-1, 2, 0), (-2,)])
def test_a_parent_behind_its_child_is_refused(parents: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="a parent must come before its child"):
        tree.check(parents)


def test_well_formed_trees_pass() -> None:
    tree.check(FORK)
    tree.check(())

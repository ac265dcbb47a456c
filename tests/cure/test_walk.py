"""The walk on the device against its definition, and that a tree never keeps less than its branch 0."""

from __future__ import annotations

import random

import torch

from viasd_core.cure.growth import DraftTree, Step, grow
from viasd_core.cure.walk import walk

VOCAB = 4


def by_definition(grown: DraftTree, draws: dict[tuple[int, ...], int]) -> list[int]:
    """Node by node: enter the child whose token is the draw behind the path so far."""
    path: list[int] = []
    while True:
        at = path[-1] if path else -1
        wanted = draws[tuple(grown.tokens[node] for node in path)]
        found = [n for n in range(len(grown.nodes)) if grown.parents[n] == at and grown.tokens[n] == wanted]
        if not found:
            return path
        assert len(found) == 1
        path += found


def prefix(grown: DraftTree, node: int) -> tuple[int, ...]:
    tokens: list[int] = []
    while node >= 0:
        tokens.append(grown.tokens[node])
        node = grown.parents[node]
    return tuple(tokens[::-1])


def walked(grown: DraftTree, draws: dict[tuple[int, ...], int]) -> tuple[list[int], int]:
    """(accepted nodes, row the walk ends at) by the code under test."""
    rows = [draws[prefix(grown, node)] for node in range(-1, len(grown.nodes))]
    found = walk(torch.tensor(grown.tokens), grown.parents, torch.tensor(rows))
    length = int(found.length)
    path = found.path[:length].tolist()
    assert found.rows[:length].tolist() == [0, *(node + 1 for node in path[:-1])][:length]
    return path, int(found.stop)


class Verifier(dict[tuple[int, ...], int]):
    """A greedy verifier: one token behind every text, made up when it is first asked."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self.dice = dice

    def __missing__(self, text: tuple[int, ...]) -> int:
        return self.setdefault(text, self.dice.randrange(VOCAB))


def test_every_walk_is_the_one_of_the_definition_and_never_shorter_than_branch_0() -> None:
    """C3: a(tree) >= a(branch 0) on the same rows; without branch 0 never more. C5: a gain starts where
    branch 0 fails first.
    """
    gains = 0
    for seed in range(400):
        dice = random.Random(seed)
        verifier = Verifier(dice)
        block = [Step(dice.randrange(VOCAB), -dice.random()) for _ in range(5)]
        place = dice.randrange(5)
        rest = 4 - place
        others = dice.sample([token for token in range(VOCAB) if token != block[place].token], 2)
        repairs = [
            [
                *block[:place],
                *(Step(token, -1.0) for token in (other, *dice.choices(range(VOCAB), k=rest))),
            ]
            for other in others
        ]
        grown = grow(block, repairs, beam=5, budget=90)
        path, stop = walked(grown, verifier)
        assert path == by_definition(grown, verifier)
        assert stop == (path[-1] + 1 if path else 0)
        alone, _ = walked(grow(block, [], beam=5, budget=90), verifier)
        assert len(path) >= len(alone)
        bare, _ = walked(grow(block, repairs, beam=5, budget=90, branch0=False), verifier)
        assert len(bare) <= len(path)
        on_branch_0 = [node for node in path if grown.nodes[node].branch == 0]
        assert len(on_branch_0) == len(alone), "branch 0 is judged by the same rows"
        if len(path) > len(alone):
            gains += 1
            assert len(alone) == place and grown.tokens[path[place]] in others
    assert gains > 20

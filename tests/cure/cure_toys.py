"""A block drafter that is a table, for runs in which every row any tier reads is checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from scripted import Table, TableDrafter, TableRunner, scripted_parts
from viasd_core.drafters.base import Candidate, Redrawn
from viasd_core.parts import Parts
from viasd_core.probs import Noise, Sampling, draw, logits_to_probs, raw_log_probs
from viasd_core.trace import Trace, TreeRow

SLOTS = 8


class TableBlockDrafter(TableDrafter):
    """Blocks of `longest` tokens; a suffix is what the table says behind the changed text."""

    def __init__(self, table: Table, longest: int = SLOTS - 1, rerolls: bool = True) -> None:
        super().__init__(table)
        self.longest, self.rerolls = longest, rerolls

    def redraw(self, known: Sequence[Sequence[int]], count: int, sampling: Sampling, noise: Noise) -> Redrawn:
        drawn = noise.exponentials("suffix", sampling, len(known), count, self.table.vocab)
        tokens, rows = [], []
        for lane, told in enumerate(known):
            text = list(self.context)
            for place in range(count):
                rows.append(self.table.after(text))
                law = logits_to_probs(rows[-1][None], sampling)[0]
                own = int(draw(law, None if drawn is None else drawn[lane, place]))
                text.append(told[place] if place < len(told) else own)
            tokens.append(text[len(self.context) :])
        chosen = torch.tensor(tokens)
        logits = torch.stack(rows).view(len(known), count, -1)
        logp, laws = raw_log_probs(logits), logits_to_probs(logits, sampling)
        best = logp.topk(2, dim=-1).values
        said = logp.gather(-1, chosen[..., None])[..., 0]
        return Redrawn(chosen, said, best[..., 0] - best[..., 1], laws, 1)

    def reroll(self, known: Sequence[Sequence[int]], count: int, sampling: Sampling, noise: Noise) -> Redrawn:
        return replace(self.redraw(known, count, sampling, noise), forwards=0)


class TableTreeDrafter(TableDrafter):
    """EAGLE-2's candidates out of a table: the most valuable nodes of a level get their likeliest tokens."""

    def draft_tree(self, depth: int, width: int) -> tuple[list[Candidate], int]:
        found: list[Candidate] = []
        frontier: list[tuple[int, float, list[int]]] = [(-1, 0.0, list(self.context))]
        for _ in range(depth):
            level = []
            for parent, value, text in frontier:
                best = raw_log_probs(self.table.after(text)[None])[0].topk(width)
                for logp, token in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                    level.append((len(found), value + logp, [*text, token]))
                    found.append(Candidate(token, parent, logp, value + logp))
            frontier = sorted(level, key=lambda one: (-one[1], one[0]))[:width]
        return found, depth


def tree_parts(runner: TableRunner, drafter: Table) -> Parts:
    """Parts whose drafter grows trees out of a table."""
    return replace(
        scripted_parts(runner, drafter), drafter=lambda verifier, capacity: TableTreeDrafter(drafter)
    )


def table_parts(runner: TableRunner, drafter: Table, *, eos: Sequence[int] = (), **options: Any) -> Parts:
    """Parts whose drafter proposes blocks out of a table."""
    parts = scripted_parts(runner, drafter, eos=eos)
    return replace(parts, drafter=lambda verifier, capacity: TableBlockDrafter(drafter, **options))


def trees(trace: Trace) -> dict[int, list[TreeRow]]:
    """The nodes of each cycle that has any."""
    found: dict[int, list[TreeRow]] = {}
    for row in trace.tree:
        found.setdefault(row.cycle, []).append(row)
    return found


def kept(nodes: Sequence[TreeRow]) -> int:
    return sum(row.accepted for row in nodes)


def kept_on_branch_0(nodes: Sequence[TreeRow]) -> int:
    return sum(row.accepted and row.branch == 0 for row in nodes)

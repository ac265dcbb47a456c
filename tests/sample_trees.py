"""Runs with repair trees, grown by CURE's rules (arXiv 2608.00531, eqs. 2, 3 and 5) from blocks of made-up
words: what the drafter wrote, how sure it was, what else it would have written, what the verifier writes."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sample_traces import cycle_row, draft, drawn, finish_run
from viasd_core.trace import CycleEvent, TokenRow, Trace, TreeRow

TAU = 1.0
B_MIN, B_MAX = 1, 5
WORDS = (
    " the", " cache", " keeps", " rows", " of", " keys", ",", " and", " values", " that", " a", " model",
    " wrote", "\n", " before", ".", " It", " reads", " them", " again", " when", " drafting", " stops", "()",
    " unbelievably", " naïve", " 世界", "🌱",
)  # fmt: skip
_MADE = {"alpha1": None, "alpha2": None, "skip_ratio": None, "slim_forwards": 0, "mask_id": ""}


@dataclass(frozen=True)
class Block:
    """One drafted block. `repairs` maps a position (from 1) to the suffixes that start there, best first."""

    words: Sequence[str]
    margins: Sequence[float]
    repairs: Mapping[int, Sequence[Sequence[str]]]
    truth: Sequence[str]  # what the verifier writes; longer than what is kept


def branches_at(margin: float, scale: float = TAU) -> int:
    """b_i of eq. 3, rounded half up: how many alternatives a position of this margin gets."""
    doubt = min(1.0, max(0.0, 1 - margin / scale))
    return max(B_MIN, min(B_MAX, math.floor(B_MIN + doubt * (B_MAX - B_MIN) + 0.5)))


def grow(cycle: int, block: Block, tau: float = TAU) -> tuple[TreeRow, ...]:
    """The tree of a block: branch 0, then the suffixes; walked by what the verifier writes."""
    rows = [
        TreeRow(
            cycle, depth - 1, depth - 2, depth, 0, token_id(word), word,
            logp_draft=-0.1 - 0.05 * depth, margin=margin, is_ufp=margin < tau, verified=True,
        )
        for depth, (word, margin) in enumerate(zip(block.words, block.margins, strict=True), 1)
    ]  # fmt: skip
    branch = 0
    for position, suffixes in block.repairs.items():
        for suffix in suffixes:
            branch += 1
            parent = position - 2
            for depth, word in enumerate(suffix, position):
                rows.append(
                    TreeRow(
                        cycle, len(rows), parent, depth, branch, token_id(word), word,
                        logp_draft=-1.0 - 0.2 * branch, margin=0.5 + 0.1 * depth, verified=True,
                    )
                )  # fmt: skip
                parent = len(rows) - 1
    return walk(rows, block.truth)


def token_id(word: str) -> int:
    return sum(word.encode("utf-8", "surrogatepass"))


def walk(rows: list[TreeRow], truth: Sequence[str]) -> tuple[TreeRow, ...]:
    """Greedy: descend while a child is what the verifier writes; one path is taken."""
    ids = [token_id(word) for word in truth]
    for index, row in enumerate(rows):
        parent = rows[row.parent] if row.parent >= 0 else None
        right = row.depth <= len(ids) and row.token_id == ids[row.depth - 1]
        kept = right and (parent is None or parent.accepted)
        rows[index] = replace(row, accepted=kept, on_best_path=kept)
    return tuple(rows)


def event(cycle: int, block: Block, start: int, out_pos: int, **more: Any) -> CycleEvent:
    """The cycle of a block: the kept path and the line it would have gone on with, the verifier's own token,
    and what branch 0 had drafted beside that line."""
    tree = grow(cycle, block)
    path = sorted((row for row in tree if row.on_best_path), key=lambda row: row.depth)
    line = _main_line(tree, path)
    tokens = [_as_token(row, "accepted_full", out_pos + place) for place, row in enumerate(path)]
    behind = line[len(path) :]
    tokens += [_as_token(row, "discarded" if place else "rejected", None) for place, row in enumerate(behind)]
    refused = len(behind) > 0
    word = block.truth[len(path)]
    made = {
        "source": "full" if refused else "bonus",
        "token_id": token_id(word),
        "t_us": 20_000 * (cycle + 1),
    }
    verdict = "rewritten_full" if refused else "bonus"
    tokens.append(drawn(cycle, len(path), word, verdict, out_pos + len(path), **made))
    tokens += [_as_token(row, "discarded", None) for row in tree if row.branch == 0 and row not in line]
    committed = len(path) + 1
    repaired, won = any(row.branch for row in tree), any(row.branch for row in path)
    phases = {
        "draft": 3250 if repaired else 2400, "tree": 12_700 if repaired else 11_800, "gate": 300,
        "resync" if won else "commit": 700 if won else 100, "host": 150,
    }  # fmt: skip
    row = cycle_row(
        cycle, len(block.words), committed, start + committed, gamma=len(block.words), phase_us=phases,
        t_start_us=20_000 * cycle, region_c_accepted=len(path), region_c_rejected=int(refused),
        full_forwards=1, tau_margin=TAU, v_max=90, tree_nodes=len(tree), n_q=start + committed - 1,
        n_s=start + committed - 1, reason="verify", **_MADE,
    )  # fmt: skip
    return CycleEvent(row, tuple(tokens), tree=tree, **more)


def _main_line(tree: Sequence[TreeRow], path: Sequence[TreeRow]) -> list[TreeRow]:
    line = list(path)
    while children := [row for row in tree if row.parent == (line[-1].node if line else -1)]:
        line.append(min(children, key=lambda row: (row.branch, row.node)))
    return line


def _as_token(row: TreeRow, verdict: str, out_pos: int | None) -> TokenRow:
    region = "" if verdict == "discarded" else "C"
    token = draft(row.cycle, row.depth - 1, "", verdict, region, out_pos)
    return replace(
        token, token_id=row.token_id, text=row.text, data=row.text.encode("utf-8", "surrogatepass"),
        branch=row.branch,
        node=row.node, parent=row.parent, source="repair" if row.branch else "draft", is_ufp=row.is_ufp,
        top2_margin=row.margin, logp_draft=row.logp_draft, slim_ratio=None, thr1=None, thr2=None,
        logp_slim=None, t_us=20_000 * (row.cycle + 1),
    )  # fmt: skip


def run_of(blocks: Sequence[Block], method: str = "cure") -> Trace:
    """A finished run of these blocks, one a cycle."""
    trace = Trace()
    out_pos = 0
    for cycle, block in enumerate(blocks):
        last = cycle == len(blocks) - 1
        grown = event(cycle, block, 4 + out_pos, out_pos, finish="length" if last else None)
        trace.add(grown)
        out_pos += grown.cycle.committed
    return finish_run(trace, method, {"max_new_tokens": out_pos})


def block_of(seed: int, length: int, most: int, positions: int = 1, right: int | None = None) -> Block:
    """A block of `length` words whose least certain positions are repaired until the tree has `most` nodes.

    The verifier agrees with branch 0 up to the first repaired position and then, when `right` names a branch
    (from 0), with that one.
    """
    numbers = random.Random(seed)
    words = [numbers.choice(WORDS) for _ in range(length)]
    margins = [round(numbers.uniform(0.05, 4), 3) for _ in range(length)]
    doubtful = sorted(range(1, length + 1), key=lambda place: margins[place - 1])[:positions]
    budget = most - length
    repairs: dict[int, list[list[str]]] = {}
    for position in doubtful:
        margins[position - 1] = min(margins[position - 1], TAU / 2)
        for rank in range(branches_at(margins[position - 1])):
            rest = [numbers.choice(WORDS) for _ in range(length - position)]
            suffix = [f" alt{rank}", *rest][:budget]
            budget -= len(suffix)
            if suffix:
                repairs.setdefault(position, []).append(suffix)
    first = doubtful[0] if doubtful else length
    truth = [*words[: first - 1], " end", " end"]
    if right is not None and first in repairs:
        truth = [*words[: first - 1], *repairs[first][right], " end"]
    return Block(words, margins, repairs, truth)


def cure_run() -> Trace:
    """Six cycles: no repair, a repair that wins, one that does not, a large tree that wins, and no tree."""
    sure = Block([" a", " b", " c"], [2.0, 1.5, 3.0], {}, [" a", " b", " c", " d"])
    won = Block(
        [" The", " cat", " sits", " there"], [2.5, 0.25, 1.75, 2.0],
        {2: [[" dog", " runs", " home"], [" cow", " eats"]]}, [" The", " dog", " runs", " away"],
    )  # fmt: skip
    lost = Block([" x", " y", " z"], [0.75, 2.0, 2.0], {1: [[" w", " v"]]}, [" x", " y", " end"])
    return run_of([sure, won, lost, block_of(3, 15, 75, right=1), sure])

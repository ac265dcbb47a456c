"""Offline scorer of CURE's Table 5: could the useful repairs have been told before they were verified?

A block is one cycle in which a repair was tried. Its features are known before verification; it is useful
when the tree kept more drafted tokens than branch 0 (Delta a > 0, eq. 5). Blocks are ranked by a model that
has not seen their prompt, and the top share r is admitted.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import DataError
from ..trace import TokenRow, Trace, TreeRow
from ..trace_repairs import repair_gain

FEATURES = (
    "margin",
    "second_margin",
    "mean_margin",
    "position",
    "repairs",
    "alternative_gap",
    "entropy",
    "suffix_logp",
    "nodes",
    "block",
)
MODELS = ("logistic regression", "gradient boosting")
FOLDS = 5


@dataclass(frozen=True)
class Block:
    """One repaired block: its features in the order of FEATURES, the tokens gained, and its prompt."""

    features: tuple[float, ...]
    gain: int
    prompt: str


@dataclass(frozen=True)
class Admission:
    """What admitting the top share `r` of the blocks gives."""

    r: float  # admitted / blocks
    precision: float  # useful admitted / admitted
    recall: float  # useful admitted / useful
    extra_recall: float  # tokens gained in admitted blocks / tokens gained


def blocks_of(trace: Trace) -> list[Block]:
    """The repaired blocks of a recorded run of which it is known what branch 0 alone would have kept."""
    ids = json.dumps([trace.run.get("prompt_token_ids"), trace.run.get("prompt")])
    prompt = hashlib.sha256(ids.encode()).hexdigest()
    trees: dict[int, list[TreeRow]] = defaultdict(list)
    for row in trace.tree:
        trees[row.cycle].append(row)
    drafted: dict[int, dict[int, TokenRow]] = defaultdict(dict)
    for token in trace.tokens:
        if token.source == "draft":
            drafted[token.cycle][token.slot] = token
    cycles = {row.cycle: row for row in trace.cycles}
    found = []
    for cycle, nodes in trees.items():
        features = _features(nodes, drafted[cycle])
        gain = repair_gain(cycles.get(cycle), nodes)
        if features is not None and gain is not None:
            found.append(Block(features, gain, prompt))
    return found


def _features(nodes: Sequence[TreeRow], drafted: dict[int, TokenRow]) -> tuple[float, ...] | None:
    """None where nothing was repaired, or the repaired position stands in no node of branch 0."""
    main = {row.depth: row for row in nodes if row.branch == 0}
    by_node = {row.node: row for row in nodes}
    repairs = [row for row in nodes if row.branch]
    heads = [row for row in repairs if row.parent < 0 or by_node[row.parent].branch == 0]
    margins = sorted(row.margin for row in main.values() if row.margin is not None)
    depth = min((head.depth for head in heads), key=lambda at: _margin(main.get(at)), default=None)
    at = None if depth is None else main.get(depth)
    if at is None or depth is None or at.margin is None:
        return None
    best = max((head.logp_draft or 0.0 for head in heads if head.depth == depth), default=0.0)
    suffix = [row.logp_draft for row in repairs if row not in heads and row.logp_draft is not None]
    token = drafted.get(depth - 1)
    return (
        at.margin,
        margins[1] if len(margins) > 1 else margins[0],
        float(np.mean(margins)),
        float(depth),
        float(len(heads)),
        (at.logp_draft or 0.0) - best,
        token.entropy_draft if token is not None and token.entropy_draft is not None else 0.0,
        float(np.mean(suffix)) if suffix else 0.0,
        float(len(nodes)),
        float(len(main)),
    )


def _margin(row: TreeRow | None) -> float:
    return float("inf") if row is None or row.margin is None else row.margin


def scores(blocks: Sequence[Block], model: str, seed: int = 0) -> np.ndarray:
    """Chance of each block to be useful, by a model fitted on the blocks of other prompts, [n].

    Raises DataError when the blocks come from one prompt, or the others hold one kind of block only.
    """
    prompts = sorted({block.prompt for block in blocks})
    if len(prompts) < 2:
        raise DataError("a scorer is tested on prompts it has not seen; give traces of at least two prompts")
    order = np.random.default_rng(seed).permutation(len(prompts))
    fold = {prompts[index]: place % min(FOLDS, len(prompts)) for place, index in enumerate(order)}
    folds = np.array([fold[block.prompt] for block in blocks])
    x = np.array([block.features for block in blocks])
    y = np.array([block.gain > 0 for block in blocks])
    found = np.zeros(len(blocks))
    for held_out in range(folds.max() + 1):
        known = folds != held_out
        if len(set(y[known])) < 2:
            raise DataError(
                "some prompts can only be scored from traces in which every repair, or none, was useful; "
                "give more traces"
            )
        fitted = _model(model, seed).fit(x[known], y[known])
        found[~known] = fitted.predict_proba(x[~known])[:, 1]
    return found


def _model(name: str, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if name == MODELS[0]:
        return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, class_weight="balanced"))
    return HistGradientBoostingClassifier(max_depth=3, max_iter=100, random_state=seed)


def admit(
    gains: Sequence[int], ranked: Sequence[float] | np.ndarray, budgets: Iterable[float]
) -> list[Admission]:
    """Admit the best-scored share r of the blocks for each budget; earlier blocks first where scores tie.

    Raises DataError when no block is useful.
    """
    gained = np.asarray(gains)
    useful, tokens = int((gained > 0).sum()), int(gained.sum())
    if not useful:
        raise DataError("no repair of these traces kept more than branch 0; there is nothing to tell apart")
    best = np.argsort(-np.asarray(ranked), kind="stable")
    found = []
    for r in budgets:
        chosen = gained[best[: max(1, int(r * len(gained) + 0.5))]]
        hits = int((chosen > 0).sum())
        found.append(
            Admission(
                len(chosen) / len(gained), hits / len(chosen), hits / useful, int(chosen.sum()) / tokens
            )
        )
    return found


def base_rate(blocks: Sequence[Block]) -> float:
    """Share of the blocks that are useful."""
    return sum(block.gain > 0 for block in blocks) / len(blocks)


def identity_gap(admissions: Iterable[Admission], rate: float) -> float:
    """Largest |precision r - recall base rate|: both count the useful blocks admitted, so it must be 0."""
    return max(abs(one.precision * one.r - one.recall * rate) for one in admissions)

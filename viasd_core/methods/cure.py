"""CURE (arXiv 2608.00531), and the plain block method it repairs ("Parallel" in its tables).

One cycle: DRAFT a whole block in one pass; where the drafter is unsure (small top-1 less top-2 margin), spawn
repair branches with another token there and a suffix drawn anew; VERIFY block and branches in one tree
forward of q; keep the one path that q's draws follow; RESYNCHRONISE, so that q's rows and the features the
drafter reads next are those of that path. Section 3 of the paper, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..cure.growth import DraftTree, Step, grow, until_end
from ..cure.margins import plan_repairs
from ..drafters.base import BlockParallel, Draft, Redrawn
from ..probs import Sampling, raw_log_probs
from ..transfer import to_host
from .base import Run, draft_block, draft_facts, drafted_tokens, undrafted
from .outcome import Outcome
from .tree_verify import Host, Planted, verify

GREEDY = Sampling()


class Cure:
    """`repairs` False is the plain block method: the tree is the block's one path, and none is recorded.

    The drafter proposes its first choices at any temperature: sample-and-match keeps a token with the
    probability q gives it, so the likeliest ones are kept most often.
    """

    def __init__(self, *, repairs: bool) -> None:
        self.repairs = repairs

    def cycle(self, run: Run) -> Outcome:
        draft = draft_block(run, bonus_possible=True, sampling=GREEDY)
        if draft is None or not draft.length:
            return undrafted(run, draft)
        with run.clock.phase("draft"):
            planted = plant(run, draft, GREEDY, repairs=self.repairs)
        outcome = verify(run, planted, phase="tree" if self.repairs else "full")
        if not self.repairs:
            outcome.tree = None
        return outcome


def plant(run: Run, draft: Draft, sampling: Sampling, *, repairs: bool) -> Planted:
    """Choose the repairs of a drafted block, draw their suffixes by `sampling` and grow the tree."""
    settings, knobs = run.settings, run.knobs
    columns = draft_facts(run, draft, margins=True)
    if repairs:
        columns |= _alternatives(draft, knobs.b_max)
    host = to_host(**columns)
    drafted = drafted_tokens(host, None, draft.length)
    main = until_end(
        [
            Step(int(token), logp, margin)
            for token, logp, margin in zip(host["tokens"], host["logp_draft"], host["margin"], strict=True)
        ],
        run.eos_ids,
    )
    drafted = drafted[: len(main)]
    paths: list[list[Step]] = []
    redrawn = None
    if repairs:
        margins = host["margin"][: len(main)]
        plan = plan_repairs(margins, knobs.tau_margin, knobs.margin_scale, knobs.b_max, knobs.max_positions)
        tried = {
            repair.position: _others(host, repair.position, draft.length)[: repair.count] for repair in plan
        }
        paths, redrawn = _repaired_paths(run, main, draft.length, tried, sampling)
        drafted = [
            replace(token, is_ufp=margins[place] < knobs.tau_margin, alternatives=tuple(tried.get(place, ())))
            for place, token in enumerate(drafted)
        ]
    tree = grow(main, paths, beam=settings.beam, budget=knobs.v_max, branch0=settings.branch0)
    forwards = draft.forwards + (redrawn.forwards if redrawn else 0)
    return Planted(drafted, tree, redrawn, forwards, _uncertain(tree, knobs.tau_margin))


def _alternatives(draft: Draft, b_max: int) -> dict[str, Tensor]:
    """The `b_max` best tokens of each row but the drafted one, [g, b_max] ids and raw log-probabilities."""
    assert draft.logits is not None
    others = raw_log_probs(draft.logits).scatter(-1, draft.tokens[:, None], -torch.inf)
    logp, tokens = others.topk(min(b_max, others.shape[-1]), dim=-1)
    return {"other": tokens, "other_logp": logp}


def _others(host: Host, place: int, length: int) -> list[tuple[int, float]]:
    """Alternatives at one position, best first; a token the drafter cannot say is none."""
    width = len(host["other"]) // length
    chosen = slice(place * width, (place + 1) * width)
    pairs = zip(host["other"][chosen], host["other_logp"][chosen], strict=True)
    return [(int(token), logp) for token, logp in pairs if logp > -torch.inf]


def _repaired_paths(
    run: Run,
    main: Sequence[Step],
    length: int,
    tried: Mapping[int, Sequence[tuple[int, float]]],
    sampling: Sampling,
) -> tuple[list[list[Step]], Redrawn | None]:
    """Whole repaired blocks: the draft up to a repair, the alternative, a suffix.

    S1 reuses the draft's own tokens as suffix, S2 draws all suffixes in one batched pass of the drafter, S4
    redoes Domino's correction or DFlash2's choice behind the changed token. `auto` has been settled for a
    loaded pair; for parts put together by hand it is S2. Suffixes that are sampled must all be kept: whether
    a token stands in the tree may not depend on which one was drawn, so the beam then counts whole chains.
    """
    paths = [[*main[:place], Step(token, logp)] for place, others in tried.items() for token, logp in others]
    if not sampling.greedy:
        paths = paths[: run.settings.beam]
    if not paths:
        return [], None
    redrawn = None
    if run.settings.suffix == "S1":
        tails = [list(main[len(path) :]) for path in paths]
    else:
        drafter = run.drafter
        assert isinstance(drafter, BlockParallel)
        redraw = drafter.reroll if run.settings.suffix == "S4" else drafter.redraw
        known = [[step.token for step in path] for path in paths]
        redrawn = redraw(known, length, sampling, run.noise)
        tails = _tails(redrawn, [len(path) for path in paths], length)
    whole = [until_end([*path, *tail], run.eos_ids) for path, tail in zip(paths, tails, strict=True)]
    return whole, redrawn


def _tails(redrawn: Redrawn, known: Sequence[int], length: int) -> list[list[Step]]:
    """Steps behind each lane's known prefix, up to the block's length."""
    host = to_host(tokens=redrawn.tokens, logp=redrawn.logp, margin=redrawn.margin)
    return [
        [
            Step(int(host["tokens"][at]), host["logp"][at], host["margin"][at])
            for at in range(lane * length + told, (lane + 1) * length)
        ]
        for lane, told in enumerate(known)
    ]


def _uncertain(tree: DraftTree, tau: float) -> frozenset[int]:
    return frozenset(
        index
        for index, node in enumerate(tree.nodes)
        if node.branch == 0 and node.margin is not None and node.margin < tau
    )

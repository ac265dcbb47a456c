"""CURE's trees through VIA-SD's tiers: q' runs over the whole tree, its gates choose one path, and q runs
over the tree only where a node of that path falls in region C, or where the debt is due.

Drafting and growing are those of `cure` (arXiv 2608.00531), gates and debt those of `via_sd` (arXiv
2606.12243). Above temperature 0 block and suffixes are drawn from the drafter's law, since region A keeps a
token on the word of q' alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..drafters.base import Draft
from ..probs import draw, logits_to_probs, raw_log_probs, residual
from ..transfer import to_device, to_host
from .base import Run, draft_block, undrafted
from .cure import plant
from .gates import confidence_ratios
from .judge import judged
from .outcome import NewToken, Outcome, Verified
from .slim import slim_token
from .tree_gates import Gated, Gates, Verdicts, branch0_length, follow_gates, gated_child
from .tree_verify import Host, Planted, node_draft, opinions_of
from .via_sd import thresholds


@dataclass(frozen=True)
class Grown:
    """A planted tree on the device, with the rows of q' for the anchor and every node."""

    planted: Planted
    tokens: Tensor  # [N]
    slim: Tensor  # [N + 1, V] raw

    @property
    def above(self) -> Tensor:
        """[N] the row that judges each node."""
        return to_device([parent + 1 for parent in self.planted.tree.parents], self.tokens.device)


class CureTiers:
    def cycle(self, run: Run) -> Outcome:
        settings, verifier = run.settings, run.verifier
        draft = draft_block(run, bonus_possible=True)
        if draft is None or not draft.length:
            return undrafted(run, draft)
        base, cap = verifier.n_q, settings.debt_limit(run.longest_draft)
        with run.clock.phase("draft"):
            planted = plant(run, draft, run.sampling, repairs=True)
            tree = planted.tree
            tokens = to_device(tree.tokens, draft.tokens.device)
        with run.clock.phase("slim", part=0):
            slim_logits = verifier.slim_tree(run.tokens, tokens, tree.parents)[-len(tree.nodes) - 1 :]
        grown = Grown(planted, tokens, slim_logits)
        debt = len(run.tokens) + max(node.depth for node in tree.nodes) - base
        due = cap is not None and debt > cap
        with run.clock.phase("gate"):
            host = to_host(**_look(run, draft, grown))
        tau1, tau2 = thresholds(run)
        gates = Gates(tau1, tau2, settings.regenerate, run.sampling.greedy)
        gated = follow_gates(tree, host["ratio"], gates, None)
        logits, verdicts = None, None
        if due or gated.end == "ask":
            with run.clock.phase("tree"):
                logits = verifier.full_tree(run.tokens, tokens, tree.parents)
            with run.clock.phase("gate"):
                host |= to_host(**_test(run, draft, grown, logits, host["ratio"]))
            verdicts = Verdicts(host["passes"], host["draws"])
            gated = follow_gates(tree, host["ratio"], gates, verdicts)
        new = _new_token(run, grown, gated, host, asked=logits is not None)
        if logits is not None and run.wants_opinions:
            with run.clock.phase("gate"):
                host |= to_host(**_opinions(run, grown, gated, logits, new))
        verified = Verified(
            tree,
            gated.path,
            planted.uncertain,
            branch0_length(tree, host["ratio"], gates, verdicts),
            planted.ufps,
        )
        with run.clock.phase("resync" if verified.winner else "commit"):
            if logits is not None:
                verifier.keep_full(run.tokens, gated.path)
            verifier.keep_slim(run.tokens, gated.path)
        outcome = _outcome(run, grown, gated, verified, host, new, base)
        outcome.thresholds = (tau1, tau2)
        outcome.settle_forwards, outcome.full_forwards = int(due), int(logits is not None and not due)
        outcome.reason = _why(gated, debt if due else None, cap)
        return outcome


def _look(run: Run, draft: Draft, grown: Grown) -> dict[str, Tensor]:
    """What the gates need of q', for every node, and its own draw at every row."""
    drafted = {} if run.sampling.greedy else {"p_used": _of_nodes(_draft_laws(draft, grown.planted), grown)}
    judging = grown.slim[grown.above]
    laws = logits_to_probs(grown.slim, run.sampling)
    redraw = draw(laws, run.noise.exponentials("redraw", run.sampling, *laws.shape))[:, None]
    return drafted | {
        "ratio": confidence_ratios(judging, grown.tokens),
        "logp_slim": _of_nodes(raw_log_probs(judging), grown),
        "redraw": redraw,
        "redraw_p": laws.gather(-1, redraw),
        "redraw_logp": raw_log_probs(grown.slim).gather(-1, redraw),
    }


def _of_nodes(rows: Tensor, grown: Grown) -> Tensor:
    """Each node's entry of its row, [N] of [N, V]."""
    return rows.gather(-1, grown.tokens[:, None])[:, 0]


def _test(run: Run, draft: Draft, grown: Grown, logits: Tensor, ratios: list[float]) -> dict[str, Tensor]:
    """Rule C at every row: whether the gated child passes, and what is drawn where it does not.

    Greedy: the draw is q's argmax, and whichever child holds it is entered. Sampled: min(1, q/p) and the
    residual, with p the law that the gated child was drawn from; behind a leaf the draw is q's own.
    """
    tree = grown.planted.tree
    laws = logits_to_probs(logits[-len(tree.nodes) - 1 :], run.sampling)
    if run.sampling.greedy:
        draws = laws.argmax(-1)
        passes = torch.zeros_like(draws)
        return {"passes": passes, "draws": draws, "draws_p": laws.gather(-1, draws[:, None])}
    gated = [gated_child(tree, at, ratios, greedy=False) for at in range(-1, len(tree.nodes))]
    known = to_device([row for row, node in enumerate(gated) if node is not None], laws.device)
    nodes = to_device([node for node in gated if node is not None], laws.device)
    drafted = torch.zeros_like(laws)
    drafted[known] = _draft_laws(draft, grown.planted)[nodes].to(laws)
    uniforms = run.noise.uniforms("accept", laws.shape[0])
    child = torch.zeros(laws.shape[0], dtype=torch.long, device=laws.device)
    child[known] = grown.tokens[nodes]
    p, q = (rows.gather(-1, child[:, None])[:, 0] for rows in (drafted, laws))
    law = residual(laws, drafted)
    draws = draw(law, run.noise.exponentials("replace", run.sampling, *law.shape))
    return {
        "passes": uniforms * p < q,
        "uniforms": uniforms,
        "draws": draws,
        "draws_p": law.gather(-1, draws[:, None]),
    }


def _draft_laws(draft: Draft, planted: Planted) -> Tensor:
    """[N, V] the law each node was drawn from; an alternative, which was not drawn, has that of its row."""
    laws, redrawn, length = draft.probs, planted.redrawn, draft.length
    if redrawn is not None:
        laws = torch.cat([laws, redrawn.probs.flatten(0, 1)])
    places = [
        node.depth - 1 + (node.branch * length if redrawn is not None else 0) for node in planted.tree.nodes
    ]
    return laws[to_device(places, laws.device)]


def _new_token(run: Run, grown: Grown, gated: Gated, host: Host, *, asked: bool) -> NewToken | None:
    """What stands behind the path: the redraw of region B, q's replacement, or its bonus behind a leaf."""
    row = gated.path[-1] + 1 if gated.path else 0
    if gated.end == "B":
        return slim_token(host, "redraw", "regenerated_slim", None, row=row)
    ended = bool(gated.path) and grown.planted.tree.nodes[gated.path[-1]].token in run.eos_ids
    if not asked or (gated.end == "leaf" and ended):
        return None
    verdict, source = ("bonus", "bonus") if gated.end == "leaf" else ("rewritten_full", "full")
    return NewToken(int(host["draws"][row]), verdict, source, p_used=host["draws_p"][row])


def _opinions(
    run: Run, grown: Grown, gated: Gated, logits: Tensor, new: NewToken | None
) -> dict[str, Tensor]:
    """q's facts of the debt, the path and the new token; id 0 stands in where there is none."""
    device = logits.device
    path = to_device(gated.path, device)
    said = torch.cat([grown.tokens[path], to_device([new.token if new else 0], device)])
    rows = _path_rows(gated, device)
    slim = grown.slim[rows]
    seen = slim if run.debt_slim_rows is None else torch.cat([run.debt_slim_rows, slim])
    return opinions_of(run, grown.planted.tree, grown.tokens, logits, rows, said, seen)


def _path_rows(gated: Gated, device: torch.device) -> Tensor:
    """Rows that judge each path node and the token behind the path."""
    return to_device([0, *(node + 1 for node in gated.path)], device)


def _outcome(
    run: Run,
    grown: Grown,
    gated: Gated,
    verified: Verified,
    host: Host,
    new: NewToken | None,
    base: int,
) -> Outcome:
    planted, tree, kept = grown.planted, verified.tree, len(gated.path)
    refused = () if gated.node is None else (gated.node,)
    line = tree.main_line([*gated.path, *refused])
    main = [index for index, node in enumerate(tree.nodes) if node.branch == 0]
    marks = [*gated.regions, *[""] * (len(line) - len(gated.regions))]
    drafted = [
        replace(node_draft(planted, node, host), tier=1 if mark in ("A", "B") else None)
        for node, mark in zip(line, marks, strict=True)
    ]
    if "uniforms" in host:
        rows = [0, *(node + 1 for node in line)]
        drafted = [
            replace(one, rand_u=host["uniforms"][row]) for one, row in zip(drafted, rows, strict=False)
        ]
    outcome = Outcome(
        drafted=drafted,
        regions=list(gated.regions),
        kept=kept,
        new=new,
        slim_rows=grown.slim[_path_rows(gated, grown.slim.device)],
        draft_forwards=planted.forwards,
        slim_forwards=1,
        tree=verified,
        passed_over=[node_draft(planted, node, host) for node in main if node not in line],
        block=max(len(planted.drafted), len(line)),
    )
    if "judged" in host:
        verdicts = judged(base, host["judged"])
        outcome.judged = verdicts.first(len(run.tokens) - base - 1 + kept)
        if new is not None:
            outcome.new = replace(new, opinion=verdicts.opinions[-1])
    return outcome


def _why(gated: Gated, due: int | None, cap: int | None) -> str:
    """Why q ran this cycle, in words; empty when it did not."""
    reasons = []
    if due is not None:
        reasons.append(f"{due} rows of debt and block exceed the cap of {cap}")
    if "C" in gated.regions:
        reasons.append(f"the tree's path fell in region C at depth {gated.regions.index('C') + 1}")
    return "; ".join(reasons)

"""A draft tree against the full verifier: one forward over all nodes, and the path that is kept.

Shared by the methods that verify trees (`cure`, `eagle2`) and by `block`, whose tree is a chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..cure.growth import DraftTree
from ..cure.walk import walk
from ..drafters.base import Redrawn
from ..probs import draw, logits_to_probs
from ..transfer import to_device, to_host
from .base import Run
from .judge import judged, row_facts
from .outcome import Drafted, NewToken, Outcome, Verified

Host = dict[str, list[float]]


@dataclass(frozen=True)
class Planted:
    """A drafted block and the tree that grew from it; `drafted` are the tokens of branch 0.

    `redrawn` holds the suffixes, one lane a branch above 0; None where they reuse the draft or none is.
    """

    drafted: list[Drafted]
    tree: DraftTree
    redrawn: Redrawn | None
    forwards: int
    uncertain: frozenset[int] = frozenset()  # nodes of branch 0 whose margin is below tau_margin

    @property
    def ufps(self) -> int:
        """Uncertain positions of the block, also those that are in no node because branch 0 was left out."""
        return sum(token.is_ufp for token in self.drafted)

    def kept_on_branch0(self, accepted: Sequence[int]) -> int | None:
        """Accepted nodes of branch 0, None unless the tree holds all of it. Under sample-and-match that is
        what branch 0 alone would have kept, since the path leaves it only where q says another token.
        """
        main = {index for index, node in enumerate(self.tree.nodes) if node.branch == 0}
        return len(main.intersection(accepted)) if len(main) == len(self.drafted) else None


def verify(run: Run, planted: Planted, *, phase: str) -> Outcome:
    """One forward of q over debt, anchor and tree; the path its draws follow becomes rows."""
    base, tree = run.verifier.n_q, planted.tree
    tokens = to_device(tree.tokens, run.verifier.runner.device)
    with run.clock.phase(phase):
        logits = run.verifier.full_tree(run.tokens, tokens, tree.parents)
    with run.clock.phase("gate"):
        laws = logits_to_probs(logits[len(run.tokens) - base - 1 :], run.sampling)
        draws = draw(laws, run.noise.exponentials("target", run.sampling, *laws.shape))
        walked = walk(tokens, tree.parents, draws)
        columns = {
            "path": walked.path,
            "length": walked.length,
            "token": draws[walked.stop],
            "token_p": laws[walked.stop].gather(-1, draws[walked.stop][:, None]),
        }
        if run.wants_opinions:
            said = torch.cat([tokens[walked.path], columns["token"]])
            rows = torch.cat([walked.rows, walked.stop])
            columns |= opinions_of(run, tree, tokens, logits, rows, said)
        seen = to_host(**columns)
    accepted = tuple(int(node) for node in seen["path"][: int(seen["length"][0])])
    verified = Verified(tree, accepted, planted.uncertain, planted.kept_on_branch0(accepted), planted.ufps)
    with run.clock.phase("resync" if verified.winner else "commit"):
        run.verifier.keep_full(run.tokens, accepted, features=run.settings.resync)
    return _outcome(run, planted, verified, seen, base)


def opinions_of(
    run: Run,
    tree: DraftTree,
    tokens: Tensor,
    logits: Tensor,
    rows: Tensor,
    said: Tensor,
    slim_logits: Tensor | None = None,
) -> dict[str, Tensor]:
    """q's facts of the debt and of the tokens `said`, and its raw view of every node, for the packed copy.

    `rows` count from the anchor's, 0; `slim_logits` are rows of q' for the debt and then for `said`.
    """
    lead = logits.shape[0] - len(tree.nodes)
    debt = torch.arange(lead - 1, device=logits.device)
    judging = logits[torch.cat([debt, rows + lead - 1])]
    judged_tokens = torch.cat([to_device(run.tokens[len(run.tokens) - lead + 1 :], tokens.device), said])
    processed = None if run.sampling.greedy else logits_to_probs(judging, run.sampling)
    above = logits[to_device([lead + parent for parent in tree.parents], logits.device)]
    above = above if above.dtype == torch.float64 else above.float()
    return {
        "judged": row_facts(judging, processed, slim_logits).about(judged_tokens),
        "logp_full": above.gather(-1, tokens[:, None])[:, 0] - above.logsumexp(-1),
    }


def _outcome(run: Run, planted: Planted, verified: Verified, seen: Host, base: int) -> Outcome:
    """The kept path as the cycle's draft, and the token q drew behind it."""
    tree, kept = planted.tree, len(verified.accepted)
    line = tree.main_line(verified.accepted)
    main = [index for index, node in enumerate(tree.nodes) if node.branch == 0]
    outcome = Outcome(
        drafted=[node_draft(planted, node, seen) for node in line],
        regions=["C"] * min(kept + 1, len(line)),
        kept=kept,
        draft_forwards=planted.forwards,
        full_forwards=1,
        tree=verified,
        passed_over=[node_draft(planted, node, seen) for node in main if node not in line],
        block=max(len(planted.drafted), len(line)),
    )
    opinion = None
    if "judged" in seen:
        verdicts = judged(base, seen["judged"])
        opinion = verdicts.opinions[-1]
        outcome.judged = verdicts.first(len(run.tokens) - base - 1 + kept)
    rewritten = kept < len(line)
    if rewritten or tree.nodes[line[-1]].token not in run.eos_ids:
        verdict, source = ("rewritten_full", "full") if rewritten else ("bonus", "bonus")
        outcome.new = NewToken(
            int(seen["token"][0]), verdict, source, p_used=seen["token_p"][0], opinion=opinion
        )
    return outcome


def node_draft(planted: Planted, index: int, seen: Host) -> Drafted:
    """A tree node as a drafted token, with all that was noted of it in `seen`, one number a node."""
    node = planted.tree.nodes[index]
    if node.branch == 0:
        known = planted.drafted[node.depth - 1]
    else:
        known = Drafted(node.token, p_used=1.0, logp_draft=node.logp, margin=node.margin, branch=node.branch)

    def noted(name: str) -> float | None:
        return seen[name][index] if name in seen else None

    return replace(
        known,
        node=index,
        offset=node.depth - 1,
        logp_full=noted("logp_full"),
        ratio=noted("ratio"),
        logp_slim=noted("logp_slim"),
        p_used=known.p_used if "p_used" not in seen else seen["p_used"][index],
    )

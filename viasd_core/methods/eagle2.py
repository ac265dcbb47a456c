"""EAGLE-2's dynamic trees (arXiv 2406.16858) over an EAGLE-3 drafter, verified as CURE's are.

The drafter expands its most valuable nodes level by level; the best of all candidates make the tree. Its
nodes are the likeliest tokens and not draws, so sample-and-match has the law of EAGLE's own tree rule.
"""

from __future__ import annotations

from ..cure.dynamic import rerank
from ..drafters.base import TreeDrafter
from .base import Run, draft_room, undrafted
from .outcome import Drafted, Outcome
from .tree_verify import Planted, verify


class Eagle2:
    def cycle(self, run: Run) -> Outcome:
        depth = draft_room(run, bonus_possible=True)
        if depth < 1:
            return undrafted(run)
        drafter = run.drafter
        assert isinstance(drafter, TreeDrafter)
        with run.clock.phase("draft"):
            candidates, forwards = drafter.draft_tree(depth, run.settings.beam)
            tree = rerank(candidates, run.knobs.v_max, run.eos_ids)
        if not tree.nodes:
            return undrafted(run)
        main = [node for node in tree.nodes if node.branch == 0]
        drafted = [Drafted(node.token, p_used=1.0, logp_draft=node.logp) for node in main]
        return verify(run, Planted(drafted, tree, None, forwards), phase="tree")

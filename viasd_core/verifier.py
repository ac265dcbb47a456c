"""The full verifier q and its slim verifiers: who has written which KV rows.

A slim verifier is q with layers left out, on the same weights, or an independent model. In shared mode
(default) a masked one writes only its layers' slots of rows q has not run; those rows are the *debt*. When q
is called it runs once over debt, anchor and block and overwrites them in all layers, so its logits equal a
from-scratch recompute. Own mode gives every masked one a cache of its own, a pure function of the prefix, as
an independent model always has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from . import tree
from .layers import Runner
from .sublayers import Layer
from .tiers import TierStack
from .transfer import to_device

FULL = 0
Slim = Sequence[Layer] | Runner  # the layers a mask keeps, or a model of its own


@dataclass(frozen=True)
class SlimTier:
    """One slim verifier: tier `tier` of `stack`. Rows below `rows` were written by it or a stronger one."""

    stack: TierStack
    tier: int

    @property
    def rows(self) -> int:
        return self.stack.rows[self.tier]

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.stack.layers[self.tier]

    def run(self, committed: Sequence[int], draft: Tensor) -> Tensor:
        """Over the rows it lacks and `draft` [g]: logits [g + 1, V], row i judges draft token i."""
        ids = torch.cat([to_device(committed[self.rows :], draft.device), draft])
        return self.stack.run(self.tier, ids, logit_rows=draft.shape[0] + 1)


class Verifier:
    """q over `capacity` KV slots; `slim` is the (weakest) slim verifier (None: none), `stronger` those asked
    after it, in order; `nested` are a drafter's layers.

    `taps` are layers whose hidden states are kept for a drafter that reads features.
    Watermarks: rows below `n_q` were written by q in every layer, rows below `n_s` by q or a slim verifier.
    """

    def __init__(
        self,
        runner: Runner,
        capacity: int,
        *,
        slim: Slim | None = None,
        stronger: Sequence[Slim] = (),
        slim_kv: str = "shared",
        nested: Sequence[Layer] | None = None,
        taps: Sequence[int] = (),
    ) -> None:
        self.runner = runner
        slims = [] if slim is None else [slim, *stronger]
        sharing = [one for one in slims if isinstance(one, Sequence) and slim_kv == "shared"]
        tiers: list[Sequence[Layer]] = [range(runner.n_layers), *reversed(sharing)]
        if nested is not None:
            tiers.append(nested)
        self.stack = TierStack(runner, tiers, capacity, taps)
        self.nested_tier = len(tiers) - 1
        self.slims: list[SlimTier] = []
        place = len(sharing)  # the weakest stands last
        for one in slims:
            if not isinstance(one, Sequence):
                alone = TierStack(one, [range(one.n_layers)], capacity)
                self.slims.append(SlimTier(alone, 0))
            elif slim_kv == "own":
                self.slims.append(SlimTier(TierStack(runner, [one], capacity, taps), 0))
            else:
                self.slims.append(SlimTier(self.stack, place))
                place -= 1

    @property
    def n_q(self) -> int:
        return self.stack.rows[FULL]

    @property
    def n_s(self) -> int:
        return self.slims[0].rows

    @property
    def slim_stack(self) -> TierStack:
        """Where the first slim verifier keeps its rows; q's own where there is none."""
        return self.slims[0].stack if self.slims else self.stack

    @property
    def slim_layers(self) -> tuple[Layer, ...]:
        return self.slims[0].layers

    @property
    def _stacks(self) -> list[TierStack]:
        """Every cache once, q's first."""
        return list(dict.fromkeys([self.stack, *(slim.stack for slim in self.slims)]))

    def prefill(self, tokens: Sequence[int]) -> None:
        """q over a prompt without its last token; whoever has a cache of its own prefills it as well."""
        for stack in self._stacks:
            stack.prefill(tokens)

    def full(self, committed: Sequence[int], draft: Tensor | None = None) -> Tensor:
        """q over its debt, the anchor and `draft` [g]: logits [T - n_q + g, V], row n_q first."""
        ids = self._ids(committed[self.n_q :], draft)
        return self.stack.run(FULL, ids, logit_rows=ids.shape[0])

    def full_tree(self, committed: Sequence[int], tokens: Tensor, parents: Sequence[int]) -> Tensor:
        """q over its debt, the anchor and tree nodes `tokens` [N] behind it: logits [T - n_q + N, V].

        Row T - n_q - 1 is the anchor's, node n has row T - n_q + n. `n_q` does not move before `keep_full`.
        """
        return self._run_tree(self.stack, FULL, committed, tokens, parents)

    def keep_full(self, committed: Sequence[int], path: Sequence[int], *, features: bool = True) -> None:
        """Debt, anchor and the nodes `path` of q's last tree become its rows, one behind the other.

        With `features` False the hidden states of the first nodes stay where the path's should be.
        """
        self._keep(self.stack, FULL, committed, path, features=features)

    def slim_tree(self, committed: Sequence[int], tokens: Tensor, parents: Sequence[int]) -> Tensor:
        """q' over the rows it lacks and tree nodes `tokens` [N]: logits [T - n_s + N, V], as `full_tree`."""
        return self._run_tree(self.slims[0].stack, self.slims[0].tier, committed, tokens, parents)

    def keep_slim(self, committed: Sequence[int], path: Sequence[int]) -> None:
        """The nodes `path` of the last tree of q' become its rows; where q ran behind it, q's rows stand."""
        if self.n_s <= len(committed) - 1:
            self._keep(self.slims[0].stack, self.slims[0].tier, committed, path, features=True)

    @staticmethod
    def _run_tree(
        stack: TierStack, tier: int, committed: Sequence[int], tokens: Tensor, parents: Sequence[int]
    ) -> Tensor:
        lead = len(committed) - stack.rows[tier]
        ids = torch.cat([to_device(committed[stack.rows[tier] :], tokens.device), tokens])
        return stack.run_tree(tier, ids, [*tree.chain(lead), *(lead + parent for parent in parents)])

    @staticmethod
    def _keep(
        stack: TierStack, tier: int, committed: Sequence[int], path: Sequence[int], *, features: bool
    ) -> None:
        lead = len(committed) - stack.rows[tier]
        stack.keep_path(tier, [*range(lead), *(lead + node for node in path)], features=features)

    def settle(self, committed: Sequence[int]) -> Tensor:
        """q over its debt alone (rows n_q..T-2): logits that judge every committed token it had not seen."""
        ids = self._ids(committed[self.n_q : -1], None)
        return self.stack.run(FULL, ids, logit_rows=ids.shape[0])

    def features(self, start: int, end: int) -> Tensor:
        """Hidden states [end - start, taps, H] behind the tapped layers of rows start..end-1.

        Rows below `n_q` are q's own; rows above, up to `n_s`, are provisional, from a masked slim verifier.
        """
        own = self.stack.slots.features[start + 1 : min(end, self.n_q) + 1]
        provisional = self.slim_stack.slots.features[max(start, self.n_q) + 1 : end + 1]
        return torch.cat([own, provisional])

    def rewind(self, length: int) -> None:
        """No tier holds a row at or above `length`."""
        for stack in self._stacks:
            stack.rewind(length)

    def set_slim(self, layers: Sequence[Layer]) -> None:
        """Another mask for the first slim verifier: shared rows above the next stronger tier's are re-fed
        with its next forward, an own cache starts anew.
        """
        first = self.slims[0]
        first.stack.set_layers(first.tier, layers)

    def _ids(self, committed: Sequence[int], draft: Tensor | None) -> Tensor:
        ids = to_device(committed, self.runner.device)
        return ids if draft is None else torch.cat([ids, draft])

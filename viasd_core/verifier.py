"""The full verifier q and its slim sub-model q': one set of weights, and who has written which KV rows.

Shared mode (default): q' writes only its layers' slots of rows q has not run; those rows are the *debt*. When
q is called it runs once over debt, anchor and block and overwrites them in all layers, so its logits equal a
from-scratch recompute. Own mode gives q' a cache of its own, a pure function of the prefix.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from . import tree
from .layers import Runner
from .tiers import TierStack
from .transfer import to_device

FULL = 0


class Verifier:
    """q over `capacity` KV slots; `slim` are the layers q' keeps (None: no slim tier), `nested` a drafter's.

    `taps` are layers whose hidden states are kept for a drafter that reads features.
    Watermarks: rows below `n_q` were written by q in every layer, rows below `n_s` by q or q'.
    """

    def __init__(
        self,
        runner: Runner,
        capacity: int,
        *,
        slim: Sequence[int] | None = None,
        slim_kv: str = "shared",
        nested: Sequence[int] | None = None,
        taps: Sequence[int] = (),
    ) -> None:
        self.runner = runner
        own = slim is not None and slim_kv == "own"
        tiers: list[Sequence[int]] = [range(runner.n_layers)]
        if slim is not None and not own:
            tiers.append(slim)
        if nested is not None:
            tiers.append(nested)
        self.stack = TierStack(runner, tiers, capacity, taps)
        self.slim_stack = self.stack
        if own and slim is not None:
            self.slim_stack = TierStack(runner, [slim], capacity, taps)
        self.slim_tier = 0 if own else 1
        self.nested_tier = len(tiers) - 1

    @property
    def n_q(self) -> int:
        return self.stack.rows[FULL]

    @property
    def n_s(self) -> int:
        return self.slim_stack.rows[self.slim_tier]

    @property
    def slim_layers(self) -> tuple[int, ...]:
        return self.slim_stack.layers[self.slim_tier]

    def prefill(self, tokens: Sequence[int]) -> None:
        """q over a prompt without its last token; in own mode q' prefills its own cache as well."""
        self.stack.prefill(tokens)
        if self.slim_stack is not self.stack:
            self.slim_stack.prefill(tokens)

    def full(self, committed: Sequence[int], draft: Tensor | None = None) -> Tensor:
        """q over its debt, the anchor and `draft` [g]: logits [T - n_q + g, V], row n_q first."""
        ids = self._ids(committed[self.n_q :], draft)
        return self.stack.run(FULL, ids, logit_rows=ids.shape[0])

    def slim(self, committed: Sequence[int], draft: Tensor) -> Tensor:
        """q' over the rows it lacks and `draft` [g]: logits [g + 1, V], row i judges draft token i."""
        ids = self._ids(committed[self.n_s :], draft)
        return self.slim_stack.run(self.slim_tier, ids, logit_rows=draft.shape[0] + 1)

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
        return self._run_tree(self.slim_stack, self.slim_tier, committed, tokens, parents)

    def keep_slim(self, committed: Sequence[int], path: Sequence[int]) -> None:
        """The nodes `path` of the last tree of q' become its rows; where q ran behind it, q's rows stand."""
        if self.n_s <= len(committed) - 1:
            self._keep(self.slim_stack, self.slim_tier, committed, path, features=True)

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

        Rows below `n_q` are q's own; rows above, up to `n_s`, are provisional, from q'.
        """
        own = self.stack.slots.features[start + 1 : min(end, self.n_q) + 1]
        provisional = self.slim_stack.slots.features[max(start, self.n_q) + 1 : end + 1]
        return torch.cat([own, provisional])

    def rewind(self, length: int) -> None:
        """No tier holds a row at or above `length`."""
        self.stack.rewind(length)
        self.slim_stack.rewind(length)

    def set_slim(self, layers: Sequence[int]) -> None:
        """Another mask for q': shared rows above n_q are re-fed with its next forward, an own cache starts
        anew.
        """
        self.slim_stack.set_layers(self.slim_tier, layers)

    def _ids(self, committed: Sequence[int], draft: Tensor | None) -> Tensor:
        ids = to_device(committed, self.runner.device)
        return ids if draft is None else torch.cat([ids, draft])

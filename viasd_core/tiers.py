"""Layer subsets of one model over one slot cache: q, the slim q' and nested layer-skip drafters, never
copies.

Strongest tier first; a weaker tier's layers (or halves of layers) are a subset of every stronger one's. Row i
of a tier is valid below its watermark. When a tier runs, it overwrites its layers from its own watermark on,
so its watermark and those of all weaker tiers move to the end; reading and writing can then never mix rows of
different prefixes.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .layers import Runner
from .masks import chain_pass, tree_pass
from .sublayers import Layer, from_units, units
from .transfer import to_device

PREFILL_CHUNK = 512


class TierStack:
    """`layers[i]` of tier i, strongest first, over shared slots of `capacity` rows.

    A tier keeps only layers that every stronger tier keeps: what it was asked to keep beyond that is left
    out, and comes back when the stronger tier's mask allows it again.
    """

    def __init__(
        self, runner: Runner, layers: Sequence[Sequence[Layer]], capacity: int, taps: Sequence[int] = ()
    ) -> None:
        self.runner, self.taps = runner, tuple(taps)
        self.capacity = capacity
        self.rows = [0] * len(layers)
        self._wanted = [tuple(tier) for tier in layers]
        self.layers = self._nested()
        self.slots = runner.new_slots(capacity, self.layers[0], self.taps)

    def _nested(self) -> list[tuple[Layer, ...]]:
        allowed = units(self._wanted[0])
        nested = []
        for wanted in self._wanted:
            allowed &= units(wanted)
            nested.append(from_units(allowed))
        return nested

    def prefill(self, tokens: Sequence[int], tier: int = 0) -> None:
        """Write rows rows[tier]..len(tokens)-1, in chunks: a long prompt needs no n x n mask. No logits."""
        while self.rows[tier] < len(tokens):
            start = self.rows[tier]
            self.run(tier, tokens[start : start + PREFILL_CHUNK], logit_rows=0)

    def run(self, tier: int, tokens: Sequence[int] | Tensor, logit_rows: int) -> Tensor:
        """One forward of `tier` over rows rows[tier]..rows[tier]+len(tokens)-1.

        Returns logits [logit_rows, V] of the last rows: row i's logits judge token i + 1.
        """
        runner, start = self.runner, self.rows[tier]
        ids = tokens if isinstance(tokens, Tensor) else to_device(tokens, runner.device)
        plan = chain_pass(
            start, ids.shape[0], runner.device, bucketed=runner.bucketed, capacity=self.slots.capacity
        )
        logits = runner.forward(ids, plan, self.slots, self.layers[tier], logit_rows)
        self._written(tier, start + ids.shape[0])
        return logits if logits is not None else ids.new_empty(0, runner.vocab_size)

    def run_tree(self, tier: int, tokens: Tensor, parents: Sequence[int]) -> Tensor:
        """One forward of `tier` over tree nodes behind rows[tier] committed rows; logits [nodes, V].

        Nodes are not rows of the sequence yet: `keep_path` makes the accepted ones so.
        """
        runner, start = self.runner, self.rows[tier]
        plan = tree_pass(
            start, parents, runner.device, bucketed=runner.bucketed, capacity=self.slots.capacity
        )
        logits = runner.forward(tokens, plan, self.slots, self.layers[tier], tokens.shape[0])
        assert logits is not None
        return logits

    def keep_path(self, tier: int, nodes: Sequence[int], *, features: bool = True) -> None:
        """Make the tree nodes of an accepted path the next rows of the sequence.

        `features` False leaves the tapped hidden states where they were written: stale ones stand in then.
        """
        start = self.rows[tier]
        self.slots.compact([start + node for node in nodes], start, features=features)
        self._written(tier, start + len(nodes))

    def _written(self, tier: int, end: int) -> None:
        self.rows[tier:] = [end] * (len(self.rows) - tier)

    def rewind(self, length: int) -> None:
        """Forget rows at and above `length` in every tier."""
        self.rows = [min(rows, length) for rows in self.rows]

    def set_layers(self, tier: int, layers: Sequence[Layer]) -> None:
        """Another layer subset for `tier`.

        It and all weaker tiers fall back to the next stronger tier's rows, which hold every layer; the
        strongest tier has none to fall back to and starts anew.
        """
        self._wanted[tier] = tuple(layers)
        self.layers = self._nested()
        if tier == 0:
            self.slots = self.runner.new_slots(self.capacity, self.layers[0], self.taps)
        floor = self.rows[tier - 1] if tier else 0
        self.rows[tier:] = [min(rows, floor) for rows in self.rows[tier:]]

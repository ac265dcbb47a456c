"""Many sequences side by side: static KV slots, one lane a sequence, and batched forwards over them.

A lane is filled by one chain forward over its prompt and then advances one row a step together with all
others. When its text ends it is filled anew, so the batch never drains while prompts are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..layers import BlockRunner


class LaneSlots:
    """Keys and values [lanes, kv_heads, capacity, head_dim] of every layer.

    Handed to Hugging Face blocks as their cache. `aim_at_lane` makes the coming forward write rows
    0..rows-1 of one lane; `aim_at_rows` makes it write one row in every lane.
    """

    def __init__(self, runner: BlockRunner, lanes: int, capacity: int) -> None:
        shape = (lanes, runner.kv_heads, capacity, runner.head_dim)
        place: dict[str, Any] = {"dtype": runner.dtype, "device": runner.device}
        self.capacity = capacity
        self._lanes = torch.arange(lanes, device=runner.device)
        self._keys = [torch.zeros(shape, **place) for _ in range(runner.n_layers)]
        self._values = [torch.zeros(shape, **place) for _ in range(runner.n_layers)]
        self._lane: int | None = None
        self._rows = self._lanes
        self._end = 0

    def aim_at_lane(self, lane: int, rows: int) -> None:
        self._lane, self._end = lane, rows

    def aim_at_rows(self, rows: Tensor, end: int) -> None:
        """rows [lanes]: where each lane writes; keys below `end` are exposed."""
        self._lane, self._rows, self._end = None, rows, end

    def update(self, key: Tensor, value: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        keys, values, end = self._keys[layer], self._values[layer], self._end
        if self._lane is not None:
            lane = slice(self._lane, self._lane + 1)
            keys[lane, :, :end], values[lane, :, :end] = key, value
            return keys[lane, :, :end], values[lane, :, :end]
        keys[self._lanes, :, self._rows] = key[:, :, 0]
        values[self._lanes, :, self._rows] = value[:, :, 0]
        return keys[:, :, :end], values[:, :, :end]


class LaneRunner:
    """Batched forwards through all blocks of the verifier. `taps` are layers whose outputs are features."""

    def __init__(self, runner: BlockRunner, taps: Sequence[int], lanes: int, capacity: int) -> None:
        self.runner, self.taps = runner, tuple(taps)
        self.slots = LaneSlots(runner, lanes, capacity)

    def fill(self, lane: int, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """A prompt [n] into one lane. Returns features [n, taps, H] and final hidden states [n, H]."""
        rows = torch.arange(tokens.shape[0], device=tokens.device)
        self.slots.aim_at_lane(lane, tokens.shape[0])
        visible = rows[None, :] <= rows[:, None]
        features, final = self._blocks(tokens[None], rows[None], visible[None, None], rows[None, None, None])
        return features[0], final[0]

    def step(self, tokens: Tensor, lengths: Tensor, end: int) -> tuple[Tensor, Tensor]:
        """One token [lanes] behind `lengths` [lanes] rows of each lane; all lengths are below `end`.

        Returns features [lanes, taps, H] and final hidden states [lanes, H].
        """
        self.slots.aim_at_rows(lengths, end)
        keys = torch.arange(end, device=tokens.device)[None, None, None]
        visible = keys <= lengths[:, None, None, None]
        features, final = self._blocks(tokens[:, None], lengths[:, None], visible, keys)
        return features[:, 0], final[:, 0]

    def logits(self, final: Tensor) -> Tensor:
        """Logits [n, V] of final hidden states [n, H]."""
        return self.runner.head(final)[:, : self.runner.vocab_size]

    def _blocks(self, tokens: Tensor, positions: Tensor, visible: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """tokens, positions [b, n]; visible [b or 1, 1, n, end]; keys: position of each exposed slot."""
        runner = self.runner
        hidden = runner.body.embed_tokens(tokens)
        rotary = runner.body.rotary_emb(hidden, position_ids=positions)
        near = {
            window: visible if window is None else visible & (positions[:, None, :, None] - keys < window)
            for window in set(runner.windows)
        }
        taps = {}
        for layer in range(runner.n_layers):
            hidden = runner.body.layers[layer](
                hidden,
                attention_mask=runner.as_attention_mask(near[runner.windows[layer]]),
                position_ids=positions,
                position_embeddings=rotary,
                use_cache=True,
                **{runner.cache_name: self.slots},
            )
            if layer in self.taps:
                taps[layer] = hidden
        features = [taps[layer] for layer in self.taps]
        stacked = torch.stack(features, dim=-2) if features else hidden[..., None, :][..., :0, :]
        return stacked, runner.body.norm(hidden)

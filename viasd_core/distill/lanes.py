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
    """Keys and values [lanes + 1, kv_heads, capacity, head_dim] of every layer; steps leave the last lane
    out.

    Handed to Hugging Face blocks as their cache. `aim_at_lane` makes the coming forward write rows
    start..end-1 of one lane; `aim_at_rows` makes it write one row in every lane.
    """

    def __init__(self, runner: BlockRunner, lanes: int, capacity: int) -> None:
        shape = (lanes + 1, runner.kv_heads, capacity, runner.head_dim)
        place: dict[str, Any] = {"dtype": runner.dtype, "device": runner.device}
        self.capacity = capacity
        self._lanes = torch.arange(lanes, device=runner.device)
        self._keys = [torch.zeros(shape, **place) for _ in range(runner.n_layers)]
        self._values = [torch.zeros(shape, **place) for _ in range(runner.n_layers)]
        self._lane: int | None = None
        self._rows = self._lanes
        self._start = self._end = 0

    def copy(self, source: int, lane: int, rows: int) -> None:
        """Give `lane` the first `rows` rows of lane `source`."""
        for tensor in (*self._keys, *self._values):
            tensor[lane, :, :rows] = tensor[source, :, :rows]

    def aim_at_lane(self, lane: int, start: int, end: int) -> None:
        self._lane, self._start, self._end = lane, start, end

    def aim_at_rows(self, rows: Tensor, end: int) -> None:
        """rows [lanes]: where each lane writes; keys below `end` are exposed."""
        self._lane, self._rows, self._end = None, rows, end

    def update(self, key: Tensor, value: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        keys, values, end = self._keys[layer], self._values[layer], self._end
        if self._lane is not None:
            lane = slice(self._lane, self._lane + 1)
            keys[lane, :, self._start : end], values[lane, :, self._start : end] = key, value
            return keys[lane, :, :end], values[lane, :, :end]
        lanes = self._lanes
        keys[lanes, :, self._rows] = key[:, :, 0]
        values[lanes, :, self._rows] = value[:, :, 0]
        return keys[: len(lanes), :, :end], values[: len(lanes), :, :end]


class LaneRunner:
    """Batched forwards through all blocks of the verifier. `taps` are layers whose outputs are features.

    `prefix` ids open every prompt (a chat template's system message): they are run once, in a lane of
    their own behind the others, and copied.
    """

    def __init__(
        self, runner: BlockRunner, taps: Sequence[int], lanes: int, capacity: int, prefix: Sequence[int] = ()
    ) -> None:
        self.runner, self.taps = runner, tuple(taps)
        self.prefix, self._prefix_lane = tuple(prefix), lanes
        self.lanes = lanes
        self.slots = LaneSlots(runner, lanes, capacity)
        tokens = torch.tensor(self.prefix, dtype=torch.long, device=runner.device)
        with torch.inference_mode():
            self._prefix_rows = self._chain(lanes, tokens, 0) if self.prefix else None

    def fill(self, lane: int, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """A prompt [n] into one lane. Returns features [n, taps, H] and final hidden states [n, H]."""
        if self._prefix_rows is None:
            return self._chain(lane, tokens, 0)
        start = len(self.prefix)
        self.slots.copy(self._prefix_lane, lane, start)
        features, final = self._chain(lane, tokens[start:], start)
        return torch.cat([self._prefix_rows[0], features]), torch.cat([self._prefix_rows[1], final])

    def _chain(self, lane: int, tokens: Tensor, start: int) -> tuple[Tensor, Tensor]:
        end = start + tokens.shape[0]
        keys = torch.arange(end, device=tokens.device)
        rows = keys[start:]
        self.slots.aim_at_lane(lane, start, end)
        visible = keys[None, :] <= rows[:, None]
        features, final = self._blocks(tokens[None], rows[None], visible[None, None], keys[None, None, None])
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

    def _blocks(
        self, tokens: Tensor, positions: Tensor, visible: Tensor, keys: Tensor
    ) -> tuple[Tensor, Tensor]:
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

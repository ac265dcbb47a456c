"""The verifier answers prompts itself, many at a time; every token's features are kept as it is made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..probs import Sampling, logits_to_probs
from .lanes import LaneRunner
from .prompts import Prompt

KEY_BUCKET = 32  # exposed key lengths are multiples of it
STORED = torch.bfloat16  # features reach thousands in some models; float16 would not hold them


@dataclass(frozen=True)
class Answer:
    """A prompt with the verifier's answer: n ids, and what the verifier computed at the first n - 1 of them.

    Row i of `features` [n - 1, taps, H] and `final` [n - 1, H] (after the last norm) belongs to token i;
    `final[i]` through the head is the law of token i + 1.
    """

    index: int
    ids: tuple[int, ...]
    prompt_tokens: int
    features: Tensor
    final: Tensor

    @property
    def new_tokens(self) -> int:
        return len(self.ids) - self.prompt_tokens


class _Lane:
    """One text in the making, with its own random numbers: what it becomes does not depend on the others."""

    def __init__(self, prompt: Prompt, limit: int, seed: int) -> None:
        self.prompt, self.ids = prompt, list(prompt.ids)
        self.limit = limit
        self.uniforms = np.random.default_rng([seed, prompt.index]).random(limit)

    @property
    def uniform(self) -> float:
        return float(self.uniforms[len(self.ids) - len(self.prompt.ids)])


class Answering:
    """Continuous batching over `lanes` lanes; `answers` yields texts as they end, in no particular order.

    Prompt i is answered at temperatures[i mod n]. A text ends at an id of `eos_ids`, after
    `max_new_tokens`, or where the lane is full.
    """

    def __init__(
        self,
        runner: LaneRunner,
        *,
        lanes: int,
        max_new_tokens: int,
        temperatures: Sequence[float],
        eos_ids: frozenset[int],
        seed: int,
    ) -> None:
        self.runner, self.eos_ids, self.seed = runner, eos_ids, seed
        self.max_new_tokens = max_new_tokens
        self.temperatures = tuple(temperatures)
        self.capacity = runner.slots.capacity
        self.lanes: list[_Lane | None] = [None] * lanes
        hidden, device = runner.runner.hidden_size, runner.runner.device
        self.features = torch.empty(
            lanes, self.capacity, len(runner.taps), hidden, dtype=STORED, device=device
        )
        self.final = torch.empty(lanes, self.capacity, hidden, dtype=STORED, device=device)
        self.tokens = torch.zeros(lanes, dtype=torch.long, device=device)
        self.lengths = torch.zeros(lanes, dtype=torch.long, device=device)

    @torch.inference_mode()
    def answers(self, prompts: Iterator[Prompt]) -> Iterator[Answer]:
        yield from self._refill(prompts, range(len(self.lanes)))
        while any(self.lanes):
            ended = self._step()
            yield from map(self._take, ended)
            yield from self._refill(prompts, ended)

    def _refill(self, prompts: Iterator[Prompt], free: Sequence[int]) -> Iterator[Answer]:
        """Give each free lane the next prompt; a text may end with its very first token."""
        for lane in free:
            for prompt in prompts:
                if not self._begin(lane, prompt):
                    break
                yield self._take(lane)

    def _begin(self, lane: int, prompt: Prompt) -> bool:
        limit = min(self.max_new_tokens, self.capacity - len(prompt.ids))
        self.lanes[lane] = _Lane(prompt, limit, self.seed)
        device = self.tokens.device
        features, final = self.runner.fill(lane, torch.tensor(prompt.ids, device=device))
        rows = len(prompt.ids)
        self.features[lane, :rows], self.final[lane, :rows] = features.to(STORED), final.to(STORED)
        self.lengths[lane] = rows
        return bool(self._advance(final[-1:], [lane]))

    def _step(self) -> list[int]:
        """One token for every lane; the lanes whose text ended. Idle lanes are computed and ignored."""
        busy = [lane for lane, text in enumerate(self.lanes) if text]
        longest = max(len(text.ids) for text in self.lanes if text)
        end = min(self.capacity, -(-longest // KEY_BUCKET) * KEY_BUCKET)
        features, final = self.runner.step(self.tokens, self.lengths, end)
        index = torch.tensor(busy, device=self.tokens.device)
        rows = self.lengths[index]
        self.features[index, rows], self.final[index, rows] = (
            features[index].to(STORED),
            final[index].to(STORED),
        )
        self.lengths[index] += 1
        return self._advance(final[index], busy)

    def _advance(self, final: Tensor, lanes: Sequence[int]) -> list[int]:
        """Draw the next token of `lanes` from final hidden states [n, H]; the lanes whose text ended."""
        texts = [text for lane in lanes if (text := self.lanes[lane])]
        drawn = self._draw(self.runner.logits(final), texts)
        self.tokens[torch.tensor(lanes, device=drawn.device)] = drawn
        ended = []
        for lane, text, token in zip(lanes, texts, drawn.tolist(), strict=True):
            text.ids.append(token)
            if token in self.eos_ids or len(text.ids) - len(text.prompt.ids) >= text.limit:
                ended.append(lane)
        return ended

    def _draw(self, logits: Tensor, texts: Sequence[_Lane]) -> Tensor:
        """One token [n] a row, by inverting the cumulative law at each text's own uniform number."""
        drawn = torch.empty(len(texts), dtype=torch.long, device=logits.device)
        for temperature in sorted({self._temperature(text) for text in texts}):
            chosen = [row for row, text in enumerate(texts) if self._temperature(text) == temperature]
            rows = torch.tensor(chosen, device=logits.device)
            if temperature == 0:
                drawn[rows] = logits[rows].argmax(-1)
                continue
            law = logits_to_probs(logits[rows], Sampling(temperature)).cumsum(-1)
            uniforms = law.new_tensor([texts[row].uniform for row in chosen])[:, None]
            found = torch.searchsorted(law, uniforms * law[:, -1:], right=True)[:, 0]
            drawn[rows] = found.clamp_max(law.shape[-1] - 1)
        return drawn

    def _temperature(self, text: _Lane) -> float:
        return self.temperatures[text.prompt.index % len(self.temperatures)]

    def _take(self, lane: int) -> Answer:
        text = self.lanes[lane]
        assert text is not None
        self.lanes[lane] = None
        self.lengths[lane] = 0
        rows = len(text.ids) - 1
        return Answer(
            text.prompt.index,
            tuple(text.ids),
            len(text.prompt.ids),
            self.features[lane, :rows].cpu().clone(),
            self.final[lane, :rows].cpu().clone(),
        )

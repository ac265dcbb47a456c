"""Models that are tables: a runner and a drafter whose logits depend on the last tokens, and on nothing else.

The runner stores token ids in real KV slots and reads each row's prefix back through its visibility, so a
wrong slot, position, visibility or watermark stops the run or changes its tokens. Everything goes through
`viasd_core.decode.decode`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from viasd_core.decode import decode
from viasd_core.dimr.masks import MaskStore
from viasd_core.drafters.autoregressive import AutoregressiveDrafter
from viasd_core.drafters.base import Draft
from viasd_core.layers import Runner
from viasd_core.live import LiveSettings
from viasd_core.masks import Pass
from viasd_core.parts import Parts
from viasd_core.probs import Noise, Sampling, logits_to_probs
from viasd_core.recording import finish
from viasd_core.settings import Settings
from viasd_core.slots import SlotCache
from viasd_core.sublayers import Layer, number_of
from viasd_core.tiers import TierStack
from viasd_core.trace import DEFINITIONS, SCHEMA, CycleEvent, Trace

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SLIM_MASK = "101"
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Table:
    """Logits [(V + 1) ** order, V] by the last `order` tokens (digit 0: no token there).

    With `episode` the context is cut at every episode-th token behind a prompt of one token, which makes
    consecutive episodes independent draws from one joint law.
    """

    logits: Tensor
    order: int
    episode: int | None = None

    @property
    def vocab(self) -> int:
        return self.logits.shape[1]

    def row(self, tokens: Sequence[int]) -> int:
        """Index of the row that judges the token behind `tokens`."""
        reach = self.order
        if self.episode is not None:
            reach = min(reach, (len(tokens) - 1) % self.episode)
        index = 0
        for offset in range(self.order, 0, -1):
            inside = offset <= reach and offset <= len(tokens)
            index = index * (self.vocab + 1) + (tokens[-offset] + 1 if inside else 0)
        return index

    def after(self, tokens: Sequence[int]) -> Tensor:
        """Logits [V] behind `tokens`."""
        return self.logits[self.row(tokens)]

    def probs(self, tokens: Sequence[int], sampling: Sampling | None = None) -> np.ndarray:
        """Probabilities [V] behind `tokens`, raw unless `sampling` says otherwise."""
        sampling = sampling or Sampling(1.0)
        return np.asarray(logits_to_probs(self.after(tokens)[None], sampling)[0])


def random_table(
    vocab: int, order: int, seed: int, *, scale: float = 1.0, episode: int | None = None
) -> Table:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn((vocab + 1) ** order, vocab, generator=generator, dtype=torch.float64)
    return Table(rows * scale, order, episode)


def near(table: Table, noise: float, seed: int) -> Table:
    """`table` with Gaussian noise on its logits: another model of the same text."""
    generator = torch.Generator().manual_seed(seed)
    drift = torch.randn(table.logits.shape, generator=generator, dtype=torch.float64)
    return replace(table, logits=table.logits + noise * drift)


def constant_table(probs: Sequence[float]) -> Table:
    """The same row behind every text."""
    return Table(torch.tensor([list(probs)], dtype=torch.float64).log(), 0)


@dataclass(frozen=True)
class Forward:
    """One recorded forward."""

    layers: tuple[int, ...]
    first: int
    rows: int
    logit_rows: int


@dataclass
class TableRunner:
    """`Runner` of a table model: `full` answers when all layers run, `slim` (or `by_layers`) otherwise.

    A row may only see rows of q, below, and rows of its own layer subset, above them: anything else fails an
    assertion. `nested` also allows rows of any larger subset. `drift` moves q' logits with the number of own
    rows a row sees, as stale KV does in a real model.
    """

    full: Table
    slim: Table | None = None
    by_layers: Mapping[tuple[int, ...], Table] = field(default_factory=dict)
    n_layers: int = 3
    n_ctx: int = 4096
    bucketed: bool = False
    nested: bool = False
    drift: float = 0.0
    device: torch.device = CPU
    dtype: torch.dtype = torch.float64
    log: list[Forward] = field(default_factory=list)
    vocab_size: int = field(init=False)

    def __post_init__(self) -> None:
        self.vocab_size = self.full.vocab

    def new_slots(self, capacity: int, layers: Sequence[Layer], taps: Sequence[int] = ()) -> SlotCache:
        return SlotCache([*map(number_of, layers)], 1, 1, capacity, torch.float64, self.device)

    def read_bytes(self, layers: Sequence[Layer]) -> int:
        return 10 * len(layers) + 5

    def forward(
        self, tokens: Tensor, plan: Pass, slots: SlotCache, layers: Sequence[Layer], logit_rows: int
    ) -> Tensor | None:
        rows, kept = tokens.shape[0], tuple(map(number_of, layers))
        self.log.append(Forward(kept, plan.first, rows, logit_rows))
        keys, tags = self._write(tokens, plan, slots, kept)
        if logit_rows == 0:
            return None
        wanted = slice(rows - logit_rows, rows)
        seen = np.ones((1, plan.end), bool) if plan.visible is None else plan.visible.numpy()[wanted]
        positions, key_positions = plan.positions.numpy()[wanted], plan.key_positions.numpy()
        assert (seen.sum(1) == positions + 1).all(), "a row does not see exactly its own prefix"
        self._check_rows(keys, tags, np.asarray(seen.any(0)), kept)
        table = self._table(kept)
        logits = table.logits[_contexts(table, keys[0], seen, positions, key_positions)]
        if self.drift and len(kept) < self.n_layers:
            own = (seen & (tags[0] == _tag(kept))).sum(1)
            logits = logits + self.drift * torch.tensor(own)[:, None] * torch.cos(torch.arange(table.vocab))
        return logits.clone()

    def _table(self, layers: tuple[int, ...]) -> Table:
        if len(layers) == self.n_layers:
            return self.full
        table = self.by_layers.get(layers, self.slim)
        assert table is not None
        return table

    def _write(
        self, tokens: Tensor, plan: Pass, slots: SlotCache, layers: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Write ids + 1 and the writer's tag into every layer; the exposed ones come back [layers, end]."""
        slots.begin(plan)
        ids = torch.zeros(plan.rows, dtype=torch.float64)
        ids[: tokens.shape[0]] = tokens + 1
        key, value = ids[None, None, :, None], torch.full((1, 1, plan.rows, 1), _tag(layers)).double()
        exposed = [slots.update(key, value, layer) for layer in layers]
        keys = np.stack([pair[0].numpy()[0, 0, :, 0] for pair in exposed])
        return keys, np.stack([pair[1].numpy()[0, 0, :, 0] for pair in exposed])

    def _check_rows(
        self, keys: np.ndarray, tags: np.ndarray, visible: np.ndarray, layers: tuple[int, ...]
    ) -> None:
        keys, tags = keys[:, visible], tags[:, visible]
        assert (keys > 0).all(), "a visible slot was never written"
        assert (keys == keys[0]).all(), "layers hold different tokens in one row"
        assert (tags == tags[0]).all(), "layers of one row were written by different tiers"
        full, own = _tag(tuple(range(self.n_layers))), _tag(layers)
        if self.nested:
            allowed = [int(tag) & own == own for tag in tags[0]]
            assert all(allowed), "a row of a weaker tier is visible"
            return
        assert ((tags[0] == full) | (tags[0] == own)).all(), "a row of another tier is visible"
        from_q = tags[0] == full
        assert (from_q[:-1] >= from_q[1:]).all(), "a row of q lies above a row of q'"

    def calls(self, bits: str | None = None) -> list[Forward]:
        """Recorded forwards with logits: of q, or of the mask `bits`."""
        layers = tuple(index for index in range(self.n_layers) if bits is None or bits[index] == "1")
        return [call for call in self.log if call.layers == layers and call.logit_rows]


def _tag(layers: tuple[int, ...]) -> int:
    return sum(1 << layer for layer in layers)


def _contexts(
    table: Table, keys: np.ndarray, seen: np.ndarray, positions: np.ndarray, key_positions: np.ndarray
) -> np.ndarray:
    """Table row of each query row, read from the slots it sees."""
    reach = np.full(len(positions), table.order)
    if table.episode is not None:
        reach = np.minimum(reach, positions % table.episode)
    index = np.zeros(len(positions), dtype=np.int64)
    for offset in range(table.order, 0, -1):
        place = positions - offset + 1
        there = seen & (key_positions[None, :] == place[:, None])
        assert (there.sum(1) == (place >= 0)).all(), "a row sees one position twice, or not at all"
        digit = (there * keys[None, :]).sum(1)
        index = index * (table.vocab + 1) + np.where(offset <= reach, digit, 0).astype(np.int64)
    return index


class TableDrafter:
    """Drafts from a table without slots; `claimed` reports another table's rows than those drawn from.

    `most` limits its drafts, as prompt lookup does on its own.
    """

    name = "table"

    def __init__(
        self, table: Table, *, claimed: Table | None = None, most: int | None = None, n_ctx: int = 4096
    ) -> None:
        self.table, self.claimed, self.most, self.n_ctx = table, claimed or table, most, n_ctx
        self.context: list[int] = []
        self._shaped: dict[Sampling, np.ndarray] = {}

    def begin(self, context: Sequence[int]) -> None:
        self.context = list(context)

    def draft(self, count: int, sampling: Sampling, noise: Noise, p_min: float = 0.0) -> Draft:
        count = count if self.most is None else min(count, self.most)
        if sampling not in self._shaped:
            self._shaped[sampling] = np.asarray(logits_to_probs(self.table.logits, sampling))
        shaped, vocab = self._shaped[sampling], self.table.vocab
        drawn = noise.exponentials("draft", sampling, count, vocab)
        divisors = np.ones((count, vocab)) if drawn is None else drawn.numpy()
        text, rows = list(self.context), []
        for divisor in divisors:
            rows.append(self.claimed.row(text))
            text.append(int((shaped[self.table.row(text)] / divisor).argmax()))
        logits = self.claimed.logits[rows]
        tokens = torch.tensor(text[len(self.context) :], dtype=torch.long)
        return Draft(tokens, logits_to_probs(logits, sampling), logits, count)

    def commit(self, tokens: Sequence[int], start: int) -> None:
        assert start <= len(self.context), "the drafter was not told of some tokens"
        self.context[start:] = tokens

    def rewind(self, length: int) -> None:
        """A table computes nothing ahead."""


@dataclass
class Letters:
    """Spells token i as the i-th letter, or as `words` says; `special_ids` are never shown."""

    words: Mapping[int, bytes] = field(default_factory=dict)
    special_ids: frozenset[int] = frozenset()

    def __getitem__(self, token: int) -> bytes:
        return self.words.get(token, LETTERS[token % 26].encode())


def scripted_parts(
    runner: TableRunner,
    drafter: Table | None,
    *,
    eos: Sequence[int] = (),
    spell: Letters | None = None,
    with_slots: bool = False,
    nested: tuple[int, ...] | None = None,
    **options: Any,
) -> Parts:
    """Parts around table models. `with_slots` drafts with a runner of its own, `nested` with those
    layers of the verifier in its slots, else `options` go to TableDrafter."""
    factory = None
    if nested is not None:

        def factory(verifier: Any, capacity: int) -> Any:
            stack, tier = verifier.stack, verifier.nested_tier
            return AutoregressiveDrafter("nested", stack, tier, runner.n_ctx, runner.vocab_size)

    elif drafter is not None and with_slots:
        draft_runner: Runner = TableRunner(drafter, n_ctx=runner.n_ctx)

        def factory(verifier: Any, capacity: int) -> Any:
            stack = TierStack(draft_runner, [range(draft_runner.n_layers)], capacity)
            return AutoregressiveDrafter("scripted", stack, 0, draft_runner.n_ctx, runner.vocab_size)

    elif drafter is not None:

        def factory(verifier: Any, capacity: int) -> Any:
            return TableDrafter(drafter, **options)

    masks = MaskStore([], {"layers": runner.n_layers, "kind": "folder", "id": "scripted"})
    return Parts(
        runner=runner,
        spell=spell or Letters(special_ids=frozenset(eos)),
        eos_ids=frozenset(eos),
        masks=masks,
        drafter=factory,
        nested=nested,
    )


def run(
    parts: Parts,
    prompt: Sequence[int],
    settings: Settings,
    live: LiveSettings | None = None,
    events: list[CycleEvent] | None = None,
) -> Trace:
    """Decode to the end and keep the trace as `record` would; `events` collects the raw events."""
    trace = Trace()
    trace.run.update(
        schema=SCHEMA,
        run_id="scripted",
        method=settings.method,
        settings=settings.as_dict(),
        prompt_tokens=len(prompt),
        prompt_token_ids=list(prompt),
        n_layers=parts.runner.n_layers,
        definitions=DEFINITIONS,
    )
    started = time.perf_counter()
    for event in decode(parts, prompt, settings, live):
        trace.add(event)
        if events is not None:
            events.append(event)
    finish(trace, time.perf_counter() - started)
    return trace


def greedy_text(
    table: Table, prompt: Sequence[int], max_new: int, *, eos: Sequence[int] = (), stop: str = ""
) -> list[int]:
    """Output of greedy decoding by definition, without a cache. `stop` is over one-letter tokens."""
    text = list(prompt)
    while len(text) < len(prompt) + max_new:
        text.append(int(table.after(text).argmax()))
        spelled = "".join(LETTERS[token] for token in text[len(prompt) :])
        if text[-1] in eos or (stop and stop in spelled):
            break
    return text[len(prompt) :]


def sampled(
    parts: Parts, settings: Settings, *, count: int, length: int = 500, prompt: Sequence[int] = (0,)
) -> list[list[int]]:
    """Outputs of runs with consecutive seeds, `count` tokens in all; untraced, for speed. No special ids."""
    outputs = []
    for run_index in range(-(-count // length)):
        chosen = settings.with_(max_new_tokens=length, trace=False, seed=settings.seed + run_index)
        text = "".join(event.text for event in decode(parts, prompt, chosen))
        outputs.append([LETTERS.index(letter) for letter in text])
    return outputs

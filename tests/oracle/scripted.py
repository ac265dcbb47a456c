"""A drafter that is right for as many tokens as a test wants, and a model that says what it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle

import torch
from torch import Tensor
from torch.nn.functional import one_hot

import toys
from viasd_core.dimr.masks import MaskStore
from viasd_core.drafters.base import Draft
from viasd_core.masks import Pass
from viasd_core.parts import Parts
from viasd_core.probs import Noise, Sampling
from viasd_core.slots import SlotCache
from viasd_core.sublayers import Layer, number_of
from viasd_core.text import TokenBytes
from viasd_core.verifier import Verifier


class ScriptedDrafter:
    """Drafts `truth` (prompt and output ids by position) with one wrong token in each draft.

    `right` gives the wrong one's offset, draft by draft; `counts`, when given, the most tokens each may have.
    """

    name = "scripted"
    n_ctx = 1 << 30

    def __init__(
        self,
        truth: Sequence[int],
        right: Iterator[int],
        counts: Iterator[int] | None = None,
        vocab: int = toys.VOCAB,
    ) -> None:
        self.truth, self.right, self.counts, self.vocab = list(truth), right, counts, vocab
        self.text: list[int] = []
        self.drafts = 0

    def begin(self, context: Sequence[int]) -> None:
        self.text = list(context)

    def draft(self, count: int, sampling: Sampling, noise: Noise, p_min: float = 0.0) -> Draft:
        self.drafts += 1
        count = min(count, next(self.counts)) if self.counts is not None else count
        start = len(self.text)
        tokens = self.truth[start : start + count]
        wrong = next(self.right)
        if wrong < len(tokens):
            tokens[wrong] = another(tokens[wrong], self.vocab)
        ids = torch.tensor(tokens, dtype=torch.long)
        return Draft(ids, one_hot(ids, self.vocab).double(), None, 0)

    def commit(self, tokens: Sequence[int], start: int) -> None:
        self.text[start:] = tokens

    def rewind(self, length: int) -> None:
        """Nothing is computed ahead."""


def another(token: int, vocab: int = toys.VOCAB) -> int:
    """An ordinary token that is not `token`."""
    return token + 1 if toys.EOS_ID < token < vocab - 1 else toys.EOS_ID + 1 + (token == toys.EOS_ID + 1)


def drafting(
    parts: Parts, truth: Sequence[int], offsets: Sequence[int], counts: Sequence[int] | None = None
) -> Parts:
    """`parts` with a scripted drafter that goes through `offsets` (and `counts`) again and again."""

    def make(verifier: Verifier, capacity: int) -> ScriptedDrafter:
        return ScriptedDrafter(truth, cycle(offsets), cycle(counts) if counts else None)

    return replace(parts, drafter=make, nested=None)


class ScriptedRunner:
    """A verifier whose row i says `says[i + 1]`; a slim one over fewer layers says `slim_says[i + 1]`.

    Scripts are ids by position, prompt included; behind their end the first ordinary token is said. `sharp`
    is the logit of the token said, over zeros.
    """

    def __init__(
        self,
        says: Sequence[int],
        slim_says: Sequence[int] | None = None,
        *,
        n_layers: int = 4,
        n_ctx: int = 512,
        vocab_size: int = toys.VOCAB,
        sharp: float = 50.0,
    ) -> None:
        self.says, self.slim_says = list(says), list(says if slim_says is None else slim_says)
        self.n_layers, self.n_ctx, self.vocab_size, self.sharp = n_layers, n_ctx, vocab_size, sharp
        self.device, self.dtype, self.bucketed = torch.device("cpu"), torch.float64, False
        self.forwards: list[tuple[int, int]] = []  # (layers, rows) of every forward

    def new_slots(self, capacity: int, layers: Sequence[Layer], taps: Sequence[int] = ()) -> SlotCache:
        return SlotCache([*map(number_of, layers)], 1, 1, capacity, self.dtype, self.device)

    def forward(
        self, tokens: Tensor, plan: Pass, slots: SlotCache, layers: Sequence[Layer], logit_rows: int
    ) -> Tensor | None:
        slots.begin(plan)
        self.forwards.append((len(layers), tokens.shape[0]))
        if logit_rows == 0:
            return None
        script = self.says if len(layers) == self.n_layers else self.slim_says
        following = [position + 1 for position in plan.positions.tolist()][-logit_rows:]
        said = [script[place] if place < len(script) else toys.EOS_ID + 1 for place in following]
        return one_hot(torch.tensor(said), self.vocab_size).double() * self.sharp

    def read_bytes(self, layers: Sequence[Layer]) -> int:
        return len(layers)


def scripted_parts(
    says: Sequence[int],
    *,
    slim: Sequence[int] | None = None,
    drafter: Callable[[Verifier, int], ScriptedDrafter] | None = None,
    **runner: int,
) -> Parts:
    """Parts around a `ScriptedRunner`, with the toy tokenizer's bytes and end-of-sequence id."""
    made = ScriptedRunner(says, slim, **runner)
    masks = MaskStore((), {"kind": "folder", "id": "scripted", "layers": made.n_layers})
    return Parts(made, TokenBytes(toys.toy_tokenizer()), frozenset({toys.EOS_ID}), masks, drafter)

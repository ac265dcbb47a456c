"""Medusa (arXiv 2401.10774): heads over the verifier's last hidden state, each for another future token.

The feature of token t is what the verifier's own head would read, its last norm included: that head predicts
token t + 1 from it, Medusa's head k (from 0) token t + k + 2. When a draft is due, the newest feature is that
of the token before the anchor, whose next token is the anchor itself; so head k predicts the anchor's
(k + 1)-th successor, and head 0 drafts the first token.

Two layouts are published. FasterDecoding's names a head by its number: residual blocks `{k}.{j}.linear.*` and
the output `{k}.{n}.weight`, which may be missing for every head and is then the verifier's. Its configs may
count fewer heads than the file holds; all are used. vLLM's (`MedusaModel`) has `blocks.{k}.layers.{j}.*` and
`lm_heads.{k}.weight`, or one output for all heads (`original_lm_head`), and maybe a `token_map` of draft ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import SourceError
from ..probs import Noise, Sampling
from ..thin import suits, thin_view
from ..transfer import to_device
from ..verifier import Verifier
from .base import Draft, Drafter
from .borrowed import spread
from .checkpoints import Checkpoint, Target, Trained, check_equal
from .eagle import draw_rows, need_safetensors


class Residual(nn.Module):
    """x + SiLU(W x + b)"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + functional.silu(self.linear(hidden))


class NumberedHeads(nn.ModuleList):
    """FasterDecoding's layout; `vocab` None leaves the outputs to a shared head."""

    def __init__(self, heads: int, blocks: int, width: int, vocab: int | None) -> None:
        outputs = [] if vocab is None else [(width, vocab)]
        super().__init__(
            nn.Sequential(
                *(Residual(width) for _ in range(blocks)), *(nn.Linear(*size, bias=False) for size in outputs)
            )
            for _ in range(heads)
        )

    def forward(self, head: int, hidden: Tensor) -> Tensor:
        out: Tensor = self[head](hidden)
        return out


class Block(nn.Module):
    def __init__(self, blocks: int, width: int, bias: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=bias) for _ in range(blocks))

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            hidden = hidden + functional.silu(layer(hidden))
        return hidden


class BlockHeads(nn.Module):
    """vLLM's layout; `shared` gives all heads the first output."""

    def __init__(self, heads: int, blocks: int, width: int, vocab: int, bias: bool, shared: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(blocks, width, bias) for _ in range(heads))
        outputs = 1 if shared else heads
        self.lm_heads = nn.ModuleList(nn.Linear(width, vocab, bias=False) for _ in range(outputs))

    def forward(self, head: int, hidden: Tensor) -> Tensor:
        out: Tensor = self.lm_heads[min(head, len(self.lm_heads) - 1)](self.blocks[head](hidden))
        return out


class Heads(Protocol):
    def __call__(self, head: int, hidden: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class MedusaModel:
    """Loaded heads with what they borrow: the last norm, and the output head where they have none."""

    name: str
    heads: Heads  # head k of hidden [1, H]: [1, draft vocab], or [1, H] for `output`
    count: int
    norm: Callable[[Tensor], Tensor]
    output: Callable[[Tensor], Tensor] | None
    draft_ids: Tensor | None
    scale: float
    padded: int  # the verifier's vocabulary with padding
    vocab_size: int
    n_ctx: int

    def logits(self, feature: Tensor, count: int) -> Tensor:
        """[count, V] of the first heads; feature [1, H] behind the verifier's last layer."""
        hidden = self.norm(feature)
        rows = torch.cat([self.heads(head, hidden) for head in range(count)])
        if self.output is not None:
            rows = self.output(rows)
        return self.scale * spread(rows, self.draft_ids, self.padded)[:, : self.vocab_size]


class MedusaDrafter:
    """Keeps nothing but the text: every draft reads one feature of the verifier."""

    def __init__(self, model: MedusaModel, verifier: Verifier) -> None:
        self.name, self.n_ctx = model.name, model.n_ctx
        self._model, self._verifier = model, verifier
        self._context: list[int] = []

    def begin(self, context: Sequence[int]) -> None:
        self._context = list(context)

    def draft(self, count: int, sampling: Sampling, noise: Noise, p_min: float = 0.0) -> Draft:
        anchor, model = len(self._context) - 1, self._model
        if anchor < 1:  # a text of one token has no feature yet
            tokens = to_device([], self._verifier.runner.device)
            return Draft(tokens, tokens.new_zeros(0, model.vocab_size, dtype=torch.float32), None, 0)
        feature = self._verifier.features(anchor - 1, anchor)[:, 0]
        logits = model.logits(feature, min(count, model.count))
        return Draft(*draw_rows(logits, sampling, noise), logits, 1)

    def commit(self, tokens: Sequence[int], start: int) -> None:
        self._context[start:] = tokens

    def rewind(self, length: int) -> None:
        """Nothing is computed ahead, so there is nothing to forget."""


def fits(config: Mapping[str, Any]) -> bool:
    return "medusa_num_heads" in config or "MedusaModel" in (config.get("architectures") or ())


def load(checkpoint: Checkpoint, target: Target) -> Trained:
    """Raises PairError for another verifier's heads, SourceError for unusable files."""
    need_safetensors(checkpoint)
    build = numbered if "medusa_num_heads" in checkpoint.config else blocked
    heads, count, borrowed, ids = build(checkpoint, target)
    checkpoint.fill(heads, target, ignore=("token_map",) if ids is not None else ())
    runner = target.runner
    view: Any = thin_view(heads) if suits(target.head.weight) else heads
    model = MedusaModel(
        name=checkpoint.name,
        heads=view,
        count=count,
        norm=runner.body.norm,
        output=target.head if borrowed else None,
        draft_ids=ids,
        scale=float(checkpoint.config.get("logit_scale") or 1.0),
        padded=int(target.config.vocab_size),
        vocab_size=runner.vocab_size,
        n_ctx=runner.n_ctx,
    )

    def make(verifier: Verifier, capacity: int) -> Drafter:
        return MedusaDrafter(model, verifier)

    return Trained("medusa", (runner.n_layers - 1,), make, heads)


Built = tuple[nn.Module, int, bool, Tensor | None]  # heads, their count, borrows the output head, draft ids


def numbered(checkpoint: Checkpoint, target: Target) -> Built:
    """FasterDecoding's layout. Its config names no sizes, so the tensors are asked."""
    count, blocks = positive(checkpoint, "medusa_num_heads"), positive(checkpoint, "medusa_num_layers")
    width, vocab = target.config.hidden_size, target.config.vocab_size
    check_equal(checkpoint, target, "hidden size", len(checkpoint.read("0.0.linear.weight")), width)
    output = f"0.{blocks}.weight"
    if output in checkpoint.files:
        check_equal(checkpoint, target, "vocabulary size", len(checkpoint.read(output)), vocab)
    numbers = [int(name.split(".")[0]) for name in checkpoint.files if name.split(".")[0].isdecimal()]
    count = max(count, *(number + 1 for number in numbers))
    borrowed = output not in checkpoint.files
    return NumberedHeads(count, blocks, width, None if borrowed else vocab), count, borrowed, None


def blocked(checkpoint: Checkpoint, target: Target) -> Built:
    """vLLM's layout."""
    config = checkpoint.config
    count, blocks = positive(checkpoint, "num_heads"), positive(checkpoint, "num_hidden_layers")
    width, vocab = positive(checkpoint, "hidden_size"), positive(checkpoint, "vocab_size")
    check_equal(checkpoint, target, "hidden size", width, target.config.hidden_size)
    check_equal(checkpoint, target, "vocabulary size", vocab, target.config.vocab_size)
    cut, ids = vocab, None
    if config.get("truncated_vocab_size") not in (None, vocab):
        cut = positive(checkpoint, "truncated_vocab_size")
        ids = known_ids(checkpoint, cut, vocab).to(target.runner.device)
    bias, shared = bool(config.get("medusa_fc_bias")), bool(config.get("original_lm_head"))
    return BlockHeads(count, blocks, width, cut, bias, shared), count, False, ids


def known_ids(checkpoint: Checkpoint, count: int, vocab: int) -> Tensor:
    """The verifier's ids in `token_map`. Raises SourceError unless they are `count` distinct ones."""
    ids = checkpoint.read("token_map").long().flatten()
    if len(ids) != count or len(ids.unique()) != count or ids.min() < 0 or ids.max() >= vocab:
        raise SourceError(
            f"{checkpoint.name}: token_map does not name {count} distinct ids below the verifier's {vocab}"
        )
    return ids


def positive(checkpoint: Checkpoint, key: str) -> int:
    """A size from config.json. Raises SourceError."""
    value = int(checkpoint.need(key))
    if value < 1:
        raise SourceError(f"config.json of {checkpoint.name} has {key} {value}; it must be at least 1")
    return value

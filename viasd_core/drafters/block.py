"""Drafts a block at once from the verifier's features (DFlash), and keeps its context in step with the
verifier.

Row i of the context is what the network made of the verifier's features of row i. Rows below the watermark
came from q's own features; rows above, built from q' where q has not run, are fed anew with the next draft.
So after each q call the context equals a fresh replay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import SourceError
from ..masks import chain_pass
from ..probs import Noise, Sampling, draw, logits_to_probs, raw_log_probs
from ..slots import SharedRows, SlotCache
from ..thin import suits, thin_view
from ..transfer import to_device
from ..verifier import Verifier
from .base import Draft, Drafter, Redrawn
from .borrowed import cut_head, from_offsets, spread
from .checkpoints import Checkpoint, Target, Trained, check_equal
from .dflash import ARCHITECTURE, DFlash, default_taps, network_config
from .dflash2 import ARCHITECTURE as ARCHITECTURE2
from .dflash2 import Selector, conv_of, selector_of
from .domino import Domino

LONGEST_BLOCK = 256  # slots, as in training; releases have 8 to 16


@dataclass(frozen=True)
class BlockModel:
    """A loaded block drafter: network, borrowed embedding and (cut) head, what ids the head's rows mean."""

    network: Any  # DFlash, or a thin view of it
    embedding: Tensor  # [V, H]
    head: Any
    draft_ids: Tensor | None  # [draft vocab], None: the whole vocabulary
    domino: Any | None
    selector: Any | None  # DFlash2's
    slots: int  # of a block, the anchor included
    shift: bool  # whether a slot's token is read off the row before it (Domino's shift_label)
    mask_token: int
    vocab_size: int
    n_ctx: int

    def choose(
        self, hidden: Tensor, anchor: Tensor, sampling: Sampling, noise: Noise
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens [g], processed law and raw logits [g, V] of slots with hidden states [g, H]."""
        base = self.head(hidden)
        if not self.chained:
            logits = spread(base, self.draft_ids, self.vocab_size)
            probs = logits_to_probs(logits, sampling)
            return draw(probs, noise.exponentials("draft", sampling, *probs.shape)), probs, logits
        token, state = anchor, None
        tokens, laws, rows = [], [], []
        for slot in range(hidden.shape[0]):
            here = slice(slot, slot + 1)
            row, state = self._behind(token, base[here], hidden[here], state, first=slot == 0)
            rows.append(row)
            laws.append(logits_to_probs(row, sampling))
            token = draw(laws[-1], noise.exponentials("draft", sampling, *laws[-1].shape))
            tokens.append(token)
        return torch.cat(tokens), torch.cat(laws), torch.cat(rows)

    def continue_known(
        self,
        hidden: Tensor,
        anchor: Tensor,
        known: Tensor,
        lengths: Tensor,
        sampling: Sampling,
        noise: Noise,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens [b, g], processed laws and raw logits [b, g, V] of slots with hidden states [b, g, H]; the
        first `lengths` [b] slots hold the tokens `known` [b, g] whatever the network says.
        """
        base = self.head(hidden)
        told = torch.arange(known.shape[1], device=known.device) < lengths[:, None]
        if not self.chained:
            logits = spread(base, self.draft_ids, self.vocab_size)
            laws = logits_to_probs(logits, sampling)
            drawn = draw(laws, noise.exponentials("suffix", sampling, *laws.shape))
            return torch.where(told, known, drawn), laws, logits
        token, state = anchor.expand(len(known)), None
        tokens, shaped, rows = [], [], []
        for slot in range(known.shape[1]):
            row, state = self._behind(token, base[:, slot], hidden[:, slot], state, first=slot == 0)
            rows.append(row)
            shaped.append(logits_to_probs(rows[-1], sampling))
            drawn = draw(shaped[-1], noise.exponentials("suffix", sampling, *shaped[-1].shape))
            token = torch.where(told[:, slot], known[:, slot], drawn)
            tokens.append(token)
        return torch.stack(tokens, dim=1), torch.stack(shaped, dim=1), torch.stack(rows, dim=1)

    @property
    def chained(self) -> bool:
        """Whether a slot's token depends on those chosen before it."""
        return self.domino is not None or self.selector is not None

    def _behind(
        self, token: Tensor, base: Tensor, hidden: Tensor, state: Tensor | None, *, first: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Raw logits [n, V] of a slot with hidden states [n, H] behind `token` [n], out of the head's own
        `base` [n, draft vocab]; Domino's next state.
        """
        if self.selector is not None:
            return self.selector(spread(base, self.draft_ids, self.vocab_size), hidden, token), None
        assert self.domino is not None
        state = self.domino.follow(functional.embedding(token, self.embedding), state)
        corrected = base if first else base + self.domino.correct(hidden, state)
        return spread(corrected, self.draft_ids, self.vocab_size), state


class BlockDrafter:
    """One network pass a draft, over the anchor, the masks and the context rows that are new."""

    def __init__(self, name: str, model: BlockModel, verifier: Verifier, slots: SlotCache) -> None:
        self.name, self.n_ctx = name, model.n_ctx
        self._model, self._verifier, self._slots = model, verifier, slots
        self._context: list[int] = []
        self._rows = 0
        self._hidden: Tensor | None = None  # of the slots of the last draft, for `reroll`

    @property
    def longest(self) -> int:
        return self._model.slots - 1

    @property
    def rerolls(self) -> bool:
        return self._model.chained

    @property
    def rows(self) -> int:
        """Context rows below came from q's own features."""
        return self._rows

    def begin(self, context: Sequence[int]) -> None:
        self._context, self._rows = list(context), 0

    def draft(self, count: int, sampling: Sampling, noise: Noise, p_min: float = 0.0) -> Draft:
        model, device = self._model, self._verifier.runner.device
        anchor = len(self._context) - 1
        count = min(count, model.slots - 1)
        plan = chain_pass(self._rows, anchor - self._rows + model.slots, device)
        self._slots.begin(plan)
        block = to_device([self._context[-1], *[model.mask_token] * (model.slots - 1)], device)
        hidden = model.network(
            functional.embedding(block, model.embedding)[None],
            self._verifier.features(self._rows, anchor)[None],
            plan.positions[None],
            slots=self._slots,
        )[0]
        self._hidden = hidden = self._of_slots(hidden[None], count)[0]
        self._rows = min(anchor, self._verifier.n_q)
        tokens, probs, logits = model.choose(hidden, block[:1], sampling, noise)
        return Draft(tokens, probs, logits, forwards=1)

    def redraw(self, known: Sequence[Sequence[int]], count: int, sampling: Sampling, noise: Noise) -> Redrawn:
        """The blocks share the context rows that `draft` has just written; none of their own rows is kept."""
        model, device = self._model, self._verifier.runner.device
        anchor, lanes = len(self._context) - 1, len(known)
        masks = [[model.mask_token] * (model.slots - 1 - len(tokens)) for tokens in known]
        rows = [[self._context[-1], *tokens, *tail] for tokens, tail in zip(known, masks, strict=True)]
        blocks = to_device([token for row in rows for token in row], device).view(lanes, -1)
        hidden = model.network(
            functional.embedding(blocks, model.embedding),
            self._verifier.features(anchor, anchor).expand(lanes, 0, -1, -1),
            torch.arange(anchor, anchor + model.slots, device=device).expand(lanes, -1),
            slots=SharedRows(self._slots, anchor),
        )
        return self._redrawn(self._of_slots(hidden, count), known, sampling, noise, forwards=1)

    def reroll(self, known: Sequence[Sequence[int]], count: int, sampling: Sampling, noise: Noise) -> Redrawn:
        """Domino's correction or DFlash2's selector reads the changed tokens; hidden states stay those of the
        last `draft`.
        """
        assert self._hidden is not None
        hidden = self._hidden[:count].expand(len(known), -1, -1)
        return self._redrawn(hidden, known, sampling, noise, forwards=0)

    def _of_slots(self, hidden: Tensor, count: int) -> Tensor:
        """Rows [b, count, H] that tell a block's tokens, out of those [b, slots, H] of the whole block."""
        return hidden[:, :count] if self._model.shift else hidden[:, 1 : count + 1]

    def _redrawn(
        self,
        hidden: Tensor,
        known: Sequence[Sequence[int]],
        sampling: Sampling,
        noise: Noise,
        *,
        forwards: int,
    ) -> Redrawn:
        device, count = hidden.device, hidden.shape[1]
        padded = [[*tokens, *[0] * (count - len(tokens))] for tokens in known]
        told = to_device([token for row in padded for token in row], device).view(len(known), -1)
        lengths = to_device([len(tokens) for tokens in known], device)
        anchor = to_device(self._context[-1:], device)
        tokens, laws, logits = self._model.continue_known(hidden, anchor, told, lengths, sampling, noise)
        logp = raw_log_probs(logits)
        best = logp.topk(min(2, logp.shape[-1]), dim=-1).values
        said = logp.gather(-1, tokens[..., None])[..., 0]
        return Redrawn(tokens, said, best[..., 0] - best[..., -1], laws, forwards)

    def commit(self, tokens: Sequence[int], start: int) -> None:
        self._context[start:] = tokens
        self.rewind(min(start, len(self._context) - 1))

    def rewind(self, length: int) -> None:
        self._rows = min(self._rows, length)


def fits(config: Mapping[str, Any]) -> bool:
    return not {ARCHITECTURE, ARCHITECTURE2}.isdisjoint(config.get("architectures") or ())


def load(checkpoint: Checkpoint, target: Target) -> Trained:
    """A folder of DFlash or DFlash2. Raises PairError (made for another verifier), SourceError (damaged)."""
    config = checkpoint.config
    special = special_part(checkpoint)
    check_equal(checkpoint, target, "hidden size", config.get("hidden_size"), target.config.hidden_size)
    check_equal(checkpoint, target, "layers", config.get("num_target_layers"), target.runner.n_layers)
    check_equal(checkpoint, target, "vocabulary", config.get("vocab_size"), target.config.vocab_size)
    taps = special.get("target_layer_ids") or default_taps(
        target.runner.n_layers, checkpoint.need("num_hidden_layers")
    )
    mask_token = special.get("mask_token_id", config.get("mask_token_id"))
    if type(mask_token) is not int or not 0 <= mask_token < target.embedding.shape[0]:
        raise SourceError(
            f"config.json of {checkpoint.name} names no usable mask_token_id; got {mask_token!r}"
        )
    layers = range(target.runner.n_layers)
    if not isinstance(taps, list | tuple) or not all(type(tap) is int and tap in layers for tap in taps):
        raise SourceError(f"config.json of {checkpoint.name} taps layers that {target.name} has not: {taps}")
    if len(set(taps)) < len(taps):
        raise SourceError(f"config.json of {checkpoint.name} taps a layer twice: {taps}")
    if checkpoint.need("block_size") < 2:
        raise SourceError(f"config.json of {checkpoint.name} has a block_size below 2: it drafts nothing")
    if checkpoint.need("block_size") > LONGEST_BLOCK:
        raise SourceError(
            f"config.json of {checkpoint.name} has a block_size of {checkpoint.need('block_size')}, above "
            f"{LONGEST_BLOCK}"
        )
    draft_ids = None
    if "d2t" in checkpoint.files:
        draft_ids = from_offsets(checkpoint.name, checkpoint.read("d2t"), target.runner.vocab_size)
    second = ARCHITECTURE2 in (config.get("architectures") or ())
    conv = conv_of(checkpoint, special) if second else None
    network = DFlash(network_config(config), tuple(taps), conv)
    parts = nn.ModuleDict({"network": network})
    selector = selector_of(checkpoint, special, target) if second else None
    if selector is not None:
        parts["selector"] = selector
    domino = None
    if special.get("projector_type") == "domino":
        width = len(draft_ids) if draft_ids is not None else target.config.vocab_size
        state, rank = special.get("domino_state"), special.get("domino_rank")
        if not isinstance(state, int) or not isinstance(rank, int):
            raise SourceError(
                f"config.json of {checkpoint.name} has a Domino head without sizes: domino_state is "
                f"{state!r}, domino_rank {rank!r}"
            )
        domino = Domino(network.config.hidden_size, state, rank, width)
        parts["domino"] = domino
    checkpoint.fill(StoredBlock(network, domino, selector), target, ignore=("d2t",))
    network.reset_rotary(target.runner.device)
    head = target.head if draft_ids is None else cut_head(target.head, draft_ids)
    view: Callable[[Any], Any] = thin_view if suits(target.head.weight) else lambda module: module
    model = BlockModel(
        network=view(network),
        embedding=target.embedding,
        head=view(head),
        draft_ids=None if draft_ids is None else draft_ids.to(target.runner.device),
        domino=view(domino) if domino is not None else None,
        selector=view(selector) if selector is not None else None,
        slots=checkpoint.need("block_size"),
        shift=special.get("shift_label") is True,
        mask_token=mask_token,
        vocab_size=target.runner.vocab_size,
        n_ctx=target.runner.n_ctx,
    )

    def make(verifier: Verifier, capacity: int) -> Drafter:
        runner, shape = target.runner, network.config
        slots = SlotCache(
            range(shape.num_hidden_layers),
            int(shape.num_key_value_heads or 0),
            network.head_dim,
            capacity + model.slots,
            runner.dtype,
            runner.device,
        )
        return BlockDrafter(checkpoint.name, model, verifier, slots)

    kind = "dflash2" if second else "dflash"
    return Trained(kind, tuple(taps), make, parts, known_prefix=special.get("known_prefix") is True)


def special_part(checkpoint: Checkpoint) -> Mapping[str, Any]:
    """What only DFlash's config has. Raises SourceError for kinds whose forward is another than ours."""
    config = checkpoint.config
    special = config.get("dflash_config") or {}
    if not isinstance(special, Mapping):
        raise SourceError(f"dflash_config of {checkpoint.name} must be a mapping; got {special!r}")
    plain: dict[str, Any] = {
        "is_causal": False,
        "input_embedding_scale": 1.0,
        "output_multiplier": 1.0,
        "final_logit_softcapping": 0,
    }
    changed = [key for key, usual in plain.items() if (special.get(key, config.get(key)) or usual) != usual]
    if set(config.get("layer_types") or ()) - {"full_attention"}:
        changed.append("layer_types")
    if changed:
        raise SourceError(
            f"{checkpoint.name} is a kind of DFlash drafter that is not supported: {', '.join(changed)} "
            "differs from the published form"
        )
    return special


class StoredBlock(nn.Module):
    """The tensors of the file under their names there."""

    def __init__(self, network: DFlash, domino: Domino | None, selector: Selector | None = None) -> None:
        super().__init__()
        for name, child in network.named_children():
            setattr(self, name, child)
        if selector is not None:
            self.candidate_selector = selector
        if domino is not None:
            self.domino = domino

"""Run chosen blocks of an unmodified Hugging Face decoder, with our slots, positions and visibility.

Blocks keep their original index (so cache slots stay aligned when layers are skipped) and their own attention
type. Nothing on the model is changed, so one loaded model serves q, q', a layer-skip drafter and other users
at once. On a CPU the blocks run through a view whose linear layers are quicker for few rows (`thin`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from .errors import PairError
from .families import check_family
from .masks import Pass
from .slots import SlotCache
from .softcap import with_cap
from .sublayers import Half, Layer, caches, number_of
from .thin import suits, thin_view


class Runner(Protocol):
    """What the decode loop needs from a model: fresh slots, and one forward over planned rows."""

    n_layers: int
    vocab_size: int
    n_ctx: int
    device: torch.device
    dtype: torch.dtype
    bucketed: bool

    def new_slots(self, capacity: int, layers: Sequence[Layer], taps: Sequence[int] = ()) -> SlotCache: ...

    def forward(
        self, tokens: Tensor, plan: Pass, slots: SlotCache, layers: Sequence[Layer], logit_rows: int
    ) -> Tensor | None:
        """Run `tokens` [rows] through `layers`; logits [logit_rows, V] of the last rows, None for 0 rows."""
        ...

    def read_bytes(self, layers: Sequence[Layer]) -> int:
        """Weight bytes one forward through `layers` reads, LM head included, embedding table not."""
        ...


class BlockRunner:
    """`Runner` over a `transformers` causal LM of one of `SUPPORTED_FAMILIES`.

    `vocab_size` cuts padded head rows off (the pair's common vocabulary). `bucketed` pads widths and key
    lengths to fixed sizes, which CUDA graphs need and a CPU only pays for. Raises PairError for another
    family, and for Gemma2 in an attention that would drop its cap.
    """

    def __init__(self, model: Any, *, vocab_size: int | None = None, bucketed: bool | None = None) -> None:
        config: Any = model.config
        name = type(model).__name__
        check_family(config.model_type, name)
        attention = config._attn_implementation
        if getattr(config, "attn_logit_softcapping", None) and attention != "eager":
            raise PairError(
                f"{name} caps its attention scores, which {attention} attention drops; load it with "
                "attn_implementation='eager'"
            )
        self.model = model
        view: Callable[[Any], Any] = thin_view if suits(model.lm_head.weight) else _itself
        self.body: Any = view(model.model)
        self.head: Any = view(with_cap(model.lm_head, config))
        self.n_layers = int(config.num_hidden_layers)
        self.vocab_size = min(vocab_size or config.vocab_size, config.vocab_size)
        self.n_ctx = int(config.max_position_embeddings)
        self.device: torch.device = self.head.weight.device
        self.dtype: torch.dtype = self.head.weight.dtype
        self.bucketed = self.device.type == "cuda" if bucketed is None else bucketed
        self.hidden_size = int(config.hidden_size)
        self.kv_heads = int(config.num_key_value_heads)
        self.head_dim = int(
            getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        )
        self.windows = _windows(config)
        self.additive = config._attn_implementation == "eager"
        # transformers renamed the blocks' `past_key_values` to `cache` in 5.24.
        names = inspect.signature(type(self.body.layers[0]).forward).parameters
        self.cache_name = "cache" if "cache" in names else "past_key_values"

    def new_slots(self, capacity: int, layers: Sequence[Layer], taps: Sequence[int] = ()) -> SlotCache:
        """Slots for the layers whose attention runs; the hidden states behind layers `taps` are kept as
        features.
        """
        return SlotCache(
            [number_of(kept) for kept in layers if caches(kept)],
            self.kv_heads,
            self.head_dim,
            capacity,
            self.dtype,
            self.device,
            taps=taps,
            hidden_size=self.hidden_size,
        )

    def forward(
        self, tokens: Tensor, plan: Pass, slots: SlotCache, layers: Sequence[Layer], logit_rows: int
    ) -> Tensor | None:
        """See `Runner.forward`. tokens [rows] of ids; logits in the model's dtype."""
        rows = tokens.shape[0]
        if plan.rows > rows:
            tokens = torch.cat([tokens, tokens.new_zeros(plan.rows - rows)])
        hidden = self.through(self.body.embed_tokens(tokens[None]), plan, slots, layers)
        return self.logits(hidden[:, rows - logit_rows : rows]) if logit_rows else None

    def through(self, hidden: Tensor, plan: Pass, slots: SlotCache, layers: Sequence[Layer]) -> Tensor:
        """Hidden states [1, rows, H] behind `layers`, from those that enter the first of them."""
        slots.begin(plan)
        positions = plan.positions[None]
        rotary = self.body.rotary_emb(hidden, position_ids=positions)
        visible = {window: self._mask(plan, window) for window in set(self.windows)}
        features = dict.fromkeys(slots.taps, hidden[0])
        for kept in layers:
            layer = number_of(kept)
            hidden = self._step(
                kept,
                hidden,
                attention_mask=visible[self.windows[layer]],
                position_ids=positions,
                position_embeddings=rotary,
                use_cache=True,
                **{self.cache_name: slots},
            )
            # A skipped layer passes its input on, so a tap holds what the last layer before it gave.
            features.update((tap, hidden[0]) for tap in slots.taps if layer <= tap)
        if slots.taps:
            slots.keep(list(features.values()))
        return hidden

    def _step(self, kept: Layer, hidden: Tensor, **given: Any) -> Tensor:
        """A block as it is, or one of its halves on the residual stream."""
        block = self.body.layers[number_of(kept)]
        if not isinstance(kept, Half):
            whole: Tensor = block(hidden, **given)
            return whole
        norms = _half_norms(block, kept)
        change: Tensor = norms[0](hidden)
        change = block.self_attn(hidden_states=change, **given)[0] if kept.attention else block.mlp(change)
        for norm in norms[1:]:
            change = norm(change)
        return hidden + change

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [n, V] of hidden states [1, n, H] behind the last layer."""
        return self.head(self.body.norm(hidden))[0, :, : self.vocab_size]

    def _mask(self, plan: Pass, window: int | None) -> Tensor | None:
        """[1, 1, rows, end]: bool for SDPA, additive for eager (which adds a bool as 0 or 1)."""
        visible = plan.visible if window is None else plan.within(window)
        return None if visible is None else self.as_attention_mask(visible[None, None])

    def as_attention_mask(self, visible: Tensor) -> Tensor:
        """Marks [batch, 1, rows, end] as the blocks take them."""
        if not self.additive:
            return visible
        lowest = torch.finfo(self.dtype).min
        return torch.zeros_like(visible, dtype=self.dtype).masked_fill(~visible, lowest)

    def read_bytes(self, layers: Sequence[Layer]) -> int:
        """See `Runner.read_bytes`."""
        modules = [module for kept in layers for module in self._modules(kept)]
        modules += [self.body.norm, self.head]
        return sum(
            weight.numel() * weight.element_size() for module in modules for weight in module.parameters()
        )

    def _modules(self, kept: Layer) -> list[Any]:
        block = self.body.layers[number_of(kept)]
        if not isinstance(kept, Half):
            return [block]
        return [*_half_norms(block, kept), block.self_attn if kept.attention else block.mlp]


def _itself(module: Any) -> Any:
    return module


def _half_norms(block: Any, half: Half) -> list[Any]:
    """The norm before a half of a block, and for Gemma2 the one behind it."""
    if not hasattr(block, "pre_feedforward_layernorm"):
        return [block.input_layernorm if half.attention else block.post_attention_layernorm]
    if half.attention:
        return [block.input_layernorm, block.post_attention_layernorm]
    return [block.pre_feedforward_layernorm, block.post_feedforward_layernorm]


def _windows(config: Any) -> list[int | None]:
    """Sliding-window length of each layer, None for full attention."""
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        kinds = ["sliding_attention" if window else "full_attention"] * config.num_hidden_layers
    return [window if kind == "sliding_attention" else None for kind in kinds]

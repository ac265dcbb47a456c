"""Drafters that borrow the verifier's embedding and head, on disk: cut-out blocks, and DFlash's layout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from drafters.checkpoint_files import HEAD_DIM, HEADS, INNER, KV_HEADS, Tensors, random_tensors, saved
from viasd_core.drafters.checkpoints import Checkpoint
from viasd_core.pair import ModelPair

MASK, SLOTS, THETA, EPS = 2, 5, 500.0, 1e-6


def offsets_of(ids: Sequence[int]) -> Tensor:
    """d2t [n] of sorted ids."""
    return torch.tensor(list(ids)) - torch.arange(len(ids))


def borrowed_parts(
    pair: ModelPair, origins: Sequence[int], ids: Sequence[int], noise: float = 0.0
) -> tuple[dict[str, Any], Tensors]:
    """Config and tensors of an autoregressive drafter made of the verifier's blocks `origins`, moved by
    `noise` standard deviations.
    """
    model = pair.verifier.model
    state = model.state_dict()
    generator = torch.Generator().manual_seed(len(origins))
    tensors: Tensors = {"norm.weight": state["model.norm.weight"]}
    for place, origin in enumerate(origins):
        head = f"model.layers.{origin}."
        for name, weight in state.items():
            if name.startswith(head):
                drift = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
                spread = weight.std() if weight.numel() > 1 else 1.0
                tensors[f"layers.{place}.{name.removeprefix(head)}"] = weight + noise * spread * drift
    tensors["d2t"] = offsets_of(ids)
    config = model.config.to_dict() | {
        "architectures": ["ViasdArDrafter"],
        "num_hidden_layers": len(origins),
        "draft_vocab_size": len(ids),
    }
    return config, tensors


def borrowed(
    folder: Path, pair: ModelPair, origins: Sequence[int], ids: Sequence[int], noise: float = 0.0
) -> Checkpoint:
    return saved(folder, *borrowed_parts(pair, origins, ids, noise))


def block_parts(
    target: Any, taps: Sequence[int], seed: int, *, layers: int = 2, scale: float = 0.3
) -> tuple[dict[str, Any], Tensors]:
    """Config and tensors as `z-lab/*-DFlash-*` releases have them, for a verifier with config `target`."""
    width = target.hidden_size
    config = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "attention_bias": False,
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
        "block_size": SLOTS,
        "dflash_config": {"mask_token_id": MASK, "target_layer_ids": list(taps)},
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": INNER,
        "layer_types": ["full_attention"] * layers,
        "max_position_embeddings": 512,
        "num_attention_heads": HEADS,
        "num_hidden_layers": layers,
        "num_key_value_heads": KV_HEADS,
        "num_target_layers": target.num_hidden_layers,
        "rms_norm_eps": EPS,
        "rope_scaling": None,
        "rope_theta": THETA,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": target.vocab_size,
    }
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (width, len(taps) * width),
        "hidden_norm.weight": (width,),
        "norm.weight": (width,),
    }
    for layer in range(layers):
        part = {
            "self_attn.q_proj.weight": (HEADS * HEAD_DIM, width),
            "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, width),
            "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, width),
            "self_attn.o_proj.weight": (width, HEADS * HEAD_DIM),
            "self_attn.q_norm.weight": (HEAD_DIM,),
            "self_attn.k_norm.weight": (HEAD_DIM,),
            "mlp.gate_proj.weight": (INNER, width),
            "mlp.up_proj.weight": (INNER, width),
            "mlp.down_proj.weight": (width, INNER),
            "input_layernorm.weight": (width,),
            "post_attention_layernorm.weight": (width,),
        }
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in part.items()}
    return config, random_tensors(shapes, seed, scale)


def with_domino(
    parts: tuple[dict[str, Any], Tensors], vocab: int, *, state: int = 6, rank: int = 5, seed: int = 9
) -> tuple[dict[str, Any], Tensors]:
    """The same drafter with a causal correction over `vocab` draft ids."""
    config, tensors = parts
    width = config["hidden_size"]
    special = config["dflash_config"] | {
        "projector_type": "domino", "domino_state": state, "domino_rank": rank
    }  # fmt: skip
    correction = random_tensors(
        {
            "domino.gru.weight_ih_l0": (3 * state, width),
            "domino.gru.weight_hh_l0": (3 * state, state),
            "domino.down.weight": (rank, width + state),
            "domino.up.weight": (vocab, rank),
        },
        seed,
        scale=1.0,
    )
    return config | {"dflash_config": special}, tensors | correction


def with_second(
    parts: tuple[dict[str, Any], Tensors], *, size: int = 3, group: int = 8, rank: int = 4, top_k: int = 3
) -> tuple[dict[str, Any], Tensors]:
    """The same drafter as a DFlash2: convolutions around attention and MLP, and a candidate selector."""
    config, tensors = parts
    width, vocab = config["hidden_size"], config["vocab_size"]
    special = config["dflash_config"] | {
        "conv_kernel_size": size, "conv_group_size": group, "selector_rank": rank, "selector_top_k": top_k
    }  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {
        "candidate_selector.predecessor_codebook": (vocab, rank),
        "candidate_selector.successor_codebook": (vocab, rank),
        "candidate_selector.hidden_projection.weight": (rank, width),
    }
    for layer in range(config["num_hidden_layers"]):
        for name in ("attention_conv", "mlp_conv"):
            shapes[f"layers.{layer}.{name}.base_kernel"] = (2, size, width)
            shapes[f"layers.{layer}.{name}.kernel_projection.weight"] = (2 * size * (width // group), width)
    named = {"architectures": ["DFlash2DraftModel"], "dflash_config": special}
    return config | named, tensors | random_tensors(shapes, 11, scale=0.7)


def with_ids(
    parts: tuple[dict[str, Any], Tensors], ids: Sequence[int]
) -> tuple[dict[str, Any], Tensors]:  # fmt: skip
    """The same drafter, able to say `ids` alone."""
    config, tensors = parts
    return config | {"draft_vocab_size": len(ids)}, tensors | {"d2t": offsets_of(ids)}

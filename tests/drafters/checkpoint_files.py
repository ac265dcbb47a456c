"""Random drafters on disk in the layouts that are published: config.json keys, tensor names and shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from viasd_core.drafters.checkpoints import Checkpoint, Target
from viasd_core.layers import BlockRunner
from viasd_core.pair import ModelPair

Tensors = dict[str, Tensor]
HEADS, KV_HEADS, HEAD_DIM, INNER = 4, 2, 8, 40
DRAFT_LENGTH = 7


def target_of(pair: ModelPair) -> Target:
    """The verifier of a toy pair as a loader gets it."""
    model = pair.verifier.model
    return Target("toy", BlockRunner(model, vocab_size=pair.n_vocab), model.config)


def saved(folder: Path, config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    """Write a checkpoint and open it; a config value of ... leaves its key out."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in config.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(kept), encoding="utf-8")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return opened(folder)


def opened(folder: Path) -> Checkpoint:
    files = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            files.update(dict.fromkeys(file.keys(), path))
    return Checkpoint("toy-drafter", folder, json.loads((folder / "config.json").read_text("utf-8")), files)


def random_tensors(shapes: dict[str, tuple[int, ...]], seed: int, scale: float = 0.3) -> Tensors:
    """Gaussian weights; norms are near one."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator)
        tensors[name] = 1 + 0.2 * noise if "norm" in name else scale * noise
    return tensors


def offsets(whole: int, draft: int, seed: int) -> tuple[Tensor, Tensor]:
    """d2t [draft] and t2d [whole] of a random draft vocabulary: draft id i means id i + d2t[i]."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randperm(whole, generator=generator)[:draft].sort().values
    known = torch.zeros(whole, dtype=torch.bool)
    known[ids] = True
    return ids - torch.arange(draft), known


def eagle_parts(target: Any, draft_vocab: int, seed: int) -> tuple[dict[str, Any], Tensors]:
    """Config and tensors of an EAGLE-3 release for a verifier with config `target`."""
    width, whole = target.hidden_size, target.vocab_size
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": INNER,
        "max_position_embeddings": 256,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "num_hidden_layers": 1,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500.0,
        "rope_scaling": None,
        "vocab_size": whole,
        "draft_vocab_size": draft_vocab,
        "tie_word_embeddings": False,
    }
    tensors = random_tensors(
        {
            "fc.weight": (width, 3 * width),
            "midlayer.self_attn.q_proj.weight": (HEADS * HEAD_DIM, 2 * width),
            "midlayer.self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, 2 * width),
            "midlayer.self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, 2 * width),
            "midlayer.self_attn.o_proj.weight": (width, HEADS * HEAD_DIM),
            "midlayer.mlp.gate_proj.weight": (INNER, width),
            "midlayer.mlp.up_proj.weight": (INNER, width),
            "midlayer.mlp.down_proj.weight": (width, INNER),
            "midlayer.hidden_norm.weight": (width,),
            "midlayer.input_layernorm.weight": (width,),
            "midlayer.post_attention_layernorm.weight": (width,),
            "norm.weight": (width,),
            "lm_head.weight": (draft_vocab, width),
        },
        seed,
    )
    tensors["d2t"], tensors["t2d"] = offsets(whole, draft_vocab, seed)
    return config, tensors


def eagle(folder: Path, target: Any, draft_vocab: int = 40, seed: int = 0, **changes: Any) -> Checkpoint:
    config, tensors = eagle_parts(target, draft_vocab, seed)
    return saved(folder, config | changes, tensors)


def dart_parts(target: Any, draft_vocab: int, seed: int) -> tuple[dict[str, Any], Tensors]:
    """Config and tensors as fvliang/DART's code asks for them."""
    config, tensors = eagle_parts(target, draft_vocab, seed)
    config |= {"architectures": ["LlamaForCausalLMDart"], "draft_length": DRAFT_LENGTH}
    tensors |= random_tensors({"midlayer.mask_rep": (2 * target.hidden_size,)}, seed + 1, scale=1.0)
    return config, tensors


def dart(folder: Path, target: Any, draft_vocab: int = 40, seed: int = 0, **changes: Any) -> Checkpoint:
    config, tensors = dart_parts(target, draft_vocab, seed)
    return saved(folder, config | changes, tensors)


def numbered_medusa_parts(
    target: Any, heads: int, blocks: int, seed: int, outputs: bool = True
) -> tuple[dict[str, Any], Tensors]:
    """FasterDecoding's layout; without `outputs` the verifier's head serves all."""
    width = target.hidden_size
    config = {
        "base_model_name_or_path": "toy",
        "medusa_num_heads": heads,
        "medusa_num_layers": blocks,
        "transformers_version": "4.34.1",
    }
    shapes: dict[str, tuple[int, ...]] = {}
    for head in range(heads):
        for block in range(blocks):
            shapes |= {
                f"{head}.{block}.linear.weight": (width, width),
                f"{head}.{block}.linear.bias": (width,),
            }
        if outputs:
            shapes[f"{head}.{blocks}.weight"] = (target.vocab_size, width)
    return config, random_tensors(shapes, seed)


def block_medusa_parts(
    target: Any, heads: int, blocks: int, seed: int, *, draft_vocab: int | None = None, shared: bool = False
) -> tuple[dict[str, Any], Tensors]:
    """vLLM's layout."""
    width, whole = target.hidden_size, target.vocab_size
    config = {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": width,
        "vocab_size": whole,
        "truncated_vocab_size": draft_vocab or whole,
        "num_heads": heads,
        "num_hidden_layers": blocks,
        "medusa_fc_bias": True,
        "original_lm_head": shared,
    }
    shapes: dict[str, tuple[int, ...]] = {}
    for head in range(heads):
        for block in range(blocks):
            shapes |= {
                f"blocks.{head}.layers.{block}.weight": (width, width),
                f"blocks.{head}.layers.{block}.bias": (width,),
            }
    for head in range(1 if shared else heads):
        shapes[f"lm_heads.{head}.weight"] = (draft_vocab or whole, width)
    tensors = random_tensors(shapes, seed)
    if draft_vocab is not None:
        d2t, _ = offsets(whole, draft_vocab, seed)
        tensors["token_map"] = d2t + torch.arange(draft_vocab)
    return config, tensors

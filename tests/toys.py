"""Tiny random models of every supported family, and a byte-level tokenizer that any text survives."""

from __future__ import annotations

import copy
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from viasd_core.families import attention_of
from viasd_core.pair import ModelPair
from viasd_core.presets import DrafterSpec, Preset
from viasd_core.sources import LoadedModel, Source

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2")
CONFIGS: dict[str, Any] = {
    "llama": LlamaConfig,
    "mistral": MistralConfig,
    "qwen2": Qwen2Config,
    "qwen3": Qwen3Config,
    "gemma2": Gemma2Config,
}
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = (("t", "h"), ("th", "e"), ("i", "n"), ("Ġ", "the"), ("a", "n"), ("an", "d"), ("e", "r"), ("o", "n"))
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
EOS_ID = SPECIAL.index("<|im_end|>")
VOCAB = len(SPECIAL) + 256 + len(MERGES)


def toy_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE: 3 special tokens, 256 bytes, 8 merges = 267 ids; no BOS is added."""
    pieces = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in MERGES)]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=list(MERGES)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        unk_token="<|endoftext|>",
        chat_template=TEMPLATE,
    )


def toy_config(family: str = "llama", *, layers: int = 5, vocab: int = VOCAB, **changes: Any) -> Any:
    """Hidden 32, 4 query and 2 key heads of width 8, context 512; ends at EOS_ID."""
    settings: dict[str, Any] = {
        "vocab_size": vocab,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 512,
        "bos_token_id": 1,
        "eos_token_id": EOS_ID,
        "pad_token_id": None,
        "tie_word_embeddings": False,
    }
    if family == "mistral":
        settings["sliding_window"] = None
    if family == "gemma2":  # small caps and a short window, so that a forgotten one shows
        caps = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 4.0}
        settings |= {**caps, "query_pre_attn_scalar": 8, "sliding_window": 8}
    return CONFIGS[family](**{**settings, **changes})


def toy_model(
    family: str = "llama",
    *,
    layers: int = 5,
    seed: int = 0,
    vocab: int = VOCAB,
    dtype: torch.dtype = torch.float64,
    scale: float = 0.15,
    **changes: Any,
) -> PreTrainedModel:
    """A random model; weights have standard deviation `scale`, the head three times that, for peaked rows."""
    config = toy_config(family, layers=layers, vocab=vocab, **changes)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(
        config, attn_implementation=attention_of(family), dtype=torch.float32
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 or name.endswith(".bias"):
                size = 3 * scale if name == "lm_head.weight" else scale
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * size)
    model.to(dtype)  # type: ignore[arg-type]
    return model.eval().requires_grad_(False)


def perturbed(model: PreTrainedModel, noise: float, seed: int = 1) -> PreTrainedModel:
    """A copy whose weights moved by `noise` standard deviations: a drafter that is right some of the time."""
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            drift = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
            parameter.add_(drift.to(parameter) * noise * parameter.std())
    return other


def loaded(model: PreTrainedModel, name: str = "toy") -> LoadedModel:
    """Wrap a bare model with the toy tokenizer, as `load_model` would."""
    return LoadedModel(
        model=model,
        tokenizer=toy_tokenizer(),
        identity={"kind": "folder", "id": name, "sha256": "0" * 64, "layers": model.config.num_hidden_layers},
        eos_ids=frozenset({EOS_ID}),
        n_ctx=model.config.max_position_embeddings,
    )


def toy_pair(
    family: str = "llama",
    *,
    drafter: str = "model",
    noise: float = 0.03,
    skip_ratio: float = 0.4,
    cache: str = "nested",
    draft_vocab: int | None = None,
    **model: Any,
) -> ModelPair:
    """A pair around a random verifier; `drafter` is none, lookup, layer-skip or model (a perturbed verifier).

    `draft_vocab` gives the draft model a head of another width (random weights then, not perturbed ones).
    Remaining keywords go to `toy_model`.
    """
    verifier = toy_model(family, **model)
    draft = None
    if drafter == "model" and draft_vocab is not None:
        draft = loaded(
            toy_model(family, **{**model, "seed": model.get("seed", 0) + 1, "vocab": draft_vocab}), "draft"
        )
    elif drafter == "model":
        draft = loaded(perturbed(verifier, noise), "draft")
    spec = {
        "none": DrafterSpec("none"),
        "lookup": DrafterSpec("lookup"),
        "layer-skip": DrafterSpec(
            "layer-skip", skip_ratio=skip_ratio, cache="own" if cache == "own" else "nested"
        ),
        "model": DrafterSpec("model", source=Source("folder", "draft")),
    }[drafter]
    preset = Preset("toy", verifier=Source("folder", "toy"), drafter=spec, chat=False)
    return ModelPair("toy", loaded(verifier), spec, draft, preset)

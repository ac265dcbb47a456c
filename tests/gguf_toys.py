"""GGUF files of toy models, written the way llama.cpp's converter writes them."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from transformers import PreTrainedModel

from toys import MERGES, SPECIAL, TEMPLATE, toy_tokenizer

ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
}


def write_gguf(
    path: Path,
    model: PreTrainedModel,
    *,
    quantisation: gguf.GGMLQuantizationType | None = None,
    architecture: str | None = None,
    extra: dict[str, np.ndarray] | None = None,
) -> None:
    """Write `model` with the toy tokenizer. Matrices are quantised if asked, the rest stays float32."""
    config = model.config
    writer = gguf.GGUFWriter(path, architecture or config.model_type)
    writer.add_name("toy")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    add_tokenizer(writer)
    names = gguf.get_tensor_name_map(ARCHITECTURES[config.model_type], config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        array = tensor.float().numpy()
        if config.model_type == "llama" and ".q_proj." in name:
            array = interleave(array, config.num_attention_heads)
        if config.model_type == "llama" and ".k_proj." in name:
            array = interleave(array, config.num_key_value_heads)
        short = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert short is not None
        if quantisation is not None and array.ndim == 2:
            writer.add_tensor(short, gguf.quantize(array, quantisation), raw_dtype=quantisation)
        else:
            writer.add_tensor(short, np.ascontiguousarray(array))
    for name, array in (extra or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer: gguf.GGUFWriter) -> None:
    """The toy tokenizer's vocabulary, merges and chat template."""
    vocab = toy_tokenizer().get_vocab()
    pieces = sorted(vocab, key=vocab.__getitem__)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(pieces)
    writer.add_token_types([control if piece in SPECIAL else normal for piece in pieces])
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def interleave(array: np.ndarray, heads: int) -> np.ndarray:
    """Hugging Face's half-split rotary rows in llama.cpp's interleaved order."""
    rows, columns = array.shape
    halves = array.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, columns))

"""Turns the packaged SmolLM2 GGUF file into a folder for vLLM and transformers, without torch.

Rule 1: the matrices are stored as float16, which holds the packaged 4-bit values more closely than
        they hold the published ones.
Rule 2: query and key rows are in the published order, as in the conversion for CTranslate2.
Rule 3: input and output embeddings are one matrix, stored once.
"""

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stages.embedded.smollm2_gguf import END_OF_TURN, START_OF_TURN, SmolLm2File

WEIGHTS: Final = "model.safetensors"
CONFIG: Final = "config.json"

_LAYER: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Names of a layer's tensors there and here."""

Half = npt.NDArray[np.float16]


def convert_to_hf(source: SmolLm2File, folder: Path) -> None:
    """Write config.json and model.safetensors into the existing `folder`."""
    # Only where vLLM is installed.
    from safetensors.numpy import save_file  # noqa: PLC0415

    save_file(_tensors(source), folder / WEIGHTS, metadata={"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(_config(source), indent=1))


def _tensors(source: SmolLm2File) -> dict[str, Half]:
    heads = {
        "attn_q": source.setting("llama.attention.head_count"),
        "attn_k": source.setting("llama.attention.head_count_kv"),
    }
    tensors = {
        "model.embed_tokens.weight": source.matrix("token_embd.weight"),
        "model.norm.weight": source.matrix("output_norm.weight"),
    }
    for layer in range(source.setting("llama.block_count")):
        for theirs, ours in _LAYER.items():
            name = f"blk.{layer}.{theirs}.weight"
            tensors[f"model.layers.{layer}.{ours}.weight"] = (
                source.rotary(name, heads[theirs]) if theirs in heads else source.matrix(name)
            )
    return {name: matrix.astype(np.float16) for name, matrix in tensors.items()}


def _config(source: SmolLm2File) -> dict[str, Any]:
    tokens = source.setting("tokenizer.ggml.tokens")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(tokens),
        "hidden_size": source.setting("llama.embedding_length"),
        "intermediate_size": source.setting("llama.feed_forward_length"),
        "num_hidden_layers": source.setting("llama.block_count"),
        "num_attention_heads": source.setting("llama.attention.head_count"),
        "num_key_value_heads": source.setting("llama.attention.head_count_kv"),
        "head_dim": source.setting("llama.rope.dimension_count"),
        "max_position_embeddings": source.setting("llama.context_length"),
        "rms_norm_eps": source.setting("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": source.setting("llama.rope.freq_base"),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
        "bos_token_id": tokens.index(START_OF_TURN),
        "eos_token_id": tokens.index(END_OF_TURN),
        "pad_token_id": tokens.index(END_OF_TURN),
    }

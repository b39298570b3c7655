"""Turns the packaged SmolLM2 GGUF file into a CTranslate2 model and its tokenizer, without torch.

Rule 1: llama.cpp stores the rows of the query and key matrices interleaved for its own rotary
        embedding; CTranslate2 is given them in the published order.
Rule 2: input and output embeddings are one matrix.
"""

from pathlib import Path
from typing import Any, Final

import ctranslate2
import numpy as np
import numpy.typing as npt
from ctranslate2.specs import common_spec, transformer_spec
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

START_OF_TURN: Final = "<|im_start|>"
END_OF_TURN: Final = "<|im_end|>"

_UNKNOWN: Final = "<|endoftext|>"
_CONTROL_TOKEN: Final = 3
"""GGUF's type number of tokens that no text can spell."""

Matrix = npt.NDArray[np.float32]


class SmolLm2File:
    """Reads tensors and settings of one GGUF file of the Llama architecture."""

    def __init__(self, path: Path) -> None:
        reader = GGUFReader(path)
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        self._fields: dict[str, Any] = {
            name: found.contents()
            for name, found in reader.fields.items()
            if not name.startswith("GGUF.")
        }

    def setting(self, name: str) -> Any:
        """Return one metadata value."""
        return self._fields[name]

    def matrix(self, name: str) -> Matrix:
        """Return one tensor in full precision."""
        tensor = self._tensors[name]
        return np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), np.float32)

    def rotary(self, name: str, heads: int) -> Matrix:
        """Return a query or key matrix in the published order of rows."""
        stored = self.matrix(name)
        half = stored.shape[0] // heads // 2
        pairs = stored.reshape(heads, half, 2, stored.shape[1])
        return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(stored.shape))


def convert_model(source: SmolLm2File, folder: Path) -> None:
    """Write the CTranslate2 model, int8, into the existing `folder`."""
    heads = source.setting("llama.attention.head_count")
    kv_heads = source.setting("llama.attention.head_count_kv")
    layers = source.setting("llama.block_count")
    spec = transformer_spec.TransformerDecoderModelSpec.from_config(
        layers,
        heads,
        activation=common_spec.Activation.SWISH,
        pre_norm=True,
        ffn_glu=True,
        rms_norm=True,
        rotary_dim=0,
        rotary_interleave=False,
        rotary_base=source.setting("llama.rope.freq_base"),
        num_heads_kv=kv_heads,
    )
    embedding = source.matrix("token_embd.weight")
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = embedding
    decoder.projection.weight = embedding
    decoder.layer_norm.gamma = source.matrix("output_norm.weight")
    for index, layer in enumerate(decoder.layer):
        _fill_layer(layer, source, f"blk.{index}", heads, kv_heads)
    spec.register_vocabulary(source.setting("tokenizer.ggml.tokens"))
    spec.config.bos_token = START_OF_TURN
    spec.config.eos_token = END_OF_TURN
    spec.config.unk_token = _UNKNOWN
    spec.config.layer_norm_epsilon = source.setting("llama.attention.layer_norm_rms_epsilon")
    spec.validate()
    spec.optimize(quantization="int8")
    spec.save(str(folder))


def convert_tokenizer(source: SmolLm2File, path: Path) -> None:
    """Write the file's byte-level BPE as one tokenizer.json."""
    tokens = source.setting("tokenizer.ggml.tokens")
    kinds = source.setting("tokenizer.ggml.token_type")
    merges = source.setting("tokenizer.ggml.merges")
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: number for number, token in enumerate(tokens)},
            merges=[tuple(merge.split(" ")) for merge in merges],
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == _CONTROL_TOKEN
        ]
    )
    tokenizer.save(str(path))


def engine_version() -> str:
    """Return the version of the engine whose format `convert_model` writes."""
    return str(ctranslate2.__version__)


def _fill_layer(layer: Any, source: SmolLm2File, block: str, heads: int, kv_heads: int) -> None:
    attention, feed_forward = layer.self_attention, layer.ffn
    attention.layer_norm.gamma = source.matrix(f"{block}.attn_norm.weight")
    attention.linear[0].weight = np.concatenate(
        [
            source.rotary(f"{block}.attn_q.weight", heads),
            source.rotary(f"{block}.attn_k.weight", kv_heads),
            source.matrix(f"{block}.attn_v.weight"),
        ]
    )
    attention.linear[1].weight = source.matrix(f"{block}.attn_output.weight")
    feed_forward.layer_norm.gamma = source.matrix(f"{block}.ffn_norm.weight")
    feed_forward.linear_0.weight = source.matrix(f"{block}.ffn_gate.weight")
    feed_forward.linear_0_noact.weight = source.matrix(f"{block}.ffn_up.weight")
    feed_forward.linear_1.weight = source.matrix(f"{block}.ffn_down.weight")

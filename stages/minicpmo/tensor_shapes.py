"""Which tensors a checkpoint has to hold, by name, as its config's sizes make them.

The names are the published ones; each prefix is one network. Some tensors belong to modules that
are never computed: a checkpoint may hold them, and nobody reads them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from stages.minicpmo.config import MiniCPMOConfig

Shape = tuple[int, ...]
_Named = Iterator[tuple[str, Shape]]


@dataclass(frozen=True, slots=True)
class ExpectedTensors:
    """The tensors of some networks."""

    shapes: Mapping[str, Shape]
    """Tensors that have to be there."""
    unread: tuple[str, ...]
    """Names, or prefixes that end in a dot, of what may be there besides."""

    def may_hold(self, name: str) -> bool:
        """Say whether a checkpoint for this config may hold the tensor."""
        return name in self.shapes or any(
            name == one or (one.endswith(".") and name.startswith(one)) for one in self.unread
        )


def expected_tensors(config: MiniCPMOConfig, prefixes: tuple[str, ...]) -> ExpectedTensors:
    """Return what the networks named in `prefixes` (a key of PREFIXES each) consist of.

    KeyError if there is no such network.
    """
    shapes = {name: shape for prefix in prefixes for name, shape in PREFIXES[prefix](config)}
    return ExpectedTensors(MappingProxyType(shapes), tuple(_unread(config)))


def _llm(config: MiniCPMOConfig) -> _Named:
    llm = config.llm
    hidden, heads = llm.hidden_size, llm.head_dim
    queries, keys = llm.num_attention_heads * heads, llm.num_key_value_heads * heads
    yield "llm.model.embed_tokens.weight", (llm.vocab_size, hidden)
    for layer in range(llm.num_hidden_layers):
        prefix = f"llm.model.layers.{layer}."
        yield from _gated_layer(prefix, (hidden, llm.intermediate_size, queries, keys))
        yield f"{prefix}self_attn.q_norm.weight", (heads,)
        yield f"{prefix}self_attn.k_norm.weight", (heads,)
    yield "llm.model.norm.weight", (hidden,)
    yield "llm.lm_head.weight", (llm.vocab_size, hidden)


def _tts(config: MiniCPMOConfig) -> _Named:
    tts = config.tts
    hidden = tts.hidden_size
    keys = hidden // tts.num_attention_heads * tts.num_key_value_heads
    yield from _tts_text(config)
    for layer in range(tts.num_hidden_layers):
        prefix = f"tts.model.layers.{layer}."
        yield from _gated_layer(prefix, (hidden, tts.intermediate_size, hidden, keys))
    yield "tts.model.norm.weight", (hidden,)
    yield from _tts_projector(config, "tts.projector_spk")
    yield from _tts_semantic(config)
    for place in range(tts.num_vq):
        weight = f"tts.head_code.{place}.parametrizations.weight."
        yield f"tts.emb_code.{place}.weight", (tts.num_audio_tokens, hidden)
        yield f"{weight}original0", (tts.num_audio_tokens, 1)
        yield f"{weight}original1", (tts.num_audio_tokens, hidden)


def _tts_text(config: MiniCPMOConfig) -> _Named:
    yield "tts.emb_text.weight", (config.tts.num_text_tokens, config.tts.hidden_size)


def _tts_semantic(config: MiniCPMOConfig) -> _Named:
    return _tts_projector(config, "tts.projector_semantic")


def _tts_projector(config: MiniCPMOConfig, name: str) -> _Named:
    hidden = config.tts.hidden_size
    yield from _linear(f"{name}.linear1", hidden, config.tts.llm_dim)
    yield from _linear(f"{name}.linear2", hidden, hidden)


def _apm(config: MiniCPMOConfig) -> _Named:
    audio = config.audio
    size = audio.d_model
    yield "apm.conv1.weight", (size, audio.num_mel_bins, 3)
    yield "apm.conv1.bias", (size,)
    yield "apm.conv2.weight", (size, size, 3)
    yield "apm.conv2.bias", (size,)
    yield "apm.embed_positions.weight", (audio.max_source_positions, size)
    for layer in range(audio.encoder_layers):
        prefix = f"apm.layers.{layer}."
        # Whisper's keys have no bias.
        yield f"{prefix}self_attn.k_proj.weight", (size, size)
        for one in ("v_proj", "q_proj", "out_proj"):
            yield from _linear(f"{prefix}self_attn.{one}", size, size)
        yield from _norm(f"{prefix}self_attn_layer_norm", size)
        yield from _linear(f"{prefix}fc1", audio.encoder_ffn_dim, size)
        yield from _linear(f"{prefix}fc2", size, audio.encoder_ffn_dim)
        yield from _norm(f"{prefix}final_layer_norm", size)
    yield from _norm("apm.layer_norm", size)


def _audio_projection(config: MiniCPMOConfig) -> _Named:
    hidden = config.llm.hidden_size
    yield from _linear("audio_projection_layer.linear1", hidden, config.audio.d_model)
    yield from _linear("audio_projection_layer.linear2", hidden, hidden)


def _vpm(config: MiniCPMOConfig) -> _Named:
    vision = config.vision
    size, patch = vision.hidden_size, vision.patch_size
    yield "vpm.embeddings.patch_embedding.weight", (size, 3, patch, patch)
    yield "vpm.embeddings.patch_embedding.bias", (size,)
    yield "vpm.embeddings.position_embedding.weight", ((vision.image_size // patch) ** 2, size)
    for layer in range(config.vision_layers):
        prefix = f"vpm.encoder.layers.{layer}."
        for one in ("k_proj", "v_proj", "q_proj", "out_proj"):
            yield from _linear(f"{prefix}self_attn.{one}", size, size)
        yield from _norm(f"{prefix}layer_norm1", size)
        yield from _linear(f"{prefix}mlp.fc1", vision.intermediate_size, size)
        yield from _linear(f"{prefix}mlp.fc2", size, vision.intermediate_size)
        yield from _norm(f"{prefix}layer_norm2", size)
    yield from _norm("vpm.post_layernorm", size)


def _resampler(config: MiniCPMOConfig) -> _Named:
    hidden, vision = config.llm.hidden_size, config.vision.hidden_size
    yield "resampler.query", (config.query_num, hidden)
    yield "resampler.proj", (hidden, hidden)
    if vision != hidden:
        yield "resampler.kv_proj.weight", (hidden, vision)
    yield "resampler.attn.in_proj_weight", (3 * hidden, hidden)
    yield "resampler.attn.in_proj_bias", (3 * hidden,)
    yield from _linear("resampler.attn.out_proj", hidden, hidden)
    for one in ("ln_q", "ln_kv", "ln_post"):
        yield from _norm(f"resampler.{one}", hidden)


def _gated_layer(prefix: str, sizes: tuple[int, int, int, int]) -> _Named:
    """Yield what a layer of Qwen and of Llama has; sizes: hidden, inner, queries, keys."""
    hidden, inner, queries, keys = sizes
    yield f"{prefix}self_attn.q_proj.weight", (queries, hidden)
    yield f"{prefix}self_attn.k_proj.weight", (keys, hidden)
    yield f"{prefix}self_attn.v_proj.weight", (keys, hidden)
    yield f"{prefix}self_attn.o_proj.weight", (hidden, queries)
    yield f"{prefix}mlp.gate_proj.weight", (inner, hidden)
    yield f"{prefix}mlp.up_proj.weight", (inner, hidden)
    yield f"{prefix}mlp.down_proj.weight", (hidden, inner)
    yield f"{prefix}input_layernorm.weight", (hidden,)
    yield f"{prefix}post_attention_layernorm.weight", (hidden,)


def _linear(name: str, out: int, into: int) -> _Named:
    yield f"{name}.weight", (out, into)
    yield f"{name}.bias", (out,)


def _norm(name: str, size: int) -> _Named:
    yield f"{name}.weight", (size,)
    yield f"{name}.bias", (size,)


def _unread(config: MiniCPMOConfig) -> Iterator[str]:
    yield "tts.model.embed_tokens.weight"
    if config.drop_vision_last_layer:
        yield f"vpm.encoder.layers.{config.vision_layers}."


PREFIXES: Final[Mapping[str, Callable[[MiniCPMOConfig], _Named]]] = MappingProxyType(
    {
        "llm": _llm,
        "vpm": _vpm,
        "resampler": _resampler,
        "apm": _apm,
        "audio_projection_layer": _audio_projection,
        "tts": _tts,
        "tts.emb_text": _tts_text,
        "tts.projector_semantic": _tts_semantic,
    }
)
"""A checkpoint's networks by the first part of their tensors' names, and two parts of one."""

"""The sizes of a MiniCPM-o 4.5 checkpoint, read from its `config.json` when the service starts.

1. Nothing is known beforehand: the released model and a tiny one differ in their files only. Fields
   have their published names.
2. A field that is missing or has a value that this service can not follow is named; a field that
   we do not know is not looked at.
3. A default stands where the published classes have one that a saved file may leave out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

from stages.log_mel import BANDS
from stages.minicpmo.checkpoint_files import CheckpointUnreadable, read_object

CONFIG_FILE: Final = "config.json"
_ENCODER_FRAMES_PER_UNIT: Final = 50
RESAMPLER_HEAD_SIZE: Final = 128
"""The resampler has no field for its heads: each has this size, so a tiny one may have one head."""


@dataclass(frozen=True, slots=True)
class LlmConfig:
    """The language model, Qwen3; its fields lie flat in the file."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    max_position_embeddings: int
    rope_theta: float
    head_dim: int = 128
    rms_norm_eps: float = 1e-6


@dataclass(frozen=True, slots=True)
class AudioConfig:
    """The audio encoder, Whisper's with a cache: `audio_config`."""

    d_model: int
    encoder_layers: int
    encoder_attention_heads: int
    encoder_ffn_dim: int
    num_mel_bins: int = 80
    max_source_positions: int = 1500


@dataclass(frozen=True, slots=True)
class VisionConfig:
    """The image encoder, SigLIP: `vision_config`."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    image_size: int
    """Pixels of the largest square that the position table was made for, not of a frame."""
    patch_size: int
    layer_norm_eps: float = 1e-6


@dataclass(frozen=True, slots=True)
class TtsConfig:
    """The talker, a Llama that writes audio codes: `tts_config`."""

    llm_dim: int
    num_audio_tokens: int
    """The last one is the stop code."""
    num_text_tokens: int
    audio_bos_token_id: int
    text_eos_token_id: int
    hidden_size: int = 768
    intermediate_size: int = 3072
    num_attention_heads: int = 12
    num_key_value_heads: int = 12
    num_hidden_layers: int = 20
    max_position_embeddings: int = 4096
    num_vq: int = 1
    """Codes at a time."""
    normalize_projected_hidden: bool = False
    projector_type: str = "mlp"
    condition_type: str = "llm_hidden"
    attention_type: str = "sliding_recompute"


@dataclass(frozen=True, slots=True)
class SliceConfig:
    """How a camera frame is cut and scaled: `slice_config`."""

    max_slice_nums: int = 1
    patch_size: int = 14
    scale_resolution: int = 448


@dataclass(frozen=True, slots=True)
class MiniCPMOConfig:
    """All sizes of a checkpoint."""

    llm: LlmConfig
    audio: AudioConfig
    vision: VisionConfig
    tts: TtsConfig
    slices: SliceConfig
    query_num: int
    """Rows that the resampler makes of an image."""
    audio_pool_step: int
    """Encoder frames that make one row."""
    audio_chunk_length: float
    """Seconds of a reference recording that see each other in the encoder."""
    drop_vision_last_layer: bool
    """Whether the published module does without its last vision layer; the tiny one keeps it."""

    @property
    def vision_layers(self) -> int:
        """Vision layers that are computed."""
        return self.vision.num_hidden_layers - self.drop_vision_last_layer

    @property
    def resampler_heads(self) -> int:
        """Attention heads of the resampler."""
        return self.llm.hidden_size // RESAMPLER_HEAD_SIZE


@dataclass(frozen=True, slots=True)
class _TopLevel:
    model_type: str
    query_num: int = 64
    audio_pool_step: int = 5
    audio_chunk_length: float = 1.0
    drop_vision_last_layer: bool = True


_FIXED: Final[Mapping[str, tuple[Any, ...]]] = MappingProxyType(
    {
        "version": ("4.5", 4.5),
        "hidden_act": ("silu",),
        "attention_bias": (False,),
        "tie_word_embeddings": (False,),
        "rope_scaling": (None,),
        "use_sliding_window": (False,),
        "audio_config.activation_function": ("gelu",),
        "audio_config.scale_embedding": (False,),
        "audio_config.num_mel_bins": (BANDS,),
        "vision_config.hidden_act": ("gelu_pytorch_tanh",),
        "tts_config.hidden_act": ("silu",),
    }
)
"""Switches of the published code that are built here in one position only; absent is fine."""

_Section = TypeVar(
    "_Section", LlmConfig, AudioConfig, VisionConfig, TtsConfig, SliceConfig, _TopLevel
)


def read_config(folder: Path) -> MiniCPMOConfig:
    """Read `config.json`; raise CheckpointUnreadable that names the field."""
    file = folder / CONFIG_FILE
    raw = read_object(file)
    top = _read(_TopLevel, raw, file, "")
    if top.model_type != "minicpmo":
        raise CheckpointUnreadable(file, f"model_type: {top.model_type!r} is not 'minicpmo'")
    for name, allowed in _FIXED.items():
        _require(raw, name, allowed, file)
    config = MiniCPMOConfig(
        llm=_read(LlmConfig, _with_theta(raw), file, ""),
        audio=_read(AudioConfig, _section(raw, "audio_config", file), file, "audio_config."),
        vision=_read(VisionConfig, _section(raw, "vision_config", file), file, "vision_config."),
        tts=_read(TtsConfig, _section(raw, "tts_config", file), file, "tts_config."),
        slices=_read(SliceConfig, _section(raw, "slice_config", file), file, "slice_config."),
        query_num=top.query_num,
        audio_pool_step=top.audio_pool_step,
        audio_chunk_length=top.audio_chunk_length,
        drop_vision_last_layer=top.drop_vision_last_layer,
    )
    for problem in _contradictions(config):
        raise CheckpointUnreadable(file, problem)
    return config


def _section(raw: Mapping[str, Any], name: str, file: Path) -> Mapping[str, Any]:
    section = raw.get(name)
    if section is None and name == "slice_config":
        return {}
    if not isinstance(section, dict):
        raise CheckpointUnreadable(file, f"{name}: missing, or not an object")
    return section


def _with_theta(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the flat fields; newer tools save the base of the rotation inside an object."""
    nested = raw.get("rope_parameters")
    if "rope_theta" in raw or not isinstance(nested, dict) or "rope_theta" not in nested:
        return raw
    return {**raw, "rope_theta": nested["rope_theta"]}


def _read(section: type[_Section], raw: Mapping[str, Any], file: Path, prefix: str) -> _Section:
    """Return the section with each of its fields checked; sizes are to be positive."""
    values: dict[str, Any] = {}
    for field in fields(section):
        if field.name not in raw and field.default is MISSING:
            raise CheckpointUnreadable(file, f"{prefix}{field.name}: missing")
        value = raw.get(field.name, field.default)
        if not _fits(value, field.type):
            raise CheckpointUnreadable(file, f"{prefix}{field.name}: {value!r} is not possible")
        values[field.name] = float(value) if field.type is float else value
    return section(**values)


def _fits(value: object, kind: object) -> bool:
    # True is an int to Python, and no size.
    if kind is int:
        return type(value) is int and value > 0
    if kind is float:
        return type(value) in (int, float) and 0 < cast(float, value) < inf
    return type(value) is kind


def _require(raw: Mapping[str, Any], name: str, allowed: tuple[Any, ...], file: Path) -> None:
    section, _, field = name.rpartition(".")
    place = _section(raw, section, file) if section else raw
    if field in place and place[field] not in allowed:
        raise CheckpointUnreadable(
            file, f"{name}: {place[field]!r} is not what is built here, {allowed[0]!r}"
        )


def _contradictions(config: MiniCPMOConfig) -> Iterator[str]:
    """Yield what can not be true at once, field by field."""
    llm, audio, vision, tts = config.llm, config.audio, config.vision, config.tts
    for name, size, parts in (
        ("num_attention_heads", llm.num_attention_heads, llm.num_key_value_heads),
        ("hidden_size", llm.hidden_size, RESAMPLER_HEAD_SIZE),
        ("audio_config.d_model", audio.d_model, audio.encoder_attention_heads),
        ("vision_config.hidden_size", vision.hidden_size, vision.num_attention_heads),
        ("tts_config.hidden_size", tts.hidden_size, tts.num_attention_heads),
        ("tts_config.num_attention_heads", tts.num_attention_heads, tts.num_key_value_heads),
        ("audio_pool_step: a unit's frames", _ENCODER_FRAMES_PER_UNIT, config.audio_pool_step),
    ):
        if size % parts:
            yield f"{name} {size} is not divisible by {parts}"
    for name, one, other in (
        # The published projector takes a quarter of the feed-forward size for the model's.
        ("audio_config.encoder_ffn_dim", audio.encoder_ffn_dim, 4 * audio.d_model),
        ("tts_config.llm_dim", tts.llm_dim, llm.hidden_size),
        ("slice_config.patch_size", config.slices.patch_size, vision.patch_size),
    ):
        if one != other:
            yield f"{name} is {one}, but the rest of the file makes it {other}"
    if config.vision_layers < 1:
        yield "vision_config.num_hidden_layers: none is left without the last one"
    if tts.audio_bos_token_id >= tts.num_text_tokens:
        yield f"tts_config.audio_bos_token_id {tts.audio_bos_token_id} is not among the tokens"

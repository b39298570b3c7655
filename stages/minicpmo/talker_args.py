"""What an engine must be told to serve MiniCPM-o's talker, whatever the machine."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from stages.minicpmo.config import TtsConfig
from stages.minicpmo.vllm_args import EngineFields

TALKER_ARCHITECTURE: Final = "DuplexMiniCPMOTalker"
"""Our model class by vLLM's name for it."""
MODALITY: Final = "condition"
PLACEHOLDER_IDS: Final[Mapping[str, int]] = MappingProxyType({MODALITY: 0})
"""The id at a position whose row comes from outside; it is never embedded."""
PROCESSORS: Final[Mapping[bool, str]] = MappingProxyType(
    {
        False: "stages.minicpmo.talker_processor_v1:TalkerProcessorV1",
        True: "stages.minicpmo.talker_processor_v2:TalkerProcessorV2",
    }
)
"""The adapter of the talker's sampling, by whether vLLM takes its V2 model runner."""
ROPE_THETA: Final = 1e4
RMS_NORM_EPS: Final = 1e-6
"""Neither is in the checkpoint's config: the published class has them as Llama's defaults."""


def talker_engine_fields(tts: TtsConfig, *, is_v2_runner: bool) -> EngineFields:
    """Return the talker's part of the engine's settings; see `vllm_args.engine_fields`."""
    return EngineFields(
        placeholder_ids=PLACEHOLDER_IDS,
        logits_processors=(PROCESSORS[is_v2_runner],),
        worker_extension_cls="",
        hf_overrides=_as_flat(tts),
        more_engine_args={"trust_remote_code": False, "generation_config": "vllm"},
    )


def _as_flat(tts: TtsConfig) -> Mapping[str, Any]:
    """Return the talker's sizes in the places where the file has the language model's."""
    return {
        "architectures": [TALKER_ARCHITECTURE],
        "hidden_size": tts.hidden_size,
        "intermediate_size": tts.intermediate_size,
        "num_hidden_layers": tts.num_hidden_layers,
        "num_attention_heads": tts.num_attention_heads,
        "num_key_value_heads": tts.num_key_value_heads,
        "head_dim": tts.hidden_size // tts.num_attention_heads,
        "max_position_embeddings": tts.max_position_embeddings,
        # One id more than there are codes: see the model class.
        "vocab_size": tts.num_audio_tokens + 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
        "rms_norm_eps": RMS_NORM_EPS,
        "layer_types": ["full_attention"] * tts.num_hidden_layers,
        "tie_word_embeddings": False,
    }

"""What vLLM must be told to serve MiniCPM-o, whatever the machine.

How much memory, how many sessions, which dtype: that is the service's to say beside it.
"""

from pathlib import Path
from typing import Any, Final

from stages.minicpmo.unit_decoder import Tokens

MODEL_TYPE: Final = "minicpmo"
"""In config.json."""
ARCHITECTURE: Final = "DuplexMiniCPMO"
"""Our model class by vLLM's name for it, whatever the checkpoint says."""
PLACEHOLDER_IDS: Final = {"audio": 0, "image": 0}
"""The id at a position whose row comes from outside, by modality. It is never embedded: any will do
that the vocabulary has."""
EXTENSION: Final = "stages.minicpmo.worker_extension.TapExtension"
PROCESSORS: Final = {
    False: "stages.minicpmo.processor_v1:PolicyProcessorV1",
    True: "stages.minicpmo.processor_v2:PolicyProcessorV2",
}
"""The adapter of the decode policy, by whether vLLM takes its V2 model runner."""


def engine_args(folder: Path, *, is_v2_runner: bool) -> dict[str, Any]:
    """Return AsyncEngineArgs' arguments for the checkpoint in `folder`."""
    return {
        "model": str(folder),
        "tokenizer": str(folder),
        "trust_remote_code": False,
        "hf_overrides": {"architectures": [ARCHITECTURE]},
        "logits_processors": [PROCESSORS[is_v2_runner]],
        "worker_extension_cls": EXTENSION,
        "enable_mm_embeds": True,
        "skip_mm_profiling": True,
        "mm_processor_cache_gb": 0,
        "generation_config": "vllm",
    }


def placeholders(modality: str, count: int) -> Tokens:
    """Return the ids that stand for `count` rows of a modality."""
    return (PLACEHOLDER_IDS[modality],) * count

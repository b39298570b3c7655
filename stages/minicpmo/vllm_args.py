"""What an engine must be told to serve MiniCPM-o, whatever the machine.

How much memory, how many sessions, which dtype: that is the service's to say beside it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypedDict

MODEL_TYPE: Final = "minicpmo"
"""In config.json."""
ARCHITECTURE: Final = "DuplexMiniCPMO"
"""Our model class by vLLM's name for it, whatever the checkpoint says."""
PLACEHOLDER_IDS: Final[Mapping[str, int]] = MappingProxyType({"audio": 0, "image": 0})
"""The id at a position whose row comes from outside, by modality. It is never embedded: any will do
that the vocabulary has."""
EXTENSION: Final = "stages.minicpmo.worker_extension.TapExtension"
PROCESSORS: Final[Mapping[bool, str]] = MappingProxyType(
    {
        False: "stages.minicpmo.processor_v1:PolicyProcessorV1",
        True: "stages.minicpmo.processor_v2:PolicyProcessorV2",
    }
)
"""The adapter of the decode policy, by whether vLLM takes its V2 model runner."""


class EngineFields(TypedDict):
    """Fields of `stages.engine.settings.EngineSettings` that the model decides."""

    placeholder_ids: Mapping[str, int]
    logits_processors: tuple[str, ...]
    worker_extension_cls: str
    hf_overrides: Mapping[str, Any]
    more_engine_args: Mapping[str, Any]


def engine_fields(*, is_v2_runner: bool) -> EngineFields:
    """Return the model's part of the engine's settings.

    vLLM takes its V2 runner on a GPU unless `VLLM_USE_V2_MODEL_RUNNER` is 0, and V1 on a CPU; with
    the other runner's processor it refuses to start.
    """
    return EngineFields(
        placeholder_ids=PLACEHOLDER_IDS,
        logits_processors=(PROCESSORS[is_v2_runner],),
        worker_extension_cls=EXTENSION,
        hf_overrides={"architectures": [ARCHITECTURE]},
        # The checkpoint's own code is not run, and its sampling defaults are not ours.
        more_engine_args={"trust_remote_code": False, "generation_config": "vllm"},
    )

"""MiniCPM-o's config.json for vLLM, read without code of the checkpoint's own.

The language model's sizes lie flat in the file, as Qwen3 names them; the other models' stay plain
dicts, because vLLM computes nothing with them (`stages.minicpmo.config` is what reads them).
"""

from typing import Any, ClassVar

from transformers import Qwen3Config


class DuplexMiniCPMOConfig(Qwen3Config):  # type: ignore[no-untyped-call]
    """What AutoConfig makes of `"model_type": "minicpmo"`."""

    model_type = "minicpmo"
    sub_configs: ClassVar[dict[str, Any]] = {}

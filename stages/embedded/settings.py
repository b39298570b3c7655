"""The embedded model's settings: `model_settings` of the deploy file."""

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class Engine(Enum):
    """What runs the language model."""

    CTRANSLATE2 = "ctranslate2"
    VLLM = "vllm"

    def __str__(self) -> str:
        return self.value


class EmbeddedSettings(BaseModel):
    """What an operator may change; every default is good for a laptop."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cache_dir: Path | None = Field(
        None,
        description="Where the converted language model is kept. null: $DUPLEX_CACHE, else the "
        "user's cache folder.",
    )
    engine: Engine = Field(
        Engine.CTRANSLATE2,
        description="What runs the language model: `ctranslate2`, or `vllm`, which must be "
        "installed for it and keeps each conversation's state between two answers.",
    )
    kept_conversations: int = Field(
        4,
        ge=1,
        le=64,
        description="With `engine: vllm`, conversations whose state is kept, about 190 MB each; "
        "a further one takes the place of that which was silent longest. At least "
        "`answering_workers` are.",
    )
    hearing_workers: int = Field(2, ge=1, le=64, description="Utterances recognised at once.")
    answering_workers: int = Field(2, ge=1, le=64, description="Answers written at once.")
    speaking_workers: int = Field(2, ge=1, le=64, description="Sentences spoken at once.")
    threads_per_worker: int = Field(1, ge=1, le=64, description="CPU threads of one worker.")
    speech_threshold: float = Field(
        0.5, gt=0.0, lt=1.0, description="Voice probability from which a window is speech."
    )
    silence_ms: int = Field(
        600,
        ge=100,
        le=5000,
        description="Silence that ends an utterance, in milliseconds. Longer than that of the "
        "server's own voice detection, which tells sooner when it is on.",
    )
    min_speech_ms: int = Field(
        200, ge=32, le=2000, description="Less speech than this is taken for noise."
    )
    pre_roll_ms: int = Field(
        300, ge=0, le=2000, description="Audio kept from before the first sound of speech."
    )
    history_tokens: int = Field(
        256, ge=0, le=4096, description="Tokens of the conversation that the model is reminded of."
    )
    answer_tokens: int = Field(
        160, ge=1, le=1024, description="Longest answer where the client sets no limit."
    )
    instructions: str = Field(
        "You are a friendly voice assistant. Answer in one or two short sentences.",
        description="System prompt where the client gives none.",
    )


def read_settings(raw: Mapping[str, Any]) -> EmbeddedSettings:
    """Validate; raise ValueError that names each wrong field and what it takes."""
    try:
        return EmbeddedSettings.model_validate(dict(raw))
    except ValidationError as error:
        faults = "; ".join(
            f"model_settings.{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
            for fault in error.errors()
        )
        raise ValueError(faults) from None

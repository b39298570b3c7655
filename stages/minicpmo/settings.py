"""MiniCPM-o's settings: `model_settings` of the deploy file."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from stages.minicpmo.policy import PUBLISHED, DecodeSettings
from stages.minicpmo.schedule import MAX_CALL_CODES, MIN_CALL_CODES
from stages.minicpmo.unit_decoder import PUBLISHED_RULES
from stages.minicpmo.windows import (
    PUBLISHED_CARRIED,
    PUBLISHED_HIGH,
    PUBLISHED_LOW,
    PUBLISHED_UNITS,
)

CHECKPOINT_VARIABLE: Final = "DUPLEX_CHECKPOINT"
"""Environment variable with the checkpoint's folder, where the settings name none."""
TINY: Final = "tiny"
"""The checkpoint that is made on the spot: the real path with toy weights."""


_LONGEST_UNIT: Final = 14
"""Positions of a unit besides what it speaks; with a camera frame it has 66 more."""
_SHORT_CONTEXT: Final = 64


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WindowSettings(_Settings):
    """What a conversation keeps when it gets long."""

    mode: Literal["off", "basic", "context"] = Field(
        "context",
        description="off: everything, and a conversation that gets too long ends. basic: the "
        "oldest units go. context: they go, and what the model said in them stays as text.",
    )
    high: int = Field(PUBLISHED_HIGH, ge=1, description="basic: positions above which units go.")
    low: int = Field(PUBLISHED_LOW, ge=1, description="basic: positions that are left then.")
    units: int = Field(PUBLISHED_UNITS, ge=1, description="context: units that are kept.")
    slack_units: int = Field(
        24,
        ge=0,
        description="context: so many units more may come before those above `units` go, all at "
        "once. What stays is computed again then, so 0 would mean every second. A session has "
        "between half of it and all, so that those which began together do not slide together.",
    )
    carried_tokens: int = Field(
        PUBLISHED_CARRIED, ge=0, description="context: tokens of earlier words that are kept."
    )

    @model_validator(mode="after")
    def _in_order(self) -> "WindowSettings":
        if self.low > self.high:
            raise ValueError("low must not be above high")
        return self


class DecodingSettings(_Settings):
    """How the model's next token is chosen, where the client does not say."""

    greedy: bool = Field(False, description="Always the likeliest token; for tests.")
    temperature: float = Field(
        PUBLISHED.temperature, gt=0, le=2, description="Above 1 it is bolder, below 1 it is safer."
    )
    top_k: int = Field(
        PUBLISHED.top_k, ge=0, description="Only so many of the likeliest; 0 is no limit."
    )
    top_p: float = Field(
        PUBLISHED.top_p, gt=0, le=1, description="Only the likeliest that have this mass together."
    )
    max_steps: int = Field(
        PUBLISHED_RULES.max_steps, ge=2, le=64, description="Tokens of one unit, its end included."
    )
    max_characters: int = Field(
        PUBLISHED_RULES.max_characters, ge=1, description="A unit's text stays below it."
    )

    def decode_settings(self) -> DecodeSettings:
        """Return them as the policy has them."""
        return DecodeSettings(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            repetition_penalty=PUBLISHED.repetition_penalty,
            repetition_window=PUBLISHED.repetition_window,
            turn_eos_penalty=PUBLISHED.turn_eos_penalty,
            im_end_scale=PUBLISHED.im_end_scale,
            im_end_top_k=PUBLISHED.im_end_top_k,
        )


class OwnEngineSettings(_Settings):
    """What each of the two engines is given."""

    kv_cache_memory_bytes: int | None = Field(
        None, ge=1, description="Memory for keys and values; null: by gpu_memory_utilization."
    )
    gpu_memory_utilization: float | None = Field(
        None, gt=0, lt=1, description="Share of the GPU's memory for weights, keys and values."
    )
    max_num_batched_tokens: int = Field(
        1024, ge=64, description="Positions of one step: bounds how long a rebuild delays others."
    )
    max_units_in_engine: int | None = Field(
        None, ge=1, description="Units that run at once; the others wait by deadline. null: all."
    )
    cudagraph_mode: str | None = Field(
        None, description="FULL on a GPU: steps with appends in them are 3 to 4 times faster."
    )
    enforce_eager: bool = Field(False, description="No CUDA graphs and no compilation.")
    load_format: str = Field("auto", description="dummy: random weights, to measure with.")
    metrics: bool = Field(True, description="vLLM's own metrics go out through Ray's exporter.")
    stuck_after_s: float = Field(
        30.0, gt=0, description="A unit without any output for so long: the engine is restarted."
    )


class LanguageModelSettings(OwnEngineSettings):
    """The engine that the language model runs on."""

    max_sessions: int = Field(
        4, ge=1, description="Sessions with memory reserved; at least limits.max_sessions."
    )
    session_tokens: int = Field(
        8192,
        ge=64,
        description="Positions reserved for a session. One that would need more gives up its "
        "oldest units, or ends where the window is off.",
    )
    enable_prefix_caching: bool = Field(
        False, description="Keep what aborted requests computed, so that a rebuild costs less."
    )


class TalkerEngineSettings(OwnEngineSettings):
    """The engine that the talker runs on."""

    max_sessions: int | None = Field(
        None, ge=1, description="Sessions with memory reserved; null: the language model's."
    )
    session_tokens: int = Field(
        4096,
        ge=256,
        description="Positions reserved for a turn, of which a second of speech takes about 46. "
        "A turn that needs more goes on from its last second. The checkpoint's own limit holds "
        "too.",
    )


class VoiceSettings(_Settings):
    """How codes become sound."""

    folder: str | None = Field(
        None, description="Folder with flow.pt and hift.pt; null: the checkpoint's own."
    )
    prompt: str | None = Field(
        None,
        description="The voice of sessions that bring none: a recording (.wav), or a prompt that "
        "was made of one (.npz). null: voice.npz of the folder.",
    )
    prompt_s: float = Field(
        6.0, ge=1, le=30, description="Of a recording, so many seconds are used at most."
    )
    steps: int = Field(
        5, ge=1, le=32, description="Steps from noise to mel: more are slower and cleaner."
    )
    dtype: Literal["float32", "float16", "bfloat16"] = Field(
        "float32", description="Numbers of the flow; the vocoder has float32 always."
    )
    max_batch: int = Field(
        16, ge=1, le=64, description="Sessions whose sound is made at once, at most."
    )
    cuda_graphs: bool = Field(
        True,
        description="Record the flow's work as CUDA graphs, which start at once; ignored on a CPU.",
    )
    max_voices: int = Field(8, ge=1, description="Prepared voices that are kept, in use or not.")
    first_call_codes: int = Field(
        MAX_CALL_CODES,
        ge=MIN_CALL_CODES,
        le=MAX_CALL_CODES,
        description="Codes, 25 a second, of the first sound of a turn, three of silence and three "
        "to look ahead among them: with fewer it is there sooner.",
    )
    memory_bytes: int | None = Field(
        None,
        ge=1,
        description="Memory for all that is spoken; sessions beyond it are refused. null: what "
        "max_sessions need.",
    )
    seed: int = Field(0, ge=0, lt=1 << 63, description="Of the noise that the flow begins from.")
    greedy: bool = Field(False, description="Always the likeliest code; for tests.")


class MiniCPMOSettings(_Settings):
    """What an operator may set."""

    checkpoint: str | None = Field(
        None,
        description="Folder of the published checkpoint, or tiny: one with toy weights that is "
        "made on the spot. null: $DUPLEX_CHECKPOINT.",
    )
    device: Literal["cpu", "cuda"] = Field(
        "cuda", description="Where the model runs: cuda, or cpu."
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "bfloat16", description="Numbers it runs in: bfloat16, or float32, which a CPU needs."
    )
    language_model: LanguageModelSettings = Field(
        default_factory=LanguageModelSettings, description="The engine of the language model."
    )
    window: WindowSettings = Field(
        default_factory=WindowSettings, description="What a conversation that gets long keeps."
    )
    decoding: DecodingSettings = Field(
        default_factory=DecodingSettings, description="How the next token is chosen."
    )
    talker: TalkerEngineSettings = Field(
        default_factory=TalkerEngineSettings, description="The engine of the talker."
    )
    voice: VoiceSettings = Field(
        default_factory=VoiceSettings, description="How codes become sound."
    )
    max_frames: int = Field(
        8, ge=0, le=64, description="Camera frames in one unit; a unit with more fails."
    )
    encoder_batch: int = Field(
        16, ge=1, le=256, description="Sessions whose audio is encoded at once, at most."
    )
    instructions: str = Field(
        "Streaming Omni Conversation.", description="System prompt where the client gives none."
    )

    @model_validator(mode="after")
    def _has_room(self) -> "MiniCPMOSettings":
        carried = self.window.carried_tokens if self.window.mode == "context" else 0
        # Two units of the longest kind, what is carried, and a short context.
        least = 2 * (_LONGEST_UNIT + self.decoding.max_steps) + carried + _SHORT_CONTEXT
        if self.language_model.session_tokens < least:
            raise ValueError(
                f"language_model.session_tokens must be {least} at least: two units, what the "
                "window carries, and the context"
            )
        return self


def read_settings(raw: Mapping[str, Any]) -> MiniCPMOSettings:
    """Validate; raise ValueError that names each wrong field and what it takes."""
    try:
        return MiniCPMOSettings.model_validate(dict(raw))
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(['model_settings', *map(str, fault['loc'])])}: {fault['msg']}"
            for fault in error.errors()
        )
        raise ValueError(faults) from None

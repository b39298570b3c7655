"""Values that cross process boundaries between the gateway and the stages.

Audio in these values is always raw little-endian 16-bit mono PCM: `INPUT_RATE_HZ` towards
Stage0, `OUTPUT_RATE_HZ` from Stage1, `VOICE_RATE_HZ` of a voice's recording towards both. Other
formats exist only at the edge of the gateway.
"""

import enum
from dataclasses import dataclass, field

from session.config import AnswerSettings
from session.context import ContextMessage
from session.tools import FunctionCall, ToolOutput

INPUT_RATE_HZ = 16_000
OUTPUT_RATE_HZ = 24_000
VOICE_RATE_HZ = 24_000
"""Of the recording of a voice: a voice that speaks at 24 kHz is learned from as much."""
SAMPLE_BYTES = 2


class Decision(enum.Enum):
    """What the model decided for one unit."""

    LISTEN = "listen"
    SPEAK = "speak"


@dataclass(frozen=True, slots=True)
class Unit:
    """What Stage0 consumes at once.

    `pcm` is usually one unit length (`Descriptor.unit_ms`); a committed item may be longer, and
    models whose descriptor has `accepts_short_units` may be given less. It is empty for a
    text-only unit.
    """

    pcm: bytes
    text: str = ""
    is_speech: bool = False
    closes_input: bool = False
    """The user's item is complete and an answer is wanted now, without waiting for silence."""
    is_continuation: bool = False
    """Synthetic silence that lets an answer go on while the user sends nothing."""
    force_listen: bool = False
    options: AnswerSettings | None = None
    """Settings of the one answer that this unit asks for; None: the session's."""
    tool_outputs: tuple[ToolOutput, ...] = ()
    """What the model's function calls returned, oldest first."""
    messages: tuple[ContextMessage, ...] = ()
    """To remember before this unit's own input, oldest first. They ask for no answer."""
    is_bare: bool = False
    """An answer is wanted although nothing was said: the instructions and the conversation have
    to do. What audio there is is silence, for models that take no less."""
    is_heard_only: bool = False
    """The user's item is complete. It is heard for its words and remembered, and nothing is to be
    answered yet."""
    is_fresh: bool = False
    """The answer that this unit asks for sees `messages` and `text` alone, nothing said before."""
    video_frames: tuple[tuple[bytes, ...], ...] = field(default=(), repr=False)
    """JPEG or PNG camera frames that belong to this unit, in groups: one group an append."""


@dataclass(frozen=True, slots=True)
class SegmentMetrics:
    """Stage0's token timing for one unit; segment-local, never cumulative."""

    ttft_ms: float
    tpot_ms: float
    itls_ms: tuple[float, ...]
    generated_tokens: int
    queued_ms: float = 0.0
    """For a place in the model's engine; not part of the other times."""
    read_tokens: int = 0
    """Text that the model read for it, what it remembers included; 0 if it hears sound itself."""


@dataclass(frozen=True, slots=True)
class StageTime:
    """Where a stage's time for one unit went, in seconds of its own clock."""

    queue_s: float
    """Before the model began: at the stage's door and for a place in the model's engine."""
    compute_s: float


@dataclass(frozen=True, slots=True)
class UnitResult:
    """Stage0's small answer to one unit. The speech itself travels as an opaque reference."""

    decision: Decision
    text: str = ""
    """Text this unit will speak; empty for LISTEN."""
    has_speech: bool | None = None
    """Whether Stage1 has something to say for this unit; None: when there is text."""
    segment_end: bool = False
    turn_end: bool = False
    """The model's turn is over once this unit's speech has been spoken."""
    is_cut: bool = False
    """The answer ends here because of its `max_output_tokens`, with more to say."""
    heard: str = ""
    """What the model understood the user to have said, when this unit completed an utterance."""
    metrics: SegmentMetrics | None = None
    calls: tuple[FunctionCall, ...] = ()
    """Functions that the model calls once this unit's speech has been spoken."""
    time: StageTime | None = field(default=None, compare=False)
    """What the stage adds; no two answers are different by it."""

    @property
    def speech_follows(self) -> bool:
        """Whether Stage1 is to speak this unit; text without speech is shown as it is."""
        return bool(self.text) if self.has_speech is None else self.has_speech


@dataclass(frozen=True, slots=True)
class SpeechMetrics:
    """What Stage1's time for one chunk went into."""

    talker_ms: float
    """Text to codes, as far as no earlier chunk of the unit has it. A turn's first chunk may be
    made of the first codes, while the others are still to come."""
    flow_ms: float
    """Codes to mel, for the whole batch."""
    vocoder_ms: float
    """Mel to sound, for the whole batch."""
    waited_ms: float
    """For a place in the talker's engine, and for a round of the vocoder."""
    batch: int
    """Conversations whose sound was made together."""

    @property
    def total_ms(self) -> float:
        """All of it."""
        return self.talker_ms + self.flow_ms + self.vocoder_ms + self.waited_ms


@dataclass(frozen=True, slots=True)
class SpeechChunk:
    """A piece of Stage1's speech: `OUTPUT_RATE_HZ` PCM and exactly the text it adds."""

    pcm: bytes
    transcript: str
    segment_end: bool = False
    turn_end: bool = False
    metrics: SpeechMetrics | None = None
    time: StageTime | None = field(default=None, compare=False)
    """What the stage adds to the first chunk of a unit; no two chunks are different by it."""

    @property
    def samples(self) -> int:
        """Number of audio samples in this chunk."""
        return len(self.pcm) // SAMPLE_BYTES

    @property
    def real_time_factor(self) -> float | None:
        """Return the time it took by the time it lasts; None where either is not known."""
        duration_ms = self.samples * 1000 / OUTPUT_RATE_HZ
        return self.metrics.total_ms / duration_ms if self.metrics and duration_ms else None


def samples_to_ms(samples: int, rate_hz: int) -> int:
    """Whole milliseconds covered by `samples`, rounded down."""
    return samples * 1000 // rate_hz

"""What MiniCPM-o's Stage0 is built on: its ear and its language model, each behind a protocol.

The values are those of `stages.engine.values` and hold rows of embeddings that nobody here opens,
so that this side of the model needs neither torch nor vLLM.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NewType, Protocol

from session.ids import RequestId, SessionId
from stages.engine.values import Embeddings, EngineCapacity, Pieces, SegmentTiming
from stages.minicpmo.mel import MelState
from stages.minicpmo.policy import DecodeSettings
from stages.minicpmo.unit_decoder import Ended, SpeechState, UnitRules

EncoderPlace = NewType("EncoderPlace", object)
"""Where the audio encoder stands in one conversation. An older one can be gone back to as long as
no more than one append has come after it."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Whole seconds of audio, as the language model gets them."""

    mel: MelState
    place: EncoderPlace
    seconds: tuple[Embeddings, ...]


class Ear(Protocol):
    """Audio and pictures to rows of embeddings. It keeps no table of conversations."""

    def new_place(self) -> EncoderPlace:
        """Return where a conversation begins; this takes its memory."""
        ...

    async def hear(self, place: EncoderPlace, mel: MelState, pcm: bytes) -> Heard:
        """Encode whole seconds of 16 kHz PCM. A failure leaves `place` as good as it was.

        Calls of one conversation must not overlap. Raises StageFailed.
        """
        ...

    async def see(self, images: Sequence[bytes]) -> tuple[Embeddings, ...]:
        """Encode JPEG or PNG pictures. Raises StageFailed."""
        ...

    async def learn_voice(self, pcm: bytes) -> Embeddings:
        """Encode the recording of a voice, VOICE_RATE_HZ PCM of up to 30 s.

        Raises UnsupportedOption.
        """
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """What the language model is asked for one unit."""

    request_id: RequestId
    pieces: Pieces
    """What the unit puts behind what is held."""
    speech: SpeechState
    must_listen: bool
    decode: DecodeSettings
    is_greedy: bool
    rules: UnitRules
    seed: int
    deadline_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Thought:
    """What it answered."""

    ended: Ended
    hidden: Any
    """float32 [len(ended.fed), hidden]: the rows at the positions of the fed tokens."""
    timing: SegmentTiming


class UnitModel(Protocol):
    """The language model, a unit at a time: one resumable request per session.

    What fails or is cancelled leaves a session's memory as it was before.
    """

    async def open(self, session_id: SessionId) -> None:
        """Reserve a slot and memory. Raises AdmissionRefused."""
        ...

    async def think(self, session_id: SessionId, question: Question) -> Thought:
        """Feed a unit and decode it. Raises StageFailed, or StageRefused when cancelled."""
        ...

    async def replace(self, session_id: SessionId, pieces: Pieces) -> None:
        """Hold exactly `pieces` from now on; nothing is done if that is so already."""
        ...

    async def prepare(self, session_id: SessionId) -> None:
        """Do now what a replacement leaves to be done in front of the next unit."""
        ...

    async def cancel(self, session_id: SessionId) -> None:
        """Stop what runs for a session; the engine does nothing for it any more on return."""
        ...

    async def close(self, session_id: SessionId) -> None:
        """Release everything; unknown sessions are no error."""
        ...

    def capacity(self) -> EngineCapacity:
        """Return what is left."""
        ...

    async def died(self) -> str:
        """Return why it can serve nobody any more, once that is so."""
        ...

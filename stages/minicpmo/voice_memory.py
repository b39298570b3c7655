"""Memory for voices and for what sessions speak: reserved at the open, so that no unit ever waits.

Rule 1: a session has what its turns can grow to from `reserve` to `release`.
Rule 2: a voice counts once, however many sessions speak with it.
Rule 3: what all sessions share is taken off beforehand: a batch's turns exist twice while it runs,
        and voices that nobody speaks with are kept for a while.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from session.errors import AdmissionRefused, StageRefused
from session.ids import SessionId
from stages.minicpmo.voice_prompt import NamedPrompt

FRAMES_PER_SECOND: Final = 50
"""Of mel."""


@dataclass(frozen=True, slots=True)
class VoiceSizes:
    """What is needed, by the frames of mel that a voice has."""

    turn_bytes: Callable[[int], int]
    """What one turn's memory grows to."""
    voice_bytes: Callable[[int], int]
    """What one prepared voice takes."""


@dataclass(frozen=True, slots=True)
class _Share:
    voice: str
    own_bytes: int


class VoiceMemory:
    """The account of one device's memory for sound."""

    def __init__(self, total_bytes: int, sizes: VoiceSizes) -> None:
        """`total_bytes` is what sessions may share."""
        self._total_bytes = total_bytes
        self._sizes = sizes
        self._shares: dict[SessionId, _Share] = {}
        self._voices: dict[str, int] = {}
        """Bytes of each voice that a session speaks with."""

    @property
    def reserved_bytes(self) -> int:
        """What the open sessions and their voices have."""
        turns = sum(share.own_bytes for share in self._shares.values())
        return turns + sum(self._voices.values())

    @property
    def total_bytes(self) -> int:
        """What sessions may share."""
        return self._total_bytes

    def reserve(self, session_id: SessionId, named: NamedPrompt) -> None:
        """Reserve what a session and its voice need.

        Raises AdmissionRefused, or StageRefused for a session that has its share already.
        """
        if session_id in self._shares:
            raise StageRefused("the session is open already")
        frames = len(named.prompt.mel)
        own_bytes = self._sizes.turn_bytes(frames)
        voice_bytes = self._voices.get(named.key, self._sizes.voice_bytes(frames))
        new_voice_bytes = 0 if named.key in self._voices else voice_bytes
        needed = own_bytes + new_voice_bytes
        left = self._total_bytes - self.reserved_bytes
        if needed > left:
            raise AdmissionRefused(
                f"the session's sound needs {needed} bytes of memory, {max(0, left)} are left"
            )
        self._shares[session_id] = _Share(named.key, own_bytes)
        self._voices[named.key] = voice_bytes

    def release(self, session_id: SessionId) -> None:
        """Give back what a session had; one that had nothing is no error."""
        share = self._shares.pop(session_id, None)
        if share and all(other.voice != share.voice for other in self._shares.values()):
            del self._voices[share.voice]


def shared_bytes(sizes: VoiceSizes, *, max_batch: int, max_voices: int, frames: int) -> int:
    """Return what a running batch and the kept voices take beside the sessions."""
    return max_batch * sizes.turn_bytes(frames) + (max_voices + 1) * sizes.voice_bytes(frames)

"""Which codes of a unit go into which vocoder call (vectors, section 7, "schedule").

Rule 1: the vocoder looks three codes ahead. A call of n codes speaks its first n - 3, and the
        next call begins with the three that were looked at. A turn begins with three codes of
        silence.
Rule 2: a call takes at most 28 codes; fewer than 8 wait for the next unit. A turn's first call may
        be told to take fewer: it is the one that somebody waits for.
Rule 3: at the end of a turn all that waits, also the three codes alone, goes out in one last call
        that looks at nothing. Afterwards vocoder and schedule are as at the start.
Rule 4: a unit's audio that is shorter than a second is padded with zeros on the left, except at
        the end of a turn. A unit without a call has no audio.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from session.unit import OUTPUT_RATE_HZ

SILENCE_CODE: Final = 4218
LOOK_AHEAD: Final = 3
MAX_CALL_CODES: Final = 28
MIN_CALL_CODES: Final = 8
CODE_SAMPLES: Final = 960
"""A code is two frames of 480 samples."""
HELD_BACK_SAMPLES: Final = 3840
"""What a call keeps for the cross-fade into the next one; the last call keeps nothing."""
UNIT_SAMPLES: Final = OUTPUT_RATE_HZ


@dataclass(frozen=True, slots=True)
class Waiting:
    """What one turn has not spoken yet."""

    codes: tuple[int, ...] = (SILENCE_CODE,) * LOOK_AHEAD
    has_called: bool = False
    """A call of this turn was made, and holds audio back."""


@dataclass(frozen=True, slots=True)
class VocoderCall:
    """One call of the vocoder."""

    codes: tuple[int, ...]
    is_first: bool
    """Of its turn: the vocoder's caches are those of the voice alone."""
    is_last: bool
    """Of its turn: no code is only looked at, no audio is held back."""

    @property
    def samples(self) -> int:
        """Samples at 24 kHz that the call yields."""
        spoken = len(self.codes) - (0 if self.is_last else LOOK_AHEAD)
        before = 0 if self.is_first else HELD_BACK_SAMPLES
        after = 0 if self.is_last else HELD_BACK_SAMPLES
        return spoken * CODE_SAMPLES + before - after


def schedule_unit(
    waiting: Waiting,
    codes: Sequence[int],
    *,
    turn_ends: bool,
    first_call_codes: int = MAX_CALL_CODES,
) -> tuple[tuple[VocoderCall, ...], Waiting]:
    """Return the calls that a unit's new codes lead to, in order, and what waits afterwards.

    `first_call_codes` is the most that a turn's first call takes: with fewer, the first sound is
    there sooner. Raise ValueError if it is not within MIN_CALL_CODES and MAX_CALL_CODES.
    """
    if not MIN_CALL_CODES <= first_call_codes <= MAX_CALL_CODES:
        raise ValueError(f"a first call of {first_call_codes} codes")
    calls = []
    buffer = (*waiting.codes, *codes)
    is_first = not waiting.has_called
    while len(buffer) >= MIN_CALL_CODES:
        called = buffer[: first_call_codes if is_first else MAX_CALL_CODES]
        calls.append(VocoderCall(called, is_first=is_first, is_last=False))
        buffer = buffer[len(called) - LOOK_AHEAD :]
        is_first = False
    if not turn_ends:
        return tuple(calls), Waiting(buffer, has_called=not is_first)
    calls.append(VocoderCall(buffer, is_first=is_first, is_last=True))
    return tuple(calls), Waiting()


def left_zeros(calls: Sequence[VocoderCall]) -> int:
    """Return how many zero samples at 24 kHz stand before the audio of a unit's calls."""
    if not calls or calls[-1].is_last:
        return 0
    return max(0, UNIT_SAMPLES - sum(call.samples for call in calls))

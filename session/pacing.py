"""Sends speech as it is played, for clients that can not be told to drop what they have.

Rule 1: a client that plays what it gets, at once and without pause, never has more than LEAD_S of
        it that it has not played. So little is what a user still hears after an interruption:
        the rest was not sent, and is not.
Rule 2: words go with the sound that they are said in, as far as their place in the text tells.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from session.events import SpeechDelta
from session.stream_events import FRAME_MS
from session.unit import OUTPUT_RATE_HZ, SAMPLE_BYTES, samples_to_ms

LEAD_S: Final = 0.4
_FRAME_BYTES: Final = FRAME_MS * OUTPUT_RATE_HZ // 1000 * SAMPLE_BYTES


@dataclass(slots=True)
class Pace:
    """How far the client's playing has got, by the session's clock."""

    _plays_until_s: float = 0.0
    """When a client that plays what it has been sent will have played it all."""

    def due_s(self, delta: SpeechDelta) -> float:
        """When a piece of speech may be sent."""
        return self._plays_until_s + _seconds(delta) - LEAD_S

    def send(self, delta: SpeechDelta, now: float) -> None:
        """Count a piece of speech as sent."""
        self._plays_until_s = max(self._plays_until_s, now) + _seconds(delta)


def frames(delta: SpeechDelta) -> Iterator[SpeechDelta]:
    """Cut a chunk of speech into frames that follow each other without a gap."""
    starts = range(0, len(delta.pcm), _FRAME_BYTES)
    if len(starts) <= 1:
        yield delta
        return
    words = _Words(delta.transcript)
    for start in starts:
        end = min(start + _FRAME_BYTES, len(delta.pcm))
        is_last = end == len(delta.pcm)
        left_ms = samples_to_ms((len(delta.pcm) - end) // SAMPLE_BYTES, OUTPUT_RATE_HZ)
        yield replace(
            delta,
            pcm=delta.pcm[start:end],
            transcript=words.until(end / len(delta.pcm)),
            audio_ms=delta.audio_ms - left_ms,
            is_turn_end=delta.is_turn_end and is_last,
            marks=delta.marks if is_last else (),
            metrics=delta.metrics if is_last else (),
        )


class _Words:
    """A text that is given away word by word."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._given = 0

    def until(self, share: float) -> str:
        """Return the words that begin in the first `share` of the text and were not given yet."""
        end = len(self._text)
        if share < 1.0:
            begins = max(self._given, int(len(self._text) * share))
            space = self._text.find(" ", begins)
            end = end if space < 0 else space + 1
        given, self._given = self._text[self._given : end], max(self._given, end)
        return given


def _seconds(delta: SpeechDelta) -> float:
    return len(delta.pcm) / SAMPLE_BYTES / OUTPUT_RATE_HZ

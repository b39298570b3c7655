"""What one unit tells: the utterances in it, as words."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES, Unit
from stages.embedded.ear import Ear, Utterance
from stages.embedded.ports import Recogniser

FLUSH_SILENCE_MS: Final = 100
"""Silence needed at the end of a unit that was cut short because the user had stopped."""

_FULL_SCALE: Final = np.float32(1 / 32768)


def listen(ear: Ear, unit: Unit, unit_ms: int) -> list[Utterance]:
    """Advance the ear by one unit; return what the unit completes."""
    unit_bytes = unit_ms * INPUT_RATE_HZ // 1000 * SAMPLE_BYTES
    if unit.is_continuation:
        return ear.hear(bytes(len(unit.pcm) or unit_bytes))
    found = ear.hear(unit.pcm)
    if unit.closes_input or unit.is_heard_only:
        return found + ear.end()
    if 0 < len(unit.pcm) < unit_bytes:
        # Voice detection outside heard the end of the utterance and did not wait for the unit.
        return found + ear.end(min_silence_ms=FLUSH_SILENCE_MS)
    return found


@dataclass(frozen=True, slots=True)
class Heard:
    """Words of complete utterances, and those of one that still goes on."""

    words: str
    unfinished: str


def recognise(whisper: Recogniser, utterances: list[Utterance], unfinished: str) -> Heard:
    """Turn utterances into words; `unfinished` are those of their earlier pieces."""
    complete: list[str] = []
    for utterance in utterances:
        samples = np.frombuffer(utterance.pcm, "<i2").astype(np.float32) * _FULL_SCALE
        text = whisper.transcribe(samples)
        unfinished = f"{unfinished} {text}".strip() if _is_words(text) else unfinished
        if utterance.is_complete:
            complete, unfinished = [*complete, unfinished] if unfinished else complete, ""
    return Heard(" ".join(complete), unfinished)


def _is_words(text: str) -> bool:
    """Judge whether text is speech: Whisper puts sounds in brackets, and music between notes."""
    stripped = text.strip()
    is_sound = stripped[:1] in ("[", "(", "*", "\u266a") and stripped[-1:] in "])*\u266a"
    return not is_sound and any(character.isalnum() for character in stripped)

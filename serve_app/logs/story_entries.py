"""What one entry of a session's story says of a stimulus and of its effects: names and numbers.

Rule 1: no content. A size or a duration stands for what was said, and a word is written only if it
        is one of ours: what a client may have chosen itself becomes `other`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from serve_app.handled import Told
from serve_app.metrics.definitions import OVERLAPPED, RESPONSES, SESSIONS_ENDED
from session.effects import Effect, Emit
from session.events import (
    ErrorRaised,
    Event,
    OverlapDecided,
    ResponseFinished,
    SessionClosed,
    SessionExpired,
)
from session.stimuli import (
    AudioAppended,
    CloseRequested,
    ConfigureFailed,
    EventRefused,
    ItemCreated,
    OpenFailed,
    ReleaseFailed,
    SessionConfigured,
    SpeechArrived,
    SpeechFailed,
    SpeechFinished,
    StageLost,
    TextAppended,
    UnitFailed,
    UnitFinished,
)
from session.stream_stimuli import ContextAppended
from session.unit import INPUT_RATE_HZ, OUTPUT_RATE_HZ, SAMPLE_BYTES, samples_to_ms


@dataclass(frozen=True, slots=True)
class Measure:
    """How much came with a stimulus, and what it was in one of our words."""

    audio_ms: int = 0
    characters: int = 0
    images: int = 0
    unit: int | None = None
    words: tuple[str, ...] = ()


NOTHING: Final = Measure()


def measure(told: Told) -> Measure:
    """Return the sizes of what came."""
    read = _READERS.get(type(told))
    return NOTHING if read is None else read(told)


def known_end(reason: str) -> str:
    """Return why a session ends, in one of our words."""
    return SESSIONS_ENDED.known((reason,))[0]


def words_of(effects: Sequence[Effect]) -> tuple[str, ...]:
    """Return what was decided, as far as it is worth a word."""
    found: tuple[str, ...] = ()
    for effect in effects:
        if isinstance(effect, Emit) and isinstance(effect.event, WORDY):
            found += _words(effect.event)
    return found[:MOST_WORDS]


MOST_WORDS: Final = 8
"""One stimulus can let thousands of held commands go on."""
WORDY: Final = (ResponseFinished, SessionClosed, SessionExpired, ErrorRaised, OverlapDecided)


def _words(event: Event) -> tuple[str, ...]:
    match event:
        case ResponseFinished(status=status, reason=reason):
            return RESPONSES.known((status, reason))
        case SessionClosed(reason=reason) | SessionExpired(reason=reason):
            return (known_end(reason),)
        case ErrorRaised(error=error):
            return (error.wire_code,)
        case OverlapDecided(action=action, reason=reason):
            return OVERLAPPED.known((action, reason))
        case _:
            return ()


def _heard_ms(pcm: bytes) -> int:
    return samples_to_ms(len(pcm) // SAMPLE_BYTES, INPUT_RATE_HZ)


def _audio(told: AudioAppended) -> Measure:
    return Measure(
        audio_ms=_heard_ms(told.pcm),
        characters=len(told.text_hint),
        images=len(told.video_frames),
    )


def _item(told: ItemCreated) -> Measure:
    return Measure(audio_ms=_heard_ms(told.pcm), characters=len(told.text))


def _text(told: TextAppended | ContextAppended) -> Measure:
    return Measure(characters=len(told.text))


def _settings(told: SessionConfigured) -> Measure:
    return Measure(words=tuple(name for name, _ in told.patch.changes))


def _refused(told: EventRefused | OpenFailed | ConfigureFailed | ReleaseFailed) -> Measure:
    return Measure(words=(told.error.wire_code,))


def _lost(told: StageLost) -> Measure:
    return Measure(words=(told.stage, told.error.wire_code))


def _answered(told: UnitFinished) -> Measure:
    result = told.result
    return Measure(characters=len(result.text), unit=told.seq, words=(result.decision.value,))


def _failed(told: UnitFailed | SpeechFailed) -> Measure:
    return Measure(unit=told.seq, words=(told.error.wire_code,))


def _chunk(told: SpeechArrived) -> Measure:
    chunk = told.chunk
    return Measure(
        audio_ms=samples_to_ms(chunk.samples, OUTPUT_RATE_HZ),
        characters=len(chunk.transcript),
        unit=told.seq,
    )


_READERS: Final[dict[type, Callable[[Any], Measure]]] = {
    AudioAppended: _audio,
    TextAppended: _text,
    ContextAppended: _text,
    ItemCreated: _item,
    SessionConfigured: _settings,
    CloseRequested: lambda told: Measure(words=(known_end(told.reason),)),
    EventRefused: _refused,
    OpenFailed: _refused,
    ConfigureFailed: _refused,
    ReleaseFailed: _refused,
    StageLost: _lost,
    UnitFinished: _answered,
    UnitFailed: _failed,
    SpeechFailed: _failed,
    SpeechArrived: _chunk,
    SpeechFinished: lambda told: Measure(unit=told.seq),
}

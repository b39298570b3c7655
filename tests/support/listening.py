"""What the service hears in a sound: the real network's scores and the kernel's own detector."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from session.config import TurnDetection
from session.stimuli import SpeechScore
from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES
from session.vad import Offset, Onset, SpeechDetector
from stages.vad.silero import SileroVad
from tests.support.noises import chunks


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge of speech, and how much audio the client had sent when it was found."""

    edge: Onset | Offset
    found_at_ms: float
    """End of the chunk that completed it, in audio time."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One chunk as a client sent it, and the windows that it completed."""

    pcm: bytes
    scores: tuple[SpeechScore, ...]
    end_ms: float


def heard(vad: SileroVad, pcm: bytes, chunk_ms: int) -> Iterator[Heard]:
    """Score a sound chunk by chunk, as the gateway does."""
    state = vad.new_state()
    samples = 0
    for chunk in chunks(pcm, chunk_ms):
        samples += len(chunk) // SAMPLE_BYTES
        windows = vad.score(state, chunk)
        scores = tuple(SpeechScore(window.probability, window.end_sample) for window in windows)
        yield Heard(chunk, scores, samples * 1000 / INPUT_RATE_HZ)


def edges(
    pieces: Sequence[Heard], settings: TurnDetection, *, over_answer: bool = False
) -> list[Edge]:
    """Return the edges that the kernel's detector finds, in silence or over an answer."""
    detector = SpeechDetector(settings)
    return [
        Edge(edge, piece.end_ms)
        for piece in pieces
        for score in piece.scores
        if (edge := detector.feed(score, over_answer=over_answer)) is not None
    ]

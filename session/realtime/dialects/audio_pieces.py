"""Cuts a chunk of speech into pieces that fit into a frame, in the format of its answer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from session.config import AudioEncoding, AudioFormat
from session.events import SpeechDelta
from session.unit import OUTPUT_RATE_HZ, SAMPLE_BYTES, samples_to_ms

MAX_DELTA_BYTES: Final = 240_000
"""Audio in one delta; as base64 and with its metadata it stays well under 512 KiB."""

Encode = Callable[[bytes, AudioFormat], bytes]


@dataclass(frozen=True, slots=True)
class Piece:
    """Encoded audio small enough for one frame, and where in the answer it ends."""

    audio: bytes
    end_ms: int


def pieces(event: SpeechDelta, encode: Encode) -> list[Piece]:
    """Encode a chunk and cut it to the size of a frame."""
    chunk_ms = samples_to_ms(len(event.pcm) // SAMPLE_BYTES, OUTPUT_RATE_HZ)
    parts = _encoded(event, encode)
    total = sum(map(len, parts))
    found: list[Piece] = []
    sent = 0
    for part in parts:
        sent += len(part)
        found.append(Piece(part, event.audio_ms - chunk_ms * (total - sent) // total))
    return found


def _encoded(event: SpeechDelta, encode: Encode) -> list[bytes]:
    if event.output_format.encoding is AudioEncoding.WAV:
        # Each delta is a file of its own, so the samples are cut, not the file.
        return [encode(pcm, event.output_format) for pcm in _cut(event.pcm)]
    # Once for the whole chunk: at the end of a turn the encoder gives away what it held back, so
    # it is asked then even if this chunk brings nothing.
    if not event.pcm and not event.is_turn_end:
        return []
    return list(_cut(encode(event.pcm, event.output_format)))


def _cut(audio: bytes) -> Iterator[bytes]:
    for start in range(0, len(audio), MAX_DELTA_BYTES):
        yield audio[start : start + MAX_DELTA_BYTES]

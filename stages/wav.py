"""Self-contained WAV: what one append brings, and what one output chunk becomes."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from session.errors import BadAudio
from session.unit import SAMPLE_BYTES

_PCM: Final = 1
_FLOAT: Final = 3
_EXTENSIBLE: Final = 0xFFFE
_UNKNOWN_SIZE: Final = 0xFFFFFFFF
"""Written by programs that stream a WAV and can not go back to its header."""


@dataclass(frozen=True, slots=True)
class WavAudio:
    """The sound of a WAV, mixed down to one channel."""

    samples: NDArray[np.float32]
    """Full scale is 1.0; may hold anything that a float WAV held."""
    rate_hz: int


@dataclass(frozen=True, slots=True)
class _Layout:
    kind: int
    channels: int
    rate_hz: int
    bits: int


def parse_wav(wav: bytes) -> WavAudio:
    """Read 16-bit PCM or 32-bit float, one or two channels; raise BadAudio for anything else."""
    if len(wav) < 12 or wav[:4] != b"RIFF" or wav[8:12] != b"WAVE":
        raise BadAudio("this is not a WAV: it does not start with RIFF....WAVE")
    layout: _Layout | None = None
    for name, body in _chunks(wav):
        if name == b"fmt ":
            layout = _layout(body)
        elif name == b"data":
            if layout is None:
                raise BadAudio("the WAV's data comes before its fmt chunk")
            return WavAudio(_mono(body, layout), layout.rate_hz)
    raise BadAudio("the WAV has no data chunk")


def build_wav(pcm: bytes, rate_hz: int) -> bytes:
    """Put a header of its own before one chunk of mono 16-bit PCM."""
    header = struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        36 + len(pcm),
        b"WAVE",
        b"fmt ",
        16,
        _PCM,
        1,
        rate_hz,
        rate_hz * SAMPLE_BYTES,
        SAMPLE_BYTES,
        8 * SAMPLE_BYTES,
        b"data",
        len(pcm),
    )
    return header + pcm


def _chunks(wav: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the name and body of each RIFF chunk."""
    at = 12
    while at + 8 <= len(wav):
        name, size = wav[at : at + 4], int.from_bytes(wav[at + 4 : at + 8], "little")
        at += 8
        if size == _UNKNOWN_SIZE:
            size = len(wav) - at
        if size > len(wav) - at:
            raise BadAudio(f"the WAV is cut short: chunk {name!r} says {size} bytes")
        yield name, wav[at : at + size]
        at += size + size % 2  # chunks are padded to even length


def _layout(body: bytes) -> _Layout:
    if len(body) < 16:
        raise BadAudio("the WAV's fmt chunk is too short")
    kind, channels, rate_hz, _, _, bits = struct.unpack_from("<HHIIHH", body)
    if kind == _EXTENSIBLE and len(body) >= 26:
        kind = int.from_bytes(body[24:26], "little")  # first field of the subformat's GUID
    if (kind, bits) not in {(_PCM, 16), (_FLOAT, 32)} or channels not in {1, 2}:
        raise BadAudio(
            f"WAV format {kind} with {bits} bits and {channels} channels: send 16-bit PCM or "
            "32-bit float, mono or stereo",
            code="unsupported_audio_format",
        )
    return _Layout(kind, channels, rate_hz, bits)


def _mono(body: bytes, layout: _Layout) -> NDArray[np.float32]:
    frame_bytes = layout.channels * layout.bits // 8
    if len(body) % frame_bytes:
        raise BadAudio("the WAV's data does not end with a whole frame")
    if layout.kind == _PCM:
        samples = np.frombuffer(body, "<i2").astype(np.float32) / np.float32(32_768)
    else:
        samples = np.frombuffer(body, "<f4").astype(np.float32)
    if layout.channels == 2:
        samples = samples.reshape(-1, 2).mean(axis=1, dtype=np.float32)
    return samples

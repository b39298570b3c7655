"""Finds the format and the samples in a WAV file, also in one that was written as a stream."""

import struct
from dataclasses import dataclass
from typing import Final

PCM: Final = 1
IEEE_FLOAT: Final = 3
A_LAW: Final = 6
MU_LAW: Final = 7
_EXTENSIBLE: Final = 0xFFFE


@dataclass(frozen=True, slots=True)
class Riff:
    """The two chunks of a WAV file that matter."""

    format_tag: int
    channels: int
    rate_hz: int
    bits: int
    samples: bytes


def parse_riff(data: bytes) -> Riff:
    """Read a WAV file. Raises ValueError that says what is wrong with it."""
    if len(data) < 12 or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise ValueError("not a WAV file: it does not start with RIFF and WAVE")
    form: tuple[int, int, int, int] | None = None
    position = 12
    while position + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, position)
        body = data[position + 8 : position + 8 + size]
        if name == b"fmt ":
            form = _format(body)
        elif name == b"data":
            if form is None:
                raise ValueError("not a usable WAV file: its samples come before their format")
            # A streamed file gives a size of 0 or 2^32-1: the samples go on to the end.
            samples = data[position + 8 :] if size in {0, 0xFFFFFFFF} else body
            return Riff(*form, samples=samples)
        position += 8 + size + (size & 1)
    raise ValueError("not a usable WAV file: it has no data chunk")


def _format(body: bytes) -> tuple[int, int, int, int]:
    if len(body) < 16:
        raise ValueError("not a usable WAV file: its fmt chunk is too short")
    tag, channels, rate_hz, _, _, bits = struct.unpack_from("<HHIIHH", body)
    if tag == _EXTENSIBLE and len(body) >= 26:
        (tag,) = struct.unpack_from("<H", body, 24)
    if channels < 1 or rate_hz < 1:
        raise ValueError(f"not a usable WAV file: {channels} channels at {rate_hz} Hz")
    return tag, channels, rate_hz, bits

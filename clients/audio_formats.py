"""The encodings in which the service may send speech, and how to get samples out of them."""

from collections.abc import Mapping
from typing import Final

from clients.g711 import ALAW, ULAW, expand
from clients.riff import PCM, parse_riff

_SAMPLE_BYTES: Final[Mapping[str, int]] = {"pcm16": 2, "g711_ulaw": 1, "g711_alaw": 1}
_ALIASES: Final[Mapping[str, str]] = {
    "": "pcm16",
    "pcm": "pcm16",
    "s16le": "pcm16",
    "pcm_s16le": "pcm16",
    "audio/pcm": "pcm16",
    "audio/pcmu": "g711_ulaw",
    "audio/pcma": "g711_alaw",
}


def canonical(encoding: str) -> str:
    """Return the one name of an encoding that has several on the wire."""
    return _ALIASES.get(encoding, encoding)


def duration_ms(audio: bytes, encoding: str, rate_hz: int) -> float:
    """Length in milliseconds. Raises ValueError for an encoding that is not known."""
    if encoding == "wav":
        riff = parse_riff(audio)
        frame_bytes = max(1, riff.channels * riff.bits // 8)
        return len(riff.samples) / frame_bytes / riff.rate_hz * 1000
    if encoding not in _SAMPLE_BYTES:
        raise ValueError(f"the server sent audio in an unknown format {encoding!r}")
    return len(audio) / _SAMPLE_BYTES[encoding] / rate_hz * 1000


def to_pcm16(audio: bytes, encoding: str) -> bytes:
    """Return 16-bit little-endian samples at the rate they came in. Raises ValueError."""
    match encoding:
        case "pcm16":
            return audio
        case "g711_ulaw":
            return expand(audio, ULAW)
        case "g711_alaw":
            return expand(audio, ALAW)
        case "wav":
            riff = parse_riff(audio)
            if (riff.format_tag, riff.channels, riff.bits) != (PCM, 1, 16):
                raise ValueError("the server sent a WAV chunk that is not 16-bit mono")
            return riff.samples
        case _:
            raise ValueError(f"the server sent audio in an unknown format {encoding!r}")

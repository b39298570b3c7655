"""Audio formats on the wire: their names, their rates, and which may go which way."""

from collections.abc import Mapping
from typing import Final

from session.config import AudioEncoding, AudioFormat, AudioFormatPatch
from session.errors import BadAudio

MIN_RATE_HZ: Final = 8_000
MAX_RATE_HZ: Final = 48_000

ENCODINGS: Final[Mapping[str, AudioEncoding]] = {
    "pcm16": AudioEncoding.PCM16,
    "pcm_s16le": AudioEncoding.PCM16,
    "s16le": AudioEncoding.PCM16,
    "audio/pcm": AudioEncoding.PCM16,
    "pcm": AudioEncoding.PCM16,
    "pcm_f32le": AudioEncoding.PCM_F32LE,
    "f32le": AudioEncoding.PCM_F32LE,
    "audio/pcm_f32le": AudioEncoding.PCM_F32LE,
    "g711_ulaw": AudioEncoding.G711_ULAW,
    "audio/pcmu": AudioEncoding.G711_ULAW,
    "g711_alaw": AudioEncoding.G711_ALAW,
    "audio/pcma": AudioEncoding.G711_ALAW,
    "wav": AudioEncoding.WAV,
    "audio/wav": AudioEncoding.WAV,
}
INPUT_HZ: Final[Mapping[AudioEncoding, int]] = {
    AudioEncoding.PCM16: 16_000,
    AudioEncoding.PCM_F32LE: 16_000,
    AudioEncoding.G711_ULAW: 8_000,
    AudioEncoding.G711_ALAW: 8_000,
    AudioEncoding.WAV: 16_000,
}
"""Rate of input that names its encoding only. (A WAV file says its own.)"""
OUTPUT_HZ: Final[Mapping[AudioEncoding, int]] = {
    AudioEncoding.PCM16: 24_000,
    AudioEncoding.WAV: 24_000,
    AudioEncoding.G711_ULAW: 8_000,
    AudioEncoding.G711_ALAW: 8_000,
}
"""The encodings that answers can have, each at its one rate."""


def read_input(named: object, rate: object, param: str, rate_param: str) -> AudioFormatPatch | None:
    """Read an input format from its name or object and its separate rate; None if both are null."""
    encoding, rate_hz = _read(named, rate, param, rate_param)
    if encoding is None and rate_hz is None:
        return None
    natural_hz = INPUT_HZ[encoding or AudioEncoding.PCM16]
    return AudioFormatPatch(encoding, rate_hz, natural_hz)


def read_append(named: object, rate: object) -> AudioFormat | None:
    """Read the format of one append; None for the session's. A lone rate means PCM16 at it."""
    patch = read_input(named, rate, "format", "sample_rate_hz")
    if patch is None:
        return None
    return patch.resolve(AudioFormat(AudioEncoding.PCM16, INPUT_HZ[AudioEncoding.PCM16]))


def read_output(named: object, rate: object, param: str, rate_param: str) -> AudioFormat | None:
    """Read the format of answers; None to keep what holds."""
    encoding, rate_hz = _read(named, rate, param, rate_param)
    if encoding is None:
        if rate_hz not in (None, OUTPUT_HZ[AudioEncoding.PCM16]):
            raise _unsupported(f"{rate_param} {rate_hz} needs a format that has it", rate_param)
        return None
    natural_hz = OUTPUT_HZ.get(encoding)
    if natural_hz is None or rate_hz not in (None, natural_hz):
        offered = ", ".join(f"{kind.value} at {hz} Hz" for kind, hz in OUTPUT_HZ.items())
        raise _unsupported(f"{param} must be one of: {offered}", param)
    return AudioFormat(encoding, natural_hz)


def _read(
    named: object, rate: object, param: str, rate_param: str
) -> tuple[AudioEncoding | None, int | None]:
    own_rate: object = None
    if isinstance(named, dict):
        own_rate = named.get("rate", named.get("sample_rate_hz"))
        named = named.get("type")
    encoding = None if named is None else _encoding(named, param)
    rates = {
        _rate_hz(value, name)
        for value, name in ((own_rate, f"{param}.rate"), (rate, rate_param))
        if value is not None
    }
    if len(rates) > 1:
        raise _unsupported(f"{param}.rate and {rate_param} differ; send one of them", rate_param)
    return encoding, rates.pop() if rates else None


def _encoding(named: object, param: str) -> AudioEncoding:
    encoding = ENCODINGS.get(named) if isinstance(named, str) else None
    if encoding is None:
        raise _unsupported(f"{param} must be one of {', '.join(ENCODINGS)}", param)
    return encoding


def _rate_hz(value: object, param: str) -> int:
    if isinstance(value, int) and MIN_RATE_HZ <= value <= MAX_RATE_HZ:
        return value
    raise _unsupported(f"{param} must be a whole number from {MIN_RATE_HZ} to {MAX_RATE_HZ}", param)


def _unsupported(message: str, param: str) -> BadAudio:
    return BadAudio(message, code="unsupported_audio_format", param=param)

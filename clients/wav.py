"""Reads WAV files of any common kind as 16-bit mono, and writes 16-bit mono."""

import io
import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from clients import riff as tags
from clients.g711 import ALAW, ULAW, expand
from clients.riff import Riff, parse_riff

Samples = npt.NDArray[np.float64]

_FULL_SCALE = 32_768.0


@dataclass(frozen=True, slots=True)
class Recording:
    """Mono 16-bit little-endian samples and their rate."""

    pcm: bytes
    rate_hz: int

    @property
    def seconds(self) -> float:
        """Length of the recording."""
        return len(self.pcm) / 2 / self.rate_hz


def read_wav(path: Path) -> Recording:
    """Read a file and mix its channels down. Raises ValueError that says what is wrong."""
    try:
        return decode_wav(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def decode_wav(data: bytes) -> Recording:
    """Decode PCM of 8 to 32 bits, floats and G.711. Raises ValueError for anything else."""
    riff = parse_riff(data)
    samples = _samples(riff)
    whole = len(samples) - len(samples) % riff.channels
    mono = samples[:whole].reshape(-1, riff.channels).mean(axis=1)
    return Recording(to_pcm16(mono), riff.rate_hz)


def encode_wav(recording: Recording) -> bytes:
    """Return a WAV file's content."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(recording.rate_hz)
        file.writeframes(recording.pcm)
    return buffer.getvalue()


def write_wav(path: Path, recording: Recording) -> None:
    """Write a WAV file."""
    path.write_bytes(encode_wav(recording))


def to_pcm16(samples: Samples) -> bytes:
    """Turn samples between -1 and 1 into 16-bit ones; louder ones are clipped."""
    bounded = np.clip(np.nan_to_num(samples, posinf=1.0, neginf=-1.0), -1.0, 1.0)
    scaled = np.rint(bounded * _FULL_SCALE)
    return np.minimum(scaled, _FULL_SCALE - 1).astype("<i2").tobytes()


def from_pcm16(pcm: bytes) -> Samples:
    """Turn 16-bit samples into ones between -1 and 1."""
    return np.frombuffer(pcm, dtype="<i2").astype(np.float64) / _FULL_SCALE


def _samples(riff: Riff) -> Samples:
    width = max(1, riff.bits // 8)
    data = riff.samples[: len(riff.samples) - len(riff.samples) % width]
    match riff.format_tag, riff.bits:
        case (tags.PCM, 8):
            return (np.frombuffer(data, dtype=np.uint8).astype(np.float64) - 128) / 128
        case (tags.PCM, 16):
            return from_pcm16(data)
        case (tags.PCM, 24):
            return _from_24_bit(data)
        case (tags.PCM, 32):
            return np.frombuffer(data, dtype="<i4").astype(np.float64) / 2.0**31
        case (tags.IEEE_FLOAT, 32 | 64):
            return np.frombuffer(data, dtype=f"<f{width}").astype(np.float64)
        case (tags.A_LAW, 8):
            return from_pcm16(expand(data, ALAW))
        case (tags.MU_LAW, 8):
            return from_pcm16(expand(data, ULAW))
        case _:
            raise ValueError(
                f"WAV format {riff.format_tag} with {riff.bits} bits is not supported; "
                "convert it to 16-bit PCM"
            )


def _from_24_bit(data: bytes) -> Samples:
    octets = np.frombuffer(data, dtype=np.uint8).reshape(-1, 3)
    padded = np.zeros((len(octets), 4), dtype=np.uint8)
    padded[:, 1:] = octets
    return padded.view("<i4").reshape(-1).astype(np.float64) / 2.0**31

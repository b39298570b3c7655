"""Sound in transcripts: named by its length where the wire has base64."""

import base64
import io
import struct
import wave
from collections.abc import Callable
from typing import Any, Final

HALF_WAVE: Final = 16
"""Samples: a square wave of 500 Hz at 16 kHz is speech to whatever goes by loudness."""
_DELTAS: Final = frozenset(
    {"response.audio.delta", "response.output_audio.delta", "session.output_audio.delta"}
)
_LOUD: Final = 8192
_G711: Final = {"g711_ulaw": (0xFF, 0x20, 0xA0), "g711_alaw": (0xD5, 0x35, 0xB5)}
"""Codes of silence, of a loud sample and of its opposite."""


def spoken_sound(about: dict[str, Any]) -> str:
    """Return base64 of a sound of so many milliseconds; silence unless it is `speech`.

    `rate_hz` is 16000 and `encoding` pcm16 unless they are named. `without_bytes` are left out at
    the end, `only_bytes` are all that is sent of the end.
    """
    rate_hz = about.get("rate_hz", 16_000)
    n_samples = about["audio_ms"] * rate_hz // 1000
    signs = [(1, -1)[i // HALF_WAVE % 2] * bool(about.get("speech")) for i in range(n_samples)]
    sound = _ENCODERS[about.get("encoding", "pcm16")](signs, rate_hz)
    sound = sound[: len(sound) - about.get("without_bytes", 0)]
    return base64.b64encode(sound[-about.get("only_bytes", len(sound)) :]).decode()


def heard_sound(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event of the server with the length of its sound in place of the sound."""
    if event["type"] not in _DELTAS:
        return event
    sound = base64.b64decode(event["delta"], validate=True)
    # The standard names no format with a delta; its transcripts have what a session starts with.
    rate_hz = event.get("sample_rate_hz", 24_000)
    match event.get("format", "pcm16"):
        case "wav":
            with wave.open(io.BytesIO(sound)) as file:
                assert (file.getframerate(), file.getnchannels()) == (rate_hz, 1)
                n_samples = file.getnframes()
        case "pcm16":
            n_samples = len(sound) // 2
        case _:
            n_samples = len(sound)
    return event | {"delta": {"audio_ms": n_samples * 1000 // rate_hz}}


def _pcm16(signs: list[int], rate_hz: int) -> bytes:
    del rate_hz
    return struct.pack(f"<{len(signs)}h", *(sign * _LOUD for sign in signs))


def _pcm_f32le(signs: list[int], rate_hz: int) -> bytes:
    del rate_hz
    return struct.pack(f"<{len(signs)}f", *(sign * _LOUD / 32_768 for sign in signs))


def _wav(signs: list[int], rate_hz: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate_hz)
        writer.writeframes(_pcm16(signs, rate_hz))
    return file.getvalue()


def _ulaw(signs: list[int], rate_hz: int) -> bytes:
    del rate_hz
    return bytes(_G711["g711_ulaw"][sign] for sign in signs)


def _alaw(signs: list[int], rate_hz: int) -> bytes:
    del rate_hz
    return bytes(_G711["g711_alaw"][sign] for sign in signs)


_ENCODERS: Final[dict[str, Callable[[list[int], int], bytes]]] = {
    "pcm16": _pcm16,
    "pcm_f32le": _pcm_f32le,
    "wav": _wav,
    "g711_ulaw": _ulaw,
    "g711_alaw": _alaw,
}

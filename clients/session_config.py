"""Session settings as `session.update` takes them; the presets of each model build on this."""

import copy
from collections.abc import Mapping
from typing import Final

SessionSettings = dict[str, object]

OUTPUT_RATE_HZ: Final = 24_000
INPUT_RATE_HZ: Final = 16_000
G711_RATE_HZ: Final = 8_000


def base_settings(
    *,
    instructions: str | None = None,
    voice: str | None = None,
    input_rate_hz: int = 16_000,
    extra_body: Mapping[str, object] | None = None,
) -> SessionSettings:
    """Return settings for a session in which the model speaks on its own.

    The deployed model is the server's choice, so none is named.
    """
    settings: SessionSettings = {
        "modalities": ["audio", "text"],
        "output_audio_format": "pcm16",
        "audio": {"output": {"sample_rate_hz": OUTPUT_RATE_HZ}},
        "playback_commit_policy": "ack_only",
        "extra_body": {"auto_response": True, **(extra_body or {})},
    }
    if instructions is not None:
        settings["instructions"] = instructions
    if voice is not None:
        settings["voice"] = voice
    return with_input(settings, rate_hz=input_rate_hz)


def with_input(
    settings: Mapping[str, object], *, rate_hz: int, encoding: str = "pcm16"
) -> SessionSettings:
    """Return settings that declare this input audio; the server converts it."""
    declared = copy.deepcopy(dict(settings))
    audio = declared.get("audio")
    sides = dict(audio) if isinstance(audio, Mapping) else {}
    sides["input"] = {"sample_rate_hz": rate_hz}
    declared.update({"input_audio_format": encoding, "sample_rate_hz": rate_hz, "audio": sides})
    return declared


def server_vad(
    *,
    threshold: float = 0.5,
    prefix_padding_ms: int = 300,
    silence_duration_ms: int = 500,
    interrupt_response: bool = True,
) -> dict[str, object]:
    """Return a `turn_detection` that lets the server find the user's turns."""
    return {
        "type": "server_vad",
        "threshold": threshold,
        "prefix_padding_ms": prefix_padding_ms,
        "silence_duration_ms": silence_duration_ms,
        "create_response": True,
        "interrupt_response": interrupt_response,
    }


def input_bytes_per_s(settings: Mapping[str, object]) -> int:
    """Return how many bytes a second of the declared input audio has.

    For audio that is sent as a WAV file it is the size of its samples, at 16 bits.
    """
    audio = settings.get("audio")
    input_side = audio.get("input") if isinstance(audio, Mapping) else None
    side = input_side if isinstance(input_side, Mapping) else {}
    declared = side.get("format", settings.get("input_audio_format"))
    kind, format_rate_hz = declared, None
    if isinstance(declared, Mapping):
        kind, format_rate_hz = declared.get("type"), declared.get("rate")
    rates_hz = (format_rate_hz, side.get("sample_rate_hz"), settings.get("sample_rate_hz"))
    is_g711 = kind in {"g711_ulaw", "g711_alaw", "audio/pcmu", "audio/pcma"}
    default_hz = G711_RATE_HZ if is_g711 else INPUT_RATE_HZ
    rate_hz = next((rate for rate in rates_hz if isinstance(rate, int) and rate > 0), default_hz)
    sample_bytes = 1 if is_g711 else 4 if kind in {"pcm_f32le", "f32le"} else 2
    return rate_hz * sample_bytes

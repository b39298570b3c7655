"""Session settings as `session.update` takes them; the presets of each model build on this."""

import copy
from collections.abc import Mapping
from typing import Final

SessionSettings = dict[str, object]

OUTPUT_RATE_HZ: Final = 24_000


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

"""Session settings for MiniCPM-o 4.5: the model itself decides when to listen and to speak."""

import base64

from clients.session_config import SessionSettings, base_settings


def create_duplex_session_config(
    *,
    ref_audio: bytes | None = None,
    instructions: str | None = None,
    force_listen_count: int = 0,
    input_rate_hz: int = 16_000,
) -> SessionSettings:
    """Return settings for `session.update`; pcm16 mono input at `input_rate_hz`.

    `ref_audio` is a WAV file's content whose voice the model takes on. It travels as data: a
    server opens no path and no URL from a client.
    """
    settings: SessionSettings = {
        **base_settings(
            instructions=instructions,
            input_rate_hz=input_rate_hz,
            extra_body={"native_duplex": True, "force_listen_count": force_listen_count},
        ),
        # The model finds turns by itself and hears the user while it speaks.
        "turn_detection": None,
        "overlap_policy": "listen_only",
    }
    return settings if ref_audio is None else with_voice_of(ref_audio, settings)


def with_voice_of(ref_audio: bytes, settings: SessionSettings) -> SessionSettings:
    """Return settings that ask for the voice in a WAV file's content."""
    text = base64.b64encode(ref_audio).decode("ascii")
    return {**settings, "ref_audio": f"data:audio/wav;base64,{text}"}

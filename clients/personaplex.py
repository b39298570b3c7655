"""Session settings for PersonaPlex, which hears 24 kHz float samples and speaks in a persona."""

from clients.session_config import SessionSettings, base_settings, with_input

INPUT_RATE_HZ = 24_000
CHUNK_MS = 80
"""The model's own frame; appends of this length are never split."""


def create_duplex_session_config(
    *, instructions: str | None = None, voice: str | None = None
) -> SessionSettings:
    """Return settings for `session.update`; 32-bit float mono input at 24 kHz.

    `instructions` describe the persona and `voice` names its voice; both hold for the session.
    """
    settings = base_settings(
        instructions=instructions, voice=voice, extra_body={"native_duplex": True}
    )
    declared = with_input(settings, rate_hz=INPUT_RATE_HZ, encoding="pcm_f32le")
    return {**declared, "turn_detection": None, "overlap_policy": "listen_only"}

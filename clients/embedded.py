"""Session settings for the embedded model: the server finds turns, the user can interrupt."""

from clients.session_config import SessionSettings, base_settings, server_vad


def create_duplex_session_config(
    *,
    instructions: str | None = None,
    threshold: float = 0.5,
    silence_duration_ms: int = 500,
    interrupt_response: bool = True,
    input_rate_hz: int = 16_000,
) -> SessionSettings:
    """Return settings for `session.update`; pcm16 mono input at `input_rate_hz`."""
    return {
        **base_settings(instructions=instructions, input_rate_hz=input_rate_hz),
        "turn_detection": server_vad(
            threshold=threshold,
            silence_duration_ms=silence_duration_ms,
            interrupt_response=interrupt_response,
        ),
    }

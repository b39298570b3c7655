"""Session settings for the scripted model, whose answers come on a timetable."""

from clients.session_config import SessionSettings, base_settings


def create_duplex_session_config(
    *, instructions: str | None = None, input_rate_hz: int = 16_000
) -> SessionSettings:
    """Return settings for `session.update`; pcm16 mono input at `input_rate_hz`."""
    return base_settings(instructions=instructions, input_rate_hz=input_rate_hz)

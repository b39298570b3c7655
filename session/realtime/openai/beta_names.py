"""Names of the Beta interface. They never appear here; a client that uses them is told once how
the field is called now.
"""

from collections.abc import Mapping
from typing import Final

from session.errors import MalformedEvent

SESSION_NAMES: Final[Mapping[str, str]] = {
    "modalities": "output_modalities",
    "voice": "audio.output.voice",
    "speed": "audio.output.speed",
    "input_audio_format": "audio.input.format",
    "output_audio_format": "audio.output.format",
    "input_audio_transcription": "audio.input.transcription",
    "input_audio_noise_reduction": "audio.input.noise_reduction",
    "turn_detection": "audio.input.turn_detection",
    "max_response_output_tokens": "max_output_tokens",
}
"""What a Beta field of a session or a response is called now."""


def refuse_beta_names(fields: Mapping[str, object], prefix: str) -> None:
    """Raise MalformedEvent for the first Beta name among `fields`."""
    for name, now in SESSION_NAMES.items():
        if name in fields:
            raise MalformedEvent(
                f"Unknown parameter: '{prefix}{name}'. That is its name in the Beta interface; it "
                f"is '{prefix}{now}' now.",
                code="unknown_parameter",
                param=f"{prefix}{name}",
            )

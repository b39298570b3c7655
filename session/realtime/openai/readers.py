"""Readers of fields that sessions and responses of this dialect have in common."""

from typing import Final

from session.config import AudioEncoding, AudioFormat
from session.errors import MalformedEvent, UnsupportedOption
from session.realtime.readers import MAX_NAME_CHARS, no_number, text, whole, wrong_type

PCM_HZ: Final = 24_000
"""The one rate of PCM on this wire, both ways."""
G711_HZ: Final = 8_000
MAX_OUTPUT_TOKENS: Final = 4_096

_FORMATS: Final = {
    "audio/pcm": AudioFormat(AudioEncoding.PCM16, PCM_HZ),
    "audio/pcmu": AudioFormat(AudioEncoding.G711_ULAW, G711_HZ),
    "audio/pcma": AudioFormat(AudioEncoding.G711_ALAW, G711_HZ),
}


def bad(param: str, wanted: str) -> MalformedEvent:
    """Return the error for a value that is not what is wanted."""
    return MalformedEvent(
        f"Invalid value for '{param}': {wanted}.", code="invalid_value", param=param
    )


def audio_format(value: object, param: str) -> AudioFormat:
    """Read `{type: audio/pcm, rate: 24000}`, `{type: audio/pcmu}` or `{type: audio/pcma}`."""
    if not isinstance(value, dict):
        raise MalformedEvent(
            f"Invalid type for '{param}': expected an object such as {{'type': 'audio/pcm', "
            f"'rate': {PCM_HZ}}}.",
            code="invalid_type",
            param=param,
        )
    kind, rate = value.get("type"), value.get("rate")
    if not isinstance(kind, str | None):
        raise wrong_type(f"{param}.type", "a text")
    known = _FORMATS.get(kind) if kind is not None else None
    if known is None:
        raise bad(f"{param}.type", f"supported are {', '.join(_FORMATS)}")
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float)):
        raise no_number(f"{param}.rate", "a whole number")
    if rate is not None and rate != known.rate_hz:
        raise bad(f"{param}.rate", f"{kind} has {known.rate_hz}")
    return known


def output_modalities(value: object, param: str) -> tuple[str, ...]:
    """Read `["audio"]` (which always has a transcript) or `["text"]`."""
    if not isinstance(value, list):
        raise wrong_type(param, "a list: ['audio'] or ['text']")
    if value in (["audio"], ["text"]):
        return tuple(value)
    raise UnsupportedOption(
        f"Invalid value for '{param}': supported are ['audio'] and ['text'].",
        code="unsupported_response_modality",
        param=param,
    )


def token_limit(value: object, param: str) -> int | None:
    """Read a limit of generated tokens; "inf" is none."""
    return None if value == "inf" else whole(1, MAX_OUTPUT_TOKENS)(value, param)


def voice_name(value: object, param: str) -> str:
    """Read a voice: its name, or an object with its id."""
    named = value.get("id") if isinstance(value, dict) else value
    return text(MAX_NAME_CHARS)(named, param)

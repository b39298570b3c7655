"""What a client asks for in a socket's URL: which dialect, which model, how it begins."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from serve_app.access.request_headers import asks_for_beta
from serve_app.dialects import DUPLEX, DUPLEX_GA, OPENAI, DialectKit
from session.errors import UnsupportedOption

ChooseKit = Callable[[Mapping[str, str], Mapping[str, str]], DialectKit]
"""Reads the dialect from a URL's parameters and a request's headers; raises UnsupportedOption."""

BETA_IS_OVER: Final = (
    "the shapes of the Realtime beta are not spoken here: leave out the header "
    "'OpenAI-Beta: realtime=v1' and the subprotocol openai-beta.realtime-v1, and use the names of "
    "the general API (session.type, audio.input, audio.output, response.output_audio.delta)"
)
ELSEWHERE: Final[Mapping[str, str]] = {
    "intent": "this address has conversations only: leave `intent` out. What the user said is told "
    "in one where session.audio.input.transcription is set",
    "call_id": "there are no calls to join here: leave `call_id` out and begin a session",
}
"""What the URL of other services can ask for, and what to do here instead."""
_ON: Final = frozenset({"1", "true", "yes", "on"})
_OFF: Final = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class Query:
    """What a client asks for in the socket's URL."""

    model: str | None
    autostarts: bool
    """Whether the session may begin with default settings before the client says any."""


def read_query(params: Mapping[str, str]) -> Query:
    """Read the socket's query parameters."""
    autostart = params.get("autostart", "").lower() not in _OFF
    resumes = params.get("resume", "").lower() in _ON
    return Query(model=params.get("model"), autostarts=autostart and not resumes)


def _is_on(value: str | None) -> bool:
    """Whether a query parameter switches something on."""
    return (value or "").lower() in _ON


def realtime_kit(params: Mapping[str, str], headers: Mapping[str, str]) -> DialectKit:
    """Return the dialect that a request for /v1/realtime asks for; raise UnsupportedOption."""
    if not _is_on(params.get("duplex")):
        if asks_for_beta(headers):
            raise UnsupportedOption(BETA_IS_OVER, code="beta_api_shape_disabled")
        for name, message in ELSEWHERE.items():
            if params.get(name) not in (None, "", "conversation"):
                raise UnsupportedOption(message, code="unsupported", param=name)
        return OPENAI
    kit = {"": DUPLEX, "duplex": DUPLEX, "ga": DUPLEX_GA}.get(params.get("dialect", "").lower())
    if kit is None:
        raise UnsupportedOption(
            "dialect must be ga, or be left out", code="unsupported", param="dialect"
        )
    return kit

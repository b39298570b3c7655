"""What a request says of itself in its headers: its key, and the subprotocols that it offers.

`headers` have lower-case names everywhere.
"""

from collections.abc import Mapping
from typing import Final

KEY_PROTOCOL: Final = "openai-insecure-api-key."
"""Prefix of the WebSocket subprotocol in which a browser, which can set no header, sends a key."""
WIRE_PROTOCOL: Final = "realtime"
"""The subprotocol that is selected when a client offers it. All others are read or ignored."""
BETA_PROTOCOL: Final = "openai-beta.realtime-v1"
BETA_HEADER_VALUE: Final = "realtime=v1"


def presented_key(headers: Mapping[str, str]) -> str | None:
    """Return the key of a request: its bearer token, or the one in a subprotocol."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    for protocol in offered_protocols(headers):
        if protocol.startswith(KEY_PROTOCOL):
            return protocol.removeprefix(KEY_PROTOCOL)
    return None


def offered_protocols(headers: Mapping[str, str]) -> list[str]:
    """Return the WebSocket subprotocols that a client offers."""
    offered = headers.get("sec-websocket-protocol", "").split(",")
    return [protocol.strip() for protocol in offered if protocol.strip()]


def selected_protocol(headers: Mapping[str, str]) -> str | None:
    """Return the subprotocol to accept with; never the one that carries a key."""
    return WIRE_PROTOCOL if WIRE_PROTOCOL in offered_protocols(headers) else None


def asks_for_beta(headers: Mapping[str, str]) -> bool:
    """Whether a client says that it speaks the shapes of the API's beta."""
    named = [value.strip().lower() for value in headers.get("openai-beta", "").split(",")]
    return BETA_HEADER_VALUE in named or BETA_PROTOCOL in offered_protocols(headers)

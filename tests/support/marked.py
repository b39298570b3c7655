"""Content that can be found again wherever it should not be: words, sound and keys with a mark."""

import base64
from typing import Any, Final

from tests.fakes.wire import append_bytes, client, update

MARK: Final = "zqxwv"
_PERIOD: Final = f"{MARK}!".encode()
"""Three samples, and a whole number of base64's groups."""
SECOND: Final = _PERIOD * (16_000 // 3) + _PERIOD[:2]
"""A second of loud sound at 16 kHz."""
_CODED: Final = tuple(
    base64.b64encode((_PERIOD * 4)[turn : turn + 18]).decode() for turn in range(3)
)
TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "name": f"{MARK}_tool",
    "description": f"Look {MARK} up.",
    "parameters": {"type": "object", "properties": {MARK: {"type": "string"}}},
}


def traces(text: str, *secrets: str) -> list[str]:
    """Return where content or a secret stands in a text, with a little around it."""
    folded = text.lower()
    found = []
    for needle in (MARK, *_CODED, *secrets):
        wanted, searched = (MARK, folded) if needle == MARK else (needle, text)
        at = searched.find(wanted)
        if at >= 0:
            found.append(text[max(0, at - 200) : at + 100])
    return found


def conversation() -> list[tuple[str, str]]:
    """Return what a client sends in the duplex dialect, and after which event it goes on."""
    call = f'call {MARK}_tool {{"{MARK}": "{MARK} value"}}'
    settings: dict[str, Any] = {
        "instructions": f"Be {MARK}.",
        "tools": [TOOL],
        "extra_body": {"auto_response": True},
    }
    return [
        (update(**settings), "session.updated"),
        (append_bytes(SECOND), "rate_limits.updated"),
        (said(f"my name is {MARK}"), "conversation.item.done"),
        (client("response.create", response={"metadata": {MARK: MARK}}), "rate_limits.updated"),
        (said(call), "conversation.item.done"),
        (client("response.create"), "rate_limits.updated"),
        (client("input.text.append", text=f"{MARK}"), ""),
        (client("conversation.item.retrieve", item_id=MARK), "error"),
        (client(f"{MARK}.event"), "error"),
        (f"{{{MARK}", "error"),
        (update(voice=MARK), "error"),
        (client("barge_in"), ""),
        (client("session.heartbeat"), "session.heartbeat_ack"),
        (client("session.close", reason=MARK), "session.closed"),
    ]


def said(text: str) -> str:
    """Return an item with words of the user."""
    part = {"type": "input_text", "text": text}
    item = {"type": "message", "role": "user", "content": [part]}
    return client("conversation.item.create", item=item)

"""Client events as JSON texts."""

import base64
import json
from typing import Any

from tests.fakes.rig import audio


def client(kind: str, **fields: Any) -> str:
    """Return a client event."""
    return json.dumps({"type": kind, **fields})


def update(*, event_id: str | None = None, **session: Any) -> str:
    """Return a session.update."""
    return client("session.update", event_id=event_id, session=session)


def append(ms: int, *, loud: bool = True, **fields: Any) -> str:
    """Return an append of 16 kHz PCM16."""
    return append_bytes(audio(ms, loud=loud).data, **fields)


def append_bytes(sound: bytes, **fields: Any) -> str:
    """Return an append of these bytes."""
    text = base64.b64encode(sound).decode()
    return client("input_audio_buffer.append", audio=text, **fields)

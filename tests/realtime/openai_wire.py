"""What the tests of the OpenAI dialect have in common: a reader, a projector, and their samples."""

import json
from dataclasses import replace
from typing import Any

from session.config import SessionConfig, openai_config
from session.events import Event, SessionCreated
from session.ids import SessionId
from session.model_profile import ModelProfile
from session.outbox import WireEvent
from session.realtime.commands import Command
from session.realtime.dialects.openai import OpenAIProjector
from session.realtime.openai.reader import OpenAIReader
from session.realtime.opening import ClientHabits, Opening
from tests.fakes.ids import SeqIds
from tests.realtime.samples import SNAPSHOT, facts
from tests.realtime.wire_texts import MAX_BYTES

CONFIG = openai_config("test-model", ModelProfile())
OPENING = Opening(SessionId("sess_1"), began_unix_s=1_000_000)
Sent = list[dict[str, Any]]


def read(event: dict[str, Any], habits: ClientHabits | None = None) -> Command:
    """Return what an event asks for."""
    reader = OpenAIReader(habits or ClientHabits())
    return reader.decode(json.dumps(event), max_bytes=MAX_BYTES)


class Projection:
    """A session's projector, whose client has been told of the session."""

    def __init__(self, config: SessionConfig = CONFIG, opening: Opening = OPENING) -> None:
        # A stand-in for the encoder: sound goes out as the model made it.
        self._projector = OpenAIProjector(facts=facts(), encode=lambda pcm, _: pcm, opening=opening)
        self._ids = SeqIds()
        self.created = self.send(SessionCreated(replace(SNAPSHOT, config=config)))

    def events(self, *events: Event) -> list[WireEvent]:
        """Project events in order."""
        return [sent for event in events for sent in self._projector.project(event)]

    def send(self, *events: Event) -> Sent:
        """Project events in order; return what is sent, as read by a client."""
        return [json.loads(sent.to_text(self._ids.new("event"))) for sent in self.events(*events)]

    def kinds(self, *events: Event) -> list[str]:
        """Return the types of what is sent for events."""
        return [sent["type"] for sent in self.send(*events)]

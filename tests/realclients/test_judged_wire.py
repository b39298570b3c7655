"""The judges sit where they should: an event that a stock client would refuse fails its test."""

import enum
import json
from dataclasses import replace
from typing import Any, cast

from serve_app.dialects import DUPLEX, Dialect, EncodingProjector
from session import events as kernel
from session.errors import StageUnavailable
from session.ids import SessionId
from session.realtime.live import server_events as live_events
from session.realtime.openai import server_events as openai_events
from session.realtime.openai.server_events import InputCleared
from session.realtime.opening import Opening
from tests.fakes.server import hear, serving
from tests.fakes.socket import MemorySocket
from tests.fakes.stages import answering
from tests.support.judged_wire import FAULTS, JUDGES, MODELS, PATHS, JudgedSocket, judged
from tests.support.realtime_log import RealtimeLog


class Named(enum.Enum):
    OPENAI = "openai"


class Written:
    """A wire event."""

    is_journaled = False

    def __init__(self, **event: Any) -> None:
        self._event = event

    def to_text(self, event_id: str, server_event_seq: int | None = None) -> str:
        del server_event_seq
        return json.dumps({**self._event, "event_id": event_id})


def taken() -> list[str]:
    """Return the faults so far, and forget them, so that this test does not fail for them."""
    faults = list(FAULTS)
    FAULTS.clear()
    return faults


def test_the_dialects_are_judged_under_their_names() -> None:
    assert set(JUDGES) == set(PATHS.values()) <= {dialect.value for dialect in Dialect}


def test_every_class_that_writes_events_is_judged() -> None:
    for package in (openai_events, live_events):
        for each in vars(package).values():
            if isinstance(each, type) and "to_text" in vars(each):
                assert each in MODELS
    InputCleared(event_id="").to_text("")
    assert "no event_id" in taken()[0]


def test_what_a_projector_writes_is_judged_event_by_event() -> None:
    good = Written(type="input_audio_buffer.cleared")
    bad = Written(type="response.listen")
    for event in judged([good, bad], "openai"):
        event.to_text("event_1")
    assert len(FAULTS) == 1
    assert "response.listen" in taken()[0]
    for event in judged([bad], "duplex"):
        event.to_text("event_1")
    assert FAULTS == []


class Unfit:
    """A dialect that says what nobody knows."""

    def project(self, event: kernel.Event) -> list[Written]:
        del event
        return [Written(type="response.listen")]


def test_every_projector_of_a_gateway_is_judged() -> None:
    kit = replace(DUPLEX, dialect=cast(Dialect, Named.OPENAI), new_projector=lambda *_: Unfit())
    projector = EncodingProjector(kit, cast(Any, None), Opening(SessionId("sess_1"), 0))
    for event in projector.project(kernel.InputBufferCleared()):
        event.to_text("event_1")
    assert "response.listen" in taken()[0]


async def test_what_a_socket_is_sent_is_judged_as_a_conversation() -> None:
    socket = JudgedSocket(MemorySocket(), RealtimeLog())
    await socket.send('{"type": "input_audio_buffer.cleared", "event_id": "event_1"}')
    assert "before session.created" in taken()[0]
    await socket.send('{"type": "input_audio_buffer.cleared", "event_id": "event_1"}')
    assert any("its event_id came before" in fault for fault in taken())


async def test_a_socket_without_a_conversation_is_judged_too() -> None:
    directory = answering()
    directory.unreachable = StageUnavailable("stage0 is still starting")
    async with serving(directory) as service, service.dial("model=any") as line:
        error = await hear(line)
        assert error["error"]["code"] == "stage_unavailable"
    assert FAULTS == []

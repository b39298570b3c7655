"""Every event of the openai and live dialects that any test causes in this process is judged.

Rule 1: what is written is judged event by event, what a socket is sent as a conversation.
Rule 2: a test may fail by it and in no other way notices it: what is sent stays as it was.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from serve_app.dialects import EncodingProjector
from serve_app.gateway.asgi_socket import AsgiSocket
from serve_app.gateway.connection import Connection, Socket
from session.outbox import WireEvent
from session.realtime.live.server_events import LiveEvent, OutputAudioDelta
from session.realtime.openai.server_events import OpenAIEvent
from tests.support.live_log import LiveLog
from tests.support.openai_types import live_faults, realtime_faults
from tests.support.realtime_log import RealtimeLog


class Log(Protocol):
    """Judges a conversation."""

    faults: list[str]

    def hear(self, frame: str) -> None:
        """Take the next frame."""
        ...


JUDGES: Final[dict[str, tuple[Callable[[str], list[str]], Callable[[], Log]]]] = {
    "openai": (realtime_faults, RealtimeLog),
    "live": (live_faults, LiveLog),
}
"""By the dialect's value: what judges one frame, and what judges a conversation."""

MODELS: Final[dict[type[Any], str]] = {
    OpenAIEvent: "openai",
    LiveEvent: "live",
    OutputAudioDelta: "live",
}
"""Every class that writes events of a dialect."""
PATHS: Final = {"/v1/realtime": "openai", "/v1/live/sessions": "live"}
FAULTS: Final[list[str]] = []
"""What the running test has caused so far."""


class JudgedSocket:
    """A socket whose way out is judged as one conversation."""

    def __init__(self, socket: Socket, log: Log) -> None:
        self._socket = socket
        self._log = log

    async def receive(self) -> str | bytes | None:
        """Wait for one frame."""
        return await self._socket.receive()

    async def send(self, text: str) -> None:
        """Judge and send."""
        known = len(self._log.faults)
        self._log.hear(text)
        FAULTS.extend(f"{fault} in {text[:300]}" for fault in self._log.faults[known:])
        await self._socket.send(text)

    async def close(self, code: int, reason: str) -> None:
        """Close."""
        await self._socket.close(code, reason)


class JudgedEvent:
    """A wire event that is judged when it is written."""

    def __init__(self, event: WireEvent, find: Callable[[str], list[str]]) -> None:
        self._event = event
        self._find = find

    @property
    def is_journaled(self) -> bool:
        """As the event has it."""
        return self._event.is_journaled

    def to_text(self, event_id: str, server_event_seq: int | None = None) -> str:
        """Judge what is written."""
        text = self._event.to_text(event_id, server_event_seq)
        FAULTS.extend(f"{fault} in {text[:300]}" for fault in self._find(text))
        return text


def install() -> None:
    """Put the judges in place; once for a run of tests."""
    for base, dialect in MODELS.items():
        _judge_models(base, JUDGES[dialect][0])
    _judge_projectors()
    _judge_connections()
    _judge_sockets()


def judged(events: Iterable[WireEvent], dialect: str) -> list[WireEvent]:
    """Return a projector's events, to be judged when they are written."""
    if dialect not in JUDGES:
        return list(events)
    return [JudgedEvent(event, JUDGES[dialect][0]) for event in events]


def _judge_models(base: type[WireEvent], find: Callable[[str], list[str]]) -> None:
    """Judge each event of a dialect when it is written, whoever made it."""
    write = base.to_text

    def to_text(self: WireEvent, event_id: str, server_event_seq: int | None = None) -> str:
        text = write(self, event_id, server_event_seq)
        FAULTS.extend(f"{fault} in {text[:300]}" for fault in find(text))
        return text

    _put(base, "to_text", to_text)


def _judge_projectors() -> None:
    """Judge also what a dialect lends from another."""
    make, project = EncodingProjector.__init__, EncodingProjector.project

    def init(self: EncodingProjector, kit: Any, *rest: Any, **named: Any) -> None:
        make(self, kit, *rest, **named)
        self.__dict__["dialect"] = kit.dialect.value

    def judged_project(self: EncodingProjector, event: Any) -> list[WireEvent]:
        return judged(project(self, event), self.__dict__["dialect"])

    _put(EncodingProjector, "__init__", init)
    _put(EncodingProjector, "project", judged_project)


def _judge_connections() -> None:
    make = Connection.__init__

    def init(self: Connection, socket: Socket, query: Any, host: Any) -> None:
        kit = getattr(host, "kit", None)
        dialect = kit.dialect.value if kit is not None else ""
        if dialect in JUDGES:
            socket = JudgedSocket(socket, JUDGES[dialect][1]())
        make(self, socket, query, host)

    _put(Connection, "__init__", init)


def _judge_sockets() -> None:
    """Judge also what is said to a socket that gets no conversation."""
    make, send = AsgiSocket.__init__, AsgiSocket.send

    def init(self: AsgiSocket, socket: Any) -> None:
        make(self, socket)
        is_ours = "duplex" in socket.query_params
        self.__dict__["dialect"] = "" if is_ours else PATHS.get(socket.url.path, "")

    async def judged_send(self: AsgiSocket, text: str) -> None:
        dialect = self.__dict__["dialect"]
        if dialect in JUDGES:
            FAULTS.extend(f"{fault} in {text[:300]}" for fault in JUDGES[dialect][0](text))
        await send(self, text)

    _put(AsgiSocket, "__init__", init)
    _put(AsgiSocket, "send", judged_send)


def _put(owner: type, name: str, function: object) -> None:
    """Replace a method for the rest of the run."""
    setattr(owner, name, function)

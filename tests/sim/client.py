"""A simulated client: its sockets, what it reads, and whether that is what it should be."""

import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from session.effects import CloseSocket
from session.ids import AttachmentId
from session.outbox import Frame
from session.socket_stimuli import SocketLost
from tests.sim.actor import Actor
from tests.sim.samples import ITEMS_FROM
from tests.sim.shadow import FREE_TYPES
from tests.sim.violation import Violation


@dataclass(slots=True)
class Socket:
    """One connection, with what is on its way to the client."""

    attachment: AttachmentId
    actor: Actor | None
    """The session that it has; None until it is given one."""
    wire: deque[str] = field(default_factory=deque)
    is_stalled: bool = False
    """The client does not read."""
    is_cut: bool = False
    """The client is gone; the server may not know yet."""
    is_gone: bool = False
    """The server knows that it is gone."""
    closed: CloseSocket | None = None

    @property
    def is_open(self) -> bool:
        """Whether the client still uses it."""
        return not self.is_cut and self.closed is None

    def pump(self, *, capacity: int, now: float) -> None:
        """Send what there is, as far as the client takes it."""
        actor = self.actor
        while actor is not None and not self.is_gone and self.closed is None:
            if (self.is_stalled or self.is_cut) and len(self.wire) >= capacity:
                return
            item = actor.outbox.next(self.attachment, fence=actor.session.fence, now=now)
            match item:
                case None:
                    return
                case CloseSocket():
                    self.closed = item
                    self.hang_up()
                case Frame():
                    self._check_addressee(actor, item)
                    self.wire.append(item.text)

    def _check_addressee(self, actor: Actor, frame: Frame) -> None:
        if actor.laws.attached != self.attachment and not actor.is_ending:
            kind = json.loads(frame.text)["type"]
            if kind != "session.replaced":
                raise Violation(f"{kind} goes to a socket that does not have the session")

    def hang_up(self) -> None:
        """The server's side of the socket ends."""
        if self.is_gone:
            return
        self.is_gone = True
        if self.actor is not None:
            self.actor.outbox.leave(self.attachment)
            self.actor.post(SocketLost(self.attachment))


class Client:
    """Reads real JSON, remembers what it needs to speak and to come back."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sockets: list[Socket] = []
        """Oldest first."""
        self.current: Socket | None = None
        """The one that has the session, as far as the client knows."""
        self.actor: Actor | None = None
        self.forget()

    def forget(self) -> None:
        """Begin anew, with nothing read."""
        self.tokens: list[str] = []
        self.presented = ""
        """The token that the last resume came with."""
        self.last_seq = 0
        self.answers: list[str] = []
        self.audio_ms: dict[str, int] = {}
        self.items: list[str] = []
        self.calls: list[str] = []
        self.next_pair = 1
        """Number of the next pair of samples that it says."""
        self.next_item_pair = ITEMS_FROM
        """The same for the audio of its items."""
        self.next_message = 1
        self.spoken_id: str | None = None
        """Item that the newest speech_started named."""
        self.has_ended = False
        self._place = 0
        """How many frames of the session's whole output it has read or given up."""
        self._expects_resumed = False

    @property
    def socket(self) -> Socket | None:
        """The newest socket."""
        return self.sockets[-1] if self.sockets else None

    def resumed(self, socket: Socket, claimed_seq: int) -> None:
        """The socket has the session and will be sent what follows `claimed_seq`."""
        assert self.actor is not None
        self.current, socket.actor = socket, self.actor
        self.last_seq = claimed_seq
        frames = self.actor.shadow.frames
        self._place = next(
            (i for i, frame in enumerate(frames) if (frame.seq or 0) > claimed_seq),
            len(frames),
        )
        self._expects_resumed = True

    def read(self) -> None:
        """Read everything that has come over the sockets that are still read."""
        for socket in self.sockets:
            while socket.wire and not socket.is_stalled and not socket.is_cut:
                self._read(socket, socket.wire.popleft())

    def _read(self, socket: Socket, text: str) -> None:
        event = json.loads(text)
        kind = event["type"]
        if kind in FREE_TYPES:
            self._read_free(socket, event)
            return
        if socket is not self.current:
            return  # the tail of a socket that has been replaced
        if self._expects_resumed:
            raise Violation(f"{kind} before session.resumed")
        self._compare(kind, text, event)
        self._note(kind, event)

    def _compare(self, kind: str, text: str, event: dict[str, Any]) -> None:
        """Law 11: what is read is what an unbroken observer of the outbox saw, in its place."""
        assert self.actor is not None
        if self.has_ended:
            raise Violation(f"law 10: {kind} after the end")
        frames = self.actor.shadow.frames
        frame = frames[self._place] if self._place < len(frames) else None
        if frame is None or frame.text != text:
            told = "nothing" if frame is None else f"{frame.type} ({frame.event_id})"
            raise Violation(f"law 11: read {kind} ({event['event_id']}) instead of {told}")
        self._place += 1
        seq = event.get("server_event_seq")
        if seq is not None:
            if seq != self.last_seq + 1:
                raise Violation(f"law 11: {seq} read after {self.last_seq}")
            self.last_seq = seq

    def _read_free(self, socket: Socket, event: dict[str, Any]) -> None:
        match event["type"]:
            case "session.resumed":
                self.tokens.append(event["resume_token"])
                if socket is self.current:
                    self._expects_resumed = False
            case "session.replaced" if socket is self.current:
                raise Violation("the current socket is told that it was replaced")
            case _:
                pass

    def _note(self, kind: str, event: dict[str, Any]) -> None:
        match kind:
            case "session.created":
                if event.get("resume_token"):
                    self.tokens.append(event["resume_token"])
            case "response.created":
                self.answers.append(event["response_id"])
            case "response.audio.delta":
                self.audio_ms[event["response_id"]] = event["metadata"]["audio_duration_ms"]
            case "conversation.item.added":
                self.items.append(event["item"]["id"])
            case "input_audio_buffer.speech_started":
                self.spoken_id = event["item_id"]
            case "response.function_call_arguments.done":
                self.calls.append(event["call_id"])
            case "session.closed" | "session.expired":
                self.has_ended = True
            case _:
                pass

    def check_end(self) -> None:
        """A client that was there to the end has read all of it."""
        socket, actor = self.current, self.actor
        if any(s.actor is not None and s.is_open and not s.is_gone for s in self.sockets):
            raise Violation("a socket is left open after the end of its session")
        if socket is None or actor is None or socket.is_cut:
            return
        if actor.laws.attached == socket.attachment and self._place < len(actor.shadow.frames):
            raise Violation(f"law 11: {actor.shadow.frames[self._place].type} was never read")

"""A service for one page: it serves the page's files, speaks the wire, and says what a test wants.

Nothing in it decides anything. Heartbeats, acknowledgements and the close are answered as the wire
contract has it; every other event is sent by the test, so that each of the page's states can be
reached at will. A service that `resumes` numbers and keeps its events, and a socket that resumes
goes on as the same client.
"""

import asyncio
import base64
import http
import json
import math
import mimetypes
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

WEB = Path(__file__).parents[2] / "serve_app" / "web"
VOICE_RATE_HZ = 24_000
WAIT_S = 60
"""Only a test that has gone wrong ever waits so long."""

Event = dict[str, Any]


@lru_cache
def tone(ms: int, *, rate_hz: int = VOICE_RATE_HZ, hz: float = 160.0) -> bytes:
    """Make `ms` of a voiced, syllable-like sound as PCM16."""
    samples = array("h")
    for n in range(rate_hz * ms // 1000):
        t = n / rate_hz
        syllable = math.sin(math.pi * 4 * t) ** 2 * (0.6 + 0.4 * math.sin(2.1 * t))
        wave = sum(math.sin(2 * math.pi * hz * k * t) / k for k in range(1, 16))
        samples.append(int(9000 * syllable * wave / 2))
    return samples.tobytes()


UNNUMBERED = {"session.created", "session.resumed", "session.replaced", "session.resync_required"}


class CannedClient:
    """One session of the page, seen from the service: what it sent, and what to send it."""

    def __init__(
        self, socket: ServerConnection, session_id: str, session: Event, audio_name: str
    ) -> None:
        self.socket = socket
        self.session = {"id": session_id, **session}
        self.received: list[Event] = []
        self.answers_close = True
        self._arrivals: list[float] = []
        self._audio_name = audio_name
        self._spoken_ms: dict[str, int] = {}
        self._news = asyncio.Condition()
        self._sent = 0
        self.generation: int | None = None
        """Number of the socket, where the service resumes."""
        self._journal: list[Event] = []
        self._forgotten = 0

    @property
    def token(self) -> str:
        """What the page must show to come back."""
        return f"secret-{self.generation}"

    async def send(self, kind: str, **fields: object) -> None:
        self._sent += 1
        event = {"type": kind, "event_id": f"event_{self._sent}", **fields}
        if self.generation is not None and kind not in UNNUMBERED:
            event["server_event_seq"] = len(self._journal) + 1
            self._journal.append(event)
            with suppress(ConnectionClosed):
                await self.socket.send(json.dumps(event))
        else:
            await self.socket.send(json.dumps(event))

    async def repeat(self) -> None:
        """Send every numbered event once more."""
        for event in self._journal:
            await self.socket.send(json.dumps(event))

    async def cut(self) -> None:
        """Lose the socket, and wait until the service has seen it."""
        self.socket.transport.abort()
        await self.socket.wait_closed()

    def forget(self) -> int:
        """Keep nothing of what was sent; return the number of the last event."""
        self._forgotten = len(self._journal)
        return self._forgotten

    async def resync(self, socket: ServerConnection, last_seq: int) -> bool:
        """Refuse to go on from there if something is missing; say whether."""
        if last_seq >= self._forgotten:
            return False
        gap = {
            "type": "session.resync_required",
            "reason": "journal_gap",
            "oldest_server_event_seq": self._forgotten + 1,
            "newest_server_event_seq": len(self._journal),
        }
        await socket.send(json.dumps(gap))
        return True

    async def resume(self, socket: ServerConnection, last_seq: int) -> None:
        """Go on over another socket, from the event after this one."""
        assert self.generation is not None
        self.socket = socket
        self.generation += 1
        await self.send(
            "session.resumed",
            session_id=self.session["id"],
            session=self.session,
            attachment_generation=self.generation,
            resume_token=self.token,
        )
        for event in self._journal[last_seq:]:
            await socket.send(json.dumps(event))

    async def note(self, event: Event) -> None:
        """Keep an event of the page and answer the ones that always have an answer."""
        async with self._news:
            self.received.append(event)
            self._arrivals.append(self.now())
            self._news.notify_all()
        match event["type"]:
            case "session.heartbeat":
                await self.send("session.heartbeat_ack", session_id=self.session["id"])
            case "playback.ack":
                await self.send("playback.acknowledged", event={"type": "playback.acknowledged"})
            case "session.close" if self.answers_close:
                await self.send(
                    "session.closed",
                    session_id=self.session["id"],
                    reason="client_close",
                    event={},
                )
                await self.socket.close(1000, "client_close")

    def all(self, kind: str) -> list[Event]:
        return [event for event in self.received if event["type"] == kind]

    def kinds(self) -> set[str]:
        return {event["type"] for event in self.received}

    def timed(self, kind: str) -> list[tuple[float, Event]]:
        """Events of a kind with their times of arrival, comparable with `now()`."""
        pairs = zip(self._arrivals, self.received, strict=True)
        return [(at, event) for at, event in pairs if event["type"] == kind]

    def now(self) -> float:
        """Return the seconds of the loop's clock."""
        return asyncio.get_running_loop().time()

    def audio(self) -> list["array[int]"]:
        """The samples of each chunk that the microphone sent."""
        chunks = []
        for event in self.all("input_audio_buffer.append"):
            chunk = array("h")
            chunk.frombytes(base64.b64decode(event["audio"], validate=True))
            chunks.append(chunk)
        return chunks

    async def until(self, holds: Callable[["CannedClient"], bool]) -> None:
        """Wait until the events received make `holds` true."""
        async with self._news:
            await asyncio.wait_for(self._news.wait_for(lambda: holds(self)), WAIT_S)

    async def next(self, kind: str, count: int = 1) -> Event:
        """Wait for `count` more events of a kind, from now on; return the last."""
        goal = len(self.all(kind)) + count
        await self.until(lambda client: len(client.all(kind)) >= goal)
        return self.all(kind)[goal - 1]

    def acks(self, response_id: str) -> list[int]:
        """Milliseconds that the page said were heard of a response, in order."""
        return [
            ack["played_ms"]
            for ack in self.all("playback.ack")
            if ack["response_id"] == response_id
        ]

    async def said(self, response_id: str, ms: int) -> None:
        """Have something said and heard; what the page sent before its end has come by then."""
        total_ms = await self.answer(response_id, [("Well. ", ms)])
        await self.until(lambda client: client.acks(response_id)[-1:] == [total_ms])

    # --- what a service says, in the contract's order ---

    async def open_session(self) -> None:
        held: Event = {}
        if self.generation is not None:
            held = {"attachment_generation": self.generation, "resume_token": self.token}
        await self.send("session.created", session=self.session, **held)
        await self.send("session.updated", session=self.session)

    async def hear(self, item_id: str, transcript: str | None, *, until_ms: int = 1000) -> None:
        """The user has said `transcript`: onset, offset, words."""
        await self.send("input_audio_buffer.speech_started", audio_start_ms=0, item_id=item_id)
        await self.send("input_audio_buffer.speech_stopped", audio_end_ms=until_ms, item_id=item_id)
        if transcript is not None:
            await self.transcribe(item_id, transcript)

    async def listen_every(self, seconds: float) -> None:
        """Decide to listen, unit after unit."""
        metadata = {"type": "response.listen", "reason": "model_listen", "model_listen": True}
        while True:
            await self.send(
                "response.listen", response={"status": "listening", "metadata": metadata}
            )
            await asyncio.sleep(seconds)

    async def transcribe(self, item_id: str, transcript: str) -> None:
        await self.send(
            "conversation.item.input_audio_transcription.completed",
            item_id=item_id,
            content_index=0,
            transcript=transcript,
        )

    async def begin(self, response_id: str) -> None:
        response = {"id": response_id, "object": "realtime.response", "status": "in_progress"}
        await self.send("response.created", response_id=response_id, response=response)
        await self.send("response.speak", response_id=response_id, metadata={"model_speak": True})

    async def speak(
        self,
        response_id: str,
        pieces: list[tuple[str, int]],
        *,
        marks: list[dict[str, int]] | None = None,
    ) -> int:
        """Send `(text, ms)` pieces of audio with their text; return all milliseconds so far."""
        ids = {
            "response_id": response_id,
            "item_id": f"item_{response_id}",
            "output_index": 0,
            "content_index": 0,
        }
        for text, ms in pieces:
            total_ms = self._spoken_ms.get(response_id, 0) + ms
            self._spoken_ms[response_id] = total_ms
            await self.send(
                f"{self._audio_name}.delta",
                **ids,
                delta=base64.b64encode(tone(ms)).decode(),
                format="pcm16",
                sample_rate_hz=VOICE_RATE_HZ,
                metadata={"audio_duration_ms": total_ms, "audio_text_marks": marks or []},
            )
            await self.send(f"{self._audio_name}_transcript.delta", **ids, delta=text)
        return self._spoken_ms[response_id]

    async def finish(self, response_id: str, status: str = "completed") -> None:
        await self.send(f"{self._audio_name}.done", response_id=response_id)
        response = {"id": response_id, "status": status, "output": []}
        await self.send("response.done", response_id=response_id, response=response)
        await self.send("rate_limits.updated", rate_limits=[])

    async def answer(self, response_id: str, pieces: list[tuple[str, int]]) -> int:
        """A whole answer; returns its milliseconds."""
        await self.begin(response_id)
        total_ms = await self.speak(response_id, pieces)
        await self.finish(response_id)
        return total_ms


@dataclass
class CannedService:
    """The service's address and its door: who may come in, and what they are told."""

    session: Event = field(
        default_factory=lambda: {
            "model": "canned-1",
            "turn_detection": {"type": "server_vad", "interrupt_response": True},
            "capabilities": {"supports_text_only_turn": False},
        }
    )
    key: str | None = None
    capacity: int | None = None
    """Set to refuse: the limit that is said to be reached."""
    opens: bool = True
    resumes: bool = False
    is_away: bool = False
    """Nobody gets a socket, as when the network is gone."""
    resume_refusal: str | None = None
    attempts: int = 0
    """How many sockets were asked for."""
    audio_name: str = "response.audio"
    url: str = ""
    scripts: dict[str, str] = field(default_factory=dict)
    """Modules of a test's own, by their paths."""
    root: str = ""
    """Path under which everything is served, as behind a proxy."""
    server: Server | None = None
    _clients: asyncio.Queue[CannedClient] = field(default_factory=asyncio.Queue)
    _count: int = 0
    _known: dict[str, CannedClient] = field(default_factory=dict)

    async def client(self) -> CannedClient:
        """Wait for the page's next socket."""
        return await asyncio.wait_for(self._clients.get(), WAIT_S)

    async def stop(self) -> None:
        """Stop answering."""
        assert self.server is not None
        self.server.close()
        await self.server.wait_closed()

    async def talk(self, socket: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            if "resume=1" in (socket.request.path if socket.request else ""):
                await self.resume(socket)
            else:
                await self.begin(socket)

    async def begin(self, socket: ServerConnection) -> None:
        self._count += 1
        session_id = f"sess_{self._count:04d}c0ffee"
        client = CannedClient(socket, session_id, self.session, self.audio_name)
        client.generation = 1 if self.resumes else None
        self._known[session_id] = client
        self._clients.put_nowait(client)
        async for text in socket:
            event = json.loads(text)
            is_first = not client.received
            await client.note(event)
            if is_first and event["type"] == "session.update":
                await self.admit(client)

    async def resume(self, socket: ServerConnection) -> None:
        request = json.loads(await socket.recv())
        client = self._known[request["session_id"]]
        assert request["resume_token"] == client.token
        if self.resume_refusal is not None:
            error = {"type": "invalid_request_error", "code": self.resume_refusal, "message": "no"}
            await socket.send(json.dumps({"type": "error", "error": error}))
            await socket.close(1000)
            return
        await client.note(request)
        while await client.resync(socket, request["last_received_server_event_seq"]):
            request = json.loads(await socket.recv())
            await client.note(request)
        await client.resume(socket, request["last_received_server_event_seq"])
        async for text in socket:
            await client.note(json.loads(text))

    async def admit(self, client: CannedClient) -> None:
        if self.capacity is not None:
            error = {
                "type": "rate_limit_error",
                "code": "resource_exhausted",
                "message": f"duplex_session_capacity_exhausted: limit={self.capacity}",
            }
            await client.send("error", error=error)
            await client.socket.close(1013, "try again later")
        elif self.opens:
            await client.open_session()

    def respond(self, socket: ServerConnection, request: Request) -> Response | None:
        """Serve files and models; let an allowed socket through (None)."""
        path = request.path.partition("?")[0].removeprefix(self.root)
        if path in ("/v1/realtime", "/v1/models") and not self.allows(request):
            return socket.respond(http.HTTPStatus.UNAUTHORIZED, "an API key is needed\n")
        if path == "/v1/realtime":
            self.attempts += 1
            if self.is_away:
                return socket.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, "away\n")
            return None
        if path == "/v1/models":
            models = {"object": "list", "data": [{"id": self.session["model"], "object": "model"}]}
            return reply("application/json", json.dumps(models).encode())
        if path in self.scripts:
            return reply("text/javascript", self.scripts[path].encode())
        file = WEB / (path.lstrip("/") or "index.html")
        if not file.is_file():
            return socket.respond(http.HTTPStatus.NOT_FOUND, "no such file\n")
        return reply(mimetypes.guess_type(file.name)[0] or "text/plain", file.read_bytes())

    def allows(self, request: Request) -> bool:
        if self.key is None:
            return True
        offers = request.headers.get("Sec-WebSocket-Protocol", "").replace(" ", "").split(",")
        shown = request.headers.get("Authorization", "")
        return f"openai-insecure-api-key.{self.key}" in offers or shown == f"Bearer {self.key}"


def reply(kind: str, body: bytes) -> Response:
    headers = Headers({"Content-Type": kind, "Content-Length": str(len(body))})
    return Response(http.HTTPStatus.OK.value, "OK", headers, body)


@asynccontextmanager
async def run_canned_service(*, host: str = "127.0.0.1") -> AsyncIterator[CannedService]:
    """Serve on a free port of loopback."""
    service = CannedService()
    server: Server = await serve(
        service.talk,
        host,
        0,
        process_request=service.respond,
        subprotocols=[Subprotocol("realtime")],
        select_subprotocol=choose,
        max_size=None,
    )
    async with server:
        service.server = server
        port = next(iter(server.sockets)).getsockname()[1]
        service.url = f"http://127.0.0.1:{port}/"
        yield service


def choose(_socket: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    return Subprotocol("realtime") if "realtime" in offered else None

"""Clients that together do all that a dashboard can show, over real sockets and in real time.

What they have counted themselves is what the service should have counted.
"""

import asyncio
import json
import socket
import struct
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.sync.client import connect as connect_and_wait

from clients import events as ev
from clients.duplex import DuplexClient
from clients.errors import DuplexRefused
from clients.load import run_share
from clients.load_plan import LoadPlan
from clients.session_config import base_settings, server_vad
from clients.synthetic import bursts, speech_like
from clients.wav import to_pcm16
from tests.fakes.wire import append, client, update
from tests.support.lossy_road import lossy_road

ROUND_S = 6.0
"""How long somebody talks: one burst of speech and the pause after it."""
TALKERS = 2
PATIENCE_S = 120.0
"""Only a test that has gone wrong ever waits so long."""
SECOND = to_pcm16(speech_like(1.0))
AUTO: dict[str, Any] = {"extra_body": {"auto_response": True}}


def script(**knobs: Any) -> str:
    """Return instructions that tell the scripted model what to do in this session."""
    return f"script:{json.dumps(knobs)}"


@dataclass
class BusyClients:
    """All of them, at one service."""

    port: int
    key: str
    begun: int = 0
    """Sessions that were asked for, those that were refused too."""
    there: int = 0
    """Of these, who is there until the end."""
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def url(self) -> str:
        """Where they connect."""
        return f"ws://127.0.0.1:{self.port}/v1/realtime?duplex=1"

    async def all_at_once(self) -> None:
        """Do everything once; at last, when the others have gone, fill the house."""
        scenes = (
            self.talk,
            self.ask,
            self.interrupt,
            self.speak_up,
            self.wait_for_a_slow_answer,
            self.come_back,
            self.take_over,
            self.leave,
            self.knock,
        )
        async with asyncio.timeout(PATIENCE_S):
            async with self.somebody_who_reads_nothing(), asyncio.TaskGroup() as group:
                for scene in scenes:
                    group.create_task(scene())
            await self.fill_the_house()

    # --- conversations ------------------------------------------------------------------------

    async def talk(self) -> None:
        """Talk in real time, be answered, and say what was heard."""
        recording, spans = bursts()
        plan = LoadPlan(
            url=self.url,
            settings=base_settings() | {"turn_detection": server_vad()},
            recording=recording,
            spans=spans,
            sessions=TALKERS,
            seconds=ROUND_S,
            ramp_s=0.5,
            api_key=self.key,
        )
        for one in await run_share(plan, range(TALKERS), with_progress=False):
            self.begun += 1
            assert one.outcome == "completed", one
            self.outcomes["spoken"] += sum(
                each.timings.audio_ms > 0 for each in one.figures.responses
            )

    async def ask(self) -> None:
        """Say something, commit it, and ask for the answer."""
        settings = base_settings(extra_body={"auto_response": False})
        async with self._client(settings) as caller:
            await caller.append_audio(SECOND)
            await caller.commit()
            answer = await (await caller.create_response()).wait_done()
            await caller.ack_playback(answer.response_id, 200)
            await caller.heartbeat()
            self._heard(answer)

    async def interrupt(self) -> None:
        """Stop an answer with an event."""
        knobs = script(speak_at_units=[1], hang_at_chunks=[2])
        async with self._client(base_settings(instructions=knobs)) as caller:
            sounding = caller.expect(ev.AudioDelta)
            await caller.append_audio(SECOND)
            answer = await caller.next_response()
            await sounding
            await caller.barge_in()
            self._heard(await answer.wait_done())

    async def speak_up(self) -> None:
        """Stop an answer by speaking."""
        knobs = script(speak_at_units=[1], hang_at_chunks=[2])
        settings = base_settings(instructions=knobs) | {"turn_detection": server_vad()}
        async with self._client(settings) as caller:
            await caller.append_audio(bytes(32_000))
            sounding = caller.expect(ev.AudioDelta)
            answer = await caller.next_response()
            await sounding
            for start in range(0, len(SECOND), 6_400):
                await caller.append_audio(SECOND[start : start + 6_400])
            self._heard(await answer.wait_done())

    async def wait_for_a_slow_answer(self) -> None:
        """Be answered by a model that is late in both halves."""
        knobs = script(speak_at_units=[1], sentences=1, unit_delay_ms=1_300, chunk_delay_ms=400)
        async with self._client(base_settings(instructions=knobs)) as caller:
            await caller.append_audio(SECOND)
            self._heard(await (await caller.next_response()).wait_done())

    # --- sockets that break -------------------------------------------------------------------

    async def come_back(self) -> None:
        """Lose the connection in the middle, and go on over another."""
        async with lossy_road(self.port) as road:
            knobs = script(speak_at_units=[1])
            async with DuplexClient(
                road.url, base_settings(instructions=knobs), api_key=self.key
            ) as caller:
                self.begun += 1
                back = caller.expect(ev.Resumed)
                road.cut()
                await back
                await caller.append_audio(SECOND)
                self._heard(await (await caller.next_response()).wait_done())
                self.outcomes["resumed"] += 1

    async def take_over(self) -> None:
        """Take a session from another socket, and try so with a wrong token."""
        async with self._dial() as line, self._dial("&resume=1") as other:
            created = await self._open(line)
            asked = {"session_id": created["session"]["id"], "last_received_server_event_seq": 0}
            await other.send(client("session.resume", resume_token="wrong", **asked))
            assert (await hear(other))["type"] == "error"
            token = created["resume_token"]
            await other.send(client("session.resume", resume_token=token, **asked))
            await until(other, "session.resumed")
            await until(line, "session.replaced")
            await other.send(client("session.close"))
            await until(other, "session.closed")
            self.outcomes["resumed"] += 1
            self.outcomes["taken over"] += 1

    async def leave(self) -> None:
        """Break the connection for good."""
        async with self._dial() as line:
            await self._open(line)
            await line.send(client("no.such.event"))
            await until(line, "error")
            plain = line.transport.get_extra_info("socket")
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            line.transport.abort()

    # --- bad clients --------------------------------------------------------------------------

    @asynccontextmanager
    async def somebody_who_reads_nothing(self) -> AsyncIterator[None]:
        """Have somebody there who is answered at length, and reads none of it."""
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        plain.setblocking(False)
        await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", self.port))
        async with self._dial(sock=plain, close_timeout=1, ping_interval=None) as line:
            await self._open(line, script(speak_at_units=[1], sentence_ms=60_000, chunk_ms=10_000))
            line.transport.pause_reading()
            await line.send(append(1_000))
            self.outcomes["spoken"] += 1
            yield
            line.transport.resume_reading()

    @contextmanager
    def somebody_who_stays(self) -> Iterator[None]:
        """Have somebody there who says nothing."""
        with connect_and_wait(self.url, additional_headers=self._headers, compression=None) as line:
            line.send(update(**AUTO))
            created = json.loads(line.recv())
            assert created["type"] == "session.created", created
            self.begun += 1
            self.there += 1
            yield

    async def knock(self) -> None:
        """Come without a key, by both doors."""
        try:
            await DuplexClient(self.url, base_settings(), api_key="wrong").open()
        except DuplexRefused as refused:
            self.outcomes[refused.code] += 1
        try:
            await asyncio.to_thread(
                urllib.request.urlopen, f"http://127.0.0.1:{self.port}/v1/models", timeout=30
            )
        except urllib.error.HTTPError as refused:
            self.outcomes[f"http_{refused.code}"] += 1

    async def fill_the_house(self) -> None:
        """Open sessions until one is refused."""
        inside: list[ClientConnection] = []
        async with AsyncExitStack() as stack:
            while True:
                line = await stack.enter_async_context(self._dial())
                await line.send(update(**AUTO))
                self.begun += 1
                answer = await hear(line)
                if answer["type"] == "error":
                    assert answer["error"]["code"] == "resource_exhausted", answer
                    self.outcomes["full"] += 1
                    break
                inside.append(line)
            for line in inside:
                await line.send(client("session.close"))
            for line in inside:
                await until(line, "session.closed")

    # --- inside -------------------------------------------------------------------------------

    def _client(self, settings: dict[str, Any]) -> DuplexClient:
        self.begun += 1
        return DuplexClient(self.url, settings, api_key=self.key)

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def _dial(self, query: str = "", **options: Any) -> connect:
        url = self.url + query
        return connect(
            url, max_size=None, compression=None, additional_headers=self._headers, **options
        )

    async def _open(self, line: ClientConnection, instructions: str = "") -> dict[str, Any]:
        self.begun += 1
        await line.send(update(**AUTO, instructions=instructions))
        created = await hear(line)
        assert created["type"] == "session.created", created
        return created

    def _heard(self, answer: Any) -> None:
        self.outcomes["spoken"] += bool(answer.audio)
        self.outcomes[answer.status] += 1


async def hear(line: ClientConnection) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(await line.recv())
    return event


async def until(line: ClientConnection, kind: str) -> dict[str, Any]:
    while (event := await hear(line))["type"] != kind:
        pass
    return event

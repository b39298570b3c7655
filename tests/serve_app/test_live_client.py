"""`client.live.connect` of the `openai` package, unmodified, against the gateway."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from openai import AsyncOpenAI
from openai.lib.live import AsyncTranscriptGrouper
from openai.resources.live.live import AsyncLiveConnection
from openai.types.live import ServerEvent
from openai.types.websocket_reconnection import ReconnectingEvent, ReconnectingOverrides

from tests.fakes.server import WAIT_S, Service, serving
from tests.fakes.stages import ScriptedDirectory, answering

FRAME = base64.b64encode((b"\x00\x20" * 12 + b"\x00\xe0" * 12) * 200).decode()
"""200 ms of a tone, at 24 kHz."""
QUIET = base64.b64encode(bytes(9_600)).decode()


def openai_client(service: Service) -> AsyncOpenAI:
    url = f"http://127.0.0.1:{service.port}/v1"
    return AsyncOpenAI(base_url=url, api_key="none", max_retries=0)


@asynccontextmanager
async def live_line(service: Service, **session: Any) -> AsyncIterator[AsyncLiveConnection]:
    """Start a session with the package."""
    settings: Any = {"model": "gpt-live-1"} | session
    async with openai_client(service) as client, client.live.connect() as line:
        await line.session.start(session=settings, event_id="s-1")
        started = await line.recv()
        assert started.type == "session.started"
        assert started.client_event_id == "s-1"
        yield line


async def until(line: AsyncLiveConnection, kind: str) -> list[ServerEvent]:
    """Read on to the first event of a type; return all that was read."""
    read: list[ServerEvent] = []
    async with asyncio.timeout(WAIT_S):
        while not read or read[-1].type != kind:
            read.append(await line.recv())
    return read


def words(events: list[ServerEvent]) -> str:
    return "".join(e.delta for e in events if e.type == "session.output_transcript.delta")


async def test_every_command_of_the_package_is_answered() -> None:
    async with serving(answering(speak_at_units=[1])) as service, live_line(service) as line:
        for _ in range(6):
            await line.session.input_audio.append(audio=QUIET)
        await line.session.input_audio.mute(event_id="1")
        await line.session.input_audio.unmute(event_id="2")
        await line.session.instructions.append(content="a", delegation_id=None, event_id="3")
        await line.session.thinking.append(content="b", delegation_id=None, event_id="4")
        await line.session.commentary.append(content="c", delegation_id=None, event_id="5")
        delegation: Any = {"type": "client"}
        await line.session.update(session={"delegation": delegation}, event_id="6")
        await line.response.create(event_id="7")
        item: Any = {"role": "user", "content": "Hello."}
        await line.response.item.create(item=item, event_id="8")
        await line.decision.create(event_id="9")
        await line.decision.item.delete(item_id="x", event_id="10")
        await line.session.output_audio.fixture.play(audio=QUIET, event_id="11")
        await line.session.close(event_id="12")
        said = await until(line, "session.closed")
        named = {getattr(event, "client_event_id", None): event.type for event in said}
        answered = {name: kind for name, kind in named.items() if name is not None}
        assert answered == {
            "1": "session.input_audio.muted",
            "2": "session.input_audio.unmuted",
            "3": "session.instructions.appended",
            "4": "session.thinking.appended",
            "5": "session.commentary.appended",
            "6": "session.updated",
            **{str(number): "error" for number in range(7, 12)},
            "12": "session.closed",
        }
        assert "Answer 1" in words(said)
        closed = said[-1]
        assert closed.type == "session.closed"
        assert closed.reason == "close_requested"
        assert [event async for event in line] == []  # an end of which the package makes no error


async def test_handlers_hear_a_conversation_and_its_end() -> None:
    heard: list[str] = []
    async with serving(answering()) as service, live_line(service) as line:
        line.on("session.output_transcript.delta", lambda event: heard.append(event.delta))
        line.on("session.closed", lambda event: heard.append(event.reason))
        for _ in range(6):
            await line.session.input_audio.append(audio=QUIET)
        await line.session.close()
        async with asyncio.timeout(WAIT_S):
            await line.dispatch_events()
    assert "".join(heard).startswith("Answer 1")
    assert heard[-1] == "close_requested"


async def test_the_packages_own_grouping_of_transcripts_takes_every_delta() -> None:
    texts: dict[str, str] = {}
    directory = answering(speak_at_units=[1, 4])
    async with (
        serving(directory) as service,
        live_line(service) as line,
        AsyncTranscriptGrouper() as grouper,
    ):
        grouper.on("segment.updated", lambda segment: texts.update({segment.id: segment.text}))
        for _ in range(25):
            await line.session.input_audio.append(audio=QUIET)
        await line.session.close()
        for event in await until(line, "session.closed"):
            await grouper.push(event)
    joined = " ".join(texts.values())
    assert "Answer 1" in joined
    assert "Answer 2" in joined


async def test_speech_comes_as_it_is_played_and_stops_when_the_user_speaks() -> None:
    directory = answering(speak_at_units=[1], sentence_ms=20_000, chunk_ms=5_000)
    async with serving(directory) as service, live_line(service) as line:
        loop = asyncio.get_running_loop()
        for _ in range(6):
            await line.session.input_audio.append(audio=QUIET)
        await until(line, "session.output_audio.delta")
        began_s, sent_ms = loop.time(), 200
        while sent_ms < 1_600:
            await until(line, "session.output_audio.delta")
            sent_ms += 200
            assert sent_ms <= (loop.time() - began_s) * 1_000 + 850  # 0.4 s, and a slow machine
        for _ in range(3):
            await line.session.input_audio.append(audio=FRAME)
        await line.session.input_audio.mute(event_id="now")
        before = await until(line, "session.input_audio.muted")
        await asyncio.sleep(1.0)
        await line.session.input_audio.unmute()
        after = await until(line, "session.input_audio.unmuted")
        sound = [e for e in [*before, *after] if e.type == "session.output_audio.delta"]
        assert len(sound) <= 3
        assert words(after) == ""


async def test_a_client_that_hangs_up_ends_its_session() -> None:
    async with serving(answering()) as service:
        async with live_line(service):
            assert service.directory.open_sessions == 1
        await service.until_open(0)


async def test_where_no_place_is_free_the_package_comes_back() -> None:
    came_back = asyncio.Event()

    def again(event: ReconnectingEvent) -> ReconnectingOverrides | None:
        assert event.close_code == 1013
        came_back.set()
        return None

    settings: Any = {"model": "any"}
    kinds: list[str] = []
    async with (
        serving(ScriptedDirectory(max_sessions=1)) as service,
        openai_client(service) as client,
        live_line(service) as first,
        client.live.connect(on_reconnecting=again, initial_delay=0.2) as second,
    ):
        await second.session.start(session=settings)

        async def read() -> None:
            async for event in second:
                kinds.append(event.type)
                if event.type == "session.started":
                    return

        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
            group.create_task(read())
            await came_back.wait()
            await first.session.close()
            await until(first, "session.closed")
            # To start anew is the application's part; it waits until the package has connected.
            await second.session.start(session=settings)
    assert kinds == ["error", "session.started"]

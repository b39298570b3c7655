"""The live wire over real sockets, with the scripted model: one socket, one session, no turns."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from session.config import SessionLimits
from session.errors import StageFailed
from stages.descriptor import Descriptor
from tests.fakes.server import Service, hear, serving, until
from tests.fakes.stages import ScriptedDirectory, answering
from tests.fakes.wire import client
from tests.support.live_log import LiveLog

FRAME_MS = 200


def start(**session: Any) -> str:
    return client("session.start", session={"model": "gpt-live-1"} | session, event_id="s-1")


def append(ms: int, *, loud: bool = True, rate: int = 24_000) -> str:
    """Return an append of PCM16: a square wave, or silence."""
    period = (b"\x00\x20" * 12 + b"\x00\xe0" * 12) if loud else bytes(48)
    sound = (period * (ms * rate // 24_000 + 1))[: ms * rate // 1_000 * 2]
    return client("session.input_audio.append", audio=base64.b64encode(sound).decode())


@asynccontextmanager
async def dialled(service: Service, query: str = "") -> AsyncIterator[ClientConnection]:
    """Open a socket; at the end show that all it was sent is fit for the strictest client."""
    url = f"ws://127.0.0.1:{service.port}/v1/live/sessions{query}"
    async with connect(url, max_size=None, compression=None) as line:
        yield line


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def codes(events: list[dict[str, Any]]) -> list[str]:
    return [event["error"]["code"] for event in events if event["type"] == "error"]


async def rest(line: ClientConnection, log: LiveLog) -> tuple[int, str]:
    """Read on to the end of the socket; return its code and reason."""
    try:
        while True:
            frame = await line.recv()
            assert isinstance(frame, str)
            log.hear(frame)
    except ConnectionClosed:
        assert line.close_code is not None
        return line.close_code, line.close_reason or ""


@pytest.mark.parametrize(
    ("kind", "rate", "sample_bytes"),
    [
        ("audio/pcm", 24_000, 2),
        ("audio/pcm", 16_000, 2),
        ("audio/pcmu", 8_000, 1),
        ("audio/pcma", 8_000, 1),
    ],
)
async def test_a_whole_conversation_is_fit_for_the_strictest_client(
    kind: str, rate: int, sample_bytes: int
) -> None:
    log = LiveLog()
    async with serving(answering()) as service, dialled(service) as line:
        await line.send(start(audio={"format": {"type": kind, "rate": rate}}))
        sound = base64.b64encode(bytes(rate // 5 * sample_bytes)).decode()
        for _ in range(7):
            await line.send(client("session.input_audio.append", audio=sound))
        await line.send(client("session.close", event_id="bye"))
        assert await rest(line, log) == (1000, "client_close")
    log.end()
    assert log.faults == []
    assert kinds(log.events)[0] == "session.started"
    heard = b"".join(base64.b64decode(e["delta"]) for e in log.of("session.output_audio.delta"))
    assert len(heard) == 600 * rate // 1000 * sample_bytes
    words = "".join(e["delta"] for e in log.of("session.output_transcript.delta"))
    session_id = log.events[0]["session"]["id"]
    assert words == f"Answer 1 to {session_id}, part 1 of 1."
    [closed] = log.of("session.closed")
    assert closed["client_event_id"] == "bye"
    assert closed["usage"] == {"seconds": 2}


async def test_nothing_comes_before_the_start_and_the_socket_stays_open() -> None:
    async with serving(answering()) as service, dialled(service, "?model=scripted") as line:
        for event in (append(200), client("session.close"), client("session.update", session={})):
            await line.send(event)
            assert (await hear(line))["error"]["code"] == "session_not_started"
        wrong = start(voice="marin")
        await line.send(wrong)
        error = (await hear(line))["error"]
        assert (error["code"], error["param"]) == ("unknown_parameter", "session.voice")
        assert error["client_event_id"] == "s-1"
        await line.send(start())
        assert (await hear(line))["type"] == "session.started"
        assert service.directory.open_sessions == 1
        await line.send(start())
        assert (await hear(line))["error"]["code"] == "session_already_started"


class Forgetful(ScriptedDirectory):
    """Stages of a model that takes no messages."""

    @property
    def descriptor(self) -> Descriptor:
        """The scripted model, as if it knew less."""
        known = super().descriptor
        return replace(known, profile=replace(known.profile, messages=False))


async def test_what_the_model_can_not_be_told_leaves_the_socket_open() -> None:
    history = [{"role": "user", "content": [{"text": "Hello."}]}]
    thought = client("session.thinking.append", content="Sold out.", delegation_id=None)
    async with serving(Forgetful()) as service, dialled(service) as line:
        await line.send(start(input=history))
        assert codes([await hear(line)]) == ["unsupported_session_input"]
        await line.send(start())
        assert (await hear(line))["type"] == "session.started"
        await line.send(thought)
        assert codes([await hear(line)]) == ["context_append_unsupported"]


async def test_what_was_said_before_and_a_comment_reach_the_model() -> None:
    history = [{"role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}]
    comment = client(
        "session.commentary.append", content="Sold out.", delegation_id=None, event_id="c-1"
    )
    async with serving(answering()) as service, dialled(service) as line:
        await line.send(start(input=history))
        started = await hear(line)
        assert started["session"]["input"] == history
        await line.send(comment)
        said = await until(line, "session.output_transcript.delta")
        assert said[0]["type"] == "session.commentary.appended"
        assert said[0]["client_event_id"] == "c-1"


async def test_a_client_that_says_nothing_is_told_what_was_waited_for() -> None:
    limits = SessionLimits(config_timeout_s=0.05, disconnect_grace_s=0)
    async with serving(answering(), limits=limits) as service, dialled(service) as line:
        error = (await hear(line))["error"]
        assert error["code"] == "config_timeout"
        assert "session.start" in error["message"]


async def test_mute_is_silence_and_the_timeline_runs_on() -> None:
    directory = answering(speak_at_units=[1])
    async with serving(directory) as service, dialled(service) as line:
        await line.send(start())
        await line.send(client("session.input_audio.mute", event_id="m-1"))
        for _ in range(51):  # a little of what came is still on its way through the resampler
            await line.send(append(FRAME_MS))
        said = await until(line, "session.usage.updated")
        assert kinds(said)[:2] == ["session.started", "session.input_audio.muted"]
        assert said[1]["client_event_id"] == "m-1"
        assert said[-1]["usage"] == {"seconds": 10}
        await line.send(client("session.input_audio.unmute", event_id="m-2"))
        assert (await until(line, "session.input_audio.unmuted"))[-1]["client_event_id"] == "m-2"
        # Loud as it was, nobody has heard it: no speech, so nothing that interrupted the answer.
        assert "".join(e.get("delta", "") for e in said if "output_transcript" in e["type"])


async def test_instructions_are_appended_to_those_in_force() -> None:
    async with serving(answering()) as service, dialled(service) as line:
        await line.send(start(instructions="Be brief."))
        await line.send(append(400))
        event = client(
            "session.instructions.append", content="Speak French.", delegation_id=None, event_id="i"
        )
        await line.send(event)
        appended = (await until(line, "session.instructions.appended"))[-1]
        assert appended["client_event_id"] == "i"
        assert appended["start_ms"] == appended["end_ms"] <= 400
        assert appended["start_ms"] % FRAME_MS == 0


async def test_a_close_lets_the_answer_come_to_its_end() -> None:
    log = LiveLog()
    directory = answering()
    async with serving(directory) as service, dialled(service) as line:
        directory.knobs.hold("chunk")
        await line.send(start())
        await line.send(append(1_200))
        await directory.knobs.wait_called("chunk")
        await line.send(client("session.close"))
        await line.send(append(1_000))
        await line.send(client("session.nope"))
        directory.knobs.release("chunk")
        assert await rest(line, log) == (1000, "client_close")
    assert log.faults == []
    assert len(log.of("session.output_audio.delta")) == 3
    assert kinds(log.events)[-1] == "session.closed"


async def test_a_socket_that_is_lost_ends_its_session() -> None:
    limits = SessionLimits(disconnect_grace_s=30)
    async with serving(answering(), limits=limits) as service:
        async with dialled(service) as line:
            await line.send(start())
            await until(line, "session.started")
        await service.until_open(0)
        await service.idle()


async def test_a_session_can_not_be_taken_over() -> None:
    async with serving(answering()) as service, dialled(service) as line:
        await line.send(client("session.resume", session_id="x", resume_token="y"))
        assert codes([await hear(line)]) == ["unknown_event"]


async def test_an_interruption_ends_what_is_said() -> None:
    directory = answering(speak_at_units=[1, 3])
    log = LiveLog()
    async with serving(directory) as service, dialled(service) as line:
        directory.knobs.hold("chunk")
        await line.send(start())
        await line.send(append(1_200, loud=False))
        await directory.knobs.wait_called("chunk")
        for _ in range(3):
            await line.send(append(FRAME_MS))
        await directory.knobs.wait_called("cancel")
        directory.knobs.release("chunk")
        for _ in range(10):
            await line.send(append(FRAME_MS, loud=False))
        said = await until(line, "session.output_transcript.delta")
        # Of the first answer nothing was sent, and nothing is.
        assert said[-1]["delta"].startswith("Answer 2") or said[-1]["delta"].startswith("Answer 1")
        assert said[-1]["start_ms"] >= 1_600
        await line.send(client("session.close"))
        await rest(line, log)
    assert log.of("session.closed")


async def test_a_session_that_the_model_refuses_is_told_so_and_closed() -> None:
    directory = answering()
    async with serving(directory) as service, dialled(service) as line:
        directory.knobs.fail_next("open", StageFailed("no"))
        await line.send(start())
        assert codes([await hear(line)]) == ["stage_failed"]
        with pytest.raises(ConnectionClosed):
            await hear(line)
        assert line.close_code == 1011


async def test_when_no_place_is_free_the_client_may_try_later() -> None:
    directory = ScriptedDirectory(max_sessions=1)
    async with serving(directory) as service, dialled(service) as one, dialled(service) as two:
        await one.send(start())
        await until(one, "session.started")
        await two.send(start())
        assert codes([await hear(two)]) == ["resource_exhausted"]
        with pytest.raises(ConnectionClosed):
            await hear(two)
        assert two.close_code == 1013

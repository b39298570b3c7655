"""The gateway over real sockets: a whole conversation, bad clients, and clients that just leave."""

import base64
import json
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import CloseCode

from serve_app.gateway import api as api_module
from session.config import SessionLimits
from session.errors import StageUnavailable
from stages.wav import build_wav
from tests.fakes.rig import audio, settle
from tests.fakes.server import hear, serving, until
from tests.fakes.stages import ScriptedDirectory, answering
from tests.fakes.wire import append, append_bytes, client, update
from tests.support.bad_input import BAD, MEBIBYTE
from tests.support.wire_order import ANSWER

AUTO: dict[str, Any] = {"extra_body": {"auto_response": True}}


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


async def closing(line: ClientConnection) -> tuple[int, str]:
    """Read on until the server closes; return its code and reason."""
    with suppress(ConnectionClosed):
        while True:
            await hear(line)
    assert line.close_code is not None
    return line.close_code, line.close_reason or ""


def reset(line: ClientConnection) -> None:
    """Break the connection with a TCP reset."""
    plain = line.transport.get_extra_info("socket")
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.transport.abort()


# --- a conversation -----------------------------------------------------------------------------

DELTA = ["response.audio.delta", "response.audio_transcript.delta"]
TRANSCRIPT = ["session.created", "session.updated", *ANSWER]


async def test_a_whole_conversation_in_exact_order() -> None:
    async with serving(answering()) as service, service.dial() as line:
        await line.send(update(**AUTO))
        for _ in range(5):
            await line.send(append(200))
        said = await until(line, "rate_limits.updated")
        assert kinds(said) == TRANSCRIPT
        sound = b"".join(base64.b64decode(e["delta"]) for e in said if e["type"] == DELTA[0])
        assert len(sound) == 600 * 48
        text = "".join(e["delta"] for e in said if e["type"] == DELTA[1])
        session_id = said[0]["session"]["id"]
        assert text == f"Answer 1 to {session_id}, part 1 of 1."
        await line.send(client("session.close"))
        assert kinds(await until(line, "session.closed")) == ["session.closed"]
        assert await closing(line) == (1000, "client_close")
        ids = [event["event_id"] for event in said]
        assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("form", "sound"),
    [
        ("wav", build_wav(audio(1_000).data, 16_000)),
        ("g711_ulaw", b"\x80\x00" * 4_000),
        ("pcm_f32le", np.zeros(16_000, "<f4").tobytes()),
    ],
)
async def test_a_conversation_in_another_format(form: str, sound: bytes) -> None:
    async with serving(answering()) as service, service.dial() as line:
        await line.send(update(input_audio_format=form, output_audio_format="g711_alaw", **AUTO))
        for _ in range(2):
            await line.send(append_bytes(sound))
        said = await until(line, "rate_limits.updated")
        heard = b"".join(base64.b64decode(e["delta"]) for e in said if e["type"] == DELTA[0])
        assert len(heard) == 600 * 8


async def test_two_conversations_at_once_do_not_mix() -> None:
    directory = ScriptedDirectory(max_sessions=2, speak_at_units=range(1, 9), sentences=1)
    async with serving(directory) as service, service.dial() as a, service.dial() as b:
        names = {}
        for line in (a, b):
            await line.send(update(**AUTO))
            names[line] = (await hear(line))["session"]["id"]
        for turn in range(1, 5):
            for line in (a, b):
                await line.send(append(1_000, loud=False))
            for line in (a, b):
                said = await until(line, "rate_limits.updated")
                [done] = [e for e in said if e["type"] == "response.audio_transcript.done"]
                assert done["transcript"] == f"Answer {turn} to {names[line]}, part 1 of 1."


async def test_barge_in_ends_the_answer_and_the_next_one_is_heard() -> None:
    directory = answering(speak_at_units=[1, 2])
    async with serving(directory) as service, service.dial() as line:
        directory.knobs.hold("chunk")
        await line.send(update(**AUTO))
        await line.send(append(1_000))
        await directory.knobs.wait_called("chunk")
        await line.send(client("barge_in"))
        await directory.knobs.wait_called("cancel")
        directory.knobs.release("chunk")
        await line.send(append(1_000, loud=False))
        said = await until(line, "rate_limits.updated")
        created = [e["response_id"] for e in said if e["type"] == "response.created"]
        done = [e["response_id"] for e in said if e["type"] == "response.done"]
        assert len(created) == len(set(created))
        assert created == done
        assert {e["response_id"] for e in said if e["type"] == DELTA[0]} <= set(created[-1:])


@pytest.mark.parametrize(
    "change",
    [
        {"output_audio_format": "g711_ulaw"},
        {"turn_detection": {"type": "server_vad"}},
        {"output_modalities": ["text"]},
        {"temperature": 0.5},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_settings_change_between_two_answers(change: dict[str, Any]) -> None:
    """Whether the stages must know of them or not, with the doors that the stages really have."""
    async with serving(answering(speak_at_units=[1, 2])) as service, service.dial() as line:
        await line.send(update(**AUTO))
        await line.send(append(1_000))
        await until(line, "rate_limits.updated")
        await line.send(update(**change))
        await until(line, "session.updated")
        await line.send(append(1_000, loud=False))
        said = await until(line, "rate_limits.updated")
        assert "error" not in kinds(said)
        assert "response.done" in kinds(said)


# --- bad clients --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BAD)
async def test_bad_input_gets_one_typed_error_and_the_session_lives(name: str) -> None:
    frame, code = BAD[name]
    async with serving(answering()) as service, service.dial() as line:
        await line.send(update(**AUTO))
        await until(line, "session.updated")
        await line.send(frame)
        await line.send(client("session.heartbeat"))
        error, beat = await hear(line), await hear(line)
        assert kinds([error, beat]) == ["error", "session.heartbeat_ack"]
        assert error["error"]["type"] == "invalid_request_error"
        assert error["error"]["code"] == code
        await line.send(append(1_000))
        assert kinds(await until(line, "rate_limits.updated"))[-2] == "response.done"


async def test_an_append_of_15_mib_is_heard_whole() -> None:
    """The largest event that is allowed: over five minutes of audio at once."""
    async with serving(answering()) as service, service.dial() as line:
        await line.send(update(**AUTO))
        await until(line, "session.updated")
        empty = len(append_bytes(b""))
        sound = bytes((SessionLimits().max_event_bytes - empty) // 4 * 3)
        await line.send(append_bytes(sound))
        await line.send(client("session.heartbeat"))
        said = await until(line, "session.heartbeat_ack")
        assert "error" not in kinds(said)


@pytest.mark.parametrize("sizes", [(1, 31_999), (3, 1, 31_996), (0, 32_000), (32_001, 1)])
async def test_appends_may_be_of_any_size(sizes: tuple[int, ...]) -> None:
    async with serving(answering()) as service, service.dial() as line:
        await line.send(update(**AUTO))
        for size in sizes:
            await line.send(append_bytes(bytes(size)))
        said = await until(line, "rate_limits.updated")
        assert "error" not in kinds(said)


async def test_a_frame_that_the_server_can_not_take_closes_with_too_big() -> None:
    directory = answering(max_sessions=2)
    async with serving(directory) as service, service.dial() as healthy:
        await healthy.send(update(**AUTO))
        await until(healthy, "session.updated")
        async with service.dial() as line:
            await line.send(update())
            await until(line, "session.updated")
            with suppress(ConnectionClosed):
                await line.send(" " * (16 * MEBIBYTE + 1))
            code, _ = await closing(line)
            assert code == CloseCode.MESSAGE_TOO_BIG
        await service.until_open(1)
        await healthy.send(append(1_000))
        assert "response.done" in kinds(await until(healthy, "rate_limits.updated"))


# --- slots --------------------------------------------------------------------------------------


async def test_a_third_session_is_refused_and_let_in_after_one_has_closed() -> None:
    directory = ScriptedDirectory(max_sessions=2)
    async with serving(directory) as service, service.dial() as one, service.dial() as two:
        for line in (one, two):
            await line.send(update())
            await until(line, "session.updated")
        async with service.dial() as three:
            await three.send(update())
            error = await hear(three)
            assert error["type"] == "error"
            assert error["error"]["type"] == "rate_limit_error"
            assert error["error"]["code"] == "resource_exhausted"
            assert await closing(three) == (1013, "resource_exhausted")
        await one.send(client("session.close"))
        await until(one, "session.closed")
        async with service.dial() as three:
            await three.send(update())
            assert (await hear(three))["type"] == "session.created"


@pytest.mark.parametrize("held", ["open", "append", "speak", "chunk"])
async def test_a_reset_frees_the_slot(held: str) -> None:
    directory = answering(max_sessions=2)
    async with serving(directory) as service, service.dial() as healthy:
        await healthy.send(update(**AUTO))
        await until(healthy, "session.updated")
        directory.knobs.hold(held)
        async with service.dial() as broken:
            await broken.send(update(**AUTO))
            await broken.send(append(1_000))
            await directory.knobs.wait_called(held)
            reset(broken)
        if held == "open":
            await settle()
        directory.knobs.release(held)
        await service.until_open(1)
        await healthy.send(append(1_000))
        assert "response.done" in kinds(await until(healthy, "rate_limits.updated"))


async def test_fifty_resets_leave_nothing_behind() -> None:
    directory = answering(max_sessions=1)
    async with serving(directory) as service:
        for _ in range(50):
            async with service.dial() as line:
                await line.send(update(**AUTO))
                await line.send(append(1_000))
                await until(line, "response.created")
                reset(line)
            await service.idle()
        assert (await service.get("/health")).body["sessions"] == 0


async def test_a_client_that_closes_without_a_word_frees_the_slot() -> None:
    async with serving(answering()) as service:
        async with service.dial() as line:
            await line.send(update())
            await until(line, "session.updated")
        await service.idle()
        assert service.directory.open_sessions == 0


async def test_a_client_that_does_not_read_is_let_go() -> None:
    limits = SessionLimits(max_output_bytes_per_session=100_000)
    directory = answering(sentence_ms=600_000, chunk_ms=1_000)
    async with serving(directory, limits=limits) as service, service.dial(max_queue=1) as line:
        await line.send(update(**AUTO))
        await until(line, "session.updated")
        await line.send(append(1_000))
        await service.idle()
        assert await closing(line) == (1013, "slow_reader")


async def test_shutting_down_closes_every_session_first() -> None:
    directory = ScriptedDirectory(max_sessions=2)
    async with serving(directory) as service:
        line = await service.dial()
        await line.send(update())
        await until(line, "session.updated")
    assert directory.open_sessions == 0
    code, _ = await closing(line)
    assert code in {CloseCode.SERVICE_RESTART, CloseCode.NORMAL_CLOSURE}


# --- doors --------------------------------------------------------------------------------------


async def test_a_key_opens_the_door() -> None:
    async with serving(answering(), api_keys=("right",), allow_unauthenticated=False) as service:
        bearer = {"Authorization": "Bearer right"}
        async with service.dial(additional_headers=bearer) as line:
            await line.send(update())
            await until(line, "session.updated")
        in_protocol = ["realtime", "openai-insecure-api-key.right"]
        async with service.dial(subprotocols=in_protocol) as line:
            assert line.subprotocol == "realtime"
        for wrong in ({}, {"Authorization": "Bearer wrong"}):
            with pytest.raises(InvalidStatus) as refused:
                await service.dial(additional_headers=wrong)
            assert refused.value.response.status_code == 401
            assert b"API key" in (refused.value.response.body or b"")
        assert (await service.get("/v1/models")).status == 401
        assert (await service.get("/v1/models", **bearer)).status == 200
        assert (await service.get("/health")).status == 200
        assert (await service.get("/")).status == 200


async def test_without_keys_only_life_is_shown() -> None:
    async with serving(answering(), allow_unauthenticated=False) as service:
        for path in ("/health", "/v1/models", "/"):
            answer = await service.get(path)
            assert answer.status == 403
            assert "DUPLEX_API_KEYS" in answer.body["error"]["message"]
        assert (await service.get("/health/live")).status == 200
        with pytest.raises(InvalidStatus) as refused:
            await service.dial()
        assert refused.value.response.status_code == 403


async def test_pages_of_strangers_may_not_connect() -> None:
    async with serving(answering()) as service:
        with pytest.raises(InvalidStatus) as refused:
            await service.dial(origin="https://evil.example")
        assert refused.value.response.status_code == 403
        async with service.dial(origin=f"http://127.0.0.1:{service.port}"):
            pass


# --- the other routes ---------------------------------------------------------------------------


async def test_a_dialect_that_nobody_knows_is_refused() -> None:
    query = "duplex=1&dialect=klingon"
    async with serving(answering()) as service, service.dial(query) as line:
        error = await hear(line)
        assert (error["error"]["code"], error["error"]["param"]) == ("unsupported", "dialect")
        assert error["event_id"].startswith("event_")
        assert await closing(line) == (1008, "unsupported")


async def test_the_newer_names_of_the_duplex_dialect() -> None:
    query = "duplex=1&dialect=ga&model=m"
    part = {"type": "input_text", "text": "hello"}
    hello = {"type": "message", "role": "user", "content": [part]}
    async with serving(answering()) as service, service.dial(query) as line:
        await line.send(client("conversation.item.create", item=hello))
        await line.send(client("response.create"))
        kinds = {event["type"] for event in await until(line, "rate_limits.updated")}
        assert {"response.output_audio.delta", "response.output_audio_transcript.done"} <= kinds
        assert "response.speak" in kinds
        older = {"response.audio.delta", "conversation.item.created"}
        assert not kinds & older


@pytest.mark.parametrize("value", ["1", "true", "yes", "on", "True"])
async def test_duplex_is_switched_on_by_any_yes(value: str) -> None:
    async with serving(answering()) as service, service.dial(f"duplex={value}&model=m") as line:
        assert (await hear(line))["type"] == "session.created"


async def test_health_says_what_is_wrong() -> None:
    async with serving(answering()) as service:
        healthy = await service.get("/health")
        assert (healthy.status, healthy.body["status"]) == (200, "ok")
        service.directory.sick["stage1"] = "no answer within 30 s"
        sick = await service.get("/health")
        assert (sick.status, sick.body["status"]) == (503, "unavailable")
        assert sick.body["stages"]["stage1"] == "no answer within 30 s"
        assert (await service.get("/health/live")).status == 200


async def test_while_the_stages_can_not_be_found_clients_are_told_to_come_back() -> None:
    directory = answering()
    directory.unreachable = StageUnavailable("stage0 is still starting")
    async with serving(directory) as service:
        assert (await service.get("/health")).status == 503
        assert (await service.get("/v1/models")).status == 503
        async with service.dial() as line:
            assert (await hear(line))["error"]["code"] == "stage_unavailable"
            assert await closing(line) == (1013, "stage_unavailable")
        directory.unreachable = None
        assert (await service.get("/health")).status == 200


async def test_the_model_is_named() -> None:
    async with serving(answering()) as service:
        answer = await service.get("/v1/models")
        assert answer.body["data"][0]["id"] == "scripted"


async def test_timings_are_shown_only_for_debugging() -> None:
    async with serving(answering()) as service:
        assert (await service.get("/debug/timings")).status == 404
    async with serving(answering(), debug=True) as service:
        async with service.dial() as line:
            await line.send(update(**AUTO))
            await until(line, "session.updated")
            await line.send(append(1_000))
            await until(line, "rate_limits.updated")
        timings = (await service.get("/debug/timings")).body
        assert timings["frame_to_append"]["count"] == 1
        assert timings["chunk_to_frame"]["count"] == 3
        assert timings["frame_to_append"]["p99_ms"] > 0


async def test_the_page_is_served_and_hides_no_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "index.html").write_text("hello")
    monkeypatch.setattr(api_module, "WEB_FOLDER", tmp_path)
    async with serving(answering(), debug=True) as service:
        assert (await service.get("/")).body == b"hello"
        for path in ("/health", "/health/live", "/v1/models", "/debug/timings"):
            assert (await service.get(path)).status == 200
        async with service.dial("duplex=1&model=m") as line:
            assert (await hear(line))["type"] == "session.created"
        assert (await service.get("/nothing")).status == 404


async def test_the_kernels_own_events_have_an_endpoint_of_their_own() -> None:
    async with serving(answering(), limits=SessionLimits()) as service:
        url = f"ws://127.0.0.1:{service.port}/v1/duplex"
        async with connect(url, compression=None) as socket:
            await socket.send(update(extra_body={"auto_response": True}))
            created = json.loads(await socket.recv())
            await socket.send(append(1_000))
            said = [created]
            while said[-1]["type"] != "response.done":
                said.append(json.loads(await socket.recv()))
            assert [e["server_event_seq"] for e in said[1:]] == list(range(1, len(said)))
            deltas = [e for e in said if e["type"] == "response.output_audio.delta"]
            assert "".join(e["transcript"] for e in deltas) == said[-1]["item"]["text"]
            session_id = created["session"]["fence"]["session_id"]
            async with service.dial() as other:  # another dialect: not the same session
                await other.send(
                    client(
                        "session.resume",
                        session_id=session_id,
                        resume_token=created["resume_token"],
                    )
                )
                refused = json.loads(await other.recv())
                assert refused["error"]["code"] == "session_resume_expired"
            await socket.send(client("session.close"))

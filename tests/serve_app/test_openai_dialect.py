"""The OpenAI dialect over real sockets, with the scripted model: what a stock client relies on."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from session.config import SessionLimits
from tests.fakes.server import Service, hear, serving, until
from tests.fakes.stages import answering
from tests.fakes.wire import client
from tests.support import judged_wire

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "look_up",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def tone(seconds: float, level: float = 0.5, rate_hz: int = 24_000) -> str:
    """Return sound that the tests' detector takes for speech, as base64."""
    samples = np.sin(np.arange(int(seconds * rate_hz)) * 0.05) * level * 32_767
    return base64.b64encode(samples.astype("<i2").tobytes()).decode()


def hush(seconds: float) -> str:
    """Return silence."""
    return tone(seconds, 0.0)


@asynccontextmanager
async def dialled(
    service: Service, **session: Any
) -> AsyncIterator[tuple[ClientConnection, dict[str, Any]]]:
    """Connect as a stock client does; with settings, update the session first."""
    async with service.dial("model=gpt-realtime") as line:
        created = await hear(line)
        assert created["type"] == "session.created"
        if session:
            await line.send(client("session.update", session={"type": "realtime", **session}))
            created = await hear(line)
            assert created["type"] == "session.updated"
        yield line, created["session"]


def kinds(events: list[dict[str, Any]]) -> list[str]:
    """Return the types, each repetition once."""
    found: list[str] = []
    for event in events:
        if not found or found[-1] != event["type"]:
            found.append(event["type"])
    return found


async def write(line: ClientConnection, text: str, **response: Any) -> None:
    """Create a text item and ask for an answer."""
    part = {"type": "input_text", "text": text}
    item = {"type": "message", "role": "user", "content": [part]}
    await line.send(client("conversation.item.create", item=item))
    await line.send(client("response.create", response=response))


async def speak(line: ClientConnection, seconds: float = 1.0) -> None:
    """Say something, and be silent for long enough."""
    await line.send(client("input_audio_buffer.append", audio=tone(seconds)))
    await line.send(client("input_audio_buffer.append", audio=hush(1.0)))


# --- the session -------------------------------------------------------------------------------


async def test_the_session_is_told_before_the_client_has_said_anything() -> None:
    async with serving(answering()) as service, dialled(service) as (_, session):
        assert service.directory.open_sessions == 0, "nothing is held for a client that is silent"
        assert session["type"] == "realtime"
        assert session["output_modalities"] == ["audio"]
        assert session["audio"]["input"]["format"] == {"type": "audio/pcm", "rate": 24000}
        detection = session["audio"]["input"]["turn_detection"]
        assert (detection["type"], detection["create_response"]) == ("server_vad", True)
        assert session["model"] == service.directory.descriptor.model_id


async def test_the_whole_schema_is_taken_and_echoed() -> None:
    given: dict[str, Any] = {
        "model": "gpt-realtime",
        "instructions": "Be brief.",
        "output_modalities": ["text"],
        "max_output_tokens": 77,
        "tracing": {"workflow_name": "w"},
        "truncation": {"type": "retention_ratio", "retention_ratio": 0.5},
        "include": ["item.input_audio_transcription.logprobs"],
        "prompt": {"id": "pmpt_1", "version": "2"},
        "tools": [
            {**WEATHER, "meta": {"of": "nobody"}},
            {"type": "mcp", "server_label": "a", "server_url": "https://b.invalid"},
        ],
        "tool_choice": "auto",
        "audio": {
            "input": {
                "format": {"type": "audio/pcmu"},
                "noise_reduction": {"type": "near_field"},
                "transcription": {"model": "whisper-1", "language": "en"},
                "turn_detection": {"type": "semantic_vad", "eagerness": "low"},
            },
            "output": {"format": {"type": "audio/pcma"}, "voice": "marin", "speed": 1.25},
        },
    }
    async with serving(answering()) as service, dialled(service, **given) as (line, session):
        own = {name: session[name] for name in given if name not in ("model", "audio")}
        own["tools"][0]["meta"] = {"of": "nobody"}  # taken, and not said back
        assert own == {name: given[name] for name in own}
        assert session["model"] == service.directory.descriptor.model_id
        heard, spoken = session["audio"]["input"], session["audio"]["output"]
        assert heard["noise_reduction"] == {"type": "near_field"}
        assert heard["transcription"] == {"model": "whisper-1", "language": "en"}
        assert heard["turn_detection"]["eagerness"] == "low"
        assert spoken == given["audio"]["output"]
        # Partial: what is not named stays, however deep.
        more: dict[str, Any] = {
            "transcription": {"prompt": "names"},
            "turn_detection": {"interrupt_response": False},
        }
        update = {"type": "realtime", "audio": {"input": more}}
        await line.send(client("session.update", session=update))
        heard = (await hear(line))["session"]["audio"]["input"]
        assert heard["transcription"] == {
            "model": "whisper-1",
            "language": "en",
            "prompt": "names",
        }
        assert heard["turn_detection"]["eagerness"] == "low"
        assert not heard["turn_detection"]["interrupt_response"]
        await line.send(
            client(
                "session.update",
                session={"type": "realtime", "audio": {"input": {"transcription": None}}},
            )
        )
        assert (await hear(line))["session"]["audio"]["input"]["transcription"] is None


@pytest.mark.parametrize(
    ("session", "code", "param"),
    [
        ({"modalities": ["text"]}, "unknown_parameter", "session.modalities"),
        ({"turn_detection": None}, "unknown_parameter", "session.turn_detection"),
        ({"type": "transcription"}, "invalid_value", "session.type"),
        (
            {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 16_000}}}},
            "invalid_value",
            "session.audio.input.format.rate",
        ),
        (
            {"audio": {"input": {"format": "pcm16"}}},
            "invalid_type",
            "session.audio.input.format",
        ),
        (
            {"output_modalities": ["video"]},
            "unsupported_response_modality",
            "session.output_modalities",
        ),
        (
            {"audio": {"input": {"turn_detection": {"threshold": 2}}}},
            "invalid_value",
            "session.audio.input.turn_detection.threshold",
        ),
    ],
)
async def test_what_can_not_be_meant_is_one_error(
    session: dict[str, Any], code: str, param: str
) -> None:
    async with serving(answering()) as service, dialled(service) as (line, _):
        await line.send(client("session.update", event_id="mine", session=session))
        error = (await hear(line))["error"]
        assert (error["code"], error["param"], error["event_id"]) == (code, param, "mine")
        await line.send(client("session.update", session={"type": "realtime"}))
        assert (await hear(line))["type"] == "session.updated"


async def test_a_voice_that_nobody_has_is_no_error() -> None:
    audio = {"output": {"voice": {"id": "voice_1"}}}
    async with serving(answering()) as service, dialled(service, audio=audio) as (line, session):
        assert session["audio"]["output"]["voice"] == {"id": "voice_1"}
        await write(line, "hello")
        assert (await until(line, "response.done"))[-1]["response"]["status"] == "completed"


async def test_a_client_that_never_configures_is_served_all_the_same() -> None:
    async with serving(answering()) as service, dialled(service) as (line, _):
        await write(line, "hello")
        said = await until(line, "response.done")
        assert "session.updated" not in kinds(said)


async def test_no_place_is_an_error_and_a_code_to_try_again() -> None:
    async with serving(answering(max_sessions=0)) as service, dialled(service) as (line, _):
        await line.send(client("session.update", session={"type": "realtime"}))
        assert (await hear(line))["error"]["code"] == "resource_exhausted"
        with pytest.raises(ConnectionClosed) as closed:
            await line.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1013


# --- turns -------------------------------------------------------------------------------------


async def test_a_spoken_turn_in_the_order_that_clients_expect() -> None:
    audio = {"input": {"transcription": {"model": "whisper-1"}}}
    async with serving(answering()) as service, dialled(service, audio=audio) as (line, _):
        await speak(line)
        events = await until(line, "response.done")
        order = [kind for kind in kinds(events) if "transcription" not in kind]
        assert order[:7] == [
            "input_audio_buffer.speech_started",
            "input_audio_buffer.speech_stopped",
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
            "response.created",
            "rate_limits.updated",
        ]
        assert order[7:10] == [
            "response.output_item.added",
            "conversation.item.added",
            "response.content_part.added",
        ]
        assert order[-6:] == [
            "response.output_audio.done",
            "response.output_audio_transcript.done",
            "response.content_part.done",
            "response.output_item.done",
            "conversation.item.done",
            "response.done",
        ]
        response = events[-1]["response"]
        assert response["status_details"] is None
        usage = response["usage"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        assert usage["input_token_details"]["audio_tokens"] >= 10
        assert usage["output_token_details"]["audio_tokens"] > 0
        sent = b"".join(
            base64.b64decode(each["delta"])
            for each in events
            if each["type"] == "response.output_audio.delta"
        )
        assert len(sent) % 2 == 0
        text = "".join(
            each["delta"]
            for each in events
            if each["type"] == "response.output_audio_transcript.delta"
        )
        assert text == response["output"][0]["content"][0]["transcript"]


async def test_an_answer_may_sound_otherwise_than_its_session() -> None:
    own = {"output": {"format": {"type": "audio/pcmu"}}}
    async with serving(answering()) as service, dialled(service) as (line, _):
        await write(line, "hello", audio=own)
        events = await until(line, "response.done")
        assert events[-1]["response"]["audio"]["output"]["format"] == {"type": "audio/pcmu"}
        item_id = events[-1]["response"]["output"][0]["id"]
        cut = {"item_id": item_id, "content_index": 0, "audio_end_ms": 300}
        await line.send(client("conversation.item.truncate", **cut))
        assert (await until(line, "conversation.item.truncated"))[-1]["audio_end_ms"] == 300


async def test_an_interruption_ends_the_answer_as_turn_detected() -> None:
    async with (
        serving(answering(sentences=20, chunk_delay_ms=50)) as service,
        dialled(service) as (line, _),
    ):
        await speak(line)
        first = (await until(line, "response.output_audio.delta"))[-1]
        await line.send(client("input_audio_buffer.append", audio=tone(0.5)))
        cut = await until(line, "response.done")
        assert "input_audio_buffer.speech_started" in kinds(cut)
        response = cut[-1]["response"]
        assert response["id"] == first["response_id"]
        assert response["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
        await line.send(
            client(
                "conversation.item.truncate",
                item_id=first["item_id"],
                content_index=0,
                audio_end_ms=40,
            )
        )
        assert (await until(line, "conversation.item.truncated"))[-1]["audio_end_ms"] == 40


async def test_manual_turns() -> None:
    manual = {"input": {"turn_detection": None}}
    async with serving(answering()) as service, dialled(service, audio=manual) as (line, _):
        await line.send(client("input_audio_buffer.commit"))
        assert (await hear(line))["error"]["code"] == "input_audio_buffer_commit_empty"
        await line.send(client("input_audio_buffer.append", audio=hush(0.5)))
        await line.send(client("input_audio_buffer.commit"))
        events = await until(line, "conversation.item.done")
        assert kinds(events) == [
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
        ]
        await line.send(client("response.create"))
        assert (await until(line, "response.done"))[-1]["response"]["status"] == "completed"
        await line.send(client("input_audio_buffer.append", audio=tone(0.5)))
        await line.send(client("input_audio_buffer.clear"))
        assert (await hear(line))["type"] == "input_audio_buffer.cleared"


async def test_errors_have_the_codes_that_clients_look_for() -> None:
    async with (
        serving(answering(sentences=20, chunk_delay_ms=50)) as service,
        dialled(service) as (line, _),
    ):
        await line.send(client("response.cancel", event_id="c1"))
        error = (await hear(line))["error"]
        assert (error["code"], error["event_id"]) == ("response_cancel_not_active", "c1")
        assert error["message"].startswith("Cancellation failed")
        for verb in ("retrieve", "delete"):
            await line.send(client(f"conversation.item.{verb}", item_id="item_none"))
            assert (await hear(line))["error"]["code"] == f"item_{verb}_invalid_item_id"
        await line.send(client("conversation.item.truncate", item_id="item_none"))
        error = (await hear(line))["error"]
        assert (error["code"], error["param"]) == ("missing_required_parameter", "content_index")
        await line.send(
            client(
                "conversation.item.truncate",
                item_id="item_none",
                content_index=0,
                audio_end_ms=1234.5,
            )
        )
        error = (await hear(line))["error"]
        assert (error["code"], error["param"]) == ("invalid_type", "audio_end_ms")
        await write(line, "go on")
        started = (await until(line, "response.output_audio.delta"))[-1]
        await line.send(client("response.create"))
        error = (await until(line, "error"))[-1]["error"]
        assert error["code"] == "conversation_already_has_active_response"
        await line.send(
            client(
                "conversation.item.truncate",
                item_id=started["item_id"],
                content_index=0,
                audio_end_ms=3_600_000,
            )
        )
        error = (await until(line, "error"))[-1]["error"]
        assert error["code"] == "invalid_value"
        assert "is already shorter than 3600000ms" in error["message"]
        await line.send(client("response.cancel"))
        done = (await until(line, "response.done"))[-1]["response"]
        assert done["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}


# --- answers -----------------------------------------------------------------------------------


async def test_a_text_answer_outside_the_conversation_with_metadata() -> None:
    async with serving(answering()) as service, dialled(service) as (line, _):
        await write(
            line,
            "hello",
            output_modalities=["text"],
            conversation="none",
            metadata={"topic": "a", "n": "1"},
        )
        events = await until(line, "response.done")
        created = next(e for e in events if e["type"] == "response.created")["response"]
        assert (created["conversation_id"], created["metadata"]) == (None, {"topic": "a", "n": "1"})
        assert created["output_modalities"] == ["text"]
        done = events[-1]["response"]
        assert done["metadata"] == {"topic": "a", "n": "1"}
        text = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
        assert text
        assert done["output"][0]["content"] == [{"type": "output_text", "text": text}]
        after = events[events.index(next(e for e in events if e["type"] == "response.created")) :]
        assert not any(e["type"].startswith("conversation.item") for e in after)


async def test_a_tool_is_called_and_its_output_is_spoken() -> None:
    async with (
        serving(answering(sentence="It is {said}.")) as service,
        dialled(service, tools=[WEATHER]) as (line, _),
    ):
        await write(line, 'call look_up {"city": "Oslo"}')
        events = await until(line, "response.done")
        call = next(e for e in events if e["type"] == "response.function_call_arguments.done")
        assert (call["name"], json.loads(call["arguments"])) == ("look_up", {"city": "Oslo"})
        assert [item["type"] for item in events[-1]["response"]["output"]] == ["function_call"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "24 C"}
        await line.send(client("conversation.item.create", item=output))
        await line.send(client("response.create"))
        done = (await until(line, "response.done"))[-1]["response"]
        assert "24 C" in done["output"][0]["content"][0]["transcript"]


# --- beyond the standard -----------------------------------------------------------------------


async def test_other_events_come_only_to_a_client_that_uses_them() -> None:
    async with serving(answering()) as service, dialled(service) as (line, _):
        await write(line, "hello")
        plain = await until(line, "response.done")
        assert "response.speak" not in kinds(plain)
        await line.send(client("session.heartbeat"))
        assert (await hear(line))["type"] == "session.heartbeat_ack"
        await write(line, "hello")
        assert "response.speak" in kinds(await until(line, "response.done"))
        judged_wire.FAULTS.clear()  # what came now is outside the published types


@pytest.mark.parametrize("name", ["session.resume", "transcription_session.update", "nonsense"])
async def test_an_event_of_nobody_is_one_error(name: str) -> None:
    async with serving(answering()) as service, dialled(service) as (line, _):
        await line.send(client(name))
        error = (await hear(line))["error"]
        assert (error["code"], error["param"]) == ("invalid_value", "type")


async def test_a_session_that_lasts_too_long_ends_with_a_word() -> None:
    limits = SessionLimits(disconnect_grace_s=0, max_session_s=0.4, expiring_notice_s=0.1)
    async with serving(answering(), limits=limits) as service, dialled(service) as (line, _):
        await line.send(client("session.update", session={"type": "realtime"}))
        assert (await until(line, "error"))[-1]["error"]["code"] == "session_expired"
        with pytest.raises(ConnectionClosed) as closed:
            await line.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001


async def test_an_idle_session_ends_with_its_own_word() -> None:
    limits = SessionLimits(disconnect_grace_s=0, idle_ttl_s=0.3, reaper_interval_s=0.05)
    async with serving(answering(), limits=limits) as service, dialled(service) as (line, _):
        await line.send(client("session.update", session={"type": "realtime"}))
        error = (await until(line, "error"))[-1]["error"]
        assert error["code"] == "session_expired"
        assert error["message"].startswith("Nothing has happened")


async def test_a_voice_for_one_answer_is_had_or_passed_over() -> None:
    async with serving(answering()) as service, dialled(service) as (line, _):
        for voice in ("high", "marin"):
            await write(line, "hello", audio={"output": {"voice": voice}})
            done = (await until(line, "response.done"))[-1]["response"]
            assert done["status"] == "completed"


async def test_the_model_can_be_asked_without_input() -> None:
    async with serving(answering()) as service, dialled(service) as (line, _):
        await line.send(client("response.create", response={"instructions": "Greet the user."}))
        done = (await until(line, "response.done"))[-1]["response"]
        assert (done["status"], len(done["output"])) == ("completed", 1)


# --- what is asked for elsewhere -----------------------------------------------------------------


@pytest.mark.parametrize("query", ["intent=transcription", "model=m&call_id=rtc_1"])
async def test_what_other_services_offer_is_refused_with_words(query: str) -> None:
    async with serving(answering()) as service, service.dial(query) as line:
        error = (await hear(line))["error"]
        assert (error["code"], error["param"] in query) == ("unsupported", True)
        with pytest.raises(ConnectionClosed):
            await line.recv()


async def test_a_wrong_path_says_where_the_sockets_are() -> None:
    async with serving(answering()) as service:
        for path in ("realtime", "v1/realtime/", "v1/nothing/at/all"):
            with pytest.raises(InvalidStatus) as refused:
                await connect(f"ws://127.0.0.1:{service.port}/{path}")
            response = refused.value.response
            assert response.status_code == 404
            assert b"ends in /v1" in (response.body or b"")
        page = await service.get("/v1/realtime")
        assert (page.status, page.body["error"]["code"]) == (426, "upgrade_required")

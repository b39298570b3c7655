"""One socket: the reader listens, the writer writes, and the session hears of every end."""

import asyncio
import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from serve_app.gateway.connection import STUCK_AFTER_S
from serve_app.gateway.socket_query import Query, read_query
from serve_app.sessions.session_actor import READER_PATIENCE_S
from session.errors import StageFailed
from tests.fakes.line import NO_RESUME, dialled
from tests.fakes.rig import settle
from tests.fakes.stages import ScriptedDirectory, answering
from tests.fakes.wire import append, client, update


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


# --- the first event ----------------------------------------------------------------------------


async def test_session_update_opens_with_its_settings() -> None:
    async with dialled(ScriptedDirectory()) as line:
        line.socket.say(update(voice="low", event_id="c-1"))
        created, updated = await line.hear(), await line.hear()
        assert kinds([created, updated]) == ["session.created", "session.updated"]
        assert created["session"]["voice"] == "low"


async def test_a_model_in_the_url_opens_at_once() -> None:
    query = Query("scripted", autostarts=True)
    async with dialled(ScriptedDirectory(), query=query) as line:
        assert (await line.hear())["type"] == "session.created"


@pytest.mark.parametrize(("model", "autostarts"), [(None, True), ("scripted", False)])
async def test_any_other_event_opens_with_defaults_and_is_done(
    model: str | None,
    autostarts: bool,
) -> None:
    query = Query(model, autostarts=autostarts)
    async with dialled(ScriptedDirectory(), query=query) as line:
        await settle()
        assert len(line.sessions) == 0
        line.socket.say(client("session.heartbeat"))
        said = await line.until("session.heartbeat_ack")
        assert kinds(said) == ["session.created", "session.updated", "session.heartbeat_ack"]


async def test_what_can_not_begin_a_session_gets_an_error_and_another_try() -> None:
    async with dialled(ScriptedDirectory()) as line:
        line.socket.say("{")
        line.socket.say(b"\x00")
        line.socket.say(client("session.resume", session_id="s", resume_token="t", event_id="r"))
        line.socket.say(client("session.event_ack", server_event_seq=1))
        line.socket.say(update(turn_detection=None, overlap_policy="barge_in_on_speech"))
        errors = [await line.hear() for _ in range(5)]
        assert kinds(errors) == ["error"] * 5
        codes = [error["error"]["code"] for error in errors]
        assert codes[2:4] == ["session_resume_expired", "illegal_now"]
        assert errors[2]["error"]["event_id"] == "r"
        line.socket.say(update())
        assert (await line.hear())["type"] == "session.created"
        assert len(line.sessions) == 1


async def test_a_client_that_says_nothing_is_told_so() -> None:
    async with dialled(ScriptedDirectory()) as line:
        await settle()
        line.clock.advance(line.limits.config_timeout_s)
        error = await line.hear()
        assert error["error"]["code"] == "config_timeout"
        assert await line.socket.wait_closed() == (1000, "config_timeout")
        await line.ended()


async def test_a_session_does_not_begin_on_a_socket_that_is_being_closed() -> None:
    async with dialled(ScriptedDirectory()) as line:
        line.socket.stop_reading()
        await settle()
        line.clock.advance(line.limits.config_timeout_s)
        line.socket.say(update())
        await settle()
        assert len(line.sessions) == 0
        line.socket.read_again()
        assert await line.socket.wait_closed() == (1000, "config_timeout")


async def test_the_time_limit_ends_with_the_first_event() -> None:
    async with dialled(ScriptedDirectory()) as line:
        line.socket.say(update())
        await line.until("session.updated")
        line.clock.advance(10 * line.limits.config_timeout_s)
        line.socket.say(client("session.heartbeat"))
        assert (await line.hear())["type"] == "session.heartbeat_ack"


async def test_closing_before_anything_began_opens_nothing() -> None:
    async with dialled(ScriptedDirectory()) as line:
        line.socket.say(client("session.close", reason="changed my mind"))
        assert await line.socket.wait_closed() == (1000, "changed my mind")
        assert len(line.sessions) == 0


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, Query(None, autostarts=True)),
        ({"model": "m"}, Query("m", autostarts=True)),
        ({"model": "m", "autostart": "0"}, Query("m", autostarts=False)),
        ({"autostart": "False"}, Query(None, autostarts=False)),
        ({"autostart": "yes", "resume": "1"}, Query(None, autostarts=False)),
    ],
)
def test_the_url_says_how_to_begin(params: dict[str, str], expected: Query) -> None:
    assert read_query(params) == expected


# --- the writer ---------------------------------------------------------------------------------


async def test_queued_speech_of_a_cancelled_answer_is_not_sent_but_its_end_is() -> None:
    async with dialled(answering()) as line:
        line.socket.say(update(extra_body={"auto_response": True}))
        await line.until("session.updated")
        line.socket.stop_reading()
        line.socket.say(append(1_000))
        await line.directory.knobs.wait_called("chunk")
        await settle()
        line.socket.say(client("barge_in"))
        await line.directory.knobs.wait_called("cancel")
        line.socket.read_again()
        said = kinds(await line.until("rate_limits.updated"))
        # response.created was in the socket already; every queued delta was dropped.
        assert "response.audio.delta" not in said
        assert said.count("response.created") == said.count("response.done") == 1


async def test_deltas_that_were_sent_are_what_the_transcript_says() -> None:
    async with dialled(answering()) as line:
        line.socket.say(update(extra_body={"auto_response": True}))
        line.socket.say(append(1_000))
        said = await line.until("rate_limits.updated")
        deltas = [e["delta"] for e in said if e["type"] == "response.audio_transcript.delta"]
        [done] = [e for e in said if e["type"] == "response.audio_transcript.done"]
        assert "".join(deltas) == done["transcript"] == "Answer 1 to sess_1, part 1 of 1."


async def test_each_answer_is_encoded_as_one_stream() -> None:
    async with dialled(answering()) as line:
        line.socket.say(update(output_audio_format="g711_ulaw", extra_body={"auto_response": True}))
        line.socket.say(append(1_000))
        said = await line.until("rate_limits.updated")
        sound = [e["delta"] for e in said if e["type"] == "response.audio.delta"]
        assert sum(len(base64.b64decode(delta)) for delta in sound) == 600 * 8


async def test_a_reason_that_is_too_long_for_a_close_frame_is_cut() -> None:
    directory = ScriptedDirectory()
    directory.knobs.fail_next("open", StageFailed("no", code="ü" * 100))
    async with dialled(directory) as line:
        line.socket.say(update())
        assert await line.socket.wait_closed() == (1011, "ü" * 61)


# --- however it ends ----------------------------------------------------------------------------


@pytest.mark.parametrize("held", ["open", "append", "speak", "chunk", "close"])
@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_the_slot_is_free_after_every_end(held: str, is_cancelled: bool) -> None:
    """A proxy either reports the disconnect or cancels the handler."""
    directory = answering()
    directory.knobs.hold(held)
    async with dialled(directory) as line:
        assert line.task is not None
        line.socket.say(update(extra_body={"auto_response": True}))
        line.socket.say(append(1_000))
        if held == "close":
            line.socket.say(client("session.close"))
        await directory.knobs.wait_called(held)
        if is_cancelled:
            line.task.cancel()
        else:
            line.socket.vanish()
        await asyncio.wait({line.task})
        assert line.task.cancelled() == is_cancelled
        directory.knobs.release(held)
        await line.ended()


async def test_a_client_that_leaves_before_anything_began() -> None:
    async with dialled(ScriptedDirectory()) as line:
        await settle()
        line.socket.vanish()
        await line.ended()


async def test_a_client_that_vanishes_while_it_is_sent_to() -> None:
    async with dialled(answering()) as line:
        line.socket.say(update(extra_body={"auto_response": True}))
        await line.until("session.updated")
        line.socket.stop_reading()
        line.socket.say(append(1_000))
        await line.directory.knobs.wait_called("chunk")
        line.socket.vanish()
        await line.ended()


async def test_a_slow_reader_is_closed_with_try_again_when_it_reads_at_last() -> None:
    limits = replace(NO_RESUME, max_output_bytes_per_session=8_192)
    async with dialled(answering(), limits=limits) as line:
        line.socket.say(update(extra_body={"auto_response": True}))
        await line.until("session.updated")
        line.socket.stop_reading()
        line.socket.say(append(1_000))
        await line.directory.knobs.wait_called("chunk")
        await settle()
        line.clock.advance(READER_PATIENCE_S)
        while len(line.sessions):
            await settle()
        line.socket.read_again()
        assert await line.socket.wait_closed() == (1013, "slow_reader")
        said = [json.loads(text)["type"] for text in line.socket.heard()]
        assert said.count("response.created") == said.count("response.done")
        assert said[-1] == "session.expired"


async def test_a_reader_that_never_reads_again_is_left() -> None:
    limits = replace(NO_RESUME, max_output_bytes_per_session=8_192)
    async with dialled(answering(), limits=limits) as line:
        line.socket.say(update(extra_body={"auto_response": True}))
        await line.until("session.updated")
        line.socket.stop_reading()
        line.socket.say(append(1_000))
        await line.directory.knobs.wait_called("chunk")
        await settle()
        line.clock.advance(READER_PATIENCE_S)
        while len(line.sessions):
            await settle()
        assert line.task is not None
        assert not line.task.done()
        line.clock.advance(STUCK_AFTER_S)
        await line.ended()
        assert line.socket.closed is None

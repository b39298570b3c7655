"""Faults that users of such servers have reported, tried on the openai wire of the gateway.

docs/reports.md says which report is which. Every event is judged besides (judged_wire).
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.types.websocket_reconnection import ReconnectingEvent
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from session.config import SessionLimits
from tests.fakes.server import Service, hear, serving, until
from tests.fakes.stages import ScriptedDirectory, answering
from tests.fakes.wire import append_bytes, client

Json = dict[str, Any]
BYTES_A_MS = 48
"""24 kHz PCM16."""


@asynccontextmanager
async def dialled(directory: ScriptedDirectory) -> AsyncIterator[tuple[Service, ClientConnection]]:
    """Open a socket as a stock client does, and read the greeting."""
    async with serving(directory) as service, service.dial("model=any") as line:
        assert (await hear(line))["type"] == "session.created"
        yield service, line


async def ask(line: ClientConnection, text: str = "Hello?", **response: Any) -> None:
    """Type a message and want an answer."""
    content = [{"type": "input_text", "text": text}]
    item = {"type": "message", "role": "user", "content": content}
    await line.send(client("conversation.item.create", item=item))
    await line.send(client("response.create", response=response))


async def updated(line: ClientConnection, **session: Any) -> Json:
    """Change settings; return the session as it is then."""
    await line.send(client("session.update", session={"type": "realtime", **session}))
    changed: Json = (await until(line, "session.updated"))[-1]["session"]
    return changed


async def refused(line: ClientConnection, event: str) -> Json:
    """Send what will be refused; return the error."""
    await line.send(event)
    error: Json = (await until(line, "error"))[-1]["error"]
    return error


def sound_of(events: list[Json]) -> bytes:
    """Return the sound in some events."""
    deltas = (e["delta"] for e in events if e["type"] == "response.output_audio.delta")
    return b"".join(base64.b64decode(delta) for delta in deltas)


async def to_the_end(line: ClientConnection) -> tuple[list[Json], int | None]:
    """Read until the server closes; return all that was read, and the code."""
    said = []
    with suppress(ConnectionClosed):
        while True:
            said.append(await hear(line))
    return said, line.close_code


async def test_a_client_that_listens_late_finds_its_session() -> None:
    async with serving(answering()) as service, service.dial("model=any") as line:
        await asyncio.sleep(0.1)  # what is tried is lateness itself
        assert (await hear(line))["type"] == "session.created"


async def test_the_second_of_two_requests_is_refused_and_the_first_answered() -> None:
    directory = answering()
    directory.knobs.hold("chunk")
    async with dialled(directory) as (_, line):
        await ask(line)
        await directory.knobs.wait_called("chunk")
        error = await refused(line, client("response.create", event_id="again"))
        assert error["code"] == "conversation_already_has_active_response"
        assert error["event_id"] == "again"
        directory.knobs.release("chunk")
        assert (await until(line, "response.done"))[-1]["response"]["status"] == "completed"


async def test_the_sound_is_as_long_as_it_is_and_of_whole_samples() -> None:
    async with dialled(answering(sentence_ms=613, chunk_ms=85)) as (_, line):
        await ask(line)
        said = await until(line, "response.done")
        assert len(sound_of(said)) == 613 * BYTES_A_MS


@pytest.mark.parametrize("rate", [16_000.5, 0, -1, "24000", 48_000, True])
async def test_a_strange_rate_is_one_error_and_changes_nothing(rate: object) -> None:
    async with dialled(answering()) as (_, line):
        before = (await updated(line))["audio"]
        wrong = {"input": {"format": {"type": "audio/pcm", "rate": rate}}}
        session = {"type": "realtime", "audio": wrong}
        error = await refused(line, client("session.update", session=session))
        assert error["type"] == "invalid_request_error"
        assert "rate" in error["param"]
        assert (await updated(line))["audio"] == before


@pytest.mark.parametrize("form", ["pcm16", "g711", {"type": "audio/mp3"}, {"type": "g711_ulaw"}])
async def test_a_strange_format_is_told_and_not_taken_for_another(form: object) -> None:
    async with dialled(answering()) as (_, line):
        session = {"type": "realtime", "audio": {"output": {"format": form}}}
        error = await refused(line, client("session.update", session=session))
        assert error["type"] == "invalid_request_error"
        format_now = (await updated(line))["audio"]["output"]["format"]
        assert format_now == {"type": "audio/pcm", "rate": 24_000}


async def test_one_word_about_detection_does_not_switch_it_off() -> None:
    async with dialled(answering()) as (_, line):
        before = (await updated(line))["audio"]["input"]["turn_detection"]
        detection = {"threshold": 0.75}
        session = await updated(line, audio={"input": {"turn_detection": detection}})
        assert session["audio"]["input"]["turn_detection"] == {**before, "threshold": 0.75}


async def test_a_refused_update_leaves_the_old_detection_in_force() -> None:
    async with dialled(answering()) as (_, line):
        before = (await updated(line))["audio"]["input"]["turn_detection"]
        wrong = {"type": "server_vad", "threshold": 7, "silence_duration_ms": 100}
        session = {"type": "realtime", "audio": {"input": {"turn_detection": wrong}}}
        await refused(line, client("session.update", session=session))
        assert (await updated(line))["audio"]["input"]["turn_detection"] == before


async def test_a_tool_may_say_more_of_itself() -> None:
    tool = {"type": "function", "name": "f", "parameters": {}, "meta": {"origin": "here"}}
    async with dialled(answering()) as (_, line):
        await line.send(client("session.update", session={"type": "realtime", "tools": [tool]}))
        said = await until(line, "session.updated")
        assert [event["type"] for event in said] == ["session.updated"]


@pytest.mark.parametrize("voice", ["alloy", {"id": "voice_1"}])
async def test_a_voice_may_be_a_name_or_an_object(voice: object) -> None:
    async with dialled(answering()) as (_, line):
        session = await updated(line, audio={"output": {"voice": voice}})
        assert session["audio"]["output"]["voice"] is not None
        await ask(line)
        done = (await until(line, "response.done"))[-1]["response"]
        assert isinstance(done.get("audio", {}).get("output", {}).get("voice", ""), str)


CUT = {"item_id": "item_1", "content_index": 0, "audio_end_ms": 100}


@pytest.mark.parametrize("missing", CUT)
async def test_a_cut_names_what_it_lacks(missing: str) -> None:
    fields = {name: value for name, value in CUT.items() if name != missing}
    async with dialled(answering()) as (_, line):
        error = await refused(line, client("conversation.item.truncate", **fields))
        assert (error["code"], error["param"]) == ("missing_required_parameter", missing)


async def test_a_cut_within_a_millisecond_is_of_the_wrong_type() -> None:
    async with dialled(answering()) as (_, line):
        cut = {**CUT, "audio_end_ms": 1234.5}
        error = await refused(line, client("conversation.item.truncate", **cut))
        assert (error["code"], error["param"]) == ("invalid_type", "audio_end_ms")


async def test_a_cut_beyond_the_end_says_how_long_the_sound_is() -> None:
    async with dialled(answering(sentence_ms=600)) as (_, line):
        await ask(line)
        (item,) = (await until(line, "response.done"))[-1]["response"]["output"]
        cut = {**CUT, "item_id": item["id"]}
        error = await refused(
            line, client("conversation.item.truncate", **{**cut, "audio_end_ms": 601})
        )
        assert error["code"] == "invalid_value"
        assert error["message"] == "Audio content of 600ms is already shorter than 601ms"
        await line.send(client("conversation.item.truncate", **{**cut, "audio_end_ms": 600}))
        assert (await until(line, "conversation.item.truncated"))[-1]["audio_end_ms"] == 600


async def test_a_client_may_have_played_more_than_the_clock_says() -> None:
    """All that was sent at once may have been heard, whoever interrupted and when."""
    directory = answering(sentence_ms=600, chunk_ms=600, sentences=2)
    async with dialled(directory) as (_, line):
        await ask(line)
        await until(line, "response.output_audio.delta")
        directory.knobs.hold("chunk")
        await line.send(client("response.cancel"))
        (item,) = (await until(line, "response.done"))[-1]["response"]["output"]
        directory.knobs.release("chunk")
        cut = {**CUT, "item_id": item["id"], "audio_end_ms": 600}
        await line.send(client("conversation.item.truncate", **cut))
        assert (await until(line, "conversation.item.truncated"))[-1]["audio_end_ms"] == 600


async def test_a_user_s_item_has_nothing_to_cut() -> None:
    async with dialled(answering()) as (_, line):
        await ask(line)
        said = await until(line, "response.done")
        added = next(e for e in said if e["type"] == "conversation.item.added")
        cut = {**CUT, "item_id": added["item"]["id"]}
        error = await refused(line, client("conversation.item.truncate", **cut))
        assert error["message"].startswith("Only model output audio messages can be truncated")


async def test_letters_of_many_bytes_are_never_torn() -> None:
    sentence = "Grüße 👩‍👩‍👧‍👦 und 漢字 🎉."
    async with dialled(answering(sentence=sentence)) as (_, line):
        await ask(line)
        said = await until(line, "response.done")
        deltas = [e["delta"] for e in said if e["type"].endswith("audio_transcript.delta")]
        (done,) = (e for e in said if e["type"].endswith("audio_transcript.done"))
        assert "".join(deltas) == done["transcript"] == sentence
        assert "\ufffd" not in json.dumps(said, ensure_ascii=False)


async def test_a_client_hears_nothing_that_it_does_not_know() -> None:
    async with dialled(answering(speak_at_units=[1, 2])) as (_, line):
        for _ in range(20):
            await line.send(append_bytes(bytes(100 * BYTES_A_MS)))
        await ask(line)
        kinds = {event["type"] for event in await until(line, "response.done")}
        known = ("session.", "conversation.item.", "input_audio_buffer.", "response.", "rate_")
        own = {"response.listen", "response.speak", "session.heartbeat"}
        assert {kind for kind in kinds if not kind.startswith(known)} == set()
        assert kinds & own == set()


async def test_an_odd_byte_waits_for_its_other_half() -> None:
    async with dialled(answering()) as (_, line):
        await updated(line, audio={"input": {"turn_detection": None}})
        await line.send(append_bytes(bytes(3)))
        await line.send(append_bytes(bytes(1)))
        await line.send(append_bytes(bytes(200 * BYTES_A_MS)))
        await line.send(client("input_audio_buffer.commit"))
        said = await until(line, "input_audio_buffer.committed")
        assert "error" not in {event["type"] for event in said}


async def test_commits_of_nothing_are_errors_and_nothing_more() -> None:
    async with dialled(answering()) as (_, line):
        for _ in range(100):
            await line.send(client("input_audio_buffer.commit"))
        codes = {(await hear(line))["error"]["code"] for _ in range(100)}
        assert codes == {"input_audio_buffer_commit_empty"}
        await ask(line)
        assert (await until(line, "response.done"))[-1]["response"]["status"] == "completed"


async def test_instructions_and_sound_of_two_sessions_never_mix() -> None:
    directory = ScriptedDirectory(
        max_sessions=2, speak_at_units=range(1, 9), sentences=1, sentence="{instructions}."
    )
    async with serving(directory) as service, service.dial("") as one, service.dial("") as two:
        for line, name in ((one, "First"), (two, "Second")):
            await until(line, "session.created")
            await updated(line, instructions=name)
        for _ in range(3):
            for line in (one, two):
                await ask(line)
            for line, name in ((one, "First"), (two, "Second")):
                said = await until(line, "response.done")
                (done,) = (e for e in said if e["type"].endswith("audio_transcript.done"))
                assert done["transcript"] == f"{name}."


async def test_twenty_cancellations_in_a_row_and_sound_each_time() -> None:
    directory = answering(speak_at_units=range(1, 60), sentences=1)
    async with dialled(directory) as (_, line):
        for _ in range(20):
            directory.knobs.hold("chunk")
            await ask(line)
            await directory.knobs.wait_called("chunk")
            await line.send(client("response.cancel"))
            await directory.knobs.wait_called("cancel")
            directory.knobs.release("chunk")
            ended = (await until(line, "response.done"))[-1]["response"]
            assert ended["status"] == "cancelled"
        await ask(line)
        said = await until(line, "response.done")
        assert sound_of(said) != b""


async def test_an_answer_that_is_over_is_not_heard_in_the_next_session() -> None:
    directory = answering(speak_at_units=[1])
    directory.knobs.hold("chunk")
    async with serving(directory) as service:
        async with service.dial("") as line:
            await until(line, "session.created")
            await ask(line)
            await directory.knobs.wait_called("chunk")
        directory.knobs.release("chunk")
        await service.idle()
        async with service.dial("") as line:
            assert (await hear(line))["type"] == "session.created"
            await line.send(client("input_audio_buffer.clear"))
            assert (await hear(line))["type"] == "input_audio_buffer.cleared"


async def test_a_constant_that_is_no_json_is_refused() -> None:
    async with dialled(answering()) as (_, line):
        for constant in ("NaN", "Infinity", "-Infinity"):
            wrong = '{"type": "session.update", "session": {"type": "realtime", "speed": %s}}'
            error = await refused(line, wrong % constant)
            assert error["type"] == "invalid_request_error"


async def test_a_close_that_takes_long_keeps_nobody_out() -> None:
    directory = answering(max_sessions=2)
    async with serving(directory) as service:
        async with service.dial("") as line:
            await until(line, "session.created")
            await updated(line)
            directory.knobs.hold("close")
        await directory.knobs.wait_called("close")
        async with service.dial("") as line:
            assert (await hear(line))["type"] == "session.created"
            await ask(line)
            assert (await until(line, "response.done"))[-1]["response"]["status"] == "completed"
            directory.knobs.release("close")


async def test_a_full_service_says_so() -> None:
    directory = answering(max_sessions=1)
    async with serving(directory) as service, service.dial("") as one:
        await until(one, "session.created")
        await updated(one)
        async with service.dial("") as two:
            await two.send(client("input_audio_buffer.clear"))
            said, code = await to_the_end(two)
        errors = [event["error"]["type"] for event in said if event["type"] == "error"]
        assert (errors, code) == (["rate_limit_error"], 1013)


async def test_a_session_that_has_lasted_long_enough_ends_once() -> None:
    limits = SessionLimits(disconnect_grace_s=0, max_session_s=0.3)
    async with serving(answering(), limits=limits) as service, service.dial("") as line:
        await line.send(client("input_audio_buffer.clear"))
        said, code = await to_the_end(line)
        errors = [event["error"]["code"] for event in said if event["type"] == "error"]
        assert (errors, code) == (["session_expired"], 1001)


async def test_the_package_comes_back_after_the_longest_session() -> None:
    limits = SessionLimits(disconnect_grace_s=0, max_session_s=0.3)
    came_back: list[int] = []

    def on_reconnecting(event: ReconnectingEvent) -> None:
        came_back.append(event.close_code)

    async with serving(answering(), limits=limits) as service:
        url = f"http://127.0.0.1:{service.port}/v1"
        async with (
            AsyncOpenAI(base_url=url, api_key="none") as sdk,
            sdk.realtime.connect(
                model="any", on_reconnecting=on_reconnecting, initial_delay=0.01
            ) as line,
        ):
            await line.input_audio_buffer.clear()
            created = 0
            async for event in line:
                created += event.type == "session.created"
                if created == 2:
                    break
    assert came_back == [1001]

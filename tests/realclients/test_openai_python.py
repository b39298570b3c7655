"""`openai` in Python, unmodified, holds conversations with the service as it starts by default."""

import json
from typing import Any

import numpy as np
import pytest
import soxr
from openai import AsyncOpenAI, OpenAI

from serve_app.audio.g711 import ulaw_decode, ulaw_encode
from tests.realclients.sentences import RATE_HZ, said
from tests.support.openai_caller import Line, microphone_on, openai_line
from tests.support.openai_types import realtime_faults
from tests.support.realtime_log import RealtimeLog
from tests.support.speech import normalise, recognise

pytestmark = pytest.mark.clients

PHONE_HZ = 8_000
BY_HAND: dict[str, Any] = {"input": {"turn_detection": None}}
"""No voice detection: the client commits and asks."""


def transcript(response: dict[str, Any]) -> str:
    """Return what an answer says, in words or letters."""
    parts = [part for item in response["output"] for part in item.get("content") or []]
    return " ".join(part.get("transcript") or part.get("text") or "" for part in parts)


async def test_a_question_is_heard_written_down_and_answered_aloud(address: str) -> None:
    async with openai_line(address) as line:
        created = (await line.hear())["session"]
        assert created["audio"]["input"]["turn_detection"]["type"] == "server_vad"
        assert created["audio"]["input"]["format"] == {"type": "audio/pcm", "rate": 24_000}
        settings = await line.update(audio={"input": {"transcription": {"model": "whisper-1"}}})
        assert settings["audio"]["input"]["turn_detection"]["interrupt_response"] is True
        async with microphone_on(line) as microphone:
            await microphone.say(said("What is twelve times nine?"))
            response = await line.answer()
        assert response["status"] == "completed"
        heard = await words_of_the_user(line)
        assert "12 * 9" in normalise(heard["transcript"]).replace("times", "*")
        assert normalise(transcript(response)) == normalise(
            recognise(line.sound_of(response["id"]))
        )
        assert "108" in normalise(transcript(response))
        assert response["usage"]["total_tokens"] > 0
        kinds = [event["type"] for event in line.log.events]
        began = kinds.index("input_audio_buffer.speech_started")
        assert began < kinds.index("input_audio_buffer.committed") < kinds.index("response.created")


async def words_of_the_user(line: Line) -> dict[str, Any]:
    kind = "conversation.item.input_audio_transcription.completed"
    known = line.log.of(kind)
    return known[0] if known else await line.until(kind)


async def test_an_answer_is_interrupted_and_cut_at_what_was_heard(address: str) -> None:
    async with openai_line(address) as line:
        async with microphone_on(line) as microphone:
            await microphone.say(said("Count from one to one hundred."))
            first = await line.until("response.output_audio.delta")
            await microphone.say(said("Thank you, that is enough."))
            response = await line.answer()
        assert response["status"] == "cancelled"
        assert response["status_details"]["reason"] == "turn_detected"
        assert "100" not in normalise(transcript(response))
        kinds = [event["type"] for event in line.log.events]
        stop = kinds.index("input_audio_buffer.speech_started", kinds.index(first["type"]))
        sounds = [
            at
            for at, event in enumerate(line.log.events)
            if event["type"] == first["type"] and event["response_id"] == response["id"]
        ]
        assert max(sounds) < stop < kinds.index("response.done")
        await line.connection.conversation.item.truncate(
            item_id=first["item_id"], content_index=0, audio_end_ms=600
        )
        cut = await line.until("conversation.item.truncated")
        assert (cut["item_id"], cut["audio_end_ms"]) == (first["item_id"], 600)
        await line.connection.conversation.item.retrieve(item_id=first["item_id"])
        item = (await line.until("conversation.item.retrieved"))["item"]
        left = normalise(item["content"][0].get("transcript") or "").split()
        assert "4" not in left


async def test_an_answer_is_cancelled_and_only_once(address: str) -> None:
    async with openai_line(address) as line:
        await line.hear()
        await line.connection.response.cancel(event_id="too_early")
        error = (await line.until("error"))["error"]
        assert (error["code"], error["event_id"]) == ("response_cancel_not_active", "too_early")
        assert error["message"].startswith("Cancellation failed")
        await line.ask("Count from one to fifty.")
        await line.connection.response.create()
        await line.until("response.output_audio.delta")
        await line.connection.response.create(event_id="second")
        error = (await line.until("error"))["error"]
        code = "conversation_already_has_active_response"
        assert (error["code"], error["event_id"]) == (code, "second")
        await line.connection.response.cancel()
        response = await line.answer()
        assert response["status"] == "cancelled"
        assert response["status_details"]["reason"] == "client_cancelled"
        # The conversation goes on.
        await line.ask("What is two plus three?")
        await line.connection.response.create()
        assert "5" in normalise(transcript(await line.answer()))


async def test_a_typed_question_is_answered_in_letters(address: str) -> None:
    async with openai_line(address) as line:
        await line.hear()
        await line.ask("What is seven times six?")
        await line.connection.response.create(response={"output_modalities": ["text"]})
        response = await line.answer()
        assert response["output_modalities"] == ["text"]
        assert "42" in normalise(transcript(response))
        assert line.log.of("response.output_audio.delta") == []
        texts = [event["delta"] for event in line.log.of("response.output_text.delta")]
        assert "".join(texts) == transcript(response)


async def test_an_answer_aside_is_in_no_conversation(address: str) -> None:
    async with openai_line(address) as line:
        await line.hear()
        question = {"type": "input_text", "text": "What is two plus two?"}
        aside: Any = {
            "conversation": "none",
            "output_modalities": ["text"],
            "metadata": {"purpose": "sums"},
            "input": [{"type": "message", "role": "user", "content": [question]}],
        }
        await line.connection.response.create(response=aside)
        response = await line.answer()
        assert response["conversation_id"] is None
        assert response["metadata"] == {"purpose": "sums"}
        assert "4" in normalise(transcript(response))
        assert line.log.of("conversation.item.added") == []


async def test_a_client_takes_turns_by_hand(address: str) -> None:
    async with openai_line(address) as line:
        await line.hear()
        assert (await line.update(audio=BY_HAND))["audio"]["input"]["turn_detection"] is None
        await line.connection.input_audio_buffer.commit(event_id="nothing")
        error = (await line.until("error"))["error"]
        assert (error["code"], error["event_id"]) == ("input_audio_buffer_commit_empty", "nothing")
        await line.say(said("How much is seven times six?"))
        await line.connection.input_audio_buffer.commit()
        await line.until("input_audio_buffer.committed")
        assert line.log.of("input_audio_buffer.speech_started", "response.created") == []
        await line.connection.response.create()
        assert "42" in normalise(transcript(await line.answer()))


async def test_a_phone_is_spoken_to_in_its_own_code(address: str) -> None:
    code = {"format": {"type": "audio/pcmu"}}
    async with openai_line(address) as line:
        await line.hear()
        audio = await line.update(audio={"input": code, "output": code})
        assert audio["audio"]["output"]["format"] == {"type": "audio/pcmu"}
        samples = np.frombuffer(said("Please count from one to five."), "<i2")
        narrow = soxr.resample(samples, RATE_HZ, PHONE_HZ)
        await line.say(ulaw_encode(narrow))
        response = await line.answer()
        sound = ulaw_decode(line.sound_of(response["id"])).astype("<i2").tobytes()
        assert normalise(recognise(sound, rate_hz=PHONE_HZ)) == "1 2 3 4 5"


WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather in a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


async def test_a_tool_is_called_and_its_output_told(address: str) -> None:
    async with openai_line(address) as line:
        await line.hear()
        assert (await line.update(tools=[WEATHER]))["tools"] == [WEATHER]
        await line.ask("What is the weather in Paris?")
        await line.connection.response.create()
        response = await line.answer()
        (call,) = (item for item in response["output"] if item["type"] == "function_call")
        assert call["name"] == "get_weather"
        assert json.loads(call["arguments"]) == {"city": "Paris"}
        told: Any = {
            "type": "function_call_output",
            "call_id": call["call_id"],
            "output": "It is sunny and 20 degrees.",
        }
        await line.connection.conversation.item.create(item=told)
        await line.connection.response.create()
        assert "sunny" in transcript(await line.answer())


async def test_a_browser_gets_a_secret_that_opens_its_session(address: str) -> None:
    settings: Any = {"type": "realtime", "instructions": "Be brief."}
    async with AsyncOpenAI(base_url=f"http://{address}/v1", api_key="none") as server:
        secret = await server.realtime.client_secrets.create(session=settings)
    assert secret.value.startswith("ek_")
    browser = AsyncOpenAI(base_url=f"http://{address}/v1", api_key=secret.value)
    async with browser, browser.realtime.connect(model="any") as connection:
        frame = await connection.recv_bytes()
        created: Any = connection.parse_event(frame)
    assert realtime_faults(frame.decode()) == []
    assert created.type == "session.created"
    assert created.session.instructions == "Be brief."


# The package wants an older `websockets`, whose way of connecting this one still has.
@pytest.mark.filterwarnings("ignore:connect.. must be used as a context:DeprecationWarning")
def test_the_blocking_client_works_too(address: str) -> None:
    client = OpenAI(base_url=f"http://{address}/v1", api_key="none")
    item: Any = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "What is two plus three?"}],
    }
    log = RealtimeLog()
    with client, client.realtime.connect(model="any") as connection:
        connection.conversation.item.create(item=item)
        connection.response.create()
        while not log.of("response.done"):
            log.hear(connection.recv_bytes().decode())
    assert log.faults == []
    words = [event["delta"] for event in log.of("response.output_audio_transcript.delta")]
    assert "five" in "".join(words)

"""Messages, bare answers, answers apart and audio items, as an OpenAI client sends them."""

import base64
from typing import Any

from websockets.asyncio.client import ClientConnection

from tests.fakes.server import Service, hear, serving, until
from tests.fakes.stages import answering
from tests.fakes.wire import client, update
from tests.support.sound import tone

QUOTES: dict[str, Any] = {"sentence": "<{told}> {said}", "sentences": 1}
MANUAL = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}


def message(role: str, text: str, **item: Any) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}], **item}


async def started(service: Service, line: ClientConnection) -> None:
    """Begin a session without voice detection."""
    assert (await hear(line))["type"] == "session.created"
    await line.send(client("session.update", session=MANUAL))
    assert (await hear(line))["type"] == "session.updated"


async def create(line: ClientConnection, item: dict[str, Any]) -> dict[str, Any]:
    """Create an item and return it as the service has it."""
    await line.send(client("conversation.item.create", item=item))
    event = await hear(line)
    assert event["type"] == "conversation.item.added", event
    assert (await hear(line))["type"] == "conversation.item.done"
    made: dict[str, Any] = event["item"]
    return made


async def answer(line: ClientConnection, **response: Any) -> str:
    """Ask for an answer and return its words."""
    await line.send(client("response.create", response=response))
    events = await until(line, "response.done")
    assert events[-1]["response"]["status"] == "completed"
    kind = "response.output_audio_transcript.delta"
    return "".join(each["delta"] for each in events if each["type"] == kind)


async def test_a_conversation_may_be_brought_along() -> None:
    async with serving(answering(**QUOTES)) as service, service.dial("model=x") as line:
        await started(service, line)
        told = await create(line, message("system", "Be kind."))
        assert (told["role"], told["content"][0]["type"]) == ("system", "input_text")
        await create(line, message("user", "I am Ada."))
        said = await create(line, message("assistant", "Hello Ada."))
        assert said["content"] == [{"type": "output_text", "text": "Hello Ada."}]
        await create(line, message("user", "Who am I?"))
        told_of = "system: Be kind., user: I am Ada., assistant: Hello Ada."
        assert await answer(line) == f"<{told_of}> Who am I?"


async def test_an_answer_may_be_asked_for_before_anything_was_said() -> None:
    async with serving(answering(**QUOTES)) as service, service.dial("model=x") as line:
        await started(service, line)
        assert await answer(line, instructions="Greet the user.") == "<> "
        await create(line, message("system", "Be kind."))
        assert await answer(line) == "<system: Be kind.> "


async def test_an_answer_apart_sees_its_own_input() -> None:
    async with serving(answering(**QUOTES)) as service, service.dial("model=x") as line:
        await started(service, line)
        await create(line, message("system", "Be kind.", id="rule"))
        given = [{"type": "item_reference", "id": "rule"}, message("user", "Which topic?")]
        apart = {"conversation": "none", "input": given}
        assert await answer(line, **apart) == "<system: Be kind.> Which topic?"
        await create(line, message("user", "And now?"))
        assert await answer(line) == "<system: Be kind.> And now?"
        await line.send(client("response.create", response={"input": given}))
        error = (await hear(line))["error"]
        assert (error["code"], error["param"]) == ("unsupported_response_input", "response.input")
        given[0]["id"] = "nobody"
        await line.send(client("response.create", response=apart))
        error = (await hear(line))["error"]
        assert (error["code"], error["param"]) == ("item_not_found", "response.input.0.id")


async def test_an_audio_item_is_in_the_session_s_format_and_answered_like_speech() -> None:
    async with serving(answering(sentence="{said}.")) as service, service.dial("model=x") as line:
        await started(service, line)
        speech = base64.b64encode(tone(8000, 1500)).decode()  # one second at 24 kHz
        part = {"type": "input_audio", "audio": speech}
        item = await create(line, {"type": "message", "role": "user", "content": [part]})
        assert item["content"][0]["type"] == "input_audio"
        await line.send(client("input_audio_buffer.append", audio=speech))
        await line.send(client("response.create"))
        done = (await until(line, "response.done"))[-1]["response"]
        # One second, at ten tokens a second: what is in the buffer is no part of it.
        assert done["usage"]["input_token_details"]["audio_tokens"] == 10


async def test_audio_that_is_none_is_refused() -> None:
    async with serving(answering()) as service, service.dial() as line:
        await line.send(update())
        await until(line, "session.updated")
        for audio, code in (("A", "bad_audio"), ("", "bad_audio"), (None, "missing")):
            part = {"type": "input_audio", "audio": audio}
            item = {"type": "message", "role": "user", "content": [part]}
            await line.send(client("conversation.item.create", item=item, event_id="mine"))
            error = (await hear(line))["error"]
            assert error["code"].startswith(code)
            assert error["event_id"] == "mine"

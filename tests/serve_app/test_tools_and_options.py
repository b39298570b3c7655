"""Tools and the options of one answer, over a real socket, with the scripted model."""

import base64
import json
from typing import Any

from websockets.asyncio.client import ClientConnection

from tests.fakes.server import hear, serving, until
from tests.fakes.stages import answering
from tests.fakes.wire import client, update

LOOK_UP: dict[str, Any] = {
    "type": "function",
    "name": "look_up",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


async def ask(line: ClientConnection, text: str, **response: Any) -> list[dict[str, Any]]:
    """Write something and read the answer to it."""
    part = {"type": "input_text", "text": text}
    item = {"type": "message", "role": "user", "content": [part]}
    await line.send(client("conversation.item.create", item=item))
    await line.send(client("response.create", response=response))
    return await until(line, "rate_limits.updated")


def only(events: list[dict[str, Any]], event_type: str) -> dict[str, Any]:
    """Return the one event of a type."""
    (event,) = [each for each in events if each["type"] == event_type]
    return event


def words(events: list[dict[str, Any]]) -> str:
    """Return what was said."""
    return "".join(
        each["delta"] for each in events if each["type"] == "response.audio_transcript.delta"
    )


def sound(events: list[dict[str, Any]]) -> int:
    """Return the length of what was said, in bytes."""
    deltas = (each["delta"] for each in events if each["type"] == "response.audio.delta")
    return sum(len(base64.b64decode(delta)) for delta in deltas)


async def test_a_tool_is_offered_called_and_answered() -> None:
    async with serving(answering(sentence="It is {said}.")) as service, service.dial() as line:
        await line.send(update(tools=[LOOK_UP]))
        created = (await until(line, "session.updated"))[0]["session"]
        assert created["capabilities"]["supports_tools"]
        assert created["tools"] == [LOOK_UP]
        said = await ask(line, 'call look_up {"city": "Oslo"}')
        done = only(said, "response.function_call_arguments.done")
        assert (done["name"], json.loads(done["arguments"])) == ("look_up", {"city": "Oslo"})
        output = only(said, "response.done")["response"]["output"]
        assert [each["type"] for each in output] == ["function_call"]
        item = {"type": "function_call_output", "call_id": done["call_id"], "output": "24 degrees"}
        await line.send(client("conversation.item.create", item=item))
        await line.send(client("response.create"))
        answer = await until(line, "rate_limits.updated")
        assert words(answer) == "It is 24 degrees."
        await line.send(client("conversation.item.create", item=item))
        assert (await hear(line))["error"]["code"] == "invalid_function_call_output"


async def test_words_come_before_the_call_that_follows_them() -> None:
    async with serving(answering()) as service, service.dial() as line:
        await line.send(update(tools=[LOOK_UP]))
        await until(line, "session.updated")
        said = await ask(line, "speak and call look_up")
        kinds = [each["type"] for each in said]
        assert kinds.index("response.audio.delta") < kinds.index(
            "response.function_call_arguments.delta"
        )
        output = only(said, "response.done")["response"]["output"]
        assert [each["type"] for each in output] == ["message", "function_call"]


async def test_an_answer_has_its_own_options_and_the_next_the_session_s() -> None:
    template = "{instructions} {part}"
    async with serving(answering(sentence=template)) as service, service.dial() as line:
        await line.send(update(instructions="kind"))
        await until(line, "session.updated")
        own = await ask(line, "hi", instructions="brief", speed=1.5, metadata={"n": "1"})
        assert words(own) == "brief 1"
        assert only(own, "response.done")["response"]["metadata"]["n"] == "1"
        after = await ask(line, "hi")
        assert words(after) == "kind 1"
        assert sound(own) * 3 == sound(after) * 2
        assert "n" not in only(after, "response.done")["response"]["metadata"]


async def test_an_option_that_the_model_lacks_and_tools_that_are_none() -> None:
    async with serving(answering()) as service, service.dial() as line:
        await line.send(update(tools=[{"type": "mcp"}]))
        refusal = await hear(line)
        assert (refusal["error"]["code"], refusal["error"]["param"]) == (
            "bad_event",
            "session.tools.0",
        )
        await line.send(update())
        await until(line, "session.updated")
        await line.send(client("response.create", response={"temperature": 0.3}))
        error = (await hear(line))["error"]
        assert error["code"] == "unsupported_native_response_options"
        assert error["param"] == "response.temperature"

"""The embedded model with its real networks, asked as an OpenAI client asks."""

import asyncio
import base64
import json
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection

from stages.binding import Stage0Door, Stage1Door
from stages.descriptor import Descriptor
from stages.plugins import load_plugin
from tests.fakes.server import hear, serving, until
from tests.fakes.stages import ScriptedDirectory
from tests.fakes.wire import client
from tests.support.speech import synthesise

pytestmark = pytest.mark.models

EMBEDDED = load_plugin("embedded")
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city"],
    },
}
RECEPTION = {
    "type": "realtime",
    "instructions": "You are a friendly receptionist of the hotel Aurora. Greet the guest.",
    "output_modalities": ["text"],
    "tools": [WEATHER],
    "audio": {"input": {"turn_detection": None}},
}


class EmbeddedDirectory(ScriptedDirectory):
    """The embedded model behind its doors, in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.models = (EMBEDDED.make_stage0({}), EMBEDDED.make_stage1({}))
        self.stage0 = Stage0Door(self.models[0], cache_size=8)
        self.stage1 = Stage1Door(self.models[1])

    @property
    def descriptor(self) -> Descriptor:
        return EMBEDDED.descriptor


def text(role: str, words: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": words}]}


def aloud(words: str) -> dict[str, Any]:
    """Return an item of speech at 24 kHz."""
    pcm = np.frombuffer(synthesise(words), "<i2")
    at = np.arange(len(pcm) * 3 // 2) * 2 / 3
    sound = np.interp(at, np.arange(len(pcm)), pcm).astype("<i2").tobytes()
    part = {"type": "input_audio", "audio": base64.b64encode(sound).decode()}
    return {"type": "message", "role": "user", "content": [part]}


async def answer(line: ClientConnection, *items: dict[str, Any], **response: Any) -> dict[str, Any]:
    """Create items, ask, and return the one item that is answered."""
    (item,) = (await finished(line, *items, **response))["output"]
    return dict(item)


async def finished(
    line: ClientConnection, *items: dict[str, Any], **response: Any
) -> dict[str, Any]:
    """Create items, ask, and return the answer as its end tells it."""
    for item in items:
        await line.send(client("conversation.item.create", item=item))
    await line.send(client("response.create", response=response))
    done = (await until(line, "response.done"))[-1]["response"]
    assert done["status"] == "completed"
    return dict(done)


def words(item: dict[str, Any]) -> str:
    return str(item["content"][0]["text"])


@pytest.mark.timeout(120)
async def test_a_guest_is_greeted_called_for_and_remembered() -> None:
    directory = EmbeddedDirectory()
    await asyncio.gather(*(model.warm_up() for model in directory.models))
    async with serving(directory) as service, service.dial("model=any") as line:
        await hear(line)
        await line.send(client("session.update", session=RECEPTION))
        assert (await hear(line))["type"] == "session.updated"
        greeting = await finished(line)
        assert "Aurora" in words(greeting["output"][0])
        usage = greeting["usage"]
        assert usage["input_tokens"] == usage["input_token_details"]["text_tokens"] > 10
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        called = await answer(line, text("user", "What is the weather in Paris in celsius?"))
        assert called["name"] == "get_weather"
        assert json.loads(called["arguments"]) == {"city": "Paris", "unit": "celsius"}
        output = {"type": "function_call_output", "call_id": called["call_id"]}
        returned = output | {"output": '{"temperature": 21, "condition": "sunny"}'}
        assert words(await answer(line, returned)) == "Temperature 21, condition sunny."
        told = text("system", "The name of the guest is Zork.")
        assert "Zork" in words(await answer(line, told, text("user", "What is my name?")))
        apart = {"conversation": "none", "input": [text("user", "What is two plus three?")]}
        assert words(await answer(line, **apart)) == "Two plus three is five."
        said = await answer(line, aloud("What is seven times six?"))
        assert words(said) == "Seven times six is forty-two."

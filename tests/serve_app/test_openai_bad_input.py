"""Bad frames on the openai wire: one typed error each, and the conversation goes on."""

import json

import pytest

from tests.fakes.server import hear, serving, until
from tests.fakes.stages import answering
from tests.fakes.wire import append_bytes, client
from tests.support.bad_input import BAD, MEBIBYTE

OF_THE_DUPLEX_WIRE = {"NaN", "not a WAV", "resume in the middle", "a picture"}
"""Faults of fields and events that this wire does not have."""
MORE: dict[str, str | bytes] = {
    "a long name": json.dumps({"type": "session.update", "x" * MEBIBYTE: 1}),
    "a number for an event": '{"type": 7}',
    "base64 for the web": client("input_audio_buffer.append", audio="-_-_"),
    "base64 with spaces": client("input_audio_buffer.append", audio="AAA A"),
    "a list for a session": '{"type": "session.update", "session": []}',
    "a text for a session": '{"type": "session.update", "session": "short"}',
    "an update of nothing": '{"type": "session.update"}',
    "an item of no kind": client("conversation.item.create", item={"type": "thought"}),
    "no item": client("conversation.item.create"),
    "an item after nobody": client(
        "conversation.item.create",
        previous_item_id="item_none",
        item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
    ),
    "an output of no call": client(
        "conversation.item.create",
        item={"type": "function_call_output", "call_id": "call_none", "output": "x"},
    ),
    "metadata of numbers": client("response.create", response={"metadata": {"n": 1}}),
    "too much metadata": client(
        "response.create", response={"metadata": {str(n): "x" for n in range(17)}}
    ),
    "half a letter": '{"type": "\\ud83c"}',
    "an unknown item": client("conversation.item.retrieve", item_id="item_none"),
}
ALL = {name: frame for name, (frame, _) in BAD.items() if name not in OF_THE_DUPLEX_WIRE} | MORE


@pytest.mark.parametrize("name", ALL)
async def test_a_bad_frame_gets_one_error_and_the_conversation_goes_on(name: str) -> None:
    async with serving(answering()) as service, service.dial("model=any") as line:
        created = await hear(line)
        await line.send(ALL[name])
        await line.send(client("input_audio_buffer.clear"))
        said = await until(line, "input_audio_buffer.cleared")
        assert [event["type"] for event in (created, *said)] == [
            "session.created",
            "error",
            "input_audio_buffer.cleared",
        ]
        assert said[0]["error"]["type"] == "invalid_request_error"
        assert said[0]["error"]["code"]


async def test_pieces_of_no_length_and_ids_that_come_twice_are_nothing_special() -> None:
    async with serving(answering()) as service, service.dial("model=any") as line:
        await hear(line)
        await line.send(append_bytes(b""))
        for _ in range(2):
            await line.send(client("input_audio_buffer.clear", event_id="same"))
        said = [await hear(line) for _ in range(2)]
        assert {event["type"] for event in said} == {"input_audio_buffer.cleared"}


async def test_a_frame_in_fragments_is_one_frame() -> None:
    async with serving(answering()) as service, service.dial("model=any") as line:
        await hear(line)
        text = client("input_audio_buffer.clear")
        await line.send([text[:9], text[9:20], text[20:]])
        assert (await hear(line))["type"] == "input_audio_buffer.cleared"

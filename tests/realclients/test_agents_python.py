"""`openai-agents` in Python, unmodified: the strictest parser, over a whole conversation.

Every fault that it finds becomes an error or an exception event, or a line in its log.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeRunner
from agents.realtime.session import RealtimeSession

from tests.realclients.sentences import RATE_HZ, said
from tests.support.realtime_log import RealtimeLog
from tests.support.speech import normalise, recognise

pytestmark = pytest.mark.clients

BLOCK_MS = 40
BLOCK_BYTES = RATE_HZ * BLOCK_MS // 1000 * 2
WAIT_S = 120.0
"""Only a test that has gone wrong ever waits so long."""


@function_tool
def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"In {city} it is sunny and 20 degrees."


class Conversation:
    """A running session of the package: what it was told, and a microphone that never stops."""

    def __init__(self, session: RealtimeSession) -> None:
        self.session = session
        self.events: list[Any] = []
        self._words = bytearray()
        self._said = asyncio.Event()
        self._news = asyncio.Condition()

    async def say(self, text: str) -> None:
        """Say a sentence, and wait until it is out."""
        await self._send(said(text))

    async def listen(self, sound: bytes) -> None:
        """Be silent as long as an answer takes to be played; who speaks over it cuts it."""
        await self._send(bytes(len(sound)))

    async def _send(self, sound: bytes) -> None:
        self._said.clear()
        self._words += sound
        await self._said.wait()

    async def until(self, kind: str, count: int = 1) -> Any:
        """Wait until so many events of a type have come; return the last of them."""
        async with asyncio.timeout(WAIT_S), self._news:
            await self._news.wait_for(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[count - 1]

    def of(self, kind: str) -> list[Any]:
        """Return the events of a type so far."""
        return [event for event in self.events if event.type == kind]

    def sound(self) -> bytes:
        """Return all sound so far."""
        return b"".join(event.audio.data for event in self.of("audio"))

    async def run_reader(self) -> None:
        """Take what the package tells its application."""
        async for event in self.session:
            self.events.append(event)
            async with self._news:
                self._news.notify_all()

    async def run_microphone(self) -> None:
        """Send in real time, silence when there is nothing to say."""
        start_s = time.monotonic()
        blocks = 0
        while True:
            blocks += 1
            due_s = start_s + blocks * BLOCK_MS / 1000
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            block = bytes(self._words[:BLOCK_BYTES])
            del self._words[:BLOCK_BYTES]
            await self.session.send_audio(block.ljust(BLOCK_BYTES, b"\0"))
            if not self._words:
                self._said.set()


GUIDE = RealtimeAgent(name="Guide", instructions="Be brief.", tools=[get_weather])
GARDENER = RealtimeAgent(name="Gardener", instructions="You know gardens.")
PORTER = RealtimeAgent(name="Porter", instructions="Pass people on.", handoffs=[GARDENER])


@asynccontextmanager
async def talking(address: str, agent: RealtimeAgent[Any] = GUIDE) -> AsyncIterator[Conversation]:
    """Run an agent against the service."""
    runner = RealtimeRunner(agent)
    session = await runner.run(
        model_config={"url": f"ws://{address}/v1/realtime?model=any", "api_key": "none"}
    )
    async with session:
        conversation = Conversation(session)
        async with asyncio.TaskGroup() as group:
            parts = [
                group.create_task(conversation.run_reader()),
                group.create_task(conversation.run_microphone()),
            ]
            yield conversation
            for part in parts:
                part.cancel()


def raw(conversation: Conversation) -> list[Any]:
    """Return what the package's parser told its session."""
    return [event.data for event in conversation.of("raw_model_event")]


async def test_a_conversation_with_an_interruption_and_a_tool_has_no_fault(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="openai.agents"):
        async with talking(address) as talk:
            await talk.say("What is twelve times nine?")
            await talk.until("agent_end")
            assert "108" in normalise(recognise(talk.sound()))
            await talk.listen(talk.sound())

            await talk.say("Count from one to one hundred.")
            await talk.until("audio", count=len(talk.of("audio")) + 4)
            await talk.say("Thank you, that is enough.")
            await talk.until("audio_interrupted")
            await talk.until("agent_end", count=2)

            ends = len(talk.of("agent_end"))
            await talk.say("What is the weather in Paris?")
            end = await talk.until("tool_end")
            assert "Paris" in end.arguments
            await talk.until("agent_end", count=ends + 2)
    assert_faultless(talk, caplog)
    history = talk.of("history_updated")[-1].history
    texts = [
        normalise(part.transcript or "")
        for item in history
        if item.type == "message"
        for part in item.content
    ]
    assert any("108" in text for text in texts), texts
    # Of the answer that was cut only what was heard is left.
    assert not any("100" in text for text in texts if text.startswith("1 2")), texts


def assert_faultless(talk: Conversation, caplog: pytest.LogCaptureFixture) -> None:
    """Show that no event was an error to the package, and none of the service's was one."""
    kinds = {event.type for event in raw(talk)}
    assert {"error", "exception"} & kinds == set()
    assert talk.of("error") == []
    assert [record.getMessage() for record in caplog.records] == []
    wire = [event.data for event in raw(talk) if event.type == "raw_server_event"]
    assert [event for event in wire if event["type"] == "error"] == []
    log = RealtimeLog()
    for event in wire:
        log.hear(json.dumps(event))
    assert log.faults == []


async def test_an_agent_passes_the_caller_on_to_another(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="openai.agents"):
        async with talking(address, PORTER) as talk:
            await talk.say("What is two plus three?")
            await talk.until("agent_end")
            await talk.listen(talk.sound())
            # The voice has been heard, and every setting comes again with the other agent.
            await talk.say("Please transfer me to the gardener.")
            passed_on = await talk.until("handoff")
            assert passed_on.to_agent.name == "Gardener"
            await talk.until("agent_end", count=3)
            await talk.session.send_message("What is seven times six?")
            await talk.until("agent_end", count=4)
    assert_faultless(talk, caplog)
    settings = [event.data for event in raw(talk) if event.type == "raw_server_event"]
    updated = [e["session"] for e in settings if e["type"] == "session.updated"]
    assert updated[0]["instructions"] != updated[-1]["instructions"]
    assert "You know gardens." in updated[-1]["instructions"]

"""Both halves together: what is asked aloud is answered aloud."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from session.config import RuntimeConfig
from session.ids import SessionId
from session.tools import Tool, ToolOutput
from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES, Decision, Unit
from stages.embedded.stage0 import EmbeddedStage0
from stages.embedded.stage1 import EmbeddedStage1
from tests.support.speech import normalise, recognise, synthesise, wer

pytestmark = pytest.mark.models

UNIT_BYTES = INPUT_RATE_HZ * SAMPLE_BYTES
SILENCE = Unit(bytes(UNIT_BYTES))
MOST_UNITS = 30
GOFORWARD = (Path(__file__).parents[2] / "data" / "goforward.raw").read_bytes()
names = (SessionId(f"sess_{number}") for number in itertools.count())


@dataclass
class Reply:
    """What one question brought."""

    heard: str = ""
    texts: list[str] = field(default_factory=list)
    pcm: bytes = b""

    @property
    def text(self) -> str:
        return "".join(self.texts)


@dataclass
class Caller:
    """A session fed with whole units, as from an open microphone."""

    stage0: EmbeddedStage0
    stage1: EmbeddedStage1
    session: SessionId = field(default_factory=lambda: next(names))

    async def open(self, runtime: RuntimeConfig | None = None) -> "Caller":
        await self.stage0.open(self.session, runtime or RuntimeConfig())
        await self.stage1.open(self.session, runtime or RuntimeConfig())
        return self

    async def close(self) -> None:
        await self.stage0.close(self.session)
        await self.stage1.close(self.session)

    async def step(self, unit: Unit, reply: Reply) -> bool:
        """Give one unit, speak what it says, and tell whether the turn is over."""
        appended = await self.stage0.append(self.session, unit)
        reply.heard += appended.result.heard
        if appended.speech is None:
            return False
        chunks = [chunk async for chunk in self.stage1.speak(self.session, appended.speech)]
        assert "".join(chunk.transcript for chunk in chunks) == appended.result.text
        assert chunks[-1].turn_end == appended.result.turn_end
        reply.texts.append(appended.result.text)
        reply.pcm += b"".join(chunk.pcm for chunk in chunks)
        return appended.result.turn_end

    async def ask(self, pcm: bytes) -> Reply:
        """Say something, then be silent until the answer is over."""
        reply = Reply()
        pcm = pcm.ljust(-(-len(pcm) // UNIT_BYTES) * UNIT_BYTES, b"\0")
        for at in range(0, len(pcm), UNIT_BYTES):
            if await self.step(Unit(pcm[at : at + UNIT_BYTES]), reply):
                return reply
        for _ in range(MOST_UNITS):
            if await self.step(SILENCE, reply):
                return reply
        raise AssertionError(f"no end of the answer: {reply.heard!r}, {reply.texts}")


@pytest.fixture
async def caller(stage0: EmbeddedStage0, stage1: EmbeddedStage1) -> AsyncIterator[Caller]:
    caller = await Caller(stage0, stage1).open()
    yield caller
    await caller.close()


QUESTIONS = [
    ("Repeat after me, the weather is nice today.", "The weather is nice today."),
    ("What is two plus three?", "Two plus three is five."),
    ("How much is seven times six?", "Seven times six is forty-two."),
    ("Count to ten.", "One, two, three, four, five. Six, seven, eight, nine, ten."),
    ("Spell the word banana.", "B, A, N, A, N, A."),
    ("What is your name?", "My name is Duplex. I am a small program that listens and talks."),
    ("Thank you very much.", "You are welcome."),
]
CLOCK = [
    ("What time is it?", "It is three oh five in the afternoon."),
    ("What is the date today?", "Today is Monday, the third of March, twenty twenty-five."),
]
"""Whisper writes times and dates in ways of its own, so their sound is not judged."""


async def test_questions_by_voice_have_their_answers(caller: Caller) -> None:
    asked = [*QUESTIONS, *CLOCK]
    replies = [await caller.ask(synthesise(question)) for question, _ in asked]
    assert [reply.text for reply in replies] == [answer for _, answer in asked]
    questions = [normalise(question) for question, _ in asked]
    assert wer(questions, [normalise(reply.heard) for reply in replies]) <= 0.05
    del replies[len(QUESTIONS) :]
    said = [normalise(reply.text) for reply in replies]
    heard = [normalise(recognise(reply.pcm)) for reply in replies]
    assert wer(said, heard) <= 0.1
    assert sum(a == b for a, b in zip(said, heard, strict=True)) >= len(QUESTIONS) - 2


async def test_the_language_model_answers_the_rest(caller: Caller) -> None:
    reply = await caller.ask(synthesise("What is the capital of France?"))
    assert "Paris" in reply.text
    assert wer([normalise(reply.text)], [normalise(recognise(reply.pcm))]) <= 0.25


async def test_a_human_is_heard(caller: Caller) -> None:
    reply = await caller.ask(GOFORWARD)
    assert normalise(reply.heard) == "go forward 10 meters"
    assert reply.text.strip()


async def test_an_interrupted_count_is_remembered_as_far_as_it_was_heard(caller: Caller) -> None:
    reply = Reply()
    question = synthesise("Count to one hundred.").ljust(3 * UNIT_BYTES, b"\0")
    for at in range(0, len(question), UNIT_BYTES):
        await caller.step(Unit(question[at : at + UNIT_BYTES]), reply)
    while len(reply.texts) < 3:
        assert not await caller.step(SILENCE, reply)
    heard = "One, two, three, four,"
    assert reply.text.startswith(heard)
    await caller.stage0.interrupt(caller.session, heard, undoes_unit=False)
    await caller.stage1.interrupt(caller.session)
    assert not await caller.step(SILENCE, reply)
    assert len(reply.texts) == 3
    again = await caller.ask(synthesise("Say that again."))
    assert again.text == heard
    assert normalise(recognise(again.pcm)) == normalise(heard)


async def test_a_closing_unit_is_answered_at_once(caller: Caller) -> None:
    reply = Reply()
    pcm = synthesise("What is two plus three?", tail_s=0.0)
    assert await caller.step(Unit(pcm, closes_input=True), reply)
    assert reply.text == "Two plus three is five."


async def test_a_question_aloud_calls_the_function_that_it_is_about(caller: Caller) -> None:
    """The words are those of a recogniser, and the answer is what the function returned."""
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools = (Tool("get_weather", "Tell the weather in a city.", json.dumps(city)),)
    await caller.stage0.configure(caller.session, RuntimeConfig(tools=tools, auto_response=False))
    pcm = synthesise("What is the weather in Paris?", tail_s=0.0)
    called = await caller.stage0.append(caller.session, Unit(pcm, closes_input=True))
    (call,) = called.result.calls
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    reply = Reply()
    output = ToolOutput(call.call_id, "In Paris it is sunny and twenty degrees.")
    assert await caller.step(Unit(b"", closes_input=True, tool_outputs=(output,)), reply)
    assert reply.text == output.output
    assert wer([normalise(reply.text)], [normalise(recognise(reply.pcm))]) <= 0.25


async def test_noise_wakes_nobody(caller: Caller) -> None:
    for pcm in (bytes(UNIT_BYTES), b"\x10\x00\xf0\xff" * (UNIT_BYTES // 4)):
        appended = await caller.stage0.append(caller.session, Unit(pcm))
        assert appended.result.decision is Decision.LISTEN


async def test_two_sessions_at_once_are_each_as_alone(
    stage0: EmbeddedStage0, stage1: EmbeddedStage1
) -> None:
    scripts = [
        ["Repeat after me, the apple is red.", "Say that again.", "What is two plus two?"],
        ["Count to fifteen.", "Repeat after me, the river is deep.", "Say that again."],
    ]

    async def talk(script: list[str]) -> list[tuple[str, str, bytes]]:
        caller = await Caller(stage0, stage1).open()
        replies = [await caller.ask(synthesise(question)) for question in script]
        await caller.close()
        return [(reply.heard, reply.text, reply.pcm) for reply in replies]

    alone = [await talk(script) for script in scripts]
    assert alone[0][0][1] == "The apple is red."
    assert alone[1][2][1] == "The river is deep."
    assert await asyncio.gather(*map(talk, scripts)) == alone

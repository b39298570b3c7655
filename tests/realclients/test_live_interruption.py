"""`client.live.connect` of `openai`, unmodified: the user speaks over the model, and it stops."""

import asyncio
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.realclients.sentences import RATE_HZ, said
from tests.realclients.test_live_python import WAIT_S, LiveLine, words
from tests.support.speech import normalise

pytestmark = pytest.mark.clients


def numbers(text: str) -> list[int]:
    """Return the numbers that were said."""
    return [int(word) for word in normalise(text).split() if word.isdigit()]


async def test_an_interruption_is_heard_and_the_rest_is_never_sent(address: str) -> None:
    client = AsyncOpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0)
    async with client, client.live.connect() as connection:
        line = LiveLine(connection)
        audio: Any = {"format": {"type": "audio/pcm", "rate": RATE_HZ}}
        await connection.session.start(session={"model": "any", "audio": audio})
        await line.until("session.started")
        microphone = asyncio.get_running_loop().create_task(line.run_microphone())
        try:
            line.words += said("Count from one to one hundred.")
            async with asyncio.timeout(WAIT_S):
                while 3 not in numbers(words(line, "output")):
                    await line.until("session.output_transcript.delta")
            line.words += said("Thank you, that is enough.")
            async with asyncio.timeout(WAIT_S):
                while "enough" not in words(line, "input"):
                    await line.until("session.input_transcript.delta")
            # What comes of the count has come before one knows what was said over it.
            before = len(words(line, "output"))
            # The conversation goes on.
            line.words += said("What is two plus three?")
            async with asyncio.timeout(WAIT_S):
                while "five" not in words(line, "output")[before:].lower():
                    await line.until("session.output_transcript.delta")
        finally:
            microphone.cancel()
            await asyncio.wait({microphone})
        await connection.session.close()
        await line.until("session.closed")
    line.log.end()
    assert line.log.faults == []
    count, answers = words(line, "output")[:before], words(line, "output")[before:]
    assert max(numbers(count)) < 100
    assert max(numbers(answers)) == 5, "the count went on"


async def test_a_comment_makes_the_model_speak_of_it(address: str) -> None:
    client = AsyncOpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0)
    before: Any = [
        {"role": "user", "content": [{"type": "input_text", "text": "Where is my parcel?"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "I will tell you."}]},
    ]
    async with client, client.live.connect() as connection:
        line = LiveLine(connection)
        await connection.session.start(session={"model": "any", "input": before})
        await line.until("session.started")
        microphone = asyncio.get_running_loop().create_task(line.run_microphone())
        try:
            await connection.session.commentary.append(
                content="The parcel has just arrived at the door.", delegation_id=None
            )
            await line.until("session.commentary.appended")
            await line.until("session.output_transcript.delta")
        finally:
            microphone.cancel()
            await asyncio.wait({microphone})
        await connection.session.close()
        await line.until("session.closed")
    line.log.end()
    assert line.log.faults == []
    assert line.log.of("session.output_audio.delta")

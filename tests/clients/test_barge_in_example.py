"""The example holds against the golden interruption."""

from clients.examples.barge_in import barge_in
from clients.synthetic import RATE_HZ, speech_like
from clients.wav import Recording, to_pcm16
from tests.clients.transcript_server import playing

SPOKEN = Recording(to_pcm16(speech_like(0.4)), RATE_HZ)


async def test_the_answer_is_interrupted_and_the_next_one_comes() -> None:
    async with playing("barge_in") as server:
        first, second, heard_ms = await barge_in(server.url, SPOKEN, SPOKEN, after_ms=500)
    assert (first.status, first.reason) == ("cancelled", "turn_detected")
    assert (second.status, second.transcript) == ("completed", "Yes?")
    assert 500 <= heard_ms < 12_000
    assert server.received[-1]["type"] == "session.close"

"""The shipped service, spoken to by its own client: real Ray, real models, real time.

Questions are recorded humans or made with the packaged voice; answers are judged by Whisper.
"""

import asyncio
import wave
from pathlib import Path

import pytest

from clients import events as ev
from clients.duplex import DuplexClient
from clients.embedded import create_duplex_session_config
from clients.errors import DuplexRefused
from clients.responses import ResponseHandle
from tests.support.live_caller import RATE_HZ, Caller
from tests.support.serve_cluster import ServeCluster
from tests.support.speech import first_sound, normalise, recognise, synthesise, wer

pytestmark = pytest.mark.models

DATA = Path(__file__).parents[1] / "data"

PINNED = [
    ("Repeat after me, the weather is nice today.", "the weather is nice today"),
    ("What is two plus three?", "five"),
    ("What is your name?", "name"),
    ("Please count from one to five.", "one two three four five"),
    ("How much is seven times six?", "forty two"),
]
"""What is said, and words that the answer must hold; its audio must be exactly its text."""

LISTENED_TO = [
    "Hello, how are you?",
    "What is the capital of France?",
    "Please give me a tip for sleeping well.",
]
"""Answered by the language model: whatever it says must be what is heard."""


@pytest.fixture(scope="module")
def url(cluster: ServeCluster) -> str:
    # It stays for test_talk_acceptance.py; who deploys something else takes it away.
    cluster.deploy("duplex.yaml")
    return f"ws://{cluster.address}/v1/realtime?duplex=1"


def assert_paired(handle: ResponseHandle) -> None:
    """Each audio delta is followed by its transcript delta."""
    kinds = [
        type(event)
        for event in handle.events
        if isinstance(event, ev.AudioDelta | ev.TranscriptDelta)
    ]
    assert kinds[0::2] == [ev.AudioDelta] * (len(kinds) // 2)
    assert kinds[1::2] == [ev.TranscriptDelta] * (len(kinds) // 2)


async def ask(caller: Caller, pcm: bytes) -> ResponseHandle:
    """Say something, hear the whole answer."""
    await caller.say(pcm)
    handle = await caller.answer()
    await caller.played()
    assert handle.status == "completed"
    assert_paired(handle)
    return handle


async def test_questions_get_their_answers_and_the_sound_is_the_text(url: str) -> None:
    said: list[str] = []
    heard: list[str] = []
    async with Caller(url) as caller:
        for question, expected in PINNED:
            handle = await ask(caller, synthesise(question))
            text, sound = normalise(handle.transcript), normalise(recognise(handle.audio))
            assert normalise(expected) in text, (question, caller.user_lines()[-1], text)
            assert sound == text, question
            said.append(text)
            heard.append(sound)
        for question in LISTENED_TO:
            handle = await ask(caller, synthesise(question))
            said.append(normalise(handle.transcript))
            heard.append(normalise(recognise(handle.audio)))
        assert caller.errors() == []
    assert wer(said, heard) <= 0.2


async def test_a_human_voice_is_understood_and_answered(url: str) -> None:
    pcm = (DATA / "goforward.raw").read_bytes()
    async with Caller(url) as caller:
        handle = await ask(caller, pcm)
        assert normalise(caller.user_lines()[-1]) == normalise("go forward ten meters")
        said, heard = normalise(handle.transcript), normalise(recognise(handle.audio))
        assert wer([said], [heard]) <= 0.2
        for clip in sorted(DATA.glob("*.wav"))[:2]:
            with wave.open(str(clip)) as recording:
                assert recording.getframerate() == RATE_HZ
                handle = await ask(caller, recording.readframes(recording.getnframes()))
            assert normalise(recognise(handle.audio))


async def test_the_user_interrupts_a_long_count(url: str) -> None:
    interruption = synthesise("What is two plus three?")
    async with Caller(url) as caller:
        await caller.say(synthesise("Count to one hundred."))
        count = await caller.client.next_response()
        await caller.heard(count, 2500)
        caller.events.clear()
        onset = await caller.say(interruption)
        await count.wait_done()
        assert (count.status, count.reason) == ("cancelled", "turn_detected")

        # The onset the server found is where the voice really began, in samples of the stream.
        started = next(e for e in caller.events if isinstance(e, ev.SpeechStarted))
        padding_ms = 300
        begins_ms = (onset + first_sound(interruption)) * 1000 // RATE_HZ
        assert abs(started.audio_start_ms + padding_ms - begins_ms) <= 100

        # Nothing of the count comes after its end, and history holds only what was heard.
        kinds = [e.type for e in caller.events if isinstance(e, ev.ResponseEvent)]
        ends = kinds.index("response.done")
        late = [e for e in caller.events if isinstance(e, ev.ResponseEvent)][ends + 1 :]
        assert not [e for e in late if e.response_id == count.response_id]
        answer = await caller.answer()
        assert "five" in normalise(answer.transcript).split() or "5" in normalise(answer.transcript)
        await caller.played()

        shown = caller.client.expect(
            ev.ServerEvent, lambda e: e.type == "conversation.item.retrieved"
        )
        await caller.client.send(
            {"type": "conversation.item.retrieve", "item_id": f"item_{count.response_id}"}
        )
        item = (await shown).raw["item"]
        assert isinstance(item, dict)
        remembered = "".join(part.get("transcript") or "" for part in item["content"])
        assert count.transcript.startswith(remembered)
        assert 0 < len(remembered) < len(count.transcript)

        # The model remembers the same: it repeats the newest answer, not the count.
        again = await ask(caller, synthesise("Say that again."))
        assert normalise(answer.transcript) == normalise(again.transcript)


async def test_two_sessions_do_not_mix_and_a_third_waits_for_a_free_slot(url: str) -> None:
    async with Caller(url) as anna, Caller(url) as ben:
        with pytest.raises(DuplexRefused) as refusal:
            await DuplexClient(url, create_duplex_session_config()).open()
        assert refusal.value.code == "resource_exhausted"
        apple, river = await asyncio.gather(
            ask(anna, synthesise("Repeat after me, The apple is red.")),
            ask(ben, synthesise("Repeat after me, The river is deep.")),
        )
        assert normalise(apple.transcript) == "the apple is red"
        assert normalise(river.transcript) == "the river is deep"
        assert normalise(recognise(apple.audio)) == "the apple is red"
        assert normalise(recognise(river.audio)) == "the river is deep"
    # Closing waits until both stages have let go, so there is room at once.
    async with Caller(url) as carla:
        handle = await ask(carla, synthesise("Repeat after me, There is room."))
        assert normalise(handle.transcript) == "there is room"

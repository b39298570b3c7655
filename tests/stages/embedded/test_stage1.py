"""The speaking half says exactly its text, smoothly, and stops when told to."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from session.config import RuntimeConfig
from session.errors import StageFailed
from session.ids import SessionId
from session.unit import OUTPUT_RATE_HZ, SpeechChunk
from stages.contract import Speech
from stages.embedded.settings import EmbeddedSettings
from stages.embedded.stage1 import (
    FIRST_CHUNK_HOPS,
    LATER_CHUNK_HOPS,
    EmbeddedStage1,
)
from stages.embedded.vocoder import HOP
from stages.embedded.voice import Voice, phrases_of
from tests.support.speech import normalise, recognise, wer

pytestmark = pytest.mark.models

SID = SessionId("sess_a")
SENTENCES = [
    "Hello, how can I help you today?",
    "The quick brown fox jumps over the lazy dog.",
    "It is half past seven in the morning.",
    "Please turn on the kitchen light and close the front door.",
    "One, two, three, four, five.",
    " Two plus three is five.",
]


def speech(text: str, *, turn_end: bool = True) -> Speech:
    return Speech(text, segment_end=True, turn_end=turn_end)


async def spoken(
    stage: EmbeddedStage1, said: Speech, runtime: RuntimeConfig | None = None
) -> list[SpeechChunk]:
    await stage.open(SID, runtime or RuntimeConfig())
    try:
        return [chunk async for chunk in stage.speak(SID, said)]
    finally:
        await stage.close(SID)


def pcm_of(chunks: list[SpeechChunk]) -> bytes:
    return b"".join(chunk.pcm for chunk in chunks)


async def test_the_sound_is_the_text(stage1: EmbeddedStage1) -> None:
    heard = [recognise(pcm_of(await spoken(stage1, speech(text)))) for text in SENTENCES]
    said = [normalise(text) for text in SENTENCES]
    assert wer(said, [normalise(text) for text in heard]) <= 0.05


async def test_chunks_and_flags(stage1: EmbeddedStage1) -> None:
    chunks = await spoken(stage1, speech(SENTENCES[1]))
    samples = [chunk.samples for chunk in chunks]
    assert samples[0] == FIRST_CHUNK_HOPS * HOP
    assert set(samples[1:-1]) == {LATER_CHUNK_HOPS * HOP}
    assert 0 < samples[-1] <= LATER_CHUNK_HOPS * HOP
    assert [chunk.turn_end for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert "".join(chunk.transcript for chunk in chunks) == SENTENCES[1]
    assert chunks[0].transcript.startswith("The")


async def test_words_come_with_their_sound(stage1: EmbeddedStage1) -> None:
    """What is heard up to a chunk's end is, to a word or two, what was written up to there."""
    differences: list[int] = []
    for text in SENTENCES[:5]:
        chunks = await spoken(stage1, speech(text))
        for cut in range(2, len(chunks) - 1):
            written = normalise("".join(c.transcript for c in chunks[:cut])).split()
            heard = normalise(recognise(pcm_of(chunks[:cut]))).split()
            differences.append(abs(len(written) - len(heard)))
    assert len(differences) > 10
    # Two where the recogniser guesses the end of a word that was cut.
    assert max(differences) <= 2
    assert sum(difference <= 1 for difference in differences) >= 0.8 * len(differences)


async def test_the_sound_begins_soon_and_does_not_clip_or_click(stage1: EmbeddedStage1) -> None:
    for text in SENTENCES:
        chunks = await spoken(stage1, speech(text))
        samples = np.frombuffer(pcm_of(chunks), "<i2").astype(np.int64)
        assert 4000 < np.abs(samples).max() < 32_000
        audible = np.flatnonzero(np.abs(samples) > 300)
        assert audible[0] < OUTPUT_RATE_HZ * 0.15
        assert len(samples) - audible[-1] < OUTPUT_RATE_HZ * 0.4
        jumps = np.abs(np.diff(samples))
        borders = np.cumsum([chunk.samples for chunk in chunks])[:-1]
        assert jumps[borders - 1].max() <= jumps.max()
        assert jumps[borders - 1].max() < 3000
        assert abs(samples[0]) < 100
        assert abs(samples[-1]) < 100


async def test_speed_is_honoured(stage1: EmbeddedStage1) -> None:
    lengths = [
        len(pcm_of(await spoken(stage1, speech(SENTENCES[1]), RuntimeConfig(speed=speed))))
        for speed in (0.7, 1.0, 1.5)
    ]
    slow, normal, fast = lengths
    assert slow / normal == pytest.approx(1 / 0.7, rel=0.15)
    assert fast / normal == pytest.approx(1 / 1.5, rel=0.15)


async def test_the_speed_of_one_answer_is_honoured_and_ends_with_it(stage1: EmbeddedStage1) -> None:
    await stage1.open(SID, RuntimeConfig())
    fast = replace(speech(SENTENCES[1]), speed=1.5)
    lengths = [
        len(pcm_of([chunk async for chunk in stage1.speak(SID, each)]))
        for each in (speech(SENTENCES[1]), fast, speech(SENTENCES[1]))
    ]
    assert lengths[1] / lengths[0] == pytest.approx(1 / 1.5, rel=0.15)
    assert lengths[2] == lengths[0]
    await stage1.close(SID)


async def test_a_new_speed_holds_from_the_next_unit_on(stage1: EmbeddedStage1) -> None:
    await stage1.open(SID, RuntimeConfig())
    first = [chunk async for chunk in stage1.speak(SID, speech(SENTENCES[1]))]
    await stage1.configure(SID, RuntimeConfig(speed=2.0))
    second = [chunk async for chunk in stage1.speak(SID, speech(SENTENCES[1]))]
    assert len(pcm_of(second)) < 0.7 * len(pcm_of(first))
    await stage1.close(SID)


@pytest.mark.parametrize("text", ["你好", "\U0001f600", " ", "...", "\n"])
async def test_what_can_not_be_said_is_a_short_silence(stage1: EmbeddedStage1, text: str) -> None:
    chunks = await spoken(stage1, speech(text))
    assert "".join(chunk.transcript for chunk in chunks) == text
    assert chunks[-1].turn_end
    assert 0 < sum(chunk.samples for chunk in chunks) < OUTPUT_RATE_HZ
    assert np.abs(np.frombuffer(pcm_of(chunks), "<i2").astype(int)).max() < 1000


async def test_no_text_is_one_empty_chunk_with_the_flags(stage1: EmbeddedStage1) -> None:
    assert await spoken(stage1, speech("")) == [
        SpeechChunk(b"", "", segment_end=True, turn_end=True)
    ]


async def test_mixed_scripts_keep_their_text(stage1: EmbeddedStage1) -> None:
    text = "He said \U0001f600 你好 twice: 3.5 km/h, isn't it?"
    chunks = await spoken(stage1, speech(text))
    assert "".join(chunk.transcript for chunk in chunks) == text


async def test_a_long_text_begins_before_it_is_all_made(stage1: EmbeddedStage1) -> None:
    text = " ".join(SENTENCES[:4] * 3)
    phrases = phrases_of(text)
    assert len(phrases) > 8
    assert "".join(phrases) == text
    chunks = await spoken(stage1, speech(text))
    assert "".join(chunk.transcript for chunk in chunks) == text
    assert all(chunk.pcm for chunk in chunks)
    assert [chunk.turn_end for chunk in chunks].count(True) == 1


async def test_the_same_turn_sounds_the_same_and_the_noise_runs_on_within_it(
    stage1: EmbeddedStage1,
) -> None:
    await stage1.open(SID, RuntimeConfig())
    takes = [
        pcm_of([chunk async for chunk in stage1.speak(SID, speech("Hi.", turn_end=ends))])
        for ends in (False, True, True)
    ]
    await stage1.close(SID)
    assert takes[0] != takes[1]
    assert takes[2] == takes[0]
    assert pcm_of(await spoken(stage1, speech("Hi."))) == takes[0]


async def test_an_interrupt_ends_the_speech_and_begins_the_voice_anew(
    stage1: EmbeddedStage1,
) -> None:
    alone = pcm_of(await spoken(stage1, speech("Hi.")))
    await stage1.open(SID, RuntimeConfig())
    stream = stage1.speak(SID, speech(SENTENCES[3], turn_end=False))
    await anext(stream)
    await stage1.interrupt(SID)
    assert [chunk async for chunk in stream] == []
    assert pcm_of([chunk async for chunk in stage1.speak(SID, speech("Hi."))]) == alone
    await stage1.close(SID)


async def test_two_sessions_speak_at_once_as_each_alone(stage1: EmbeddedStage1) -> None:
    texts = SENTENCES[:4]
    alone = [pcm_of(await spoken(stage1, speech(text))) for text in texts]
    sessions = [SessionId(f"sess_{number}") for number in range(len(texts))]
    for session in sessions:
        await stage1.open(session, RuntimeConfig())

    async def one(session: SessionId, text: str) -> bytes:
        return pcm_of([chunk async for chunk in stage1.speak(session, speech(text))])

    together = await asyncio.gather(*map(one, sessions, texts))
    assert together == alone
    for session in sessions:
        await stage1.close(session)


async def test_before_the_warm_up_and_after_the_close_nothing_is_said() -> None:
    stage = EmbeddedStage1(EmbeddedSettings())
    with pytest.raises(StageFailed, match="warm_up"):
        await stage.open(SID, RuntimeConfig())
    with pytest.raises(StageFailed, match="not open"):
        await anext(stage.speak(SID, speech("Hi.")))
    with pytest.raises(StageFailed, match="not open"):
        await stage.configure(SID, RuntimeConfig())
    await stage.interrupt(SID)
    await stage.close(SID)


def test_the_model_s_silence_is_cut_to_a_pause() -> None:
    frames = Voice.load().speak(SENTENCES[0], 1.0)
    assert frames is not None
    seconds = frames.count * HOP / OUTPUT_RATE_HZ
    assert 1.5 < seconds < 2.5

"""MiniCPM-o's Stage1 on the real engine: from words and hidden rows to sound, by session."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from session.config import RuntimeConfig
from session.errors import AdmissionRefused, StageRefused
from session.ids import SessionId
from session.unit import OUTPUT_RATE_HZ, VOICE_RATE_HZ, SpeechChunk
from stages.contract import Speech
from stages.minicpmo.loading_voice import load_token2wav
from stages.minicpmo.schedule import CODE_SAMPLES, HELD_BACK_SAMPLES, LOOK_AHEAD
from stages.minicpmo.talker_unit import Codes
from stages.minicpmo.voice_memory import VoiceMemory, VoiceSizes
from stages.minicpmo.voice_pcm import voice_pcm
from tests.support.running_voice import Mouth, RunningVoice

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]

UNITS = range(5)
ALIKE = 16
"""Of 32768. A batch changes mel in its last digits, and the pitch shows it: 3 was measured."""
Turn = list[list[SpeechChunk]]


def sound(turn: Turn) -> np.ndarray:
    return np.frombuffer(b"".join(c.pcm for unit in turn for c in unit), "<i2").astype(np.int32)


def check_unit(speech: Speech, chunks: Sequence[SpeechChunk]) -> None:
    """Check what the stage contract asks of a unit's chunks."""
    assert "".join(chunk.transcript for chunk in chunks) == speech.text
    assert all(chunk.pcm for chunk in chunks)
    assert not any(chunk.segment_end or chunk.turn_end for chunk in chunks[:-1])
    last = chunks[-1]
    assert (last.segment_end, last.turn_end) == (speech.segment_end, speech.turn_end)


async def spoken(voice: RunningVoice, name: str, words: int) -> tuple[list[Codes], Turn]:
    """Return the codes and the sound of a session that says one turn and ends."""
    mouth = await Mouth(voice.stage, name, words).open()
    turn = await mouth.turn(UNITS)
    await mouth.close()
    return voice.talker.codes.pop(mouth.session), turn


async def test_a_turn_is_a_second_a_unit_and_its_end_is_all_that_was_said(
    voice: RunningVoice,
) -> None:
    codes, turn = await spoken(voice, "whole", 1)
    mouth = Mouth(voice.stage, "whole", 1)
    for number, chunks in enumerate(turn):
        check_unit(mouth.unit(number, turn_end=number == UNITS[-1]), chunks)
    middle = [sum(chunk.samples for chunk in chunks) for chunks in turn[:-1]]
    assert middle == [OUTPUT_RATE_HZ] * len(middle)
    assert [len(unit) for unit in codes[1:-1]] == [25] * (len(codes) - 2)
    # All codes, and the silence that a turn begins with, but for what the first second filled up.
    heard = len(sound(turn)) - (OUTPUT_RATE_HZ - 25 * CODE_SAMPLES + HELD_BACK_SAMPLES)
    assert heard == CODE_SAMPLES * (LOOK_AHEAD + sum(len(unit) for unit in codes))
    for chunks in turn:
        assert np.abs(sound([chunks])).max() > 20 * ALIKE
        first = chunks[0].metrics
        assert first is not None
        assert min(first.talker_ms, first.flow_ms, first.vocoder_ms) > 0


async def test_sessions_beside_each_other_are_as_they_are_alone(voice: RunningVoice) -> None:
    names = [(f"beside-{words}", words) for words in range(4)]
    alone = [await spoken(voice, *name) for name in names]
    together = await asyncio.gather(*(spoken(voice, *name) for name in names))
    for (codes, turn), (wanted, undisturbed) in zip(together, alone, strict=True):
        assert codes == wanted
        assert [[c.samples for c in unit] for unit in turn] == [
            [c.samples for c in unit] for unit in undisturbed
        ]
        assert np.abs(sound(turn) - sound(undisturbed)).max() <= ALIKE
    assert len({tuple(codes[1]) for codes, _ in alone}) == len(alone), "they all say the same"


@pytest.mark.parametrize("when", ["among its codes", "among its chunks"])
async def test_a_turn_that_was_cut_leaves_nothing_to_the_next_one(
    voice: RunningVoice, when: str
) -> None:
    async def said_after_two_units(name: str, *, is_cut: bool) -> tuple[list[Codes], Turn]:
        mouth = await Mouth(voice.stage, name, 6).open()
        if is_cut:
            await mouth.speak(10, turn_start=True)
            await cut(voice, mouth, when)
            assert voice.engine.held_tokens(mouth.session) == 0
            left = {**voice.tables(), "open": 0, "reserved": 0, "sound": 0}
            assert not any(left.values()), left
        else:
            # Their number is a part of what decides the draws.
            await mouth.turn([20])
            await mouth.turn([21])
        voice.talker.codes.pop(mouth.session, None)
        # The door says that it is a turn's start, and who was cut must begin one anyway.
        turn = [await mouth.speak(0), *(await mouth.turn_on([1, 2]))]
        await mouth.close()
        return voice.talker.codes.pop(mouth.session), turn

    codes, turn = await said_after_two_units("cut", is_cut=True)
    wanted, undisturbed = await said_after_two_units("cut", is_cut=False)
    assert codes == wanted
    assert np.abs(sound(turn) - sound(undisturbed)).max() <= ALIKE


async def cut(voice: RunningVoice, mouth: Mouth, when: str) -> None:
    """Interrupt the session in the middle of a unit."""
    voice.talker.is_talking.clear()
    # Only a turn's end has several chunks; its codes would be forgotten in any case.
    is_end = when == "among its chunks"
    stream = mouth.stage.speak(mouth.session, mouth.unit(13, turn_end=is_end))
    rest = asyncio.ensure_future(anext(stream))
    if is_end:
        await rest
        rest = asyncio.ensure_future(anext(stream))
    else:
        await voice.talker.is_talking.wait()
    await voice.stage.interrupt(mouth.session)
    with pytest.raises(StageRefused):
        await rest


async def test_a_recorded_voice_is_another_and_says_the_same(voice: RunningVoice) -> None:
    source = np.random.default_rng(3)
    noise = source.standard_normal(2 * VOICE_RATE_HZ).astype(np.float32)
    own_codes, own = await spoken(voice, "voices", 7)
    mouth = await Mouth(voice.stage, "voices", 7).open(voice_pcm(0.1 * noise))
    turn = await mouth.turn(UNITS)
    await mouth.close()
    assert voice.talker.codes.pop(mouth.session) == own_codes
    assert len(sound(turn)) == len(sound(own))
    assert np.abs(sound(turn) - sound(own)).max() > 20 * ALIKE


async def test_a_first_sound_of_few_codes_comes_while_the_talker_goes_on(
    voice: RunningVoice,
) -> None:
    stage = await voice.other(first_call_codes=10)
    mouth = await Mouth(stage, "early", 8).open()
    first, second = await mouth.speak(0, turn_start=True), await mouth.speak(1)
    await mouth.close()
    check_unit(mouth.unit(0), first)
    # With the silence that fills the second up, in front.
    assert first[0].samples == 7 * CODE_SAMPLES
    assert sum(chunk.samples for chunk in first) == OUTPUT_RATE_HZ
    assert sum(chunk.samples for chunk in second) == OUTPUT_RATE_HZ
    voice.talker.codes.pop(mouth.session)


async def test_who_finds_no_memory_for_sound_is_refused_and_let_in_later(
    voice: RunningVoice, tiny_folder: Path
) -> None:
    networks = load_token2wav(voice.settings, tiny_folder)
    sizes = VoiceSizes(networks.turn_bytes, networks.voice_bytes)
    frames = len(voice.loaded.prompts.own.prompt.mel)
    two = 2 * sizes.turn_bytes(frames) + sizes.voice_bytes(frames)
    memory = VoiceMemory(two, sizes)
    stage = await voice.other(memory=memory)
    one, other, third = (SessionId(f"room-{number}") for number in range(3))
    await stage.open(one, RuntimeConfig())
    await stage.open(other, RuntimeConfig())
    assert memory.reserved_bytes == two
    with pytest.raises(AdmissionRefused, match="memory"):
        await stage.open(third, RuntimeConfig())
    assert voice.engine.capacity().open_sessions == 2
    await stage.close(one)
    await stage.open(third, RuntimeConfig())
    for session in (other, third):
        await stage.close(session)
    assert memory.reserved_bytes == 0


async def test_nothing_is_left_of_anybody(voice: RunningVoice) -> None:
    """Runs last in this file: after closes, cuts and refusals."""
    assert not any(voice.tables().values()), voice.tables()
    assert not voice.talker.codes.keys() - {SessionId("warm-up")}

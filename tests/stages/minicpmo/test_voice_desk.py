"""Who waits for the vocoder's thread, who is served together, and who gives up."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from session.errors import StageFailed
from stages.minicpmo.flow_state import empty_state
from stages.minicpmo.schedule import VocoderCall
from stages.minicpmo.tiny_voice import write_tiny_voice
from stages.minicpmo.token2wav import (
    Due,
    Spoken,
    Token2Wav,
    Token2WavSettings,
    Turn,
    Voice,
)
from stages.minicpmo.vocoder_stream import VocoderState
from stages.minicpmo.voice_desk import VoiceDesk
from stages.minicpmo.voice_prompt import VoicePrompt
from tests.stages.minicpmo.voice_weights import CPU, flow, prompt

pytestmark = pytest.mark.models

LONG = VocoderCall(tuple(range(28)), is_first=True, is_last=False)
SHORT = VocoderCall(tuple(range(9)), is_first=True, is_last=False)
LAST = VocoderCall(tuple(range(9)), is_first=True, is_last=True)
BROKEN = VocoderCall((1,) * 28, is_first=True, is_last=False)
DEADLY = VocoderCall((2,) * 10, is_first=True, is_last=False)


def a_turn() -> Turn:
    state = empty_state(flow().sizes, 1, 0, CPU, torch.float32)
    nothing = torch.zeros(0)
    return Turn(Voice(nothing, state), state, VocoderState(0, 0, nothing, nothing, nothing))


class SlowVoices:
    """Notes its rounds, and makes each wait until it is let go."""

    def __init__(self) -> None:
        self.rounds: list[list[VocoderCall]] = []
        self.go = threading.Event()
        self.began = threading.Event()

    def prepare(self, key: str, prompt: VoicePrompt) -> Voice:
        raise NotImplementedError

    def begin(self, voice: Voice, seed: int) -> Turn:
        raise NotImplementedError

    def warm_up(self, voice_frames: int, batch_sizes: Sequence[int]) -> None:
        self.rounds += [[LONG] * size for size in batch_sizes]

    def speak(self, due: Sequence[Due]) -> list[Spoken | StageFailed]:
        self.rounds.append([one.call for one in due])
        self.began.set()
        assert self.go.wait(30)
        if DEADLY in self.rounds[-1]:
            raise RuntimeError("no such kernel")
        return [
            StageFailed("broken")
            if one.call == BROKEN
            else Spoken(np.zeros(0, np.float32), one.turn, 0, 0, len(due))
            for one in due
        ]


async def began(voices: SlowVoices) -> None:
    await asyncio.get_running_loop().run_in_executor(None, voices.began.wait, 30)


def wait_for(desk: VoiceDesk, calls: Sequence[VocoderCall]) -> list[asyncio.Task[Spoken]]:
    return [asyncio.ensure_future(desk.speak(a_turn(), call)) for call in calls]


async def test_what_waits_is_served_by_kind_the_longest_waiting_first() -> None:
    voices = SlowVoices()
    desk = VoiceDesk(voices, batch=2)
    first = wait_for(desk, [LONG])
    await began(voices)
    others = wait_for(desk, [SHORT, LONG, LAST, LONG, SHORT, LONG])
    await asyncio.sleep(0)
    assert desk.waiting == 6
    voices.go.set()
    spoken = await asyncio.gather(*first, *others)
    assert voices.rounds == [[LONG], [SHORT, SHORT], [LONG, LONG], [LAST], [LONG]]
    assert [one.batch for one in spoken] == [1, 2, 2, 1, 2, 2, 1]
    assert desk.waiting == 0
    desk.close()


async def test_who_gives_up_takes_no_part_and_holds_nobody_up() -> None:
    voices = SlowVoices()
    desk = VoiceDesk(voices, batch=4)
    (working,) = wait_for(desk, [LONG])
    await began(voices)
    gone, stays = wait_for(desk, [SHORT, SHORT])
    await asyncio.sleep(0)
    gone.cancel()
    working.cancel()
    voices.go.set()
    await stays
    assert voices.rounds == [[LONG], [SHORT]]
    assert working.cancelled()
    desk.close()


async def test_a_failure_reaches_its_own_round_alone() -> None:
    voices = SlowVoices()
    voices.go.set()
    desk = VoiceDesk(voices, batch=4)
    made = await asyncio.gather(
        *wait_for(desk, [LONG, BROKEN, DEADLY, SHORT]), return_exceptions=True
    )
    assert isinstance(made[0], Spoken)
    assert isinstance(made[1], StageFailed)
    assert "no such kernel" in str(made[2])
    assert isinstance(made[2], StageFailed)
    assert isinstance(made[3], Spoken)
    desk.close()


async def test_warming_up_has_the_sizes_of_rounds() -> None:
    voices = SlowVoices()
    desk = VoiceDesk(voices, batch=6)
    await desk.warm_up(600, all_sizes=True)
    assert [len(one) for one in voices.rounds] == [1, 2, 3, 4, 5, 6]
    desk.close()


async def test_where_sizes_do_not_matter_one_turn_is_warmed_up() -> None:
    voices = SlowVoices()
    desk = VoiceDesk(voices, batch=6)
    await desk.warm_up(600, all_sizes=False)
    assert [len(one) for one in voices.rounds] == [1]
    desk.close()


async def test_of_large_batches_not_every_size_is_warmed_up() -> None:
    voices = SlowVoices()
    desk = VoiceDesk(voices, batch=40)
    await desk.warm_up(600, all_sizes=True)
    assert [len(one) for one in voices.rounds] == [*range(1, 16), 16, 32, 40]
    desk.close()


async def test_the_desk_keeps_nothing_of_what_was_made() -> None:
    voices = SlowVoices()
    voices.go.set()
    desk = VoiceDesk(voices, batch=6)
    turn = a_turn()
    spoken = await desk.speak(turn, LONG)
    kept: list[weakref.ref[Any]] = [weakref.ref(turn.flow.attention)]
    del turn, spoken
    # The thread lets go of its work a moment after the answer is there.
    for _ in range(1000):
        gc.collect()
        if kept[0]() is None:
            break
        await asyncio.sleep(0.001)
    assert kept[0]() is None
    desk.close()


async def test_two_conversations_speak_through_it(tmp_path: Path) -> None:
    write_tiny_voice(tmp_path)
    voices = Token2Wav.from_folder(tmp_path, Token2WavSettings(), CPU, lambda: 0.0)
    desk = VoiceDesk(voices, batch=2)
    voice = await desk.prepare("a", prompt(31))
    assert await desk.prepare("a", prompt(31)) is voice
    turns = [voices.begin(voice, seed) for seed in (1, 2)]
    spoken = await asyncio.gather(*(desk.speak(turn, LONG) for turn in turns))
    assert [len(one.wave) for one in spoken] == [LONG.samples] * 2
    assert not np.array_equal(spoken[0].wave, spoken[1].wave)
    desk.close()

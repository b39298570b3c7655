"""Sessions share one voice-activity model and nothing else."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from serve_app.audio.input_audio import InputAudio
from serve_app.audio.speech_scorer import SileroScorers
from session.config import default_config
from session.realtime.commands import AudioReceived
from session.unit import INPUT_RATE_HZ
from stages.scripted.plugin import PLUGIN
from stages.vad.silero import SileroVad, VadState, WindowScore

pytestmark = pytest.mark.models
RANDOM = np.random.default_rng(7)


def noise(ms: int) -> bytes:
    samples = RANDOM.normal(0, 2_000, ms * INPUT_RATE_HZ // 1000)
    return samples.astype("<i2").tobytes()


async def test_windows_are_counted_from_the_sessions_beginning() -> None:
    scorer = await SileroScorers().open()
    ends = [score.end_sample for score in await scorer.score(noise(100))]
    assert ends == [512, 1024, 1536]
    scorer.skip(1_000)
    # The cut window before the gap is dropped: what follows it follows on nothing.
    assert [score.end_sample for score in await scorer.score(noise(64))] == [
        2_600 + 512,
        2_600 + 1_024,
    ]


async def test_a_session_that_is_scored_in_pieces_is_scored_the_same() -> None:
    scorers = SileroScorers()
    whole, pieces = await scorers.open(), await scorers.open()
    sound = noise(1_000)
    expected = await whole.score(sound)
    cut = [sound[at : at + 254] for at in range(0, len(sound), 254)]
    assert [score for piece in cut for score in await pieces.score(piece)] == list(expected)


async def test_sessions_do_not_hear_each_other() -> None:
    scorers = SileroScorers()
    alone, one, other = [await scorers.open() for _ in range(3)]
    sound = [noise(200) for _ in range(5)]
    expected = [await alone.score(piece) for piece in sound]
    found = []
    for piece in sound:
        found.append(await one.score(piece))
        await other.score(noise(200))
    assert found == expected


async def test_sessions_that_wait_together_are_scored_as_alone() -> None:
    scorers = SileroScorers()
    alone, together = [[await scorers.open() for _ in range(6)] for _ in range(2)]
    sounds = [noise(20 + 700 * index) for index in range(6)]
    expected = [await scorer.score(sound) for scorer, sound in zip(alone, sounds, strict=True)]
    found = await asyncio.gather(
        *(scorer.score(sound) for scorer, sound in zip(together, sounds, strict=True))
    )
    for one, other in zip(expected, found, strict=True):
        assert [score.end_sample for score in one] == [score.end_sample for score in other]
        probabilities = [score.probability for score in one]
        assert [score.probability for score in other] == pytest.approx(probabilities, abs=1e-4)


async def test_a_session_that_gives_up_waiting_disturbs_nobody() -> None:
    scorers = SileroScorers()
    gone, there, alone = [await scorers.open() for _ in range(3)]
    sound = noise(500)
    expected = await alone.score(sound)
    leaving = asyncio.create_task(gone.score(sound))
    staying = asyncio.create_task(there.score(sound))
    await asyncio.sleep(0)
    leaving.cancel()
    assert len(await staying) == len(expected)


async def test_a_network_that_fails_reaches_those_who_waited_and_nobody_after() -> None:
    class Failing(SileroVad):
        def score_batch(
            self, states: Sequence[VadState], pcms: Sequence[bytes]
        ) -> list[tuple[WindowScore, ...]]:
            if len(pcms[0]) == 2:
                raise ValueError("told to fail")
            return super().score_batch(states, pcms)

    scorers = SileroScorers(Failing.load)
    scorer = await scorers.open()
    with pytest.raises(ValueError, match="told to fail"):
        await scorer.score(b"\x00\x00")
    assert len(await (await scorers.open()).score(noise(64))) == 2


async def test_many_first_sessions_load_the_model_once() -> None:
    loaded: list[SileroVad] = []

    def load() -> SileroVad:
        loaded.append(SileroVad.load())
        return loaded[-1]

    scorers = SileroScorers(load)
    await asyncio.gather(*(scorers.open() for _ in range(8)))
    assert len(loaded) == 1


async def test_long_audio_is_scored_whole_and_in_order() -> None:
    audio = InputAudio(SileroScorers().open)
    config = default_config(PLUGIN.descriptor.model_id, PLUGIN.descriptor.profile)
    ends = []
    for ms in (20, 5_000, 20, 200):
        received = AudioReceived(data=noise(ms), format=None, wire_bytes=0)
        appended = await audio.append(received, config, wants_scores=True)
        ends += [score.end_sample for score in appended.scores]  # type: ignore[union-attr]  # not refused
    assert ends == [512 * (index + 1) for index in range(5_240 * 16 // 512)]

"""The voice detector tells a human from noise, whatever pieces the sound comes in."""

from pathlib import Path

import numpy as np
import pytest

from session.unit import INPUT_RATE_HZ
from stages.vad.silero import WINDOW_SAMPLES, SileroVad, WindowScore

pytestmark = pytest.mark.models

SPEECH = (Path(__file__).parents[2] / "data" / "goforward.raw").read_bytes()


@pytest.fixture(scope="module")
def vad() -> SileroVad:
    return SileroVad.load()


def noise(level: float, seconds: int = 3) -> bytes:
    samples = np.random.default_rng(1).standard_normal(seconds * INPUT_RATE_HZ) * level
    return np.clip(samples * 32767, -32768, 32767).astype("<i2").tobytes()


def test_speech_is_found_where_it_is(vad: SileroVad) -> None:
    scores = vad.score(vad.new_state(), SPEECH)
    assert len(scores) == len(SPEECH) // 2 // WINDOW_SAMPLES
    assert [s.end_sample for s in scores[:3]] == [512, 1024, 1536]
    voiced = [s.end_sample / INPUT_RATE_HZ for s in scores if s.probability > 0.5]
    assert voiced[0] == pytest.approx(0.54, abs=0.05)
    assert voiced[-1] == pytest.approx(2.25, abs=0.05)
    assert len(voiced) * WINDOW_SAMPLES / INPUT_RATE_HZ > 1.6


@pytest.mark.parametrize("pcm", [bytes(96_000), noise(0.001), noise(0.05), noise(0.3)])
def test_silence_and_noise_are_no_speech(vad: SileroVad, pcm: bytes) -> None:
    assert max(s.probability for s in vad.score(vad.new_state(), pcm)) < 0.5


@pytest.mark.parametrize("step", [1, 320, 1023, 6400])
def test_pieces_give_the_same_scores(vad: SileroVad, step: int) -> None:
    pcm = SPEECH[16_000:24_000] if step == 1 else SPEECH
    state = vad.new_state()
    found: list[WindowScore] = []
    for at in range(0, len(pcm), step):
        found += vad.score(state, pcm[at : at + step])
    assert tuple(found) == vad.score(vad.new_state(), pcm)


def test_a_batch_of_streams_is_scored_like_each_alone(vad: SileroVad) -> None:
    streams = [SPEECH, b"", SPEECH[20_000:], noise(0.1), SPEECH[:700]]
    states = [vad.new_state() for _ in streams]
    batch = vad.score_batch(states, streams)
    for pcm, state, scores in zip(streams, states, batch, strict=True):
        alone_state = vad.new_state()
        alone = vad.score(alone_state, pcm)
        assert [s.end_sample for s in scores] == [s.end_sample for s in alone]
        np.testing.assert_allclose(
            [s.probability for s in scores], [s.probability for s in alone], atol=1e-5
        )
        assert state.carry == alone_state.carry
    # The streams go on from where they were, each by itself.
    again = vad.score_batch(states, streams)
    state = vad.new_state()
    vad.score(state, SPEECH)
    expected = vad.score(state, SPEECH)
    np.testing.assert_allclose(
        [s.probability for s in again[0]], [s.probability for s in expected], atol=1e-5
    )

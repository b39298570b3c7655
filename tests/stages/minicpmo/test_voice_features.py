"""A recording's three spectrograms, against what the published functions and Kaldi's rule give."""

from typing import Final

import numpy as np
import pytest

from session.unit import INPUT_RATE_HZ, VOICE_RATE_HZ
from stages.log_mel import Floats
from stages.minicpmo.voice_features import speaker_fbank, tokenizer_mel, voice_mel
from stages.minicpmo.voice_pcm import voice_at_16k, voice_floats, voice_pcm
from tests.stages.minicpmo.vectors import arrays

pytestmark = pytest.mark.models

RECORDED: Final = arrays("voice_features")
SAME: Final = 3e-4
"""The published functions transform in float32; where it is nearly silent that shows."""


def sound(name: str) -> Floats:
    return voice_floats(RECORDED[name].tobytes())


def test_the_tokenizers_mel_is_the_published_one() -> None:
    made = tokenizer_mel(sound("pcm_16k"))
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, RECORDED["log_mel"], rtol=0, atol=SAME)


def test_the_speakers_fbank_is_kaldis() -> None:
    made = speaker_fbank(sound("pcm_16k"))
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, RECORDED["fbank"], rtol=0, atol=SAME)


def test_the_prompts_mel_is_the_published_one() -> None:
    made = voice_mel(sound("pcm_24k"))
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, RECORDED["mel"], rtol=0, atol=SAME)


def test_the_recorded_sound_reaches_both_floors() -> None:
    # Else the floors would be compared with nothing.
    assert (RECORDED["log_mel"] == RECORDED["log_mel"].min()).sum() > 100
    assert (voice_mel(np.zeros(4800, np.float32)) == np.log(np.float32(1e-5))).all()


@pytest.mark.parametrize("samples", [24_000, 24_001, 24_239, 24_240, 24_479, 144_000, 720_000])
def test_frames_by_samples(samples: int) -> None:
    noise = np.random.default_rng(5).uniform(-0.1, 0.1, samples).astype(np.float32)
    at_16k = voice_at_16k(noise)
    assert len(at_16k) == round(samples * 2 / 3)
    assert voice_mel(noise).shape == (samples // 480, 80)
    assert tokenizer_mel(at_16k).shape == (128, len(at_16k) // 160)
    assert speaker_fbank(at_16k).shape == (1 + (len(at_16k) - 400) // 160, 80)


def test_resampling_keeps_the_sound_and_full_scale() -> None:
    times = np.arange(VOICE_RATE_HZ) / VOICE_RATE_HZ
    wave = np.sign(np.sin(2 * np.pi * 440 * times)).astype(np.float32)
    made = voice_at_16k(wave)
    assert made.dtype == np.float32
    assert np.abs(made).max() == 1.0
    spectrum = np.abs(np.fft.rfft(made))
    assert np.argmax(spectrum) * INPUT_RATE_HZ / len(made) == pytest.approx(440, abs=1)


def test_what_16_khz_can_not_hold_is_gone() -> None:
    times = np.arange(VOICE_RATE_HZ) / VOICE_RATE_HZ
    high = (0.5 * np.sin(2 * np.pi * 10_000 * times)).astype(np.float32)
    # At its ends the tone begins and stops, which is no pure tone.
    assert np.abs(voice_at_16k(high)[500:-500]).max() < 1e-3


def test_pcm_and_floats_are_each_others_way_back() -> None:
    pcm = np.array([-32_768, -1, 0, 1, 32_767], "<i2").tobytes()
    assert voice_pcm(voice_floats(pcm + b"\x01")) == pcm
    assert voice_pcm(np.array([-2.0, 2.0], np.float32)) == pcm[:2] + pcm[-2:]

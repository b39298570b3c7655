"""The spectrogram equals the published one, and its own definition."""

from pathlib import Path

import numpy as np
import pytest

from stages.log_mel import BANDS, HOP, log_mel

DATA = Path(__file__).parents[1] / "data"


def test_a_recording_gives_the_published_features() -> None:
    pcm = np.frombuffer((DATA / "goforward.raw").read_bytes(), "<i2")
    features = log_mel(pcm.astype(np.float32) / np.float32(32768))
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, np.load(DATA / "goforward_log_mel.npy"), atol=1e-5)


def test_silence_is_the_floor() -> None:
    features = log_mel(np.zeros(16_000, np.float32))
    assert features.shape == (BANDS, 16_000 // HOP)
    np.testing.assert_allclose(features, -1.5, atol=1e-6)


@pytest.mark.parametrize("hertz", [200, 1000, 3000, 7000])
def test_a_tone_is_loudest_in_its_own_band(hertz: int) -> None:
    audio = np.sin(2 * np.pi * hertz * np.arange(16_000) / 16_000).astype(np.float32)
    loudest = np.argmax(log_mel(audio)[:, 50])
    # Slaney's scale: 3 mels to 200 Hz up to 1 kHz, then 27 to each factor of 6.4; 80 bands.
    mel = 3 * hertz / 200 if hertz <= 1000 else 15 + 27 * np.log(hertz / 1000) / np.log(6.4)
    top = 15 + 27 * np.log(8) / np.log(6.4)
    assert abs(loudest - (mel / top * (BANDS + 1) - 1)) <= 1

"""Sound made in pieces is the sound made at once, and what the voice's own package makes."""

import numpy as np
import pytest
from hibari import dsp

from stages.embedded.vocoder import BINS, HOP, Floats, Frames, Vocoder, pulse_train

FRAMES = 57


class NoNoise:
    """Stands in for the package's random generator."""

    def standard_normal(self, shape: tuple[int, int], dtype: type) -> Floats:
        return np.zeros(shape, dtype)


def some_frames(seed: int = 1, count: int = FRAMES) -> Frames:
    """Return frames of no particular sound, with voiced and unvoiced stretches."""
    rng = np.random.default_rng(seed)
    a, b, c, d, e = rng.standard_normal((5, BINS, count)).astype(np.float32) - 4
    pitch = 150 + 60 * np.sin(np.arange(count) / 5)
    pitch[10:20] = 0
    return Frames(a, b, c, d, e, pitch.astype(np.float32))


def read_all(vocoder: Vocoder, hops: int) -> Floats:
    pieces = []
    while vocoder.hops_left:
        pieces.append(vocoder.read(hops))
    return np.concatenate(pieces)


@pytest.mark.parametrize("hops", [1, 2, 3, 7, 20, FRAMES - 1, FRAMES, 1000])
def test_pieces_of_any_size_are_the_package_s_own_sound(hops: int) -> None:
    frames = some_frames()
    layers = (
        frames.voice_gain,
        frames.voice_phase,
        frames.noise_gain,
        frames.free_gain,
        frames.free_phase,
    )
    offline = dsp.synth(*(layer.copy() for layer in layers), frames.pitch, NoNoise())
    sound = read_all(Vocoder(frames, None), hops)
    assert len(sound) == FRAMES * HOP
    np.testing.assert_allclose(sound, offline, atol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_very_short_sounds_have_their_length(count: int) -> None:
    frames = some_frames(count=count)
    whole = Vocoder(frames, None).read(99)
    assert len(whole) == count * HOP
    np.testing.assert_allclose(read_all(Vocoder(frames, None), 1), whole, atol=1e-6)


def test_the_noise_does_not_depend_on_the_pieces() -> None:
    whole = Vocoder(some_frames(), np.random.default_rng(3)).read(FRAMES)
    pieces = read_all(Vocoder(some_frames(), np.random.default_rng(3)), 8)
    np.testing.assert_allclose(pieces, whole, atol=1e-5)
    silent = Vocoder(some_frames(), None).read(FRAMES)
    assert np.abs(whole - silent).max() > 1e-3


def test_reading_beyond_the_end_gives_nothing() -> None:
    vocoder = Vocoder(some_frames(), None)
    vocoder.read(FRAMES)
    assert vocoder.hops_left == 0
    assert len(vocoder.read(5)) == 0


def test_pulses_have_the_pitch_and_are_silent_without() -> None:
    pitch = np.full(40, 200, np.float32)
    spectrum = np.abs(np.fft.rfft(pulse_train(pitch)))
    hertz = np.fft.rfftfreq(40 * HOP, 1 / 24_000)
    peaks = hertz[spectrum > spectrum.max() / 2]
    assert set(peaks) == set(np.arange(200, 11_001, 200))
    assert not pulse_train(np.zeros(9, np.float32)).any()

"""The streaming mel equals the recorded one, and the definition over the whole window."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session.errors import StageFailed, UnsupportedOption
from stages.log_mel import Floats, mel_decades
from stages.minicpmo.mel import (
    LEAD_SAMPLES,
    REFERENCE_SAMPLES,
    UNIT_SAMPLES,
    WAITING_SAMPLES,
    MelState,
    hear,
    new_conversation,
    reference_mel,
)

DATA = Path(__file__).parents[2] / "data" / "minicpmo"
UNITS = 44


@dataclass(frozen=True)
class Recorded:
    pcm: Floats
    mels: tuple[Floats, ...]
    stream_state: dict[str, list[int]]
    left_over: list[tuple[int, int]]


def as_floats(pcm: np.ndarray) -> Floats:
    return pcm.astype(np.float32) / np.float32(32768)


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    with np.load(DATA / "mel.npz") as vectors:
        columns = [str(name) for name in vectors["stream_state_columns"]]
        return Recorded(
            pcm=as_floats(vectors["pcm_int16"]),
            mels=(vectors["mel_first"], *vectors["mel_rest"]),
            stream_state=dict(zip(columns, vectors["stream_state"].T.tolist(), strict=True)),
            left_over=[(row[0], row[1]) for row in vectors["pcm_left_over_before_after"].tolist()],
        )


def seconds_of(pcm: Floats) -> list[Floats]:
    return list(pcm.reshape(-1, UNIT_SAMPLES))


def heard_one_by_one(pcm: Floats) -> Iterator[tuple[MelState, Floats]]:
    state = new_conversation()
    for second in seconds_of(pcm):
        state, (mel,) = hear(state, second)
        yield state, mel


def assert_same(mels: list[Floats], others: list[Floats]) -> None:
    assert len(mels) == len(others)
    for mel, other in zip(mels, others, strict=True):
        np.testing.assert_array_equal(mel, other)


def assert_same_state(state: MelState, other: MelState) -> None:
    for field in fields(MelState):
        np.testing.assert_array_equal(getattr(state, field.name), getattr(other, field.name))


def assert_recorded(mel: Floats, expected: Floats, name: str) -> None:
    """Compare to 1e-5, and to 5e-5 what is 5.5 decades or more below its frame's loudest band.

    The recording was made with a float32 transform, which rounds to 1e-7 of the loudest amplitude
    in a frame; far below that, its last digits are noise. The same formula in the arithmetic of
    the recording (torch.stft in float32) differs from it by 0, in float64 by 3.9e-5.
    """
    assert mel.shape == expected.shape
    is_faint = expected < expected.max(axis=0) - 5.5 / 4
    error = np.abs(mel - expected)
    assert error[~is_faint].max() <= 1e-5, name
    assert error.max() <= 5e-5, name
    # Even among the faint, nearly all are within the tolerance.
    assert np.count_nonzero(error > 1e-5) <= 0.02 * error.size, name


def noise(seed: int, units: int, loudness: float = 0.1) -> Floats:
    """Noise whose seconds differ in loudness by up to 9 decades of power."""
    rng = np.random.default_rng(seed)
    levels = loudness * 10.0 ** rng.uniform(-4.5, 0, (units, 1))
    return (rng.uniform(-1, 1, (units, UNIT_SAMPLES)) * levels).astype(np.float32).ravel()


def by_definition(pcm: Floats, unit: int) -> Floats:
    """The mel of a unit as the vectors' clauses say it, from the whole window."""
    conversation = np.concatenate([np.zeros(LEAD_SAMPLES, np.float32), pcm])
    dropped, window = 0, conversation[:0]
    for u in range(unit + 1):
        window = conversation[dropped : 16_480 + 16_000 * u]
        if len(window) >= 480_000:
            dropped += 160_000
            window = window[160_000:]
    decades = mel_decades(window)
    if len(window) >= 80_000:
        decades = np.maximum(decades, decades.max() - 8)
    first = dropped // 160
    features: Floats = (decades + np.float32(4)) / np.float32(4)
    return features[:, max(0, 100 * unit - 2) - first : 100 * unit + 102 - first]


def test_all_units_equal_the_recorded_ones(recorded: Recorded) -> None:
    heard = [mel for _, mel in heard_one_by_one(recorded.pcm)]
    assert len(heard) == len(recorded.mels) == UNITS
    for unit, (mel, expected) in enumerate(zip(heard, recorded.mels, strict=True)):
        assert mel.dtype == np.float32
        assert_recorded(mel, expected, f"unit {unit}")


def test_the_window_is_where_the_recording_says(recorded: Recorded) -> None:
    states = [state for state, _ in heard_one_by_one(recorded.pcm)]
    frames = [state.window_samples // 160 for state in states]
    assert recorded.stream_state == {
        "stable_T": [count - 1 for count in frames],
        "T_full": frames,
        "base_T": [state.dropped_units * 100 for state in states],
        "buffer_len_samples": [state.window_samples for state in states],
        "left_samples_dropped": [state.dropped_units * UNIT_SAMPLES for state in states],
        "core_start": [100 * (state.units - 1) for state in states],
        "core_end": [100 * state.units for state in states],
    }
    drops = [
        unit
        for unit, (before, after) in enumerate(pairwise(states), start=1)
        if after.dropped_units > before.dropped_units
    ]
    assert drops == [29, 39]


def test_as_many_samples_wait_as_the_recording_says(recorded: Recorded) -> None:
    states = [state for state, _ in heard_one_by_one(recorded.pcm)]
    given_samples = [LEAD_SAMPLES + UNIT_SAMPLES * state.units for state in states]
    taken = [state.dropped_units * UNIT_SAMPLES + state.window_samples for state in states]
    waiting = [given - took for given, took in zip(given_samples, taken, strict=True)]
    assert recorded.left_over == list(pairwise([0, *waiting]))
    assert set(waiting) == {WAITING_SAMPLES}


@pytest.mark.parametrize("seed", range(3))
def test_each_frame_computed_once_equals_the_whole_window(seed: int) -> None:
    pcm = noise(seed, 42)
    for unit, (_, mel) in enumerate(heard_one_by_one(pcm)):
        if unit in {0, 1, 3, 4, 5, 28, 29, 30, 38, 39, 41}:
            expected = by_definition(pcm, unit)
            np.testing.assert_allclose(mel, expected, rtol=0, atol=1e-5, err_msg=f"unit {unit}")


@pytest.mark.parametrize(
    ("start", "unit"),
    [
        # Only the frame mirrored at the window's end sees it; the next unit sees it whole.
        (16_000 * 6 + 16_370, 6),
        (16_000 * 29 + 16_380, 29),
        # Only the frames mirrored at the beginning see it, once older audio has gone.
        (160_000, 29),
        (160_019, 29),
        (159_950, 29),
        (320_010, 39),
    ],
)
def test_a_burst_in_a_mirrored_frame_raises_the_floor_of_the_unit(start: int, unit: int) -> None:
    pcm = noise(7, unit + 1, loudness=1e-4)
    (*_, (_, quiet)) = heard_one_by_one(pcm)
    burst = slice(start - LEAD_SAMPLES, start - LEAD_SAMPLES + 100)
    pcm[burst] = 0.9 * np.sin(2 * np.pi * np.arange(100) / 16)
    (*_, (_, mel)) = heard_one_by_one(pcm)
    assert mel.min() > quiet.min() + 0.1
    np.testing.assert_allclose(mel, by_definition(pcm, unit), rtol=0, atol=1e-5)


def test_loud_audio_that_left_the_window_no_longer_raises_the_floor() -> None:
    pcm = np.zeros(31 * UNIT_SAMPLES, np.float32)
    pcm[5 * UNIT_SAMPLES : 6 * UNIT_SAMPLES] = np.random.default_rng(3).uniform(-1, 1, UNIT_SAMPLES)
    heard = [mel for _, mel in heard_one_by_one(pcm)]
    np.testing.assert_array_equal(heard[28], np.float32(max(map(np.max, heard[5:7])) - 2))
    np.testing.assert_allclose(heard[29], -1.5, rtol=0, atol=1e-6)


@settings(max_examples=10, deadline=None)
@given(cuts=st.sets(st.integers(1, UNITS - 1)))
def test_seconds_given_together_equal_seconds_given_alone(
    recorded: Recorded, cuts: set[int]
) -> None:
    state = new_conversation()
    together: list[Floats] = []
    for start, stop in pairwise([0, *sorted(cuts), UNITS]):
        state, mels = hear(state, recorded.pcm[start * UNIT_SAMPLES : stop * UNIT_SAMPLES])
        together += mels
    *_, (alone, _) = heard_one_by_one(recorded.pcm)
    assert_same(together, [mel for _, mel in heard_one_by_one(recorded.pcm)])
    assert_same_state(state, alone)


def test_a_long_first_append_stands_where_the_zeros_would(recorded: Recorded) -> None:
    with_zeros = np.concatenate([np.zeros(LEAD_SAMPLES, np.float32), recorded.pcm])
    _, mels = hear(new_conversation(), with_zeros)
    assert_same(list(mels), [mel for _, mel in heard_one_by_one(recorded.pcm)])
    loud_start = with_zeros[: LEAD_SAMPLES + UNIT_SAMPLES].copy()
    loud_start[:LEAD_SAMPLES] = 0.5
    _, (first,) = hear(new_conversation(), loud_start)
    whole = (mel_decades(loud_start[:-WAITING_SAMPLES]) + 4) / 4
    np.testing.assert_allclose(first, whole[:, :102], rtol=0, atol=1e-5)


def test_interleaved_conversations_equal_each_alone(recorded: Recorded) -> None:
    # The second is quiet, and its first 5 s fall into the loud ones of the first.
    pcms = (recorded.pcm, noise(1, UNITS, loudness=1e-3))
    states = [new_conversation(), new_conversation()]
    heard: tuple[list[Floats], list[Floats]] = ([], [])
    turns = [0] * 7 + [0, 1] * (UNITS - 7) + [1] * 7
    for who in turns:
        second = seconds_of(pcms[who])[len(heard[who])]
        states[who], mels = hear(states[who], second)
        heard[who].extend(mels)
    for pcm, mine in zip(pcms, heard, strict=True):
        assert_same(mine, [mel for _, mel in heard_one_by_one(pcm)])


@pytest.mark.parametrize("unit", [0, 1, 4, 29, 39])
def test_a_unit_that_is_undone_comes_out_the_same_again(recorded: Recorded, unit: int) -> None:
    state = new_conversation()
    if unit:
        state, _ = hear(state, recorded.pcm[: unit * UNIT_SAMPLES])
    second = seconds_of(recorded.pcm)[unit]
    after, (mel,) = hear(state, second)
    # A loud unit that was interrupted, and the one after it, leave nothing behind.
    loud, _ = hear(state, np.full(UNIT_SAMPLES, 0.9, np.float32))
    hear(loud, noise(2, 3))
    again, (mel_again,) = hear(state, second)
    np.testing.assert_array_equal(mel, mel_again)
    assert_same_state(after, again)


def test_a_state_does_not_look_at_the_callers_arrays(recorded: Recorded) -> None:
    second = seconds_of(recorded.pcm)[0].copy()
    state, (mel,) = hear(new_conversation(), second)
    expected = hear(state, second)[1]
    given_again = second.copy()
    second[:] = 0
    mel[:] = 0
    assert_same(list(hear(state, given_again)[1]), list(expected))
    with pytest.raises(ValueError, match="read-only"):
        state.tail[:] = 0
    with pytest.raises(ValueError, match="read-only"):
        state.again[:] = 0


def poisoned(value: float) -> Floats:
    pcm = np.zeros(UNIT_SAMPLES, np.float32)
    pcm[8000] = value
    return pcm


@pytest.mark.parametrize(
    "pcm",
    [
        poisoned(np.nan),
        poisoned(np.inf),
        poisoned(-np.inf),
        poisoned(1.5),
        np.zeros(0, np.float32),
        np.zeros(UNIT_SAMPLES - 1, np.float32),
        np.zeros(UNIT_SAMPLES + 1, np.float32),
        np.zeros(LEAD_SAMPLES, np.float32),
        np.zeros(UNIT_SAMPLES + LEAD_SAMPLES, np.float32),
        np.zeros(UNIT_SAMPLES, np.float64),
        np.zeros((1, UNIT_SAMPLES), np.float32),
        np.zeros((), np.float32),
    ],
)
def test_a_poisoned_unit_is_refused_and_changes_nothing(recorded: Recorded, pcm: Floats) -> None:
    seconds = seconds_of(recorded.pcm)
    state, _ = hear(new_conversation(), np.concatenate(seconds[:5]))
    expected_state, expected = hear(state, seconds[5])
    with pytest.raises(StageFailed):
        hear(state, pcm)
    after, mels = hear(state, seconds[5])
    assert_same(list(mels), list(expected))
    assert_same_state(after, expected_state)


def test_good_seconds_before_a_bad_one_are_refused_with_it(recorded: Recorded) -> None:
    with pytest.raises(StageFailed, match="finite"):
        hear(new_conversation(), np.concatenate([seconds_of(recorded.pcm)[0], poisoned(np.nan)]))


def test_a_voice_equals_the_recorded_one() -> None:
    with np.load(DATA / "ref_audio.npz") as vectors:
        mel = reference_mel(as_floats(vectors["pcm_int16"]))
        assert mel.dtype == np.float32
        assert mel.shape[1] == int(vectors["mel_lens"][0])
        assert_recorded(mel, vectors["mel"], "voice")


def test_a_voice_has_its_floor_whatever_was_heard_before() -> None:
    voice = np.concatenate([noise(4, 1), np.zeros(UNIT_SAMPLES, np.float32)])
    before = reference_mel(voice)
    hear(new_conversation(), noise(5, 2))
    np.testing.assert_array_equal(reference_mel(voice), before)
    assert before.min() == pytest.approx(before.max() - 2, abs=1e-6)


@pytest.mark.parametrize(("samples", "frames"), [(1, 1), (160, 1), (161, 2), (480_000, 3000)])
def test_a_voice_is_cut_to_its_length(samples: int, frames: int) -> None:
    assert reference_mel(np.full(samples, 0.1, np.float32)).shape == (80, frames)


@pytest.mark.parametrize(
    "pcm",
    [
        poisoned(np.nan),
        np.zeros(0, np.float32),
        np.zeros(REFERENCE_SAMPLES + 1, np.float32),
        np.zeros((1, 160), np.float32),
    ],
)
def test_a_recording_that_can_not_be_a_voice_is_refused(pcm: Floats) -> None:
    with pytest.raises(UnsupportedOption):
        reference_mel(pcm)

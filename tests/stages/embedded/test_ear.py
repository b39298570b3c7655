"""Utterances are found in the stream, wherever units begin and end."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES, Unit
from stages.embedded.ear import LONGEST_PIECE_S, Ear, EarSettings, Utterance
from stages.embedded.hearing import listen, recognise
from tests.support.sound import LevelRecogniser, LoudnessVad, tone

SETTINGS = EarSettings(threshold=0.5, silence_ms=400, min_speech_ms=200, pre_roll_ms=300)
QUIET = 0
A, B = 8000, 16_000


def make_ear() -> Ear:
    return Ear(LoudnessVad(), SETTINGS)


def ms(pcm: bytes) -> float:
    return len(pcm) / SAMPLE_BYTES / INPUT_RATE_HZ * 1000


def loud_ms(utterance: Utterance) -> float:
    return np.count_nonzero(np.frombuffer(utterance.pcm, "<i2")) / INPUT_RATE_HZ * 1000


def test_an_utterance_is_over_after_the_silence() -> None:
    ear = make_ear()
    assert ear.hear(tone(QUIET, 1000) + tone(A, 600) + tone(QUIET, 350)) == []
    assert ear.is_hearing_speech
    (utterance,) = ear.hear(tone(QUIET, 150))
    assert utterance.is_complete
    assert not ear.is_hearing_speech
    assert loud_ms(utterance) == 600
    # 300 ms before and 200 ms after, to the width of a window
    assert ms(utterance.pcm) == pytest.approx(300 + 600 + 200, abs=64)


def test_the_pre_roll_never_reaches_before_the_stream() -> None:
    ear = make_ear()
    (utterance,) = ear.hear(tone(A, 600) + tone(QUIET, 600))
    assert loud_ms(utterance) == 600


def test_a_short_sound_is_noise() -> None:
    ear = make_ear()
    assert ear.hear(tone(QUIET, 500) + tone(A, 100) + tone(QUIET, 600)) == []
    assert not ear.is_hearing_speech
    assert ear.end() == []


def test_a_pause_within_speech_does_not_end_it() -> None:
    ear = make_ear()
    speech = tone(A, 500) + tone(QUIET, 300) + tone(B, 500)
    (utterance,) = ear.hear(speech + tone(QUIET, 600))
    assert loud_ms(utterance) == 1000


def test_two_utterances_may_come_at_once() -> None:
    ear = make_ear()
    both = tone(A, 500) + tone(QUIET, 600) + tone(B, 400) + tone(QUIET, 600)
    first, second = ear.hear(both)
    assert (loud_ms(first), loud_ms(second)) == (500, 400)


def test_who_is_done_need_not_wait() -> None:
    ear = make_ear()
    assert ear.hear(tone(A, 500)) == []
    (utterance,) = ear.end()
    assert utterance.is_complete
    assert ear.end() == []


def test_an_end_may_ask_for_a_little_silence() -> None:
    ear = make_ear()
    ear.hear(tone(A, 500) + tone(QUIET, 64))
    assert ear.end(min_silence_ms=100) == []
    ear.hear(tone(QUIET, 128))
    assert len(ear.end(min_silence_ms=100)) == 1


def test_a_long_speech_comes_in_pieces_cut_at_its_quietest() -> None:
    ear = make_ear()
    # 24 s of speech, a breath that is no pause, 10 s more.
    pcm = tone(A, 24_000) + tone(1500, 200) + tone(B, 10_000) + tone(QUIET, 600)
    first, rest = ear.hear(pcm)
    assert (first.is_complete, rest.is_complete) == (False, True)
    assert ms(first.pcm) == pytest.approx(24_100, abs=100)
    assert B not in np.abs(np.frombuffer(first.pcm, "<i2"))
    assert A not in np.abs(np.frombuffer(rest.pcm, "<i2"))


def test_memory_does_not_grow_with_speech_or_silence() -> None:
    ear = make_ear()
    for _ in range(100):
        ear.hear(tone(A, 1000))
        assert ear.held_bytes <= (LONGEST_PIECE_S + 2) * INPUT_RATE_HZ * SAMPLE_BYTES
    for _ in range(100):
        ear.hear(tone(QUIET, 1000))
    assert ms(bytes(ear.held_bytes)) < 400


@given(st.lists(st.tuples(st.sampled_from([QUIET, A]), st.integers(64, 900)), max_size=6))
def test_where_units_are_cut_does_not_matter(stretches: list[tuple[int, int]]) -> None:
    pcm = b"".join(tone(level, length) for level, length in stretches) + tone(QUIET, 600)
    whole, cut = make_ear(), make_ear()
    at_once = whole.hear(pcm)
    piecewise = [
        found for at in range(0, len(pcm), 3202) for found in cut.hear(pcm[at : at + 3202])
    ]
    assert piecewise == at_once


def test_a_copy_can_be_thrown_away() -> None:
    ear = make_ear()
    ear.hear(tone(A, 500))
    tried = ear.copy()
    assert len(tried.hear(tone(QUIET, 600))) == 1
    assert ear.is_hearing_speech
    assert ear.hear(tone(QUIET, 600)) == make_ear_after(tone(A, 500)).hear(tone(QUIET, 600))


def make_ear_after(pcm: bytes) -> Ear:
    ear = make_ear()
    ear.hear(pcm)
    return ear


# --- units ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_complete_item_ends_the_utterance_in_mid_speech(*, is_asked: bool) -> None:
    ear = make_ear()
    unit = Unit(tone(A, 1000), closes_input=is_asked, is_heard_only=not is_asked)
    (utterance,) = listen(ear, unit, 1000)
    assert loud_ms(utterance) == 1000


def test_a_full_unit_waits_for_silence_and_a_residue_does_not() -> None:
    ear = make_ear()
    assert listen(ear, Unit(tone(A, 800) + tone(QUIET, 200)), 1000) == []
    assert len(listen(ear, Unit(tone(QUIET, 64)), 1000)) == 1


def test_a_residue_of_speech_ends_nothing() -> None:
    ear = make_ear()
    assert listen(ear, Unit(tone(A, 500)), 1000) == []
    assert ear.is_hearing_speech


def test_a_continuation_is_a_unit_of_silence() -> None:
    ear = make_ear()
    assert listen(ear, Unit(tone(A, 1000)), 1000) == []
    (utterance,) = listen(ear, Unit(b"", is_continuation=True), 1000)
    assert utterance.is_complete


def test_words_of_pieces_are_joined() -> None:
    whisper = LevelRecogniser({A: "one two", B: "three"})
    pieces = [Utterance(tone(A, 100), False), Utterance(tone(B, 100), True)]
    heard = recognise(whisper, pieces, "zero")
    assert (heard.words, heard.unfinished) == ("zero one two three", "")
    heard = recognise(whisper, pieces[:1], "")
    assert (heard.words, heard.unfinished) == ("", "one two")


@pytest.mark.parametrize("sound", ["[BLANK_AUDIO]", "(wind blowing)", "*sigh*", "...", "", " "])
def test_sounds_are_no_words(sound: str) -> None:
    heard = recognise(LevelRecogniser({A: sound}), [Utterance(tone(A, 300), True)], "")
    assert heard.words == ""

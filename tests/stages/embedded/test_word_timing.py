"""Words come with their sound, all of them and each once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.embedded.word_timing import Captions, time_words


def letters(word: str) -> float:
    """Take ten frames for a letter."""
    return 10.0 * sum(map(str.isalpha, word))


def test_time_is_shared_by_sounds_and_pauses() -> None:
    words = time_words("abc, d. ef.", letters)
    assert [word.text for word in words] == ["abc,", " d.", " ef."]
    # 30 frames, a gap of 1 and a pause of 7; 10, 1 and 21; 20 and 6.6 for being the last
    total = 96.6
    middles = [word.middle * total for word in words]
    assert middles == pytest.approx([15.0, 43.0, 83.3])


def test_the_first_piece_has_the_first_word() -> None:
    captions = Captions(time_words(" Supercalifragilistic is long", letters))
    assert captions.until(0.01) == " Supercalifragilistic"
    assert captions.until(0.02) == ""
    assert captions.until(0.99) == " is long"
    assert captions.rest() == ""


@given(st.text(max_size=50), st.lists(st.floats(0, 1), max_size=6))
def test_joined_captions_are_the_text(text: str, shares: list[float]) -> None:
    captions = Captions(time_words(text, letters))
    assert "".join([*(captions.until(share) for share in sorted(shares)), captions.rest()]) == text

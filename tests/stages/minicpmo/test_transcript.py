"""Words by chunk: nothing is lost, nothing is cut apart."""

import regex
from hypothesis import given
from hypothesis import strategies as st

from stages.minicpmo.transcript import spread

FAMILY = "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"
FLAG = "\N{REGIONAL INDICATOR SYMBOL LETTER D}\N{REGIONAL INDICATOR SYMBOL LETTER E}"
THUMB = "\N{THUMBS UP SIGN}\N{EMOJI MODIFIER FITZPATRICK TYPE-4}"
LENGTHS = st.lists(st.integers(0, 24_000), max_size=6)
PIECES = st.sampled_from([" ", "a", "b", ".", "\u4f60", "\u0301", FAMILY, FLAG, THUMB, "\u0e01"])
TEXTS = st.text(max_size=40) | st.lists(PIECES, max_size=24).map("".join)


def characters(text: str) -> list[str]:
    return regex.findall(r"\X", text)


def test_words_go_where_they_begin() -> None:
    assert spread(" one two three four", [1, 1]) == (" one two three", " four")
    assert spread(" one two three four", [2, 1]) == (" one two three", " four")
    assert spread(" one two three four", [3, 1]) == (" one two three four", "")
    assert spread(" one two three four", [1, 3]) == (" one two", " three four")
    assert spread("one", [4, 4]) == ("one", "")


def test_a_script_without_blanks_is_cut_between_characters() -> None:
    assert spread("\u4f60\u597d\u5417\uff1f", [1, 1]) == ("\u4f60\u597d", "\u5417\uff1f")
    assert spread("\u0e01\u0e33\u0e01\u0e33", [1, 1]) == ("\u0e01\u0e33", "\u0e01\u0e33")


def test_one_chunk_has_it_all_and_no_chunk_has_none() -> None:
    assert spread(" one \U0001f600\n", [7]) == (" one \U0001f600\n",)
    assert spread("lost", []) == ()


def test_chunks_without_sound_leave_their_words_to_the_first() -> None:
    assert spread("a b", [0, 0]) == ("a b", "")


@given(TEXTS, LENGTHS)
def test_joined_parts_are_the_text_and_no_character_is_cut(text: str, lengths: list[int]) -> None:
    parts = spread(text, lengths)
    assert len(parts) == len(lengths)
    if lengths:
        assert "".join(parts) == text
        assert [one for part in parts for one in characters(part)] == characters(text)

"""Text is cut into sentences the same way whole or in pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.embedded.sentences import (
    LONG_FIRST_SENTENCE,
    LONG_SENTENCE,
    SHORT_CLAUSE,
    SentenceStream,
    pack_sentences,
    split_sentences,
)

PROSE = st.text(alphabet=st.sampled_from("abcDE 1.!?,\n\"'"), max_size=80)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Hello. How are you?", ["Hello.", "How are you?"]),
        ("Dr. Smith is 3.5 m tall. Really!", ["Dr. Smith is 3.5 m tall.", "Really!"]),
        ('He said "No." Then he left.', ['He said "No."', "Then he left."]),
        ("One line\nanother line\n", ["One line", "another line"]),
        ("1. Do this\n2. Do that", ["1. Do this", "2. Do that"]),
        ("... Hi. !!", ["... Hi. !!"]),
        ("  ", []),
        ("?!", []),
        ("No end", ["No end"]),
    ],
)
def test_where_sentences_end(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


def test_a_long_sentence_may_end_at_a_comma_but_not_soon() -> None:
    clause = "so it went " * 5 + "it is, "
    assert SHORT_CLAUSE < len(clause) < LONG_FIRST_SENTENCE < LONG_SENTENCE < 3 * len(clause)
    text = clause * 6
    first, second, *_ = split_sentences(text)
    assert first == clause.strip()
    assert second == (clause * 2).strip()
    early = "Well, " + "so " * LONG_SENTENCE
    assert early.index(",") < SHORT_CLAUSE
    assert len(split_sentences(early)) == 1


def test_a_sentence_waits_for_its_follower() -> None:
    stream = SentenceStream()
    assert stream.feed("It rains.") == []
    assert stream.feed(" ") == []
    assert stream.feed('"') == []
    assert stream.feed("Oh") == ["It rains."]
    assert stream.feed(" no.") == []
    assert stream.finish() == '"Oh no.'
    assert stream.finish() is None


@given(PROSE)
def test_joined_sentences_are_the_text(text: str) -> None:
    sentences = split_sentences(text)
    whole = " ".join(text.split())
    assert " ".join(sentences) == (whole if any(map(str.isalnum, whole)) else "")
    assert all(any(map(str.isalnum, sentence)) for sentence in sentences)


@given(PROSE)
def test_a_stream_of_characters_gives_the_same_words(text: str) -> None:
    stream = SentenceStream()
    pieces = [sentence for character in text for sentence in stream.feed(character)]
    pieces.append(stream.finish() or "")
    assert " ".join(filter(None, pieces)) == " ".join(split_sentences(text))


@given(st.lists(st.sampled_from(["a.", "b.", "c."]), max_size=40), st.integers(1, 9))
def test_packing_keeps_all_words_in_few_pieces(sentences: list[str], limit: int) -> None:
    packed = pack_sentences(sentences, limit)
    assert len(packed) <= limit
    assert " ".join(packed) == " ".join(sentences)
    assert len(sentences) > limit or packed == sentences

"""What an answer shows unit by unit: whole characters, each once, and none that is no character."""

import regex
from hypothesis import given
from hypothesis import strategies as st

from stages.minicpmo.shown_text import Shown, Tokens, show

FAMILY = "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"
FLAG = "\N{REGIONAL INDICATOR SYMBOL LETTER D}\N{REGIONAL INDICATOR SYMBOL LETTER E}"
THUMB = "\N{THUMBS UP SIGN}\N{EMOJI MODIFIER FITZPATRICK TYPE-4}"
SPECIAL = 256
PIECES = ["a", " b", "\u4f60", "\u00e9", FAMILY, FLAG, THUMB, "\N{GRINNING FACE}", "."]


def decode(tokens: Tokens) -> str:
    """Decode as a byte-level tokenizer does whose every piece is a byte."""
    return bytes(token for token in tokens if token < SPECIAL).decode("utf-8", "replace")


def encoded(text: str) -> Tokens:
    return tuple(text.encode())


def test_half_a_character_waits_for_its_other_half() -> None:
    tokens = encoded("so \u4f60!")
    first = show((), tokens[:4], decode, is_last=False)
    assert first == Shown("so", tokens[2:4])
    assert show(first.waiting, tokens[4:], decode, is_last=False) == Shown(" \u4f60!", ())


def test_an_emoji_that_stands_last_waits() -> None:
    tokens = encoded(f"hi {THUMB}")
    first = show((), tokens[:7], decode, is_last=False)
    assert first == Shown("hi ", tokens[3:7])
    second = show(first.waiting, tokens[7:], decode, is_last=False)
    assert second == Shown("", tokens[3:])
    assert show(second.waiting, encoded(" you"), decode, is_last=False).text == f"{THUMB} you"
    assert show(second.waiting, (), decode, is_last=True) == Shown(THUMB, ())


def test_bytes_that_are_no_character_are_never_shown() -> None:
    assert show((), (*b"a\xffb",), decode, is_last=False) == Shown("ab", ())
    assert show((0xE4,), encoded("b"), decode, is_last=False) == Shown("b", ())
    assert show((), (*b"a\xe4\xbd",), decode, is_last=True) == Shown("a", ())
    assert show((), (), decode, is_last=True) == Shown("", ())


def test_what_is_too_long_for_an_emoji_does_not_wait_for_ever() -> None:
    chain = "\N{ZERO WIDTH JOINER}".join("\N{MAN}" * 40)
    assert show((), encoded(chain), decode, is_last=False).text == chain


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.data())
def test_joined_it_is_the_text_and_no_character_is_cut(text: str, data: st.DataObject) -> None:
    tokens = (*encoded(text), SPECIAL)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(tokens)), max_size=5)))
    waiting: Tokens = ()
    parts = []
    for start, end in zip([0, *cuts], [*cuts, len(tokens)], strict=True):
        shown = show(waiting, tokens[start:end], decode, is_last=end == len(tokens))
        waiting = shown.waiting
        parts.append(shown.text)
    # Units behind the last token have nothing to say.
    assert "".join(parts) == text
    assert waiting == ()
    characters = [one for part in parts for one in regex.findall(r"\X", part)]
    assert characters == regex.findall(r"\X", text)

"""The lines of the key file: what they say, and what is wrong with them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.access.key_file import FIELDS, KeyFileError, nameless, read_keys
from serve_app.access.principal import ANYONE, Principal, Quota, QuotaPatch


def fault(text: str) -> str:
    """Say what is wrong with a file."""
    with pytest.raises(KeyFileError) as wrong:
        read_keys(text.encode())
    return str(wrong.value)


def test_a_line_is_a_key_and_may_say_whose_it_is_and_what_that_client_may_have() -> None:
    text = """
    # rotated monthly
    s3cret/+==
    s4cret name=alice max_sessions=4 max_opens_per_minute=none
    s5cret\tmax_opens_per_minute=30   name=bob-2.test
    """
    first, second, third = read_keys(text.encode())
    assert first == nameless("s3cret/+==")
    assert (second.value, second.principal) == ("s4cret", Principal("alice"))
    assert second.terms.apply_to(Quota(1, 2)) == Quota(4, None)
    assert (third.value, third.principal) == ("s5cret", Principal("bob-2.test"))
    assert third.terms.apply_to(Quota(1, 2)) == Quota(1, 30)


def test_a_key_without_a_name_is_called_by_its_digest_and_shown_nowhere() -> None:
    key = nameless("right")
    assert key.principal.name.startswith("key_")
    assert len(key.principal.name) == len("key_") + 8
    assert "right" not in repr(key)
    assert nameless("right") == key
    assert nameless("other").principal != key.principal != ANYONE
    assert key.terms == QuotaPatch()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("k alice", "line 1: word 2 must be one of name, max_sessions, max_opens_per_minute"),
        ("k name=a b", "line 1: word 3 must be one of"),
        ("k names=alice", "line 1: word 2 must be one of"),
        ("k name", "line 1: word 2 must be one of"),
        ("k name=a name=b", "line 1: name stands twice"),
        ("k max_sessions=1 max_sessions=1", "line 1: max_sessions stands twice"),
        ("\n# x\nk name=", "line 3: name must be letters"),
        ("k name=a/b", "line 1: name must be letters"),
        ("k name=-a", "line 1: name must be letters"),
        (f"k name={'a' * 65}", "line 1: name must be letters"),
        ("k name=anyone", "line 1: name must not be anyone"),
        ("k name=key_0", "line 1: name must not be anyone, nor begin with key_"),
        ("k max_sessions=0", "line 1: max_sessions must be a whole number from 1"),
        ("k max_sessions=-1", "line 1: max_sessions must be a whole number from 1"),
        ("k max_sessions=1.5", "line 1: max_sessions must be a whole number from 1"),
        ("k max_sessions=", "line 1: max_sessions must be a whole number from 1"),
        ("k max_sessions=null", "line 1: max_sessions must be a whole number from 1"),
        ("k max_sessions=1000001", "line 1: max_sessions must be a whole number from 1"),
        ("k max_sessions=\u0661", "line 1: max_sessions must be a whole number from 1"),
        ("k max_opens_per_minute=x", "line 1: max_opens_per_minute must be a whole number from 1"),
        ("k\n\nk name=a", "line 3: the same key as in line 1"),
        (
            "k name=a max_sessions=1\nl name=a max_sessions=2",
            "line 2: max_sessions must be that of line 1",
        ),
        (
            "k name=a max_sessions=1\nl name=a max_sessions=none",
            "line 2: max_sessions must be that of line 1",
        ),
    ],
)
def test_a_wrong_line_is_named_with_its_field(text: str, said: str) -> None:
    assert fault(text).startswith(said)
    assert ";" not in fault(text), "one fault is told of once"


def test_every_wrong_line_is_told_of() -> None:
    said = fault("k x\nl\nm max_sessions=0\nl")
    assert [part.partition(":")[0] for part in said.split("; ")] == ["line 1", "line 3", "line 4"]


def test_keys_with_one_name_may_each_say_a_part_of_what_it_may_have() -> None:
    keys = read_keys(b"k name=a max_sessions=1\nl name=a\nm name=a max_sessions=1")
    assert {key.principal for key in keys} == {Principal("a")}


def test_of_very_many_faults_the_first_are_told_and_the_others_counted() -> None:
    said = fault("\n".join(f"k{number} x" for number in range(100_000))).split("; ")
    assert [part.partition(":")[0] for part in said[:-1]] == [f"line {n}" for n in range(1, 11)]
    assert said[-1] == "and 99990 more faults"
    assert len(fault("\n".join(f"k{number} x" for number in range(10))).split("; ")) == 10


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", ""])
def test_a_mark_at_the_beginning_and_any_end_of_line_are_no_part_of_a_key(end: str) -> None:
    first, *others = read_keys(f"\ufeffs3cret name=a{end}".encode())
    assert (first.value, first.principal.name, others) == ("s3cret", "a", [])


@pytest.mark.parametrize("mark", ["\0", "\x1b", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\ufeff"])
def test_a_character_that_is_not_seen_is_a_fault(mark: str) -> None:
    for text in (f"k\nl{mark}m name=a", f"k\n{mark}l", f"k\nl{mark}", f"k\nl name=a{mark}"):
        assert fault(text).startswith("line 2: "), text


def test_a_file_of_no_text_is_a_fault() -> None:
    with pytest.raises(KeyFileError, match="not UTF-8"):
        read_keys(b"\xff\xfe")


WORDS = st.sampled_from(
    ("s3cret", "s4cret", "#", "name=a", "max_sessions=3", "max_sessions=none", "max_sessions=x")
)


@given(st.lists(st.lists(WORDS, max_size=4), max_size=5))
def test_no_fault_shows_a_key(lines: list[list[str]]) -> None:
    text = "\n".join(" ".join(line) for line in lines)
    said = ""
    try:
        keys = read_keys(text.encode())
    except KeyFileError as error:
        keys, said = (), str(error)
    assert "cret" not in said
    assert len({key.value for key in keys}) == len(keys)
    assert all(name in FIELDS for key in keys for name, _ in key.terms.changes)

"""Client secrets in memory: how long they hold, how many there are, and what is kept of them."""

from dataclasses import replace

import pytest

from serve_app.access.client_secrets import ClientSecret, ClientSecrets
from serve_app.access.principal import Principal
from session.config import ConfigPatch
from session.errors import LimitError

SPOKEN = ClientSecret(
    expires_unix_s=110,
    principal=Principal("alice"),
    settings=ConfigPatch((("voice", "alto"),)),
)


def secrets(**bounds: int) -> ClientSecrets:
    return ClientSecrets(b"key", **bounds)


def test_a_secret_is_good_until_it_expires_and_not_a_second_longer() -> None:
    book = secrets()
    book.add("ek_one", SPOKEN, size_bytes=5, now_unix_s=100)
    assert book.find("ek_one", now_unix_s=100) == SPOKEN
    assert book.find("ek_one", now_unix_s=109) == SPOKEN
    assert book.find("ek_one", now_unix_s=110) is None


def test_a_secret_is_good_any_number_of_times() -> None:
    book = secrets()
    book.add("ek_one", SPOKEN, size_bytes=5, now_unix_s=100)
    assert [book.find("ek_one", now_unix_s=105) for _ in range(3)] == [SPOKEN] * 3


@pytest.mark.parametrize("value", ["", "ek_", "ek_onf", "ek_one ", "EK_ONE", "ek_on", "ek_ü"])
def test_another_value_is_not_known(value: str) -> None:
    book = secrets()
    book.add("ek_one", SPOKEN, size_bytes=5, now_unix_s=100)
    assert book.find(value, now_unix_s=100) is None


def test_each_secret_has_settings_of_its_own() -> None:
    book = secrets()
    other = replace(SPOKEN, settings=ConfigPatch((("voice", "bass"),)))
    book.add("ek_one", SPOKEN, size_bytes=5, now_unix_s=100)
    book.add("ek_two", other, size_bytes=5, now_unix_s=100)
    assert book.find("ek_one", now_unix_s=100) == SPOKEN
    assert book.find("ek_two", now_unix_s=100) == other


def test_what_is_kept_does_not_tell_the_value() -> None:
    book = secrets()
    book.add("ek_one", SPOKEN, size_bytes=5, now_unix_s=100)
    kept = repr(vars(book))
    assert "alto" in kept
    assert "ek_one" not in kept


def test_no_more_are_made_than_there_is_room_for_and_none_is_forgotten_early() -> None:
    book = secrets(most=2)
    book.add("ek_one", SPOKEN, size_bytes=5, now_unix_s=100)
    book.add("ek_two", SPOKEN, size_bytes=5, now_unix_s=100)
    with pytest.raises(LimitError):
        book.add("ek_three", SPOKEN, size_bytes=5, now_unix_s=109)
    assert book.find("ek_one", now_unix_s=109) == SPOKEN
    assert book.find("ek_three", now_unix_s=109) is None


def test_an_expired_secret_makes_room() -> None:
    book = secrets(most=2, most_bytes=10)
    later = replace(SPOKEN, expires_unix_s=200)
    book.add("ek_late", later, size_bytes=5, now_unix_s=100)
    book.add("ek_one", SPOKEN, size_bytes=5, now_unix_s=100)
    book.add("ek_two", later, size_bytes=5, now_unix_s=110)
    assert len(book) == 2
    assert book.find("ek_late", now_unix_s=110) == later
    assert book.find("ek_two", now_unix_s=110) == later


def test_settings_are_bounded_together() -> None:
    book = secrets(most_bytes=10)
    book.add("ek_one", SPOKEN, size_bytes=6, now_unix_s=100)
    with pytest.raises(LimitError):
        book.add("ek_two", SPOKEN, size_bytes=5, now_unix_s=100)
    book.add("ek_two", SPOKEN, size_bytes=4, now_unix_s=100)
    assert len(book) == 2

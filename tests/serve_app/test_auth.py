"""Who may come in, decided before a socket opens."""

import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest

from serve_app.access.client_secrets import ClientSecret, ClientSecrets
from serve_app.access.doorkeeper import Admitted, Doorkeeper, Refusal
from serve_app.access.key_file import ApiKey, KeyFileError
from serve_app.access.key_ring import KeyRing, KeyTable, check_key_file
from serve_app.access.principal import ANYONE, Principal, QuotaPatch
from serve_app.access.request_headers import asks_for_beta, presented_key, selected_protocol
from serve_app.metrics.definitions import KEY_FILE_FAULTS
from session.config import ConfigPatch
from tests.fakes.meter import CountedMeter

BEARER = {"authorization": "Bearer right"}
LOCAL = {"host": "127.0.0.1:8000"}


RIGHT = Principal("key_27042f4e")
"""Who has the key `right`; the digits are of its SHA-256."""
VOICE = ConfigPatch((("voice", "alto"),))
SECRET = ClientSecret(expires_unix_s=110, principal=RIGHT, settings=VOICE)


def door(
    *keys: str, allow: bool = False, origins: tuple[str, ...] = (), secret: ClientSecret = SECRET
) -> Doorkeeper:
    secrets = ClientSecrets(b"key")
    secrets.add("ek_good", secret, size_bytes=1, now_unix_s=100)
    return Doorkeeper(
        KeyRing(keys), secrets=secrets, allow_unauthenticated=allow, allowed_origins=origins
    )


def status(door: Doorkeeper, headers: dict[str, str], now_unix_s: int = 100) -> int:
    """Status that a WebSocket with these headers is refused with; 0 when it may come in."""
    admitted = door.admit_socket(headers, now_unix_s=now_unix_s)
    return admitted.status if isinstance(admitted, Refusal) else 0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (BEARER, 0),
        ({"authorization": "bearer right"}, 0),
        ({"authorization": "Bearer other"}, 0),
        ({"sec-websocket-protocol": "realtime, openai-insecure-api-key.right"}, 0),
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"authorization": "Basic right"}, 401),
        ({"authorization": "right"}, 401),
        ({"authorization": "Bearer rïght"}, 401),
        ({"sec-websocket-protocol": "realtime, openai-insecure-api-key.wrong"}, 401),
        ({"sec-websocket-protocol": "realtime"}, 401),
    ],
)
def test_a_socket_needs_one_of_the_keys(headers: dict[str, str], expected: int) -> None:
    assert status(door("right", "other"), headers) == expected


def test_without_keys_nobody_comes_in_and_is_told_why() -> None:
    refusal = door().refuse(BEARER)
    assert refusal is not None
    assert refusal.status == 403
    assert "DUPLEX_API_KEYS" in refusal.message
    assert door().refuse_public() == refusal


def test_unauthenticated_use_must_be_allowed_in_words() -> None:
    assert status(door(allow=True), LOCAL) == 0
    assert door(allow=True).refuse_public() is None


def test_keys_are_asked_for_even_where_unauthenticated_use_would_be_allowed() -> None:
    assert status(door("right", allow=True), {}) == 401


def test_public_pages_need_no_key_once_there_are_keys() -> None:
    assert door("right").refuse_public() is None


def test_empty_keys_are_no_keys() -> None:
    assert KeyRing(["", "  "]).is_empty
    assert status(door("", " "), {"authorization": "Bearer  "}) == 403


@pytest.mark.parametrize(
    ("origin", "host", "expected"),
    [
        ("http://localhost:8000", "127.0.0.1:8000", 0),
        ("http://127.0.0.1", "server.example", 0),
        ("http://[::1]:3000", "server.example", 0),
        ("https://server.example", "server.example", 0),
        ("https://server.example", "server.example:8443", 0),
        ("https://app.example", "server.example", 0),
        ("https://evil.example", "server.example", 403),
        ("https://server.example.evil.example", "server.example", 403),
        ("http://localhost.evil.example", "127.0.0.1:8000", 403),
        ("null", "server.example", 403),
        ("http://[::1", "server.example", 403),
        ("", "", 403),
    ],
)
def test_a_browser_page_must_be_ours(origin: str, host: str, expected: int) -> None:
    headers = BEARER | {"origin": origin, "host": host}
    assert status(door("right", origins=("https://app.example/",)), headers) == expected


def test_a_program_without_an_origin_is_not_asked_for_one() -> None:
    assert status(door("right"), BEARER | {"host": "server.example"}) == 0


def test_the_key_is_never_selected_as_subprotocol() -> None:
    offer = {"sec-websocket-protocol": "openai-insecure-api-key.k, openai-beta.realtime-v1"}
    assert presented_key(offer) == "k"
    assert selected_protocol(offer) is None
    assert selected_protocol({"sec-websocket-protocol": "foo, realtime"}) == "realtime"
    assert selected_protocol({}) is None


# --- client secrets -----------------------------------------------------------------------------

SHOWN = [
    LOCAL | {"authorization": "Bearer ek_good"},
    LOCAL | {"sec-websocket-protocol": "realtime, openai-insecure-api-key.ek_good"},
]


@pytest.mark.parametrize("headers", SHOWN)
@pytest.mark.parametrize("who", [RIGHT, ANYONE], ids=["keys", "open"])
def test_a_client_secret_opens_sockets_until_it_expires(
    headers: dict[str, str], who: Principal
) -> None:
    secret = replace(SECRET, principal=who)
    keys = () if who == ANYONE else ("right",)
    service = door(*keys, allow=True, secret=secret)
    assert service.admit_socket(headers, now_unix_s=109) == Admitted(who, secret)
    assert status(service, headers, 110) == 401


@pytest.mark.parametrize(
    ("who", "keys"),
    [(RIGHT, ("other",)), (RIGHT, ()), (ANYONE, ("right",))],
    ids=["its key was replaced", "there are no keys any more", "keys are asked for now"],
)
def test_a_client_secret_ends_with_the_key_that_made_it(
    who: Principal, keys: tuple[str, ...]
) -> None:
    service = door(*keys, allow=True, secret=replace(SECRET, principal=who))
    refusal = service.admit_socket(SHOWN[0], now_unix_s=100)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, "no longer in force" in refusal.message) == (401, True)


def test_a_client_secret_opens_nothing_where_nobody_comes_in() -> None:
    assert status(door(), SHOWN[0]) == 403


@pytest.mark.parametrize("service", [door("right"), door(allow=True)], ids=["keys", "open"])
def test_an_unknown_secret_is_refused_also_where_no_key_is_asked_for(service: Doorkeeper) -> None:
    refusal = service.admit_socket(LOCAL | {"authorization": "Bearer ek_bad"}, now_unix_s=100)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, "client secret" in refusal.message) == (401, True)


@pytest.mark.parametrize("service", [door("right"), door(allow=True)], ids=["keys", "open"])
def test_a_client_secret_is_no_api_key(service: Doorkeeper) -> None:
    refusal = service.refuse(SHOWN[0])
    assert refusal is not None
    assert (refusal.status, "API key" in refusal.message) == (401, True)


def test_an_api_key_may_look_like_a_secret() -> None:
    service = door("ek_operators_own")
    headers = {"authorization": "Bearer ek_operators_own"}
    assert service.refuse(headers) is None
    assert isinstance(service.admit_socket(headers, now_unix_s=100), Admitted)


def test_who_comes_with_a_key_or_without_brings_no_settings() -> None:
    assert door("right").admit_socket(BEARER, now_unix_s=100) == Admitted(RIGHT)
    assert door(allow=True).admit_socket(LOCAL, now_unix_s=100) == Admitted(ANYONE)
    assert Admitted(ANYONE).settings == ConfigPatch()
    assert Admitted(ANYONE, SECRET).settings == VOICE


def test_a_page_from_elsewhere_may_not_come_with_a_secret_either() -> None:
    headers = SHOWN[1] | {"origin": "https://evil.example", "host": "server.example"}
    assert status(door("right"), headers) == 403
    assert status(door("right", origins=("https://evil.example",)), headers) == 0


# --- subprotocols and the beta ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"openai-beta": "realtime=v1"}, True),
        ({"openai-beta": "assistants=v2, Realtime=v1"}, True),
        ({"sec-websocket-protocol": "realtime, openai-beta.realtime-v1"}, True),
        ({"openai-beta": "assistants=v2"}, False),
        ({"openai-beta": ""}, False),
        ({"sec-websocket-protocol": "realtime"}, False),
        ({}, False),
    ],
)
def test_who_speaks_the_beta_is_known_by_its_handshake(
    headers: dict[str, str], expected: bool
) -> None:
    assert asks_for_beta(headers) is expected


def test_what_else_a_client_offers_is_ignored() -> None:
    offer = {
        "sec-websocket-protocol": "realtime, openai-organization.org-1, openai-project.proj_1, "
        "openai-agents-sdk.0.4.1, openai-insecure-api-key.right",
        "openai-organization": "org-1",
        "openai-project": "proj_1",
        "user-agent": "Agents/Python 0.4.1",
        "x-openai-agents-sdk": "openai-agents-sdk.0.4.1",
    }
    assert status(door("right"), offer) == 0
    assert selected_protocol(offer) == "realtime"


def test_a_key_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# rotated monthly\nold\n\n")
    ring = KeyRing(file=file)
    assert ring.holds("old")
    assert not ring.holds("# rotated monthly")
    file.write_text("new\n")
    os.utime(file, ns=(1, 1))
    assert ring.holds("new")
    assert not ring.holds("old")


def test_a_key_file_that_vanishes_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("key")
    meter = CountedMeter()
    ring = KeyRing(file=file, meter=meter)
    assert ring.holds("key")
    assert meter.of(KEY_FILE_FAULTS) == {}
    aside = file.rename(tmp_path / "aside")
    assert [ring.holds("key"), ring.holds("key")] == [True, True]
    assert meter.of(KEY_FILE_FAULTS) == {("unreadable",): 1}
    aside.rename(file)
    assert ring.holds("key")
    file.unlink()
    assert ring.holds("key")
    assert meter.of(KEY_FILE_FAULTS) == {("unreadable",): 2}


def test_a_key_file_that_never_was_lets_nobody_in(tmp_path: Path) -> None:
    ring = KeyRing(file=tmp_path / "none")
    assert ring.is_empty
    assert not ring.holds("")


def test_a_file_with_a_wrong_line_changes_nothing_and_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys"
    file.write_text("s3cret name=alice\n")
    meter = CountedMeter()
    ring = KeyRing(file=file, meter=meter)
    file.write_text("n3w name=alice max_session=4\n")
    with caplog.at_level(logging.WARNING):
        assert [ring.holds("s3cret"), ring.holds("n3w")] == [True, False]
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"{file}: line 1: ")
    assert "n3w" not in said
    assert meter.of(KEY_FILE_FAULTS) == {("wrong",): 1}
    file.write_text("n3w name=alice max_sessions=4\n")
    assert [ring.holds("s3cret"), ring.holds("n3w")] == [False, True]


def test_a_file_that_is_wrong_at_the_start_is_a_fault(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("s3cret alice\n")
    with pytest.raises(KeyFileError, match="line 1: word 2"):
        KeyRing(file=file)
    with pytest.raises(KeyFileError, match="line 1: word 2"):
        check_key_file(file)
    check_key_file(tmp_path / "none")
    check_key_file(None)


def test_a_file_that_was_read_is_told_of_once_and_without_its_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys"
    file.write_text("s3cret name=alice\ns4cret name=alice\ns5cret\n")
    with caplog.at_level(logging.INFO):
        ring = KeyRing(["given"], file)
        assert ring.holds("s3cret")
        file.write_text("n3w name=bob\n")
        assert [ring.holds("n3w"), ring.holds("n3w")] == [True, True]
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told == [
        ("INFO", f"{file} was read: 3 keys, 2 names"),
        ("INFO", f"{file} was read: 1 keys, 1 names"),
    ]


def test_a_key_can_be_replaced_without_another_client(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("old name=alice max_sessions=4\nnew name=alice\nother name=bob\n")
    ring = KeyRing(["given", "other"], file)
    alice = Principal("alice")
    assert [ring.owner(key) for key in ("old", "new", "none")] == [alice, alice, None]
    assert ring.owner("other") == Principal("bob"), "a key of the file has its name there"
    assert ring.terms(alice) == QuotaPatch((("max_sessions", 4),))
    file.write_text("new name=alice\n")
    assert [ring.owner(key) for key in ("old", "new")] == [None, alice]
    assert ring.terms(alice) == QuotaPatch()
    assert [ring.knows(alice), ring.knows(Principal("bob"))] == [True, False]


@pytest.mark.parametrize("written", [None, "", "\n# none yet\n"])
def test_a_key_file_without_a_key_opens_nothing_on_any_service(
    written: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys"
    if written is not None:
        file.write_text(written)
    ring = KeyRing(file=file)
    secrets = ClientSecrets(b"key")
    secrets.add("ek_good", replace(SECRET, principal=ANYONE), size_bytes=1, now_unix_s=100)
    service = Doorkeeper(ring, secrets=secrets, allow_unauthenticated=True)
    for headers in ({}, BEARER, *SHOWN):
        assert status(service, headers) == 403
        refusal = service.refuse(headers)
        assert refusal is not None
        assert (refusal.status, "auth.api_keys_file" in refusal.message) == (403, True)
    assert service.refuse_public() is not None
    [said] = [record.getMessage() for record in caplog.records]
    assert str(file) in said
    file.write_text("right")
    assert status(service, BEARER) == 0
    assert [status(service, {}), status(service, SHOWN[0])] == [401, 401]


def test_a_key_file_that_is_emptied_shuts_the_door_and_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys"
    file.write_text("right\n")
    service = Doorkeeper(
        KeyRing(file=file), secrets=ClientSecrets(b"key"), allow_unauthenticated=True
    )
    assert status(service, BEARER) == 0
    file.write_text("")
    with caplog.at_level(logging.WARNING):
        assert [status(service, BEARER), status(service, {})] == [403, 403]
    [said] = [record.getMessage() for record in caplog.records]
    assert "lets nobody in" in said


def test_the_given_keys_stay_when_the_file_is_emptied(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("right\n")
    ring = KeyRing(["given"], file)
    file.write_text("")
    assert [ring.holds("given"), ring.holds("right"), ring.is_empty] == [True, False, False]


class Uncompared(str):
    """A key that must never be compared with another one."""

    read = 0

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """Count, and return the bytes."""
        self.read += 1
        return super().encode(encoding, errors)


def test_a_wrong_key_is_compared_with_no_other_however_many_there_are() -> None:
    values = [Uncompared(f"key-{number}") for number in range(1000)]
    table = KeyTable([ApiKey(value, RIGHT) for value in values])
    known = [value.read for value in values]
    assert [table.owner(wrong) for wrong in ("", "key-", "key-1000", "KEY-1")] == [None] * 4
    assert [value.read for value in values] == known
    assert table.owner("key-7") == RIGHT
    assert sum(value.read for value in values) == sum(known) + 1


def test_of_two_owners_of_one_key_the_first_has_it() -> None:
    first, second = Principal("first"), Principal("second")
    table = KeyTable([ApiKey("k", first), ApiKey("k", second)])
    assert (table.owner("k"), table.knows(second), table.knows(RIGHT)) == (first, True, False)

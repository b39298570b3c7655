"""Requests for client secrets: what is read, what is refused, and what is answered."""

import json
from typing import Any

import pytest

from serve_app.access.client_secrets import ClientSecrets
from serve_app.access.key_ring import KeyRing
from serve_app.access.principal import Principal
from serve_app.access.quota_desk import QuotaDesk
from serve_app.gateway.secret_desk import MadeSecret, make_secret, read_request
from serve_app.sessions.open_sessions import OpenSessions
from session.config import SessionLimits
from session.errors import ClientError, LimitError, TooManySecrets
from stages.scripted.plugin import PLUGIN
from tests.fakes.clock import FakeClock
from tests.fakes.ids import SeqIds

NOW = 1_800_000_000
ALICE = Principal("alice")


def desk(**limits: int) -> QuotaDesk:
    return QuotaDesk(KeyRing(), OpenSessions().held_by, SessionLimits(**limits), FakeClock())


def ask(**fields: Any) -> dict[str, object]:
    """Make a secret at NOW; return the answer."""
    made = make_secret(
        json.dumps(fields).encode(),
        ALICE,
        quotas=desk(),
        secrets=ClientSecrets(b"key"),
        model=PLUGIN.descriptor,
        ids=SeqIds(),
        now_unix_s=NOW,
    )
    return made.model_dump(mode="json")


def refusal(body: bytes) -> tuple[str, str | None]:
    """Code and param of the error that a body is answered with."""
    with pytest.raises(ClientError) as refused:
        make_secret(
            body,
            ALICE,
            quotas=desk(),
            secrets=ClientSecrets(b"key"),
            model=PLUGIN.descriptor,
            ids=SeqIds(),
            now_unix_s=NOW,
        )
    return refused.value.wire_code, refused.value.param


@pytest.mark.parametrize("body", [b"", b"  ", b"{}", b'{"expires_after": null, "session": null}'])
def test_who_asks_for_nothing_gets_ten_minutes(body: bytes) -> None:
    asked = read_request(body)
    assert (asked.lifetime_s, asked.session) == (600, None)


@pytest.mark.parametrize(
    ("after", "lifetime_s"),
    [
        ({}, 600),
        ({"anchor": "created_at"}, 600),
        ({"seconds": 10}, 10),
        ({"anchor": "created_at", "seconds": 7200}, 7200),
        ({"seconds": 60.0}, 60),
        ({"seconds": None}, 600),
    ],
)
def test_a_secret_expires_as_asked(after: dict[str, object], lifetime_s: int) -> None:
    assert ask(expires_after=after)["expires_at"] == NOW + lifetime_s


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"expires_after": {"seconds": 9}}, "bad_event", "expires_after.seconds"),
        ({"expires_after": {"seconds": 7201}}, "bad_event", "expires_after.seconds"),
        ({"expires_after": {"seconds": "60"}}, "invalid_type", "expires_after.seconds"),
        ({"expires_after": {"seconds": True}}, "invalid_type", "expires_after.seconds"),
        ({"expires_after": {"anchor": "used_at"}}, "bad_event", "expires_after.anchor"),
        ({"expires_after": {"second": 60}}, "unknown_parameter", "expires_after.second"),
        ({"expires_after": 60}, "bad_event", "expires_after"),
        ({"expires_in": 60}, "unknown_parameter", "expires_in"),
        ({"session": "realtime"}, "bad_event", "session"),
        ({"session": {"type": "transcription"}}, "unsupported_option", "session.type"),
        ({"session": {"type": "video"}}, "invalid_value", "session.type"),
        (
            {"session": {"type": "realtime", "audio": {"output": {"speed": 9}}}},
            "bad_event",
            "session.audio.output.speed",
        ),
        (
            {"session": {"type": "realtime", "output_modalities": ["smell"]}},
            "unsupported_response_modality",
            "session.output_modalities",
        ),
    ],
)
def test_what_is_wrong_is_refused_by_name(fields: dict[str, object], code: str, param: str) -> None:
    assert refusal(json.dumps(fields).encode()) == (code, param)


@pytest.mark.parametrize("body", [b"{", b"[]", b"7", b"\xff", b'{"session": NaN}'])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    assert refusal(body)[0] == "invalid_json"


def test_the_answer_says_what_the_session_will_be() -> None:
    made = ask(session={"type": "realtime", "audio": {"output": {"voice": "alto"}}})
    session = made["session"]
    assert isinstance(session, dict)
    assert str(made["value"]).startswith("ek_")
    assert (session["object"], session["type"]) == ("realtime.session", "realtime")
    assert session["id"]
    assert session["model"] == "scripted"
    assert session["audio"]["output"]["voice"] == "alto"


def test_what_was_asked_for_is_what_the_secret_stands_for() -> None:
    book = ClientSecrets(b"key")
    made = make_secret(
        json.dumps({"session": {"type": "realtime", "instructions": "Be brief."}}).encode(),
        ALICE,
        quotas=desk(),
        secrets=book,
        model=PLUGIN.descriptor,
        ids=SeqIds(),
        now_unix_s=NOW,
    )
    secret = book.find(made.value, now_unix_s=NOW)
    assert secret is not None
    assert secret.principal == ALICE
    assert dict(secret.settings.changes)["instructions"] == "Be brief."


def test_a_secret_that_there_is_no_room_for_is_not_counted() -> None:
    quotas = desk(max_opens_per_key_per_minute=1)

    def make(most: int) -> MadeSecret:
        return make_secret(
            b"",
            ALICE,
            quotas=quotas,
            secrets=ClientSecrets(b"key", most=most),
            model=PLUGIN.descriptor,
            ids=SeqIds(),
            now_unix_s=NOW,
        )

    for _ in range(2):
        with pytest.raises(LimitError, match="too many client secrets are in force"):
            make(0)
    assert make(1).value
    with pytest.raises(TooManySecrets):
        make(1)

"""Makes client secrets: from the body of a request to the body of its answer.

Rule 1: the body asks for a secret, or it is one ClientError that names the field; nothing else.
Rule 2: a field that is not known is refused: whoever misspells a lifetime would get a longer one.
Rule 3: a session object that could not open a session is refused here, where somebody can mend it.
"""

from dataclasses import dataclass, replace
from typing import Final

from pydantic import BaseModel

from serve_app.access.client_secrets import SECRET_PREFIX, ClientSecret, ClientSecrets
from serve_app.access.principal import Principal
from serve_app.access.quota_desk import QuotaDesk
from serve_app.gateway.http_body import Fields, fields_in, refuse_unknown
from session.config import ConfigPatch, SessionConfig, openai_config
from session.errors import UnsupportedOption
from session.fence import Fence
from session.fitting import fitted
from session.ids import IdFactory, SessionId
from session.lifecycle import Life, TurnState
from session.realtime.dialects.openai_shapes import session_object
from session.realtime.openai.objects import SessionObject
from session.realtime.openai.session_fields import read_session
from session.realtime.readers import bad_value, whole, wrong_type
from session.snapshot import Playback, SessionSnapshot
from stages.descriptor import Descriptor

SHORTEST_S: Final = 10
LONGEST_S: Final = 7_200
USUAL_S: Final = 600
ANCHOR: Final = "created_at"


@dataclass(frozen=True, slots=True)
class SecretRequest:
    """How long a secret shall hold, and the session object that it shall stand for."""

    lifetime_s: int = USUAL_S
    session: Fields | None = None


class MadeSecret(BaseModel):
    """The answer to whoever asked for a secret."""

    value: str
    expires_at: int
    """In Unix seconds."""
    session: SessionObject
    """As it will begin."""


def make_secret(
    body: bytes,
    principal: Principal,
    *,
    quotas: QuotaDesk,
    secrets: ClientSecrets,
    model: Descriptor,
    ids: IdFactory,
    now_unix_s: int,
) -> MadeSecret:
    """Put a new secret in force and return the answer; raise ClientError or LimitError."""
    asked = read_request(body)
    settings, config = _read_settings(asked.session or {}, model)
    secret = ClientSecret(now_unix_s + asked.lifetime_s, principal, settings)
    value = SECRET_PREFIX + ids.token()
    # Nothing is counted for a secret that there is no room for.
    secrets.make_room(len(body), now_unix_s=now_unix_s)
    quotas.make_secret(principal)
    secrets.add(value, secret, size_bytes=len(body), now_unix_s=now_unix_s)
    session = _shown(config, SessionId(ids.new("sess")))
    return MadeSecret(value=value, expires_at=secret.expires_unix_s, session=session)


def read_request(body: bytes) -> SecretRequest:
    """Return what a body asks for; raise MalformedEvent or UnsupportedOption."""
    fields = fields_in(body)
    refuse_unknown(fields, ("expires_after", "session"))
    lifetime, session = fields.get("expires_after"), fields.get("session")
    return SecretRequest(
        USUAL_S if lifetime is None else _lifetime_s(lifetime),
        None if session is None else _session(session),
    )


def _lifetime_s(value: object) -> int:
    if not isinstance(value, dict):
        raise wrong_type("expires_after", "an object")
    refuse_unknown(value, ("anchor", "seconds"), "expires_after.")
    if not isinstance(value.get("anchor"), str | None):
        raise wrong_type("expires_after.anchor", ANCHOR)
    if value.get("anchor") not in (None, ANCHOR):
        raise bad_value("expires_after.anchor", ANCHOR)
    seconds = value.get("seconds")
    if seconds is None:
        return USUAL_S
    return whole(SHORTEST_S, LONGEST_S)(seconds, "expires_after.seconds")


def _session(value: object) -> Fields:
    if not isinstance(value, dict):
        raise wrong_type("session", "an object")
    if value.get("type") == "transcription":
        raise UnsupportedOption(
            "session.type must be realtime: no session only transcribes here; "
            "audio.input.transcription of a realtime session says what was heard",
            param="session.type",
        )
    return value


def _read_settings(session: Fields, model: Descriptor) -> tuple[ConfigPatch, SessionConfig]:
    """Return what a session object changes, and a session that starts with it.

    Raises ClientError where none could.
    """
    patch = read_session(session)
    usual = openai_config(model.model_id, model.profile)
    # The model is the deployment's, whatever the client names.
    config = replace(fitted(patch.apply_to(usual), None, model.profile), model=model.model_id)
    if config.tools_fault is not None and model.profile.tools:
        raise config.tools_fault.error()
    return patch, config


def _shown(config: SessionConfig, session_id: SessionId) -> SessionObject:
    """Return the session as its client will see it. The id is of no session: there may be many."""
    fence = Fence(session_id, incarnation=0, epoch=0, turn=0)
    opening, idle = Life.OPENING.value, TurnState.IDLE.value
    snapshot = SessionSnapshot(fence, opening, idle, config, Playback())
    return session_object(snapshot, None)

"""Who may come in: keys, client secrets and a page's origin. Decided before a socket opens.

Rule 1: a key is looked up by its SHA-256 and what is found is compared in constant time, so that
        the time taken says nothing about a key that is in force, nor grows with their number.
Rule 2: keys in a file may change while the service runs; a file that can not be read, or has a
        wrong line, changes nothing, and is logged and counted once for each change. At the start a
        wrong line is a fault.
Rule 3: without any key nobody comes in, unless only this machine can reach the service
        (`allow_unauthenticated`) and no file of keys is named. One that is empty or is not there
        is a mistake or a moment of its replacement, and opens nothing.
Rule 4: a client secret opens sockets and nothing else. One that is unknown or has expired is
        refused also where no key is asked for: its session would not be the one it stands for.
Rule 5: who comes in has a name (`Principal`), that of its key or of the key that made its secret.
        Without a key in force that has it, nobody has that name.
Rule 6: where no key is asked for, the request names this machine or the host of an allowed origin.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from serve_app.access.client_secrets import SECRET_PREFIX, ClientSecret, ClientSecrets
from serve_app.access.key_file import (
    ANYONE,
    ApiKey,
    KeyFileError,
    Principal,
    QuotaPatch,
    nameless,
    read_keys,
)
from serve_app.access.key_table import KeyTable
from serve_app.access.page_origins import PageOrigins
from serve_app.metrics.definitions import KEY_FILE_FAULTS
from serve_app.metrics.meter import NO_METER, Meter
from session.config import ConfigPatch

log = logging.getLogger(__name__)

KEY_PROTOCOL: Final = "openai-insecure-api-key."
"""Prefix of the WebSocket subprotocol in which a browser, which can set no header, sends a key."""
WIRE_PROTOCOL: Final = "realtime"
"""The subprotocol that is selected when a client offers it. All others are read or ignored."""
BETA_PROTOCOL: Final = "openai-beta.realtime-v1"
BETA_HEADER_VALUE: Final = "realtime=v1"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is turned away, in words that say what to do."""

    status: int
    message: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """Who came in."""

    principal: Principal
    secret: ClientSecret | None = None
    """The client secret that was shown; None: an API key, or nothing where none is asked for."""

    @property
    def settings(self) -> ConfigPatch:
        """What the session starts with, where that is not the server's default."""
        return ConfigPatch() if self.secret is None else self.secret.settings


class KeyRing:
    """The API keys in force: those given at the start and those in a file (`key_file`).

    Raises KeyFileError when the file is there and has a wrong line at the start.
    """

    def __init__(
        self, given: Iterable[str] = (), file: Path | None = None, *, meter: Meter = NO_METER
    ) -> None:
        self._given = tuple(nameless(key.strip()) for key in given if key.strip())
        self._file = file
        self._meter = meter
        self._from_file: tuple[ApiKey, ...] = ()
        self._table = KeyTable(self._given)
        self._read_at: tuple[int, int, int] | None = None
        self._trouble = ""
        self._refresh()

    @property
    def is_configured(self) -> bool:
        """Whether keys are asked for, also while there is none."""
        return self._file is not None or bool(self._given)

    @property
    def is_empty(self) -> bool:
        """Whether there is no key at all."""
        return not self._keys().keys

    def owner(self, presented: str) -> Principal | None:
        """Return whose key `presented` is; None when it is none of the keys."""
        return self._keys().owner(presented)

    def holds(self, presented: str) -> bool:
        """Whether `presented` is one of the keys."""
        return self.owner(presented) is not None

    def knows(self, principal: Principal) -> bool:
        """Whether a key of this owner is in force."""
        return self._keys().knows(principal)

    def terms(self, principal: Principal) -> QuotaPatch:
        """Return what is set for an owner, by whichever of its keys."""
        return self._keys().terms(principal)

    def _keys(self) -> KeyTable:
        """Return the keys in force."""
        try:
            self._refresh()
        except KeyFileError as error:
            self._meter.count(KEY_FILE_FAULTS, "wrong")
            log.error("%s; its keys stay as they are", error)
        return self._table

    def _refresh(self) -> None:
        """Read the file again when it has changed; raises KeyFileError, once for each change."""
        if self._file is None:
            return
        try:
            stat = self._file.stat()
            stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if stamp == self._read_at:
                self._trouble = ""
                return
            written = self._file.read_bytes()
        except OSError as error:
            if str(error) != self._trouble:  # it is read at every request
                self._meter.count(KEY_FILE_FAULTS, "unreadable")
                log.warning("a file of keys can not be read, its keys stay as they are: %s", error)
            self._trouble = str(error)
            return
        self._trouble = ""
        self._read_at = stamp
        self._from_file = _keys_in(self._file, written)
        self._table = KeyTable(self._from_file + self._given)
        names = {key.principal.name for key in self._from_file}
        log.info("%s was read: %d keys, %d names", self._file, len(self._from_file), len(names))
        if not self._from_file and not self._given:
            log.error("%s has no key in it: it lets nobody in until it has one", self._file)


def check_key_file(file: Path | None) -> None:
    """Raise KeyFileError where a file of keys is there and has a wrong line."""
    if file is None:
        return
    try:
        written = file.read_bytes()
    except OSError:
        return  # it may still come, and whoever needs its keys tells of it
    _keys_in(file, written)


def _keys_in(file: Path, written: bytes) -> tuple[ApiKey, ...]:
    try:
        return read_keys(written)
    except KeyFileError as error:
        raise KeyFileError(f"{file}: {error}") from None


class Doorkeeper:
    """Decides on requests before anything is opened for them."""

    def __init__(
        self,
        keys: KeyRing,
        *,
        secrets: ClientSecrets,
        allow_unauthenticated: bool,
        allowed_origins: Iterable[str] = (),
    ) -> None:
        self._keys = keys
        self._secrets = secrets
        self._allow_unauthenticated = allow_unauthenticated
        self._pages = PageOrigins(allowed_origins)

    def refuse_public(self) -> Refusal | None:
        """Judge a request that needs no key: let it in, unless the service has no keys to ask for.

        A service that nobody could use shall say so at its first page.
        """
        if not self._keys.is_empty:
            return None
        if self._keys.is_configured:
            return Refusal(
                403,
                "The file of API keys (auth.api_keys_file) has no key in it or is not there, so "
                "this service lets nobody in. Put a key into it.",
            )
        if self._allow_unauthenticated:
            return None
        return Refusal(
            403,
            "This service has no API keys and can be reached from other machines, so it lets "
            "nobody in. Set DUPLEX_API_KEYS or, in the deploy file, auth.api_keys_file; or let it "
            "listen on this machine alone (http_options.host: 127.0.0.1).",
        )

    def refuse(self, headers: Mapping[str, str]) -> Refusal | None:
        """Judge a request that needs a key. `headers` has lower-case names."""
        who = self.who(headers)
        return who if isinstance(who, Refusal) else None

    def who(self, headers: Mapping[str, str]) -> Principal | Refusal:
        """Say whose key a request has; `anyone` where none is asked for."""
        refusal = self.refuse_public()
        if refusal is not None:
            return refusal
        presented = presented_key(headers)
        owner = None if presented is None else self._keys.owner(presented)
        if owner is not None:
            return owner
        if presented is not None and presented.startswith(SECRET_PREFIX):
            return Refusal(401, "A client secret only opens WebSockets; send an API key.")
        if not self._keys.is_configured:
            return self.refuse_host(headers) or ANYONE
        if presented is None:
            return Refusal(401, "Send an API key: 'Authorization: Bearer KEY'.")
        return Refusal(401, "This API key is not known here.")

    def refuse_origin(self, headers: Mapping[str, str]) -> Refusal | None:
        """Judge what a browser says of the page that asks; other clients say nothing."""
        origin = headers.get("origin")
        if origin is None or self._pages.may_connect(origin, headers.get("host", "")):
            return None
        return _foreign(origin)

    def refuse_operating_page(self, headers: Mapping[str, str]) -> Refusal | None:
        """Judge a page that would change what all have: that of another local port may not."""
        origin = headers.get("origin")
        if origin is None or self._pages.may_operate(origin, headers.get("host", "")):
            return None
        return _foreign(origin)

    def refuse_host(self, headers: Mapping[str, str]) -> Refusal | None:
        """Judge which host is asked for, where no key is."""
        if self._pages.is_known_host(headers.get("host", "")):
            return None
        return Refusal(
            403,
            "This service asks for no key, so it answers to localhost, 127.0.0.1 and [::1] alone. "
            "Ask by one of these; or set API keys (DUPLEX_API_KEYS or auth.api_keys_file), or list "
            "the page's origin in gateway.allowed_origins of the deploy file.",
        )

    def admit_socket(self, headers: Mapping[str, str], *, now_unix_s: int) -> Admitted | Refusal:
        """Judge a WebSocket: a browser's page must be ours, and a key or secret must be right."""
        refusal = self.refuse_origin(headers) or self.refuse_public()
        if refusal is None and not self._keys.is_configured:
            refusal = self.refuse_host(headers)
        if refusal is not None:
            return refusal
        presented = presented_key(headers)
        is_secret = presented is not None and presented.startswith(SECRET_PREFIX)
        if presented is None or not is_secret or self._keys.holds(presented):
            who = self.who(headers)
            return who if isinstance(who, Refusal) else Admitted(who)
        secret = self._secrets.find(presented, now_unix_s=now_unix_s)
        if secret is None:
            return Refusal(401, "This client secret is not known here, or it has expired.")
        if not self._is_in_force(secret.principal):
            return Refusal(401, "The API key that made this client secret is no longer in force.")
        return Admitted(secret.principal, secret)

    def _is_in_force(self, principal: Principal) -> bool:
        """Whether a client of this name could come in with a key, or without one."""
        if principal == ANYONE:
            return not self._keys.is_configured
        return self._keys.knows(principal)


def _foreign(origin: str) -> Refusal:
    return Refusal(
        403,
        f"Pages of {origin} may not connect here; list the origin in gateway.allowed_origins of "
        "the deploy file.",
    )


def presented_key(headers: Mapping[str, str]) -> str | None:
    """Return the key of a request: its bearer token, or the one in a subprotocol."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    for protocol in offered_protocols(headers):
        if protocol.startswith(KEY_PROTOCOL):
            return protocol.removeprefix(KEY_PROTOCOL)
    return None


def offered_protocols(headers: Mapping[str, str]) -> list[str]:
    """Return the WebSocket subprotocols that a client offers."""
    offered = headers.get("sec-websocket-protocol", "").split(",")
    return [protocol.strip() for protocol in offered if protocol.strip()]


def selected_protocol(headers: Mapping[str, str]) -> str | None:
    """Return the subprotocol to accept with; never the one that carries a key."""
    return WIRE_PROTOCOL if WIRE_PROTOCOL in offered_protocols(headers) else None


def asks_for_beta(headers: Mapping[str, str]) -> bool:
    """Whether a client says that it speaks the shapes of the API's beta."""
    named = [value.strip().lower() for value in headers.get("openai-beta", "").split(",")]
    return BETA_HEADER_VALUE in named or BETA_PROTOCOL in offered_protocols(headers)

"""Who may come in: judged by key, client secret and a page's origin, before anything is opened.

Rule 1: without any key nobody comes in, unless only this machine can reach the service
        (`allow_unauthenticated`) and no file of keys is named. One that is empty or is not there
        is a mistake or a moment of its replacement, and opens nothing.
Rule 2: a client secret opens sockets and nothing else. One that is unknown or has expired is
        refused also where no key is asked for: its session would not be the one it stands for.
Rule 3: who comes in has a name (`Principal`), that of its key or of the key that made its secret.
        Without a key in force that has it, nobody has that name.
Rule 4: where no key is asked for, the request names this machine or the host of an allowed origin.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from serve_app.access.client_secrets import SECRET_PREFIX, ClientSecret, ClientSecrets
from serve_app.access.key_ring import KeyRing
from serve_app.access.page_origins import PageOrigins
from serve_app.access.principal import ANYONE, Principal
from serve_app.access.request_headers import presented_key
from session.config import ConfigPatch


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

"""Who may ask for what stands under /admin/: whoever has an admin key.

Rule 1: an API key or a client secret never opens it. Those are for conversations, and clients have
        them; a key that stands in both lists is an API key.
Rule 2: without any admin key it is open only where nobody else could come: the service listens on
        this machine alone and asks for no key at all, nor names a file for one.
"""

from collections.abc import Mapping
from typing import Final

from serve_app.access.client_secrets import SECRET_PREFIX
from serve_app.access.doorkeeper import Refusal
from serve_app.access.key_ring import KeyRing
from serve_app.access.request_headers import presented_key

ADMIN_PATHS: Final = "/admin/"
_SET_ONE: Final = "set DUPLEX_ADMIN_KEYS or, in the deploy file, auth.admin_keys_file"


class AdminDoor:
    """Decides on requests to the operator's own paths."""

    def __init__(self, admin_keys: KeyRing, *, api_keys: KeyRing, is_local: bool) -> None:
        self._admin_keys = admin_keys
        self._api_keys = api_keys
        self._is_local = is_local

    @property
    def is_open(self) -> bool:
        """Whether no key is asked for."""
        is_asked_for = self._admin_keys.is_configured or self._api_keys.is_configured
        return self._is_local and not is_asked_for

    def refuse(self, headers: Mapping[str, str]) -> Refusal | None:
        """Judge a request. `headers` has lower-case names."""
        presented = presented_key(headers)
        if presented is not None and self._api_keys.holds(presented):
            return Refusal(403, "An API key does not open /admin/; send an admin key.")
        if self._admin_keys.is_empty:
            return self._refuse_without_keys()
        if presented is None:
            return Refusal(401, "Send an admin key: 'Authorization: Bearer KEY'.")
        if self._admin_keys.holds(presented):
            return None
        if presented.startswith(SECRET_PREFIX):
            return Refusal(401, "A client secret only opens WebSockets; send an admin key.")
        return Refusal(401, "This admin key is not known here.")

    def _refuse_without_keys(self) -> Refusal | None:
        if self._admin_keys.is_configured:
            return Refusal(
                403,
                "The file of admin keys (auth.admin_keys_file) has no key in it or is not there, "
                "so /admin/ is shut. Put a key into it, or set DUPLEX_ADMIN_KEYS.",
            )
        if self.is_open:
            return None
        why = "asks for API keys" if self._is_local else "can be reached from other machines"
        return Refusal(
            403, f"This service {why} and has no admin keys, so /admin/ is shut: {_SET_ONE}."
        )

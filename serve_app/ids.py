"""Unguessable identifiers."""

import secrets


class RandomIds:
    """Makes ids of the form ``prefix_<24 hex digits>`` from the system's randomness."""

    def new(self, prefix: str) -> str:
        """Return a fresh id."""
        return f"{prefix}_{secrets.token_hex(12)}"

    def token(self) -> str:
        """Return a fresh secret of 256 bits."""
        return secrets.token_urlsafe(32)

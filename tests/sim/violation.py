"""The one thing that a simulation can find."""


class Violation(AssertionError):
    """A law is broken."""

"""What people say to the service, as sound."""

from functools import cache

from tests.support.speech import synthesise

RATE_HZ = 24_000


@cache
def said(text: str) -> bytes:
    """Return 24 kHz PCM of a sentence, and so much silence after it that its end is noticed."""
    return synthesise(text, rate_hz=RATE_HZ, tail_s=0.9)

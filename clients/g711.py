"""G.711 telephone codes as 16-bit samples (ITU-T G.711, both laws)."""

from array import array
from typing import Final


def expand(codes: bytes, table: "array[int]") -> bytes:
    """Return the 16-bit sample of each code."""
    return array("h", [table[code] for code in codes]).tobytes()


def _ulaw_sample(code: int) -> int:
    inverted = ~code & 0xFF
    magnitude = ((((inverted & 0x0F) << 3) + 0x84) << ((inverted >> 4) & 0x07)) - 0x84
    return -magnitude if inverted & 0x80 else magnitude


def _alaw_sample(code: int) -> int:
    toggled = code ^ 0x55
    segment, step = (toggled >> 4) & 0x07, (toggled & 0x0F) << 4
    magnitude = step + 8 if segment == 0 else (step + 0x108) << (segment - 1)
    return magnitude if toggled & 0x80 else -magnitude


ULAW: Final = array("h", [_ulaw_sample(code) for code in range(256)])
ALAW: Final = array("h", [_alaw_sample(code) for code in range(256)])

"""How long the minutes of rules are: as they are in the shipped file, or shorter for a drill."""

from dataclasses import dataclass
from typing import Final

SCRAPES: Final = 4
"""Fewer scrapes within a window, and one that came late leaves `rate` without an answer."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What a rule's time is multiplied by, and how often Prometheus reads the exporters."""

    share: float
    scrape_s: int

    def window(self, minutes: int) -> str:
        """Return the time that a query looks back; enough for some scrapes, however quick."""
        return _written(max(round(60 * minutes * self.share), SCRAPES * self.scrape_s))

    def wait(self, minutes: int) -> str:
        """Return the time that something has to be so."""
        return _written(round(60 * minutes * self.share))


def _written(seconds: int) -> str:
    for unit, length_s in (("h", 3600), ("m", 60)):
        if seconds % length_s == 0 and seconds >= length_s:
            return f"{seconds // length_s}{unit}"
    return f"{seconds}s" if seconds else "0m"


AS_SHIPPED: Final = Pace(share=1.0, scrape_s=15)

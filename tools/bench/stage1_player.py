"""What a listener has of a stage's chunks: when sound is there, and where it breaks off.

Nothing here looks at a clock or at a network.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from session.unit import OUTPUT_RATE_HZ

DEADLINE_S: Final = 1.0
"""A unit is a second of sound: one whose last chunk comes later than that holds up the next."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of sound, and what its making took."""

    at_s: float
    samples: int
    flow_ms: float = 0.0
    vocoder_ms: float = 0.0
    waited_ms: float = 0.0
    batch: int = 0

    @property
    def seconds(self) -> float:
        """How long it sounds."""
        return self.samples / OUTPUT_RATE_HZ


@dataclass(frozen=True, slots=True)
class SpokenUnit:
    """One unit as its owner saw it."""

    is_first: bool
    """Of its turn."""
    is_last: bool
    """Of its turn."""
    due_s: float
    sent_s: float
    chunks: tuple[Chunk, ...] = ()
    ttft_ms: float = 0.0
    """The talker's first code."""
    itls_ms: tuple[float, ...] = ()
    """Between one code and the next."""
    talker_ms: float = 0.0
    """All codes."""
    failure: str | None = None

    @property
    def first_ms(self) -> float | None:
        """From its time to its first sound; None if all of it waits for the next unit."""
        sounding = [chunk for chunk in self.chunks if chunk.samples]
        return (sounding[0].at_s - self.due_s) * 1000 if sounding else None

    @property
    def last_ms(self) -> float | None:
        """From its time to its last chunk."""
        return (self.chunks[-1].at_s - self.due_s) * 1000 if self.chunks else None

    @property
    def is_missed(self) -> bool:
        """Whether it failed or its last chunk came after the deadline.

        A turn's end may be seconds long; it is only late if its first chunk is.
        """
        if self.failure is not None or not self.chunks:
            return True
        decides = self.chunks[0] if self.is_last else self.chunks[-1]
        return decides.at_s - self.due_s > DEADLINE_S


def gaps_s(chunks: Sequence[Chunk], lead_s: float = 0.0) -> list[float]:
    """Return how long each silence is that a player falls into within one turn.

    It begins `lead_s` after the first chunk, plays on without a break as long as it has something,
    and goes on with whatever comes next.
    """
    gaps: list[float] = []
    ends_s: float | None = None
    for chunk in chunks:
        if not chunk.samples:
            continue
        if ends_s is None:
            ends_s = chunk.at_s + lead_s
        elif chunk.at_s > ends_s:
            gaps.append(chunk.at_s - ends_s)
            ends_s = chunk.at_s
        ends_s += chunk.seconds
    return gaps


def end_s(chunks: Sequence[Chunk]) -> float | None:
    """Return when a player that begins with the first chunk has played all; None without sound."""
    sounding = [chunk for chunk in chunks if chunk.samples]
    if not sounding:
        return None
    lost_s = sum(gaps_s(sounding))
    return sounding[0].at_s + sum(chunk.seconds for chunk in sounding) + lost_s


def turns(units: Sequence[SpokenUnit]) -> list[list[SpokenUnit]]:
    """Return one session's units turn by turn."""
    made: list[list[SpokenUnit]] = []
    for unit in units:
        if unit.is_first or not made:
            made.append([])
        made[-1].append(unit)
    return made

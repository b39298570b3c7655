"""How the parts of the service say what is to be traced. Nothing here knows of OpenTelemetry.

Rule 1: where nobody traces, no span is made: `begin` says None, and so it does for what the
        sampler leaves out.
Rule 2: times are those of the process's own clock, in seconds.
Rule 3: a value of a span is a number, a name of ours or an id: no sound, no text, no key.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from session.errors import DuplexError

Values = Mapping[str, str | int | float | bool]
NO_VALUES: Final[Values] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TraceParent:
    """Names a span to another process, which goes on with its trace."""

    text: str
    """As in the header `traceparent` of W3C's Trace Context."""


class Span(Protocol):
    """A stretch of time in one process. Never raises and never waits."""

    @property
    def parent(self) -> TraceParent:
        """What to hand to another process."""
        ...

    def child(self, name: str, *, at_s: float) -> "Span":
        """Begin a stretch within this one, in the same process."""
        ...

    def set(self, values: Values) -> None:
        """Add to what is known of it."""
        ...

    def note(self, name: str, *, at_s: float, values: Values = NO_VALUES) -> None:
        """Say that something has happened."""
        ...

    def end(self, *, at_s: float, error: DuplexError | None = None) -> None:
        """It is over; with an error it has failed. Of the error only its kind and code are kept."""
        ...


class Tracer(Protocol):
    """Where a process's spans go. Never raises and never waits."""

    def begin(
        self,
        name: str,
        *,
        at_s: float,
        parent: TraceParent | None = None,
        values: Values = NO_VALUES,
    ) -> Span | None:
        """Begin a trace, or go on with one of another process; None: it is not traced."""
        ...

    def close(self) -> None:
        """Send what is left, within a second or so, and nothing from then on."""
        ...


class NoTracer:
    """Where nobody traces."""

    def begin(
        self,
        name: str,
        *,
        at_s: float,
        parent: TraceParent | None = None,
        values: Values = NO_VALUES,
    ) -> None:
        """Make nothing."""

    def close(self) -> None:
        """Do nothing."""


NO_TRACER: Final = NoTracer()

"""How the parts of the service say what is to be counted."""

from typing import Final, Protocol

from serve_app.metrics.definitions import ERRORS_SENT
from serve_app.metrics.label_values import error_name
from serve_app.metrics.metric import Metric
from session.errors import DuplexError


class Meter(Protocol):
    """Takes values of metrics; labels in the order of the definition. Never raises for a value.

    Costs a few microseconds and never waits.
    """

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Add to a counter; nothing is added for 0."""
        ...

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Add one value to a histogram."""
        ...

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Say what a gauge is now."""
        ...

    def refresh(self) -> None:
        """Say again what all gauges are; to be called every REFRESH_S."""
        ...


REFRESH_S: Final = 1.0
"""Ray forgets a gauge that nobody has set for two of its reports; the shortest take a second."""


class NoMeter:
    """Where nobody looks."""

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Do nothing."""

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Do nothing."""

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Do nothing."""

    def refresh(self) -> None:
        """Do nothing."""


NO_METER: Final = NoMeter()


def count_error(meter: Meter, error: DuplexError) -> None:
    """Count an error that a client is sent."""
    meter.count(ERRORS_SENT, error.wire_type, error_name(type(error)))

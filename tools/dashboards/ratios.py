"""Shares that dashboards draw and alerts judge: one expression for both, over any time."""

from dataclasses import dataclass
from typing import Final

from serve_app.metrics import definitions as d
from serve_app.metrics.label_values import OPEN_REFUSALS, OVER_QUOTA, RESUME_RESULTS
from tools.dashboards.promql import increase, observed, series, value

AS_FULL: Final = ("admission_refused",)
BY_FAULT: Final = tuple(
    reason for reason in OPEN_REFUSALS if reason not in {*AS_FULL, *OVER_QUOTA, "client_error"}
)
RESUMABLE: Final = tuple(result for result in RESUME_RESULTS if result != "unsupported")
NOT_RESUMED: Final = tuple(result for result in RESUMABLE if result != "resumed")
OUR_FAULT: Final = ("stage0_lost", "stage1_lost", "broken")


@dataclass(frozen=True, slots=True)
class Share:
    """Some of all cases within a time."""

    some: str
    of_all: str

    @property
    def ratio(self) -> str:
        """Return the query of one by the other; without any case it has no value."""
        return f"{self.some} / {self.of_all}"


def deadline_misses(over: str) -> Share:
    """Return the units, of each stage, that took longer than they last."""
    units = observed(series(d.UNIT_SECONDS, {"part": "total"}), ("stage",), over)
    return Share(increase(series(d.DEADLINE_MISSES), ("stage",), over), units)


def underruns(over: str) -> Share:
    """Return the spoken answers with a gap."""
    gaps = increase(series(d.SPOKEN, {"playback": "underrun"}), (), over)
    return Share(gaps, increase(series(d.SPOKEN), (), over))


def not_resumed(over: str) -> Share:
    """Return the attempts to resume that failed, without those of wires that can not."""
    failed = increase(series(d.RESUMES, {"result": NOT_RESUMED}), (), over)
    return Share(failed, increase(series(d.RESUMES, {"result": RESUMABLE}), (), over))


def failed_responses(over: str) -> Share:
    """Return the answers that failed."""
    failed = increase(series(d.RESPONSES, {"status": "failed"}), (), over)
    return Share(failed, increase(series(d.RESPONSES), (), over))


def refused_sessions(reasons: tuple[str, ...], over: str) -> Share:
    """Return the sessions that got no stages for one of these reasons.

    What a client tries beyond its quota asks no stage: however often it tries, it hides nothing.
    """
    refused = increase(series(d.SESSIONS_REFUSED, {"reason": reasons}), (), over)
    begun = increase(series(d.SESSIONS_BEGUN), (), over)
    beyond = increase(series(d.SESSIONS_REFUSED, {"reason": OVER_QUOTA}), (), over)
    return Share(refused, f"({begun} - ({beyond} or vector(0)))")


def free_slots() -> str:
    """Return the share of each stage's slots that is free."""
    free = value(series(d.STAGE_SLOTS, {"state": "free"}), ("stage",))
    return f"{free} / {value(series(d.STAGE_SLOTS), ('stage',))}"


def kv_used() -> str:
    """Return the share of each stage's memory that sessions hold; no value where it has none."""
    used = value(series(d.KV_TOKENS, {"state": "used"}), ("stage",))
    there = value(series(d.KV_TOKENS, {"state": "capacity"}), ("stage",))
    return f"{used} / ({there} > 0)"

"""Recording and alert rules. What to do when one fires stands in docs/operations.md.

Rule 1: an alert on a share or a percentile needs some cases, so that one bad case at night is none.
Rule 2: the threshold is in `targets`, or stands in the expression; the text says what it means.
"""

from dataclasses import dataclass
from typing import Final

import yaml

from serve_app.metrics import definitions as d
from serve_app.metrics.label_values import STAGES
from tools.dashboards import ratios, targets
from tools.dashboards.promql import Series, increase, observed, quantile, raw, series, value

RUNBOOK: Final = "docs/operations.md"
NOTICE: Final = """\
# Made by `make docs` from tools/dashboards; change it there. What to do when an alert fires:
# docs/operations.md.
"""
STARTED: Final = "duplex:engine_start_time_seconds:max"
SHORT: Final = "10m"
LONG: Final = "30m"
FEWEST_BAD: Final = 5
"""Bad cases within the time looked at, below which their share says nothing."""
FEWEST: Final = 20
"""The same of all cases, for a percentile."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A query that Prometheus keeps the answers of."""

    name: str
    expr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something that a person has to look at."""

    name: str
    expr: str
    lasts: str
    """How long it has to be so."""
    is_critical: bool
    """Critical: users notice now. Else it can wait until somebody is at work."""
    summary: str

    @property
    def anchor(self) -> str:
        """Return where its section is."""
        return f"{RUNBOOK}#{self.name.lower()}"


def _above(share: ratios.Share, limit: float) -> str:
    return f"{share.ratio} > {limit:g} and {share.some} >= {FEWEST_BAD}"


def _slower(of: Series, than: float, *, share: float, over: str) -> str:
    slow = f"{quantile(share, of, (), over)} > {than:g}"
    return f"{slow} and {observed(of, (), over)} >= {FEWEST}"


def _missing_engines() -> str:
    absent = [f"absent({raw(series(d.ENGINE_UP, {'stage': stage}))})" for stage in STAGES]
    return " or ".join([f"{value(series(d.ENGINE_UP), ('stage',))} < 1", *absent])


RECORDINGS: Final = (
    Recording("duplex:open_sessions:sum", value(series(d.OPEN_SESSIONS), ("state",))),
    Recording("duplex:free_slots:ratio", ratios.free_slots()),
    Recording("duplex:unit_deadline_misses:ratio10m", ratios.deadline_misses(SHORT).ratio),
    Recording(
        "duplex:first_audio_seconds:p95_10m",
        quantile(0.95, series(d.FIRST_AUDIO, {"since": "speech_end"}), (), SHORT),
    ),
    Recording("duplex:underruns:ratio30m", ratios.underruns(LONG).ratio),
    # A restarted engine's series are new ones, so its own would never change.
    Recording(STARTED, f"max by (stage) ({raw(series(d.ENGINE_STARTED))} > 0)"),
)
DOWN: Final = (
    Alert(
        name="DuplexGatewayMissing",
        expr=f"absent({raw(series(d.OPEN_SOCKETS))})",
        lasts="2m",
        is_critical=True,
        summary="No gateway reports its metrics.",
    ),
    Alert(
        name="DuplexEngineMissing",
        expr=_missing_engines(),
        lasts="2m",
        is_critical=True,
        summary="A stage has no engine that is ready.",
    ),
    Alert(
        name="DuplexEngineRestarting",
        expr=f"changes({STARTED}[1h]) > 2",
        lasts="0m",
        is_critical=False,
        summary="A stage's engine became ready more than twice within an hour.",
    ),
    Alert(
        name="DuplexSessionsBroken",
        expr=f"{increase(series(d.SESSIONS_ENDED, {'reason': ratios.OUR_FAULT}), (), SHORT)} > 0",
        lasts="0m",
        is_critical=False,
        summary="Sessions ended because a stage was lost or the gateway broke.",
    ),
    Alert(
        name="DuplexLeasesExpired",
        expr=f"{increase(series(d.LEASES_ENDED, {'reason': 'expired'}), (), SHORT)} > 0",
        lasts="0m",
        is_critical=False,
        summary="A gateway stopped renewing leases without giving them back.",
    ),
)
ADMISSION: Final = (
    Alert(
        name="DuplexSlotsNearlyTaken",
        expr=f"{ratios.free_slots()} < {targets.FREE_SLOTS:g}",
        lasts="10m",
        is_critical=False,
        summary="A stage has less than a tenth of its slots free.",
    ),
    Alert(
        name="DuplexSessionsRefused",
        expr=_above(ratios.refused_sessions(ratios.AS_FULL, SHORT), targets.REFUSED_SESSIONS),
        lasts="5m",
        is_critical=True,
        summary="More than 5 % of new sessions find no free slot.",
    ),
    Alert(
        name="DuplexSessionsNotOpened",
        expr=_above(ratios.refused_sessions(ratios.BY_FAULT, SHORT), targets.NOT_OPENED),
        lasts="5m",
        is_critical=True,
        summary="More than 1 % of new sessions fail at a stage that should have taken them.",
    ),
    Alert(
        name="DuplexKeysRefused",
        expr=f"{increase(series(d.DOOR_REFUSALS, {'status': '401'}), (), SHORT)} > 600",
        lasts="0m",
        is_critical=False,
        summary="More than one request a second comes without a valid key.",
    ),
)
SPEED: Final = (
    Alert(
        name="DuplexFirstAudioMedianSlow",
        expr=_slower(
            series(d.FIRST_AUDIO, {"since": "speech_end"}),
            targets.FIRST_AUDIO_P50_S,
            share=0.5,
            over=SHORT,
        ),
        lasts="10m",
        is_critical=False,
        summary="Half of all answers begin later than 1.2 s after the user's speech.",
    ),
    Alert(
        name="DuplexFirstAudioSlow",
        expr=_slower(
            series(d.FIRST_AUDIO, {"since": "speech_end"}),
            targets.FIRST_AUDIO_P95_S,
            share=0.95,
            over=SHORT,
        ),
        lasts="10m",
        is_critical=True,
        summary="5 % of all answers begin later than 2 s after the user's speech.",
    ),
    Alert(
        name="DuplexDeadlineMisses",
        expr=_above(ratios.deadline_misses(SHORT), targets.DEADLINE_MISSES),
        lasts="10m",
        is_critical=True,
        summary="More than 0.5 % of a stage's units take longer than they last.",
    ),
    Alert(
        name="DuplexUnitLag",
        expr=_slower(series(d.UNIT_LAG), targets.UNIT_LAG_P95_S, share=0.95, over=SHORT),
        lasts="10m",
        is_critical=False,
        summary="Models that hear without pause are more than 1 s behind their users.",
    ),
    Alert(
        name="DuplexBargeInSlow",
        expr=_slower(
            series(d.BARGE_IN_STOP, {"by": "speech"}),
            targets.BARGE_IN_STOP_P95_S,
            share=0.95,
            over=LONG,
        ),
        lasts="10m",
        is_critical=False,
        summary="5 % of interruptions by speech stop the answer later than 300 ms.",
    ),
    Alert(
        name="DuplexGatewayOverloaded",
        expr=_slower(
            series(d.GATEWAY_SECONDS, {"part": "loop_delay"}),
            targets.LOOP_DELAY_P99_S,
            share=0.99,
            over=SHORT,
        ),
        lasts="10m",
        is_critical=False,
        summary="A gateway's event loop is more than 100 ms late.",
    ),
)
QUALITY: Final = (
    Alert(
        name="DuplexUnderruns",
        expr=_above(ratios.underruns(LONG), targets.UNDERRUNS),
        lasts="10m",
        is_critical=False,
        summary="More than 1 % of spoken answers have a gap.",
    ),
    Alert(
        name="DuplexResponsesFail",
        expr=_above(ratios.failed_responses(SHORT), targets.FAILED_RESPONSES),
        lasts="5m",
        is_critical=True,
        summary="More than 1 % of answers fail.",
    ),
    Alert(
        name="DuplexResumesFail",
        expr=_above(ratios.not_resumed(LONG), targets.RESUME_FAILURES),
        lasts="10m",
        is_critical=False,
        summary="More than 0.5 % of attempts to resume a session fail.",
    ),
    Alert(
        name="DuplexUnfair",
        expr=f"{value(series(d.LAG_RATIO))} > {targets.LAG_RATIO:g} "
        f"or {value(series(d.JAIN))} < {targets.JAIN:g}",
        lasts="10m",
        is_critical=False,
        summary="Some session waits far longer than the others.",
    ),
)
GROUPS: Final[dict[str, tuple[Recording | Alert, ...]]] = {
    "duplex-recordings": RECORDINGS,
    "duplex-down": DOWN,
    "duplex-admission": ADMISSION,
    "duplex-speed": SPEED,
    "duplex-quality": QUALITY,
}
ALERTS: Final = (*DOWN, *ADMISSION, *SPEED, *QUALITY)


def rules_text() -> str:
    """Return the file of rules."""
    groups = [
        {"name": name, "rules": [_rule(rule) for rule in rules]} for name, rules in GROUPS.items()
    ]
    body = yaml.safe_dump({"groups": groups}, sort_keys=False, width=96, allow_unicode=True)
    return NOTICE + body


def _rule(rule: Recording | Alert) -> dict[str, object]:
    if isinstance(rule, Recording):
        return {"record": rule.name, "expr": rule.expr}
    return {
        "alert": rule.name,
        "expr": rule.expr,
        "for": rule.lasts,
        "labels": {"severity": "critical" if rule.is_critical else "warning"},
        "annotations": {"summary": rule.summary, "runbook_url": rule.anchor},
    }

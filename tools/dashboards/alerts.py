"""Recording and alert rules. What to do when one fires stands in docs/operations.md.

Rule 1: an alert on a share or a percentile needs some cases, so that one bad case at night is none.
Rule 2: the threshold is in `targets`, or stands in the expression; the text says what it means.
Rule 3: every time in a rule goes through its `Pace`, so that a drill need not wait as long.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import yaml

from serve_app.metrics import definitions as d
from serve_app.metrics.label_values import STAGES
from tools.dashboards import ratios, targets
from tools.dashboards.pace import AS_SHIPPED, Pace
from tools.dashboards.promql import Series, increase, observed, quantile, rate, raw, series, value

RUNBOOK: Final = "docs/operations.md"
NOTICE: Final = """\
# Made by `make docs` from tools/dashboards; change it there. What to do when an alert fires:
# docs/operations.md.
"""
STARTED: Final = "duplex:engine_start_time_seconds:max"
GATEWAY_STARTED: Final = "duplex:gateway_start_time_seconds:max"
SHORT_MIN: Final = 10
LONG_MIN: Final = 30
FEWEST_BAD: Final = 5
"""Bad cases within the time looked at, below which their share says nothing."""
FEWEST: Final = 20
"""The same of all cases, for a percentile."""
AFTER_SPEECH: Final = series(d.FIRST_AUDIO, {"since": "speech_end"})


@dataclass(frozen=True, slots=True)
class Recording:
    """A query that Prometheus keeps the answers of."""

    name: str
    expr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something that a person has to look at."""

    name: str
    summary: str
    expr: str
    lasts: str
    """How long it has to be so."""
    is_critical: bool = False
    """Critical: users notice now. Else it can wait until somebody is at work."""

    @property
    def anchor(self) -> str:
        """Return where its section is."""
        return f"{RUNBOOK}#{self.name.lower()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """What an alert is, before anybody has said how long a minute is."""

    name: str
    summary: str
    expr: Callable[[Pace], str]
    lasts_min: int
    is_critical: bool = False

    def at(self, pace: Pace) -> Alert:
        return Alert(
            name=self.name,
            summary=self.summary,
            expr=self.expr(pace),
            lasts=pace.wait(self.lasts_min),
            is_critical=self.is_critical,
        )


# --- the shapes ---------------------------------------------------------------------------------


def _share(
    of: Callable[[str], ratios.Share], *, above: float, over_min: int = SHORT_MIN
) -> Callable[[Pace], str]:
    """More than a share of all cases is bad, and some are."""

    def at(pace: Pace) -> str:
        share = of(pace.window(over_min))
        return f"{share.ratio} > {above:g} and {share.some} >= {FEWEST_BAD}"

    return at


def _percentile(
    share: float, of: Series, *, above: float, over_min: int = SHORT_MIN
) -> Callable[[Pace], str]:
    """More than the rest of a histogram's values is above, and there are some."""

    def at(pace: Pace) -> str:
        over = pace.window(over_min)
        return (
            f"{quantile(share, of, (), over)} > {above:g} and {observed(of, (), over)} >= {FEWEST}"
        )

    return at


def _any(of: Series) -> Callable[[Pace], str]:
    """One is too many."""
    return lambda pace: f"{increase(of, (), pace.window(SHORT_MIN))} > 0"


def _now(expr: str) -> Callable[[Pace], str]:
    """What gauges say now, without a window."""
    return lambda _: expr


# --- the rules ----------------------------------------------------------------------------------


def _missing_engines() -> str:
    absent = [f"absent({raw(series(d.ENGINE_UP, {'stage': stage}))})" for stage in STAGES]
    return " or ".join([f"{value(series(d.ENGINE_UP), ('stage',))} < 1", *absent])


def _unfair(pace: Pace) -> str:
    """Shares of a few milliseconds say nothing, so some units have to take a while."""
    units = series(d.UNIT_SECONDS, {"stage": "stage0", "part": "total"})
    return (
        f"({value(series(d.LAG_RATIO))} > {targets.LAG_RATIO:g} "
        f"or {value(series(d.JAIN))} < {targets.JAIN:g}) "
        f"and {quantile(0.99, units, (), pace.window(SHORT_MIN))} > {targets.UNFAIR_FROM_P99_S:g}"
    )


def recordings(pace: Pace) -> tuple[Recording, ...]:
    """Return the queries to keep; a name says what the time is as shipped."""
    short, long = pace.window(SHORT_MIN), pace.window(LONG_MIN)
    return (
        Recording("duplex:open_sessions:sum", value(series(d.OPEN_SESSIONS), ("state",))),
        Recording("duplex:free_slots:ratio", ratios.free_slots()),
        Recording("duplex:unit_deadline_misses:ratio10m", ratios.deadline_misses(short).ratio),
        Recording("duplex:first_audio_seconds:p95_10m", quantile(0.95, AFTER_SPEECH, (), short)),
        Recording("duplex:underruns:ratio30m", ratios.underruns(long).ratio),
        # A restarted process' series are new ones, so its own would never change.
        Recording(STARTED, f"max by (stage) ({raw(series(d.ENGINE_STARTED))} > 0)"),
        Recording(GATEWAY_STARTED, f"max ({raw(series(d.GATEWAY_STARTED))} > 0)"),
    )


_DOWN: Final = (
    _Rule(
        name="DuplexGatewayMissing",
        summary="No gateway reports its metrics.",
        expr=_now(f"absent({raw(series(d.OPEN_SOCKETS))})"),
        lasts_min=2,
        is_critical=True,
    ),
    _Rule(
        name="DuplexGatewayRestarting",
        summary="The gateway came up more than twice within an hour.",
        expr=lambda pace: f"changes({GATEWAY_STARTED}[{pace.window(60)}]) > 2",
        lasts_min=0,
        is_critical=True,
    ),
    _Rule(
        name="DuplexEngineMissing",
        summary="A stage has no engine that is ready.",
        expr=_now(_missing_engines()),
        lasts_min=2,
        is_critical=True,
    ),
    _Rule(
        name="DuplexEngineRestarting",
        summary="A stage's engine became ready more than twice within an hour.",
        expr=lambda pace: f"changes({STARTED}[{pace.window(60)}]) > 2",
        lasts_min=0,
    ),
    _Rule(
        name="DuplexSessionsBroken",
        summary="Sessions ended because a stage was lost or the gateway broke.",
        expr=_any(series(d.SESSIONS_ENDED, {"reason": ratios.OUR_FAULT})),
        lasts_min=0,
    ),
    _Rule(
        name="DuplexLeasesExpired",
        summary="A gateway stopped renewing leases without giving them back.",
        expr=_any(series(d.LEASES_ENDED, {"reason": "expired"})),
        lasts_min=0,
    ),
)
_ADMISSION: Final = (
    _Rule(
        name="DuplexSlotsNearlyTaken",
        summary="A stage has less than a tenth of its slots free.",
        expr=_now(f"{ratios.free_slots()} < {targets.FREE_SLOTS:g}"),
        lasts_min=10,
    ),
    _Rule(
        name="DuplexSessionsRefused",
        summary="More than 5 % of new sessions find no free slot.",
        expr=_share(
            lambda over: ratios.refused_sessions(ratios.AS_FULL, over),
            above=targets.REFUSED_SESSIONS,
        ),
        lasts_min=5,
        is_critical=True,
    ),
    _Rule(
        name="DuplexSessionsNotOpened",
        summary="More than 1 % of new sessions fail at a stage that should have taken them.",
        expr=_share(
            lambda over: ratios.refused_sessions(ratios.BY_FAULT, over), above=targets.NOT_OPENED
        ),
        lasts_min=5,
        is_critical=True,
    ),
    _Rule(
        name="DuplexKeysRefused",
        summary="More than one request a second comes without a valid key.",
        expr=lambda pace: (
            f"{rate(series(d.DOOR_REFUSALS, {'status': '401'}), (), pace.window(SHORT_MIN))} "
            f"> {targets.WRONG_KEYS_PER_S:g}"
        ),
        lasts_min=0,
    ),
)
_SPEED: Final = (
    _Rule(
        name="DuplexFirstAudioMedianSlow",
        summary="Half of all answers begin later than 1.2 s after the user's speech.",
        expr=_percentile(0.5, AFTER_SPEECH, above=targets.FIRST_AUDIO_P50_S),
        lasts_min=10,
    ),
    _Rule(
        name="DuplexFirstAudioSlow",
        summary="5 % of all answers begin later than 2 s after the user's speech.",
        expr=_percentile(0.95, AFTER_SPEECH, above=targets.FIRST_AUDIO_P95_S),
        lasts_min=10,
        is_critical=True,
    ),
    _Rule(
        name="DuplexDeadlineMisses",
        summary="More than 0.5 % of a stage's units take longer than they last.",
        expr=_share(ratios.deadline_misses, above=targets.DEADLINE_MISSES),
        lasts_min=10,
        is_critical=True,
    ),
    _Rule(
        name="DuplexUnitLag",
        summary="Models that hear without pause are more than 1 s behind their users.",
        expr=_percentile(0.95, series(d.UNIT_LAG), above=targets.UNIT_LAG_P95_S),
        lasts_min=10,
    ),
    _Rule(
        name="DuplexBargeInSlow",
        summary="5 % of interruptions by speech stop the answer later than 300 ms.",
        expr=_percentile(
            0.95,
            series(d.BARGE_IN_STOP, {"by": "speech"}),
            above=targets.BARGE_IN_STOP_P95_S,
            over_min=LONG_MIN,
        ),
        lasts_min=10,
    ),
    _Rule(
        name="DuplexGatewayOverloaded",
        summary="A gateway's event loop is more than 100 ms late.",
        expr=_percentile(
            0.99, series(d.GATEWAY_SECONDS, {"part": "loop_delay"}), above=targets.LOOP_DELAY_P99_S
        ),
        lasts_min=10,
    ),
)
_QUALITY: Final = (
    _Rule(
        name="DuplexUnderruns",
        summary="More than 1 % of spoken answers have a gap.",
        expr=_share(ratios.underruns, above=targets.UNDERRUNS, over_min=LONG_MIN),
        lasts_min=10,
    ),
    _Rule(
        name="DuplexResponsesFail",
        summary="More than 1 % of answers fail.",
        expr=_share(ratios.failed_responses, above=targets.FAILED_RESPONSES),
        lasts_min=5,
        is_critical=True,
    ),
    _Rule(
        name="DuplexResumesFail",
        summary="More than 0.5 % of attempts to resume a session fail.",
        expr=_share(ratios.not_resumed, above=targets.RESUME_FAILURES, over_min=LONG_MIN),
        lasts_min=10,
    ),
    _Rule(
        name="DuplexUnfair",
        summary="Some session waits far longer than the others.",
        expr=_unfair,
        lasts_min=10,
    ),
)
_GROUPS: Final[dict[str, tuple[_Rule, ...]]] = {
    "duplex-down": _DOWN,
    "duplex-admission": _ADMISSION,
    "duplex-speed": _SPEED,
    "duplex-quality": _QUALITY,
}


def groups(pace: Pace) -> dict[str, tuple[Recording | Alert, ...]]:
    """Return all rules by the name of their group."""
    alerts = {name: tuple(rule.at(pace) for rule in rules) for name, rules in _GROUPS.items()}
    return {"duplex-recordings": recordings(pace), **alerts}


RECORDINGS: Final = recordings(AS_SHIPPED)
ALERTS: Final = tuple(rule.at(AS_SHIPPED) for rules in _GROUPS.values() for rule in rules)


def rules_text(pace: Pace = AS_SHIPPED) -> str:
    """Return the file of rules."""
    written = [
        {"name": name, "rules": [_written(rule) for rule in rules]}
        for name, rules in groups(pace).items()
    ]
    body = yaml.safe_dump({"groups": written}, sort_keys=False, width=96, allow_unicode=True)
    return NOTICE + body


def _written(rule: Recording | Alert) -> dict[str, object]:
    if isinstance(rule, Recording):
        return {"record": rule.name, "expr": rule.expr}
    return {
        "alert": rule.name,
        "expr": rule.expr,
        "for": rule.lasts,
        "labels": {"severity": "critical" if rule.is_critical else "warning"},
        "annotations": {"summary": rule.summary, "runbook_url": rule.anchor},
    }

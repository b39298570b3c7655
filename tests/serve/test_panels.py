"""Every panel of the dashboards is asked of a real Prometheus that reads the service under load.

The service is deploy/scripted.yaml on real Ray, its clients do all that they can do, and twice: a
histogram is known to Prometheus from its first value on, so only the next ones are an increase.
What MiniCPM-o alone can move is in test_minicpmo_tiny.py.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from serve_app.metrics.definitions import (
    BUFFERED,
    DRAINING,
    FLOODS,
    GATEWAY_STARTED,
    METRICS,
    SLOW_READERS,
    SPANS_DROPPED,
)
from serve_app.metrics.metric import Kind, Metric
from tests.support.busy_clients import BusyClients
from tests.support.drawn import (
    MINICPMO_ALONE,
    STEP_S,
    DrawnPanel,
    drawn_panels,
    is_of,
    moves,
    values,
)
from tests.support.prometheus import Prometheus, Range, Sample, prometheus_beside_ray
from tests.support.serve_cluster import UNHURRIED, ServeCluster
from tools.dashboards.alerts import ALERTS, RECORDINGS

KEY = "key-of-the-panels"
LIMITS = {
    "max_sessions": 16,
    # Long enough to come back within, short enough for a test to wait until it is over.
    "disconnect_grace_s": 5.0,
    "reaper_interval_s": 0.5,
    "max_output_bytes_per_session": 262_144,
    **UNHURRIED,
}
PATIENCE_S = 120.0
"""Only a test that has gone wrong ever waits so long."""
PANELS = drawn_panels()
UNMOVED = {
    **MINICPMO_ALONE,
    SLOW_READERS.name: "Serve's own proxy takes all that it is sent, so the gateway "
    "never has to wait for one who does not read",
    FLOODS.name: "the same: refusals that nobody reads are taken, too",
    SPANS_DROPPED.name: "no endpoint for traces is set, so there are none",
    DRAINING.name: "nobody drains this service",
}
"""Metrics that nothing here can move, and why."""
PASSING = {
    BUFFERED.name: "what waits is gone within milliseconds, and it is reported once a second",
}
"""Metrics that may be at zero whenever somebody looks."""
OURS = '{__name__=~"ray_duplex_.+"}'


@dataclass(frozen=True)
class Evidence:
    """What there is to see after the load."""

    prometheus: Prometheus
    over: Range
    at_first: list[Sample]
    """Series of the processes of this service, before anybody came."""
    former: set[str]
    """Processes that were there before it; what they have counted may still be on its way."""
    busy: BusyClients

    def total(self, name: str, selector: str = "") -> float:
        """Return the sum of this service's series."""
        found = self.prometheus.query(f"ray_{name}{selector}")
        return sum(one.value for one in found if one.labels["WorkerId"] not in self.former)


KNOWN = {
    "duplex_sessions_begun_total": "",
    "duplex_sessions_ended_total": "",
    "duplex_spoken_responses_total": "",
    "duplex_resumes_total": '{result="resumed"}',
    "duplex_sessions_refused_total": '{reason="admission_refused"}',
    "duplex_door_refusals_total": '{status="401"}',
    "duplex_takeovers_total": "",
}


@pytest.fixture(scope="module")
def evidence(cluster: ServeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evidence]:
    folder = tmp_path_factory.mktemp("prometheus")
    keys = folder / "keys"
    keys.write_text(f"{KEY}\n")
    with prometheus_beside_ray(folder) as prometheus:
        former = {sample.labels["WorkerId"] for sample in prometheus.query(OURS)}
        cluster.deploy("scripted.yaml", {"limits": LIMITS, "auth": {"api_keys_file": str(keys)}})
        at_first = until_all_are_there(prometheus, former)
        wait_until(lambda: not gauges_of(prometheus, former), lambda: "former processes are there")
        began_s = time.time()
        busy = BusyClients(cluster.port, KEY)
        so_far = Evidence(prometheus, Range(began_s, began_s, STEP_S), at_first, former, busy)
        asyncio.run(busy.all_at_once())
        until_reported(so_far)
        keys.write_text(f"{KEY} max_sessions=many\n")  # a wrong line changes no key
        with busy.somebody_who_stays():
            asyncio.run(busy.all_at_once())
            until_reported(so_far)
            over = Range.between(began_s, time.time(), step_s=STEP_S)
            yield Evidence(prometheus, over, at_first, former, busy)
    cluster.delete()


def wait_until(holds: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s, otherwise()
        time.sleep(0.5)


def until_reported(evidence: Evidence) -> None:
    """Wait until Prometheus knows of all that has been done; Ray reports now and then."""
    busy = evidence.busy
    wanted = {
        "duplex_sessions_begun_total": busy.begun,
        "duplex_sessions_ended_total": busy.begun - busy.there,
        "duplex_open_sockets": busy.there,
    }
    told: dict[str, float] = {}

    def are_told() -> bool:
        told.update({name: evidence.total(name) for name in wanted})
        return told == wanted

    wait_until(are_told, lambda: f"{told} is reported, {wanted} was done")


def gauges_of(prometheus: Prometheus, workers: set[str]) -> list[Sample]:
    """Return what these processes show now and would not if they had ended."""
    return [
        sample
        for sample in prometheus.query("ray_duplex_engine_kv_tokens")
        if sample.labels["WorkerId"] in workers
    ]


# --- from the start -----------------------------------------------------------------------------


Series = tuple[str, frozenset[tuple[str, str]]]
LABELS = {label for metric in METRICS for label in metric.labels}


def series_of(sample: Sample) -> Series:
    own = frozenset((name, text) for name, text in sample.labels.items() if name in LABELS)
    return sample.labels["__name__"], own


def expected(kinds: set[Kind]) -> dict[Series, Metric]:
    return {
        (f"ray_{metric.name}", frozenset(zip(metric.labels, labels, strict=True))): metric
        for metric in METRICS
        if metric.kind in kinds
        for labels in metric.label_sets
    }


def until_all_are_there(prometheus: Prometheus, former: set[str]) -> list[Sample]:
    """Wait for every counter and gauge of processes that were not there before; return them."""
    found: list[Sample] = []

    def are_there() -> bool:
        found[:] = [s for s in prometheus.query(OURS) if s.labels["WorkerId"] not in former]
        return set(expected({Kind.COUNTER, Kind.GAUGE})) <= {series_of(one) for one in found}

    wait_until(are_there, lambda: "not every counter and gauge is there from the start")
    return found


def test_every_counter_is_at_zero_before_anybody_has_come(evidence: Evidence) -> None:
    counters = expected({Kind.COUNTER})
    # The time that the service itself has been there is no session's.
    counted = [one for one in evidence.at_first if series_of(one) in counters and one.value]
    assert counted == []


def test_every_gauge_begins_as_its_definition_says(evidence: Evidence) -> None:
    gauges = expected({Kind.GAUGE})
    for one in evidence.at_first:
        metric = gauges.get(series_of(one))
        if metric is GATEWAY_STARTED:
            assert one.value >= metric.starts_at  # reported before it has started, or after
        elif metric is not None and metric.owner.name == "GATEWAY":
            assert one.value == metric.starts_at, one


# --- the panels ---------------------------------------------------------------------------------


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.name)
def test_a_panel_shows_what_the_load_has_done(evidence: Evidence, panel: DrawnPanel) -> None:
    for expr in panel.exprs:
        if is_of(expr, PASSING):
            assert seen(evidence, expr)
        else:
            # What is excepted and moves all the same need not be excepted.
            moved = moves(evidence.prometheus, expr, evidence.over)
            assert moved is not is_of(expr, UNMOVED), expr


@pytest.mark.parametrize(
    "expr",
    [
        "sum (rate(duplex_sessions_begun_total[60s]))",  # without Ray's prefix
        "sum (rate(ray_duplex_sessions_begun_total[1s]))",  # no two scrapes lie in there
        'sum (ray_duplex_open_sessions{state="open"})',  # no such state
        "sum (ray_duplex_floods_total)",  # at zero
        "sum (ray_duplex_open_sockets) / sum (ray_duplex_floods_total)",  # infinite
        "sum (ray_duplex_floods_total) / sum (ray_duplex_floods_total)",  # not a number
    ],
)
def test_a_query_that_shows_nothing_is_found(evidence: Evidence, expr: str) -> None:
    assert not moves(evidence.prometheus, expr, evidence.over)


def test_what_is_excepted_is_drawn() -> None:
    drawn = [expr for panel in PANELS for expr in panel.exprs]
    for name in (*UNMOVED, *PASSING):
        assert any(is_of(expr, [name]) for expr in drawn), name


def test_no_number_is_negative(evidence: Evidence) -> None:
    drawn = [value for p in PANELS for e in p.exprs for value in seen(evidence, e)]
    assert len(drawn) > len(PANELS)
    assert min(drawn) >= 0


def seen(evidence: Evidence, expr: str) -> list[float]:
    return values(evidence.prometheus, expr, evidence.over)


def test_what_is_counted_is_what_was_done(evidence: Evidence) -> None:
    done = evidence.busy
    assert done.outcomes["resumed"] == 4
    counted = {name: evidence.total(name, where) for name, where in KNOWN.items()}
    assert counted == {
        "duplex_sessions_begun_total": done.begun,
        "duplex_sessions_ended_total": done.begun - done.there,
        "duplex_spoken_responses_total": done.outcomes["spoken"],
        "duplex_resumes_total": done.outcomes["resumed"],
        "duplex_sessions_refused_total": done.outcomes["full"],
        "duplex_door_refusals_total": done.outcomes["http_401"],
        "duplex_takeovers_total": done.outcomes["taken over"],
    }


def test_a_slow_unit_is_drawn_as_slow(evidence: Evidence) -> None:
    [unit] = [one for one in PANELS if one.name == "stage0: Time of a unit"]
    slowest = max(seen(evidence, unit.exprs[-1]))
    # The script has the model think for 1.3 s about one unit; the buckets end at 1 and 1.5.
    assert slowest > 1.0


# --- rules --------------------------------------------------------------------------------------


def test_no_rule_is_in_trouble(evidence: Evidence) -> None:
    rules = evidence.prometheus.rules()
    assert {rule["name"] for rule in rules} == {
        *(alert.name for alert in ALERTS),
        *(recording.name for recording in RECORDINGS),
    }
    assert [(one["name"], one.get("lastError")) for one in rules if one["health"] != "ok"] == []


@pytest.mark.parametrize("name", [recording.name for recording in RECORDINGS])
def test_what_is_recorded_has_values(evidence: Evidence, name: str) -> None:
    recorded = evidence.prometheus.query_range(name, evidence.over)
    assert any(value > 0 for one in recorded for value in one if math.isfinite(value))

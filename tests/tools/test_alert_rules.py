"""Every alert fires when it should and keeps quiet when it should, as Prometheus itself judges."""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.promtool import promtool
from tools.dashboards.alerts import ALERTS, Alert, rules_text
from tools.dashboards.files import RULES, expressions
from tools.dashboards.pace import Pace

ROOT = Path(__file__).parents[2]
BY_NAME = {alert.name: alert for alert in ALERTS}

Values = Mapping[str, str]
"""Samples of series, a minute apart, as promtool writes them: `0+10x90` grows by ten a minute."""
HEALTHY_GATEWAY = {"ray_duplex_open_sockets": "1x90"}
HEALTHY_STAGES = {
    f'ray_duplex_engine_up_replicas{{stage="{stage}",WorkerId="w"}}': "1x90"
    for stage in ("stage0", "stage1")
}


@dataclass(frozen=True)
class Case:
    """Series, and the label sets with which the alert fires on them after an hour."""

    alert: str
    name: str
    series: Values
    fires: tuple[Values, ...] = ()


def counted(name: str, label: str, **each: int) -> Values:
    """Return counters by the values of one label, each growing by so many a minute."""
    return {f'ray_{name}{{{label}="{value}"}}': f"0+{by}x90" for value, by in each.items()}


def spread(name: str, labels: str, **below: int) -> Values:
    """Return a histogram whose buckets grow so fast; `_1` is the edge 1.0, `_0_3` 0.3."""
    found = {}
    for edge, by in below.items():
        le = "+Inf" if edge == "_inf" else edge[1:].replace("_", ".")
        found[f'ray_{name}_bucket{{{labels}le="{le}"}}'] = f"0+{by}x90"
    found[f"ray_{name}_count{{{labels.rstrip(',')}}}"] = f"0+{max(below.values())}x90"
    return found


SINCE = 'since="speech_end",'
FIRST = "duplex_first_audio_seconds"
REFUSED = ("duplex_sessions_refused_total", "reason")
BEGUN = counted("duplex_sessions_begun_total", "dialect", duplex=60, openai=40)
SLOTS = "ray_duplex_stage_slots"
UNITS_OF_0 = {
    'ray_duplex_unit_seconds_count{stage="stage0",part="total"}': "0+1000x90",
    'ray_duplex_unit_seconds_count{stage="stage0",part="queue"}': "0+100000x90",
}
UNIT = 'stage="stage0",part="total",'
SLOW_UNITS = spread("duplex_unit_seconds", UNIT, _0_25=90, _1=100, _inf=100)
QUICK_UNITS = spread("duplex_unit_seconds", UNIT, _0_25=100, _1=100, _inf=100)
MISSES = 'ray_duplex_unit_deadline_misses_total{stage="stage0"}'
LOOP = 'part="loop_delay",'
SPEECH = 'by="speech",'
COMES_UP = 'ray_duplex_gateway_start_time_seconds{WorkerId="%s"}'
RESTARTS = 'ray_duplex_engine_start_time_seconds{stage="stage1",WorkerId="%s"}'
ON: tuple[Values, ...] = ({},)
STAGE0: tuple[Values, ...] = ({"stage": "stage0"},)

CASES = [
    Case("DuplexGatewayMissing", "no gateway", HEALTHY_STAGES, ON),
    Case("DuplexGatewayMissing", "idle gateway", {"ray_duplex_open_sockets": "0x90"}),
    Case("DuplexGatewayMissing", "gone for a minute", {"ray_duplex_open_sockets": "1x57 _ _ 1x9"}),
    Case(
        "DuplexGatewayRestarting",
        "four processes in an hour, each up for so long that none was missed",
        {
            COMES_UP % "a": "100x10 stale",
            COMES_UP % "b": "_x12 200x10 stale",
            COMES_UP % "c": "_x24 0 300x10 stale",
            COMES_UP % "d": "_x37 400x60",
        },
        ON,
    ),
    Case(
        "DuplexGatewayRestarting",
        "an upgrade, where both are there for a while",
        {COMES_UP % "a": "100x12 stale", COMES_UP % "b": "_x9 0 200x80"},
    ),
    Case(
        "DuplexEngineMissing",
        "one is not warm, the other is not there",
        {'ray_duplex_engine_up_replicas{stage="stage0"}': "0x90"},
        ({"stage": "stage0"}, {"stage": "stage1"}),
    ),
    Case("DuplexEngineMissing", "both are there", HEALTHY_STAGES),
    Case(
        "DuplexEngineRestarting",
        "four processes in an hour",
        {
            RESTARTS % "a": "100x10 stale",
            RESTARTS % "b": "_x11 0 200x10 stale",
            RESTARTS % "c": "_x24 300x10 stale",
            RESTARTS % "d": "_x36 400x60",
        },
        ({"stage": "stage1"},),
    ),
    Case(
        "DuplexEngineRestarting",
        "one more",
        {RESTARTS % "a": "100x10 stale", RESTARTS % "b": "_x11 0 200x80"},
    ),
    Case(
        "DuplexSessionsBroken",
        "one lost",
        {'ray_duplex_sessions_ended_total{reason="stage1_lost"}': "0x55 1x35"},
        ON,
    ),
    Case(
        "DuplexSessionsBroken",
        "clients went",
        counted("duplex_sessions_ended_total", "reason", client_close=9, broken=0),
    ),
    Case(
        "DuplexLeasesExpired",
        "one",
        {'ray_duplex_leases_ended_total{stage="stage0",reason="expired"}': "0x55 1x35"},
        ON,
    ),
    Case(
        "DuplexLeasesExpired",
        "closed ones",
        {'ray_duplex_leases_ended_total{stage="stage0",reason="closed"}': "0+5x90"},
    ),
    Case(
        "DuplexSlotsNearlyTaken",
        "one of twenty",
        {
            SLOTS + '{stage="stage0",state="free"}': "1x90",
            SLOTS + '{stage="stage0",state="taken"}': "19x90",
        },
        STAGE0,
    ),
    Case(
        "DuplexSlotsNearlyTaken",
        "two of twenty",
        {
            SLOTS + '{stage="stage0",state="free"}': "2x90",
            SLOTS + '{stage="stage0",state="taken"}': "18x90",
        },
    ),
    Case("DuplexSessionsRefused", "6 %", {**BEGUN, **counted(*REFUSED, admission_refused=6)}, ON),
    Case("DuplexSessionsRefused", "4 %", {**BEGUN, **counted(*REFUSED, admission_refused=4)}),
    Case(
        "DuplexSessionsRefused",
        "6 of 100, beside a client that tries on and on beyond its quota",
        {
            **counted("duplex_sessions_begun_total", "dialect", live=1_000),
            **counted(*REFUSED, admission_refused=6, too_many_opens=900),
        },
        ON,
    ),
    Case(
        "DuplexSessionsRefused",
        "one of two",
        {
            'ray_duplex_sessions_begun_total{dialect="live"}': "0x50 2x40",
            'ray_duplex_sessions_refused_total{reason="admission_refused"}': "0x50 1x40",
        },
    ),
    Case("DuplexSessionsNotOpened", "2 %", {**BEGUN, **counted(*REFUSED, stage_timeout=2)}, ON),
    Case(
        "DuplexSessionsNotOpened",
        "others' faults",
        {**BEGUN, **counted(*REFUSED, admission_refused=50, client_error=9, too_many_opens=9)},
    ),
    Case(
        "DuplexKeysRefused",
        "two a second",
        {'ray_duplex_door_refusals_total{of="socket",status="401"}': "0+120x90"},
        ON,
    ),
    Case(
        "DuplexKeysRefused",
        "one in two seconds, and other refusals",
        {
            'ray_duplex_door_refusals_total{of="socket",status="401"}': "0+30x90",
            'ray_duplex_door_refusals_total{of="http",status="429"}': "0+600x90",
        },
    ),
    Case("DuplexFirstAudioMedianSlow", "1.5 s", spread(FIRST, SINCE, _1_2=3, _2=10, _inf=10), ON),
    Case("DuplexFirstAudioMedianSlow", "1 s", spread(FIRST, SINCE, _1=6, _2=10, _inf=10)),
    Case("DuplexFirstAudioSlow", "a tenth", spread(FIRST, SINCE, _2=9, _3=10, _inf=10), ON),
    Case("DuplexFirstAudioSlow", "one in fifty", spread(FIRST, SINCE, _2=49, _3=50, _inf=50)),
    Case("DuplexFirstAudioSlow", "few", spread(FIRST, SINCE, _2=0, _3=1, _inf=1)),
    Case("DuplexFirstAudioSlow", "by commit", spread(FIRST, 'since="commit",', _2=0, _3=9, _inf=9)),
    Case("DuplexDeadlineMisses", "0.6 %", {**UNITS_OF_0, MISSES: "0+6x90"}, STAGE0),
    Case("DuplexDeadlineMisses", "0.4 %", {**UNITS_OF_0, MISSES: "0+4x90"}),
    Case("DuplexUnitLag", "2 s", spread("duplex_unit_lag_seconds", "", _1=5, _3=60, _inf=60), ON),
    Case("DuplexUnitLag", "half", spread("duplex_unit_lag_seconds", "", _0_5=60, _inf=60)),
    Case(
        "DuplexBargeInSlow",
        "a tenth",
        spread("duplex_barge_in_stop_seconds", SPEECH, _0_3=9, _0_5=10, _inf=10),
        ON,
    ),
    Case(
        "DuplexBargeInSlow",
        "all within",
        spread("duplex_barge_in_stop_seconds", SPEECH, _0_25=10, _0_3=10, _inf=10),
    ),
    Case(
        "DuplexGatewayOverloaded",
        "5 % late",
        spread("duplex_gateway_seconds", LOOP, _0_1=95, _0_2=100, _inf=100),
        ON,
    ),
    Case(
        "DuplexGatewayOverloaded",
        "all early",
        spread("duplex_gateway_seconds", LOOP, _0_05=100, _0_1=100, _inf=100),
    ),
    Case(
        "DuplexUnderruns",
        "2 %",
        counted("duplex_spoken_responses_total", "playback", smooth=98, underrun=2),
        ON,
    ),
    Case(
        "DuplexUnderruns",
        "half a percent",
        counted("duplex_spoken_responses_total", "playback", smooth=199, underrun=1),
    ),
    Case(
        "DuplexResponsesFail",
        "2 %",
        counted("duplex_responses_total", "status", completed=98, failed=2),
        ON,
    ),
    Case(
        "DuplexResponsesFail",
        "cancelled ones",
        counted("duplex_responses_total", "status", completed=50, cancelled=50, failed=0),
    ),
    Case(
        "DuplexResumesFail",
        "1 %",
        counted("duplex_resumes_total", "result", resumed=99, refused=1),
        ON,
    ),
    Case(
        "DuplexResumesFail",
        "wires that can not",
        counted("duplex_resumes_total", "result", resumed=99, unsupported=50, refused=0),
    ),
    Case(
        "DuplexUnfair",
        "one waits",
        {
            "ray_duplex_fairness_lag_ratio": "4x90",
            "ray_duplex_fairness_jain_index": "0.9x90",
            **SLOW_UNITS,
        },
        ON,
    ),
    Case(
        "DuplexUnfair",
        "one waits some milliseconds",
        {
            "ray_duplex_fairness_lag_ratio": "4x90",
            "ray_duplex_fairness_jain_index": "0.7x90",
            **QUICK_UNITS,
        },
    ),
    Case(
        "DuplexUnfair",
        "one of two gateways",
        {
            'ray_duplex_fairness_jain_index{WorkerId="a"}': "0.7x90",
            'ray_duplex_fairness_jain_index{WorkerId="b"}': "1x90",
            **SLOW_UNITS,
        },
        ON,
    ),
    Case(
        "DuplexUnfair",
        "all alike",
        {
            "ray_duplex_fairness_lag_ratio": "1.5x90",
            "ray_duplex_fairness_jain_index": "0.97x90",
            **SLOW_UNITS,
        },
    ),
]


def expected(alert: Alert, labels: Values) -> dict[str, Any]:
    severity = "critical" if alert.is_critical else "warning"
    return {
        "exp_labels": {"severity": severity, **labels},
        "exp_annotations": {"summary": alert.summary, "runbook_url": alert.anchor},
    }


def as_promtool(case: Case) -> dict[str, Any]:
    """Return the case as promtool reads it."""
    alert = BY_NAME[case.alert]
    check = {
        "eval_time": "1h",
        "alertname": case.alert,
        "exp_alerts": [expected(alert, labels) for labels in case.fires],
    }
    series = [{"series": name, "values": values} for name, values in case.series.items()]
    return {
        "interval": "1m",
        "name": f"{case.alert}: {case.name}",
        "input_series": series,
        "alert_rule_test": [check],
    }


def judged(cases: list[Case], folder: Path) -> tuple[int, str]:
    shutil.copy(ROOT / RULES, folder / "rules.yaml")
    tests = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [as_promtool(case) for case in cases],
    }
    (folder / "cases.yaml").write_text(yaml.safe_dump(tests))
    return promtool("test", "rules", "cases.yaml", folder=folder)


@pytest.mark.parametrize("alert", BY_NAME)
def test_an_alert_fires_and_keeps_quiet(alert: str, tmp_path: Path) -> None:
    cases = [case for case in CASES if case.alert == alert]
    assert {bool(case.fires) for case in cases} == {True, False}
    status, said = judged(cases, tmp_path)
    assert status == 0, said


def test_promtool_finds_a_case_that_is_not_so(tmp_path: Path) -> None:
    status, said = judged([Case("DuplexUnfair", "wrong", HEALTHY_GATEWAY, ON)], tmp_path)
    assert status != 0
    assert "DuplexUnfair" in said


def test_the_rules_are_valid() -> None:
    status, said = promtool("check", "rules", RULES, folder=ROOT)
    assert status == 0, said


def test_the_settings_are_valid(tmp_path: Path) -> None:
    for name in ("prometheus.yml", "rules.yaml"):
        shutil.copy(ROOT / "deploy/prometheus" / name, tmp_path / name)
    status, said = promtool("check", "config", "prometheus.yml", folder=tmp_path)
    assert status == 0, said


def test_every_query_of_a_panel_can_be_read(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{place}", "expr": expr} for place, expr in enumerate(expressions("1m"))
    ]
    (tmp_path / "queries.yaml").write_text(json.dumps({"groups": [{"name": "g", "rules": rules}]}))
    status, said = promtool("check", "rules", "queries.yaml", folder=tmp_path)
    assert status == 0, said


IN_A_TWENTIETH = {"0m": "0m", "2m": "6s", "5m": "15s", "10m": "30s", "30m": "90s", "1h": "3m"}


def test_rules_at_a_quicker_pace_are_those_that_are_shipped(tmp_path: Path) -> None:
    quicker = rules_text(Pace(share=1 / 20, scrape_s=1))
    shipped = (ROOT / RULES).read_text()
    times = re.compile(r"(?<=for: )\w+|(?<=\[)\w+(?=\])")
    assert quicker == times.sub(lambda time: IN_A_TWENTIETH[time.group()], shipped)
    (tmp_path / "rules.yaml").write_text(quicker)
    status, said = promtool("check", "rules", "rules.yaml", folder=tmp_path)
    assert status == 0, said


def test_a_window_is_never_too_short_for_its_scrapes() -> None:
    pace = Pace(share=1 / 100, scrape_s=15)
    assert (pace.window(10), pace.window(60), pace.wait(10), pace.wait(0)) == (
        "1m",
        "1m",
        "6s",
        "0m",
    )

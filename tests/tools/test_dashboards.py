"""Dashboards and rules name only what is defined, and the dashboards are as Grafana wants them.

The queries are read here as text, without the code that made them.
"""

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.metrics import definitions as d
from serve_app.metrics.definitions import METRICS
from serve_app.metrics.metric import Kind, Metric
from tools.dashboards.alerts import ALERTS, RECORDINGS
from tools.dashboards.board import Panel
from tools.dashboards.files import BOARDS, GRAFANA, expressions, generated
from tools.dashboards.promql import QueryError, observed, quantile, rate, raw, series, value

BY_NAME = {metric.name: metric for metric in METRICS}

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / GRAFANA).glob("*.json"))
QUERIES = expressions("5m")
UNITS = {"s", "ops", "short", "percentunit", "bytes", "dateTimeAsIso"}

NAME = re.compile(r"\bray_\w+|\b(?:duplex|vllm)[_:][\w:]+")
SELECTOR = re.compile(r"(ray_\w+)(?:\{([^}]*)\})?(\[\w+\])?")
TERM = re.compile(r'(\w+)(=~|=|!=|!~)"([^"]*)"')
GROUPING = re.compile(r"\bby \(([^)]*)\)")


# --- reading a query ---------------------------------------------------------------------------


def metric_of(name: str) -> tuple[Metric | None, str]:
    """Return the definition of a series' name, and the suffix that a histogram gives it."""
    own = name.removeprefix("ray_")
    for suffix in ("", "_bucket", "_count"):
        found = BY_NAME.get(own.removesuffix(suffix)) if own.endswith(suffix) else None
        if found and (found.kind is Kind.HISTOGRAM) == bool(suffix):
            return found, suffix
    return None, ""


def faults(query: str) -> list[str]:
    """Return what in a query no series of this service could answer."""
    recorded = {rule.name for rule in RECORDINGS}
    found = [
        f"{name} is not defined"
        for name in NAME.findall(query)
        if name not in recorded and not (name.startswith("ray_") and metric_of(name)[0])
    ]
    known: set[str] = set()
    for match in SELECTOR.finditer(query):
        metric, suffix = metric_of(match[1])
        if metric is None:
            continue
        known |= {*metric.labels, *(["le"] if suffix == "_bucket" else [])}
        found += label_faults(metric, match[2] or "")
        before = query[: match.start()]
        grows = metric.kind is not Kind.GAUGE
        if grows != before.endswith(("rate(", "increase(")) or grows != bool(match[3]):
            found.append(f"{match[1]} is read as another kind")
    grouped = {label for labels in GROUPING.findall(query) for label in labels.split(", ")}
    return found + [f"no label {label}" for label in grouped - known - {""}]


def label_faults(metric: Metric, text: str) -> list[str]:
    terms = TERM.findall(text)
    left = TERM.sub("", text).strip(", ")
    return [f"{left} is not read"] * bool(left) + [
        f"{metric.name} has no {label} {one}"
        for label, _, wanted in terms
        for one in wanted.split("|")
        if one not in metric.labels.get(label, ())
    ]


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_names_what_is_defined(query: str) -> None:
    assert faults(query) == []


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("sum (rate(ray_duplex_unit_total[5m]))", "ray_duplex_unit_total is not defined"),
        ("sum (rate(duplex_units_total[5m]))", "duplex_units_total is not defined"),
        ("sum (ray_duplex_units_total)", "read as another kind"),
        ("rate(ray_duplex_open_sockets[5m])", "read as another kind"),
        ("rate(ray_duplex_unit_seconds[5m])", "is not defined"),
        ("rate(ray_duplex_unit_seconds_sum[5m])", "is not defined"),
        ('rate(ray_duplex_units_total{outcome="talk"}[5m])', "no outcome talk"),
        ('rate(ray_duplex_units_total{outcome=~"listen|talk"}[5m])', "no outcome talk"),
        ('rate(ray_duplex_units_total{stage="stage0"}[5m])', "no stage stage0"),
        ("sum by (stage) (rate(ray_duplex_units_total[5m]))", "no label stage"),
        ("duplex:open_sessions:max", "duplex:open_sessions:max is not defined"),
    ],
)
def test_a_wrong_query_is_found(query: str, words: str) -> None:
    assert words in " ".join(faults(query))


def test_the_builders_refuse_it_too() -> None:
    with pytest.raises(QueryError, match="no outcome of"):
        series(d.UNITS, {"outcome": "talk"})
    with pytest.raises(QueryError, match="no stage of"):
        series(d.UNITS, {"stage": "stage0"})
    with pytest.raises(QueryError, match="no labels"):
        rate(series(d.UNITS), ("stage",))
    for build in (value, raw, observed, lambda of: quantile(0.5, of)):
        with pytest.raises(QueryError, match="is a counter"):
            build(series(d.UNITS))
    with pytest.raises(QueryError, match="is a gauge"):
        rate(series(d.OPEN_SOCKETS))


def test_every_metric_is_drawn_somewhere() -> None:
    drawn = {metric_of(name)[0] for query in QUERIES for name in NAME.findall(query)}
    assert [metric.name for metric in METRICS if metric not in drawn] == []


# --- the files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", generated())
def test_a_generated_file_is_up_to_date(path: str) -> None:
    assert (ROOT / path).read_text() == generated()[path], "run `make docs`"


def test_no_dashboard_is_left_of_a_former_one() -> None:
    assert {f"{GRAFANA}/{file.name}" for file in FILES} == {
        path for path in generated() if path.startswith(GRAFANA)
    }


def test_what_can_be_listed_is_all_that_is_in_the_files() -> None:
    written = [
        target["expr"].replace("$__rate_interval", "5m")
        for file in FILES
        for panel in json.loads(file.read_text())["panels"]
        for target in panel.get("targets", [])
    ]
    groups = yaml.safe_load((ROOT / "deploy/prometheus/rules.yaml").read_text())["groups"]
    written += [rule["expr"] for group in groups for rule in group["rules"]]
    assert set(written) == set(QUERIES)


# --- Grafana -----------------------------------------------------------------------------------


def test_dashboards_have_names_of_their_own() -> None:
    trees = [json.loads(file.read_text()) for file in FILES]
    assert len({tree["uid"] for tree in trees}) == len({tree["title"] for tree in trees}) == 4
    assert all(re.fullmatch(r"[a-z0-9-]{1,40}", tree["uid"]) for tree in trees)
    assert {board.uid for board in BOARDS} == {tree["uid"] for tree in trees}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_a_dashboard_is_as_grafana_wants_it(file: Path) -> None:
    tree = json.loads(file.read_text())
    panels = tree["panels"]
    (variable,) = tree["templating"]["list"]
    assert (variable["name"], variable["type"]) == ("datasource", "datasource")
    assert variable["query"] == "prometheus"
    assert tree["schemaVersion"] == 39  # of Grafana 10
    ids = [panel["id"] for panel in panels]
    assert len(set(ids)) == len(ids)
    assert all(isinstance(one, int) and one > 0 for one in ids)
    assert all(panel["title"] and panel["description"] for panel in panels)
    assert [panel["title"] for panel in panels if panel_faults(panel)] == []
    for one, other in combinations(panels, 2):
        assert not overlap(one["gridPos"], other["gridPos"]), (one["title"], other["title"])


def panel_faults(panel: dict[str, Any]) -> list[str]:
    place = panel["gridPos"]
    is_within = min(place["x"], place["y"]) >= 0 and place["x"] + place["w"] <= 24
    found = ["place"] * (not (is_within and min(place["w"], place["h"]) > 0))
    if panel["type"] == "row":
        is_line = (place["x"], place["w"], place["h"]) == (0, 24, 1)
        return found + ["row"] * (not is_line or panel["collapsed"] or panel["panels"] != [])
    if panel["type"] == "text":
        return found + ["text"] * (not panel["options"]["content"])
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    drawn = panel["fieldConfig"]["defaults"]["custom"]["thresholdsStyle"]["mode"]
    source = {"type": "prometheus", "uid": "${datasource}"}
    targets = panel["targets"]
    sources = [panel["datasource"], *(target["datasource"] for target in targets)]
    checks = {
        "type": panel["type"] == "timeseries",
        "unit": panel["fieldConfig"]["defaults"]["unit"] in UNITS,
        "thresholds": steps[0]["value"] is None and (drawn == "line") == (len(steps) == 2),
        "limit": all(isinstance(step["value"], (int, float)) for step in steps[1:]),
        "colours": {step["color"] for step in steps} <= {"green", "red"},
        "source": all(one == source for one in sources),
        "targets": targets and len({target["refId"] for target in targets}) == len(targets),
        "legends": all(target["legendFormat"] for target in targets),
    }
    return found + [name for name, is_good in checks.items() if not is_good]


BROKEN: list[tuple[str, tuple[str | int, ...], Any]] = [
    ("place", ("gridPos", "x"), 20),
    ("place", ("gridPos", "h"), 0),
    ("type", ("type",), "graph"),
    ("unit", ("fieldConfig", "defaults", "unit"), "seconds"),
    ("thresholds", ("fieldConfig", "defaults", "thresholds", "steps", 0, "value"), 0),
    ("thresholds", ("fieldConfig", "defaults", "custom", "thresholdsStyle", "mode"), "off"),
    ("limit", ("fieldConfig", "defaults", "thresholds", "steps", 1, "value"), None),
    ("colours", ("fieldConfig", "defaults", "thresholds", "steps", 1, "color"), "bad"),
    ("source", ("datasource", "uid"), "prometheus"),
    ("source", ("targets", 0, "datasource", "uid"), "prometheus"),
    ("targets", ("targets", 1, "refId"), "A"),
    ("legends", ("targets", 1, "legendFormat"), ""),
]


@pytest.mark.parametrize(("fault", "path", "wrong"), BROKEN)
def test_a_panel_that_grafana_would_not_draw_is_found(
    fault: str, path: tuple[str | int, ...], wrong: Any
) -> None:
    tree = json.loads((ROOT / GRAFANA / "overview.json").read_text())
    [panel] = [one for one in tree["panels"] if one["title"] == "Lag behind the user"]
    assert panel_faults(panel) == []
    part: Any = panel
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = wrong
    assert fault in panel_faults(panel)


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return (
        one["x"] < other["x"] + other["w"]
        and other["x"] < one["x"] + one["w"]
        and one["y"] < other["y"] + other["h"]
        and other["y"] < one["y"] + one["h"]
    )


def test_a_graph_that_several_dashboards_show_is_one_panel() -> None:
    drawn: dict[tuple[str, ...], Panel] = {}
    for board in BOARDS:
        for panel in (panel for row in board.rows for panel in row.panels):
            if isinstance(panel, Panel):
                exprs = tuple(query.expr for query in panel.queries)
                assert drawn.setdefault(exprs, panel) is panel, (board.uid, panel.title)


def test_the_overview_has_eight_rows() -> None:
    (overview,) = [board for board in BOARDS if board.uid == "duplex-overview"]
    assert [row.title for row in overview.rows] == [
        *("Admission", "Unit loop", "Listening and speaking", "Audio out"),
        *("Sockets", "Engines", "Fairness", "Cost"),
    ]


def test_legends_name_labels_that_the_query_keeps() -> None:
    for board in BOARDS:
        for query in board.queries:
            kept = {one for labels in GROUPING.findall(query.expr) for one in labels.split(", ")}
            assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= kept - {"le"}


# --- the runbook -------------------------------------------------------------------------------


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_has_a_section_that_says_what_to_do(alert: Any) -> None:
    page, _, anchor = alert.anchor.partition("#")
    text = (ROOT / page).read_text()
    heading = f"\n### {alert.name}\n"
    assert anchor == alert.name.lower()
    assert text.count(heading) == 1
    section = text.partition(heading)[2].partition("\n##")[0]
    for part in ("**Means.**", "**Look at.**", "**Do.**"):
        assert part in section, part


def test_the_runbook_has_no_section_of_a_former_alert() -> None:
    text = (ROOT / "docs/operations.md").read_text()
    assert re.findall(r"^### (Duplex\w+)$", text, re.M) == [alert.name for alert in ALERTS]

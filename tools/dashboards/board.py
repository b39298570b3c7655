"""What a dashboard is: rows of panels, and the JSON that Grafana reads."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

COLUMNS: Final = 24
HEIGHT: Final = 8
SCHEMA: Final = 39
"""Of Grafana 10 and later; older ones read most of it."""
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
MIN_STEP: Final = "15s"
"""Ray reports every 10 s; a shorter step would draw what is not known."""


@dataclass(frozen=True, slots=True)
class Query:
    """One query, and what its curves are called: text with `{{label}}` in it."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One graph."""

    title: str
    description: str
    unit: str
    """Grafana's name of it: `s`, `percentunit`, `ops`, `bytes`, `short`."""
    queries: tuple[Query, ...]
    bad: float | None = None
    """From here on it is red."""
    bad_below: bool = False
    """Red is what is below `bad`, not what is above."""
    stacked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Text among the graphs, in Markdown."""

    title: str
    description: str
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel | Note, ...]
    width: int = 8
    """Of each panel, in columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One dashboard."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]

    @property
    def queries(self) -> tuple[Query, ...]:
        """Return all queries, in the order of the panels."""
        panels = [panel for row in self.rows for panel in row.panels]
        return tuple(q for panel in panels if isinstance(panel, Panel) for q in panel.queries)


def text_of(board: Board) -> str:
    """Return the dashboard as Grafana reads it."""
    tree = {
        "uid": board.uid,
        "title": board.title,
        "description": board.description,
        "tags": ["duplex"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": False,
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "graphTooltip": 1,
        "templating": {"list": [_datasource_variable()]},
        "links": [_links()],
        "panels": list(_placed(board.rows)),
    }
    return json.dumps(tree, indent=1, ensure_ascii=False) + "\n"


def _datasource_variable() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "hide": 0,
    }


def _links() -> dict[str, Any]:
    return {
        "title": "Duplex",
        "type": "dashboards",
        "tags": ["duplex"],
        "asDropdown": True,
        "keepTime": True,
        "includeVars": True,
    }


def _placed(rows: tuple[Row, ...]) -> Iterator[dict[str, Any]]:
    """Yield all panels from left to right and from top to bottom, each with its place."""
    number, top = 0, 0
    for row in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "description": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
        }
        top, left = top + 1, 0
        for panel in row.panels:
            if left + row.width > COLUMNS:
                top, left = top + HEIGHT, 0
            number += 1
            place = {"x": left, "y": top, "w": row.width, "h": HEIGHT}
            yield {"id": number, "gridPos": place, **_panel(panel)}
            left += row.width
        top += HEIGHT


def _panel(panel: Panel | Note) -> dict[str, Any]:
    if isinstance(panel, Note):
        return {
            "type": "text",
            "title": panel.title,
            "description": panel.description,
            "options": {"mode": "markdown", "content": panel.text},
        }
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "interval": MIN_STEP,
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": DATASOURCE, **_target(query)}
            for place, query in enumerate(panel.queries)
        ],
    }


def _target(query: Query) -> dict[str, Any]:
    return {"expr": query.expr, "legendFormat": query.legend, "range": True}


def _field(panel: Panel) -> dict[str, Any]:
    drawn = {"fillOpacity": 20 if panel.stacked else 0, "spanNulls": False}
    return {
        "unit": panel.unit,
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": _steps(panel)},
        "custom": {
            **drawn,
            "stacking": {"mode": "normal" if panel.stacked else "none"},
            "thresholdsStyle": {"mode": "off" if panel.bad is None else "line"},
        },
    }


def _steps(panel: Panel) -> list[dict[str, Any]]:
    """Return colours from the lowest value up; the first has none."""
    if panel.bad is None:
        return [{"color": "green", "value": None}]
    low, high = ("red", "green") if panel.bad_below else ("green", "red")
    return [{"color": low, "value": None}, {"color": high, "value": panel.bad}]

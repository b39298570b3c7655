"""All files that are made from the description, and every query in them."""

from typing import Final

from tools.dashboards.alerts import ALERTS, RECORDINGS, Alert, Recording, rules_text
from tools.dashboards.board import Board, text_of
from tools.dashboards.one_session import SESSION
from tools.dashboards.overview import OVERVIEW
from tools.dashboards.promql import WINDOW
from tools.dashboards.stages import STAGE_BOARDS

BOARDS: Final[tuple[Board, ...]] = (OVERVIEW, SESSION, *STAGE_BOARDS)
GRAFANA: Final = "deploy/grafana"
RULES: Final = "deploy/prometheus/rules.yaml"


def generated() -> dict[str, str]:
    """Return the text of each file by its path."""
    boards = {f"{GRAFANA}/{board.uid.removeprefix('duplex-')}.json": board for board in BOARDS}
    return {path: text_of(board) for path, board in boards.items()} | {RULES: rules_text()}


def expressions(window: str) -> tuple[str, ...]:
    """Return every query once, as Prometheus takes it, with `window` (`1m`) for Grafana's own."""
    panels = [query.expr for board in BOARDS for query in board.queries]
    rules: tuple[Recording | Alert, ...] = (*RECORDINGS, *ALERTS)
    every = (*panels, *(rule.expr for rule in rules))
    return tuple(dict.fromkeys(expr.replace(WINDOW, window) for expr in every))

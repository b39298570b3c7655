"""Markdown tables of figures."""

from collections.abc import Iterable, Sequence

import numpy as np


def table_head(names: Sequence[str]) -> str:
    """Return a table's two first lines."""
    return f"| {' | '.join(names)} |\n|{' --- |' * len(names)}"


def table_row(cells: Iterable[object]) -> str:
    """Return one line."""
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def spread(values: Sequence[float], *points: float, digits: int = 0) -> str:
    """Return percentiles; 100 is the highest value."""
    if not values:
        return "-"
    return " / ".join(f"{one:.{digits}f}" for one in np.percentile(values, points))

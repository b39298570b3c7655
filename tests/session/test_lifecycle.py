import enum
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from session.errors import LocalProtocolError
from session.lifecycle import (
    LIFE_TABLE,
    TURN_TABLE,
    Life,
    LifeTrigger,
    TurnState,
    TurnTrigger,
    move_life,
    move_turn,
)


@pytest.mark.parametrize(("state", "trigger"), list(itertools.product(Life, LifeTrigger)))
def test_life_moves_only_as_the_table_says(state: Life, trigger: LifeTrigger) -> None:
    if (state, trigger) in LIFE_TABLE:
        assert move_life(state, trigger) is LIFE_TABLE[state, trigger]
    else:
        with pytest.raises(LocalProtocolError):
            move_life(state, trigger)


@pytest.mark.parametrize(("state", "trigger"), list(itertools.product(TurnState, TurnTrigger)))
def test_every_trigger_is_legal_in_every_turn_state(state: TurnState, trigger: TurnTrigger) -> None:
    assert move_turn(state, trigger) is TURN_TABLE[state, trigger]


def test_closed_is_final() -> None:
    leaving = [t for (s, _), t in LIFE_TABLE.items() if s is Life.CLOSED and t is not Life.CLOSED]
    assert leaving == []


def test_closed_is_reached_only_by_release_or_a_failed_open() -> None:
    ways = {trigger for (s, trigger), t in LIFE_TABLE.items() if t is Life.CLOSED is not s}
    assert ways == {LifeTrigger.RELEASED, LifeTrigger.OPEN_FAILED}


StateT = TypeVar("StateT", bound=enum.Enum)
TriggerT = TypeVar("TriggerT", bound=enum.Enum)
PAGE = (Path(__file__).parents[2] / "docs" / "session.md").read_text()


def drawn(heading: str) -> dict[tuple[str, str], str]:
    """Return the table under a heading of docs/session.md: (state, trigger) to the cell."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    header, _, *rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    return {
        (state, row[0]): cell
        for row in rows
        for state, cell in zip(header[1:], row[1:], strict=True)
    }


def cells(
    table: Mapping[tuple[StateT, TriggerT], StateT],
    states: Sequence[StateT],
    triggers: Sequence[TriggerT],
) -> dict[tuple[str, str], str]:
    """Return a table of the code as the page draws it."""
    written = {}
    for state, trigger in itertools.product(states, triggers):
        target = table.get((state, trigger))
        shown = "✗" if target is None else "·" if target is state else str(target.value)
        written[str(state.value), str(trigger.value)] = shown
    return written


def test_the_page_draws_both_tables_as_they_are() -> None:
    assert drawn("Life") == cells(LIFE_TABLE, list(Life), list(LifeTrigger))
    assert drawn("Turn") == cells(TURN_TABLE, list(TurnState), list(TurnTrigger))


def test_the_page_names_every_state() -> None:
    assert set(re.findall(r"^\* \*\*(\w+)\*\*:", PAGE, re.MULTILINE)) == {s.value for s in Life}

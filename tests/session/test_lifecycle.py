import itertools

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

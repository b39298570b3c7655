"""The laws across ledgers, each broken by hand."""

import pickle

import pytest

from session.answering import interrupt, reserve_answer
from session.config import ResponseOptions, SessionLimits
from session.effects import CancelStages
from session.errors import LocalProtocolError
from session.events import ResponseFinished
from session.fence import Fence
from session.ids import OperationId, SessionId
from session.lifecycle import Life
from session.state import SessionState
from tests.session.driver import AUTO, PROFILE, CountingIds, Driver, speaking, transcript


def fresh(life: Life = Life.OPEN) -> SessionState:
    fence = Fence(SessionId("s1"), 0, 0, 0)
    return SessionState(fence, AUTO, SessionLimits(), PROFILE, CountingIds(), life=life)


def test_a_closed_session_makes_no_answer() -> None:
    state = fresh(Life.CLOSED)
    state.validate()
    reserve_answer(state, ResponseOptions())
    with pytest.raises(LocalProtocolError):
        state.validate()


def test_a_closed_session_has_no_unit_out() -> None:
    state = fresh(Life.CLOSED)
    state.append.begin(OperationId("op"), 0, is_continuation=False, now=0.0)
    with pytest.raises(LocalProtocolError):
        state.validate()


def test_an_interruption_of_nothing_is_a_new_epoch() -> None:
    state = fresh()
    [cancel] = interrupt(state, "barge_in")
    assert isinstance(cancel, CancelStages)
    assert (cancel.heard, cancel.consumed_seq, state.fence.epoch) == ("", 0, 1)


def test_a_session_that_was_written_down_and_read_again_goes_on() -> None:
    d = Driver()
    speaking(d)
    d.session = pickle.loads(pickle.dumps(d.session))  # written a moment ago
    d.voice("hree four")
    d.voiced()
    [finished] = d.said(ResponseFinished)
    assert finished.status == "completed"
    assert transcript(d.events()) == "one two three four"
    d.append(1000)
    assert d.last_unit().seq == 2

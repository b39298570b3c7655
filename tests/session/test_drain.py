"""A close that waits: what is being said comes to its end, and nothing new begins."""

import pytest

from session.config import ConfigPatch
from session.effects import CloseSocket, CloseStages, SubmitUnit, WakeAt
from session.events import ResponseFinished, SessionClosed, SessionUpdated, SpeechDelta
from session.socket_stimuli import SocketLost
from session.stimuli import CloseRequested, InputCommitted, SessionConfigured, Ticked
from tests.session.driver import AUTO_VAD, TURN_MODE, Driver, names, speaking

CLOSE = CloseRequested(event_id="bye", drain_s=10.0)


def draining() -> Driver:
    """Return a session that is to close once it has said what it is saying."""
    d = Driver()
    speaking(d)
    assert names(d.do(CLOSE)) == []
    return d


def played(d: Driver, seconds: float) -> list[str]:
    """Let the client play what it has, and not a moment longer; return what that leads to."""
    assert d.asked(WakeAt)[-1].at_s == d.now + seconds
    d.now += seconds - 0.1
    assert names(d.do(Ticked())) == []
    d.now += 0.1
    return names(d.do(Ticked()))


def test_without_an_answer_it_closes_at_once() -> None:
    d = Driver()
    assert names(d.do(CLOSE)) == ["CloseStages"]
    assert d.released()
    [closed] = d.said(SessionClosed)
    assert (closed.reason, closed.client_event_id) == ("client_close", "bye")


def test_an_answer_comes_to_its_end_first() -> None:
    d = draining()
    assert d.said(SpeechDelta, d.voice("three four", turn_end=True))
    assert names(d.voiced()) == ["ResponseFinished"]
    assert d.said(ResponseFinished)[-1].status == "completed"
    assert played(d, 2.0) == ["CloseStages"]
    d.released()
    assert d.said(SessionClosed)[-1].client_event_id == "bye"
    assert d.asked(CloseSocket)[-1] == CloseSocket(1000, "client_close")


def test_an_answer_that_does_not_end_is_cut_off_in_time() -> None:
    d = draining()
    d.now += 9.9
    assert not d.asked(CloseStages, d.do(Ticked()))
    d.now += 0.1
    assert names(d.do(Ticked())) == ["ResponseFinished", "CloseStages"]
    assert d.said(ResponseFinished)[-1].status == "cancelled"


def test_the_session_wakes_up_for_the_last_moment() -> None:
    d = draining()
    assert d.asked(WakeAt)[-1].at_s == d.now + 10.0


def test_what_the_user_says_meanwhile_is_not_heard() -> None:
    d = Driver(AUTO_VAD)
    d.append(1000)
    d.speak("one two", turn_end=True)
    d.voice("one", 1000)
    d.do(CLOSE)
    units = len(d.asked(SubmitUnit))
    assert d.append(2000, probability=0.99) == []
    d.do(InputCommitted())
    d.voice("two", 500, turn_end=True)
    assert "ResponseFinished" in names(d.voiced())
    assert d.said(ResponseFinished)[-1].status == "completed"
    assert len(d.asked(SubmitUnit)) == units


def test_what_waited_for_the_end_of_the_answer_is_not_answered() -> None:
    d = Driver(TURN_MODE)
    d.append(500, speech=True)
    d.do(InputCommitted(create_response=True))
    d.speak("yes")
    d.voice("yes", 1000, turn_end=True)
    d.append(2000, speech=True)
    d.do(InputCommitted(create_response=True))  # over the answer: it is the next turn
    d.do(CLOSE)
    assert names(d.voiced()) == ["ResponseFinished"]
    assert played(d, 1.0) == ["CloseStages"]


def test_an_answer_that_was_asked_for_is_waited_for() -> None:
    d = Driver(TURN_MODE)
    d.append(500, speech=True)
    d.do(InputCommitted(create_response=True))
    assert names(d.do(CLOSE)) == []
    d.speak("yes")
    d.voice("yes", turn_end=True)
    assert names(d.voiced()) == ["ResponseFinished"]
    assert played(d, 1.0) == ["CloseStages"]


def test_settings_that_the_stages_think_about_are_still_answered() -> None:
    d = Driver()
    d.do(SessionConfigured(ConfigPatch((("temperature", 0.5),)), "u"))
    assert names(d.do(CLOSE)) == []
    effects = d.configured()
    assert d.said(SessionUpdated, effects)[-1].client_event_id == "u"
    assert names(effects)[-1] == "CloseStages"


def test_asked_again_it_goes_on_waiting() -> None:
    d = draining()
    assert names(d.do(CLOSE)) == []
    assert d.do(CloseRequested(event_id="again", drain_s=10.0)) == []
    d.voiced()
    played(d, 1.0)
    d.released()
    assert d.said(SessionClosed)[-1].client_event_id == "bye"


def test_an_answer_that_is_over_but_still_played_is_heard_out() -> None:
    d = Driver()
    speaking(d)
    d.voiced()
    assert names(d.do(CLOSE)) == []
    assert d.append(1000) == []
    assert played(d, 1.0) == ["CloseStages"]


@pytest.mark.parametrize("end", [CloseRequested("server_shutdown"), SocketLost()])
def test_nobody_waits_for_what_is_closed_otherwise(end: CloseRequested | SocketLost) -> None:
    d = draining()
    assert names(d.do(end)) == ["ResponseFinished", "CloseStages"]
    d.released()
    assert len(d.said(SessionClosed)) == 1
    d.now += 20
    assert d.do(Ticked()) == []

"""The server is about to go away: each session ends at its next quiet moment, and none is cut."""

from dataclasses import replace

import pytest

from session.config import ConfigPatch, ResponseOptions, SessionLimits
from session.effects import AttachSocket, CloseSocket, CloseStages, SubmitUnit, WakeAt
from session.events import ResponseFinished, SessionCreated, SessionExpired
from session.ids import AttachmentId, ItemId
from session.ledger.calls import CallLedger
from session.lifecycle import Life
from session.service_stimuli import DrainRequested, DrainWithdrawn
from session.socket_events import SessionExpiring
from session.socket_stimuli import ResumeRequested, SocketLost
from session.stimuli import (
    CloseRequested,
    InputCleared,
    InputCommitted,
    ItemCreated,
    PlaybackAcked,
    ResponseRequested,
    SessionConfigured,
    StagesOpened,
    TextAppended,
    Ticked,
    UnitFinished,
)
from session.stream_stimuli import ContextAppended, ContextUse
from session.tools import FunctionCall
from session.unit import Decision, UnitResult
from tests.session.driver import AUTO_VAD, PROFILE, TURN_MODE, Driver, names, speaking

WITHIN_S = 600.0
PAUSE_S = 2.0
CLIENT_S = 60.0
"""So long it waits for what only the client can do."""


def drain(d: Driver, within_s: float = WITHIN_S) -> list[str]:
    return names(d.do(DrainRequested(d.now + within_s)))


def left(d: Driver, after_s: float = PAUSE_S) -> bool:
    """Whether the session ends so long from now, by itself, and not a moment earlier."""
    due_s = d.now + after_s
    while d.session.life is Life.OPEN and d.asked(WakeAt)[-1].at_s <= due_s:
        d.now = d.asked(WakeAt)[-1].at_s
        d.do(Ticked())
    return d.session.life is Life.CLOSING and d.now == pytest.approx(due_s)


def stays(d: Driver, seconds: float = 59.0) -> bool:
    d.now += seconds
    d.do(Ticked())
    return d.session.life is Life.OPEN


def test_a_quiet_session_is_told_and_ends_after_a_pause_for_a_restart() -> None:
    d = Driver(TURN_MODE)
    assert drain(d) == ["SessionExpiring"]
    [told] = d.said(SessionExpiring)
    assert (told.reason, told.expires_in_ms) == ("server_drain", 600_000)
    assert left(d)
    d.released()
    assert d.said(SessionExpired)[-1].reason == "server_drain"
    assert d.asked(CloseSocket)[-1] == CloseSocket(1012, "server_drain")


def test_an_answer_is_made_and_heard_to_its_end() -> None:
    d = Driver()
    speaking(d)
    drain(d)
    assert stays(d)
    d.voice("three four", 3000, turn_end=True)
    d.voiced()
    assert d.said(ResponseFinished)[-1].status == "completed"
    assert left(d, 3.0 + PAUSE_S)


def test_what_was_heard_early_ends_the_wait_early() -> None:
    d = Driver()
    speaking(d)
    drain(d)
    d.voice("three four", 30_000, turn_end=True)
    d.voiced()
    d.now += PAUSE_S
    d.do(PlaybackAcked(31_000))
    assert d.session.life is Life.CLOSING


def test_whoever_speaks_is_heard_out_and_answered() -> None:
    d = Driver(AUTO_VAD)
    d.append(1000, probability=0.99)
    drain(d)
    assert stays(d)
    d.append(2000, probability=0.0)
    d.speak("yes")
    d.voice("yes", 1000, turn_end=True)
    d.voiced()
    assert d.said(ResponseFinished)[-1].status == "completed"
    for _ in range(2):
        d.listen()  # to the rest of what had come
    assert left(d, 1.0 + PAUSE_S)


def test_a_stream_of_silence_does_not_hold_it() -> None:
    d = Driver(AUTO_VAD)
    drain(d)
    for _ in range(3):
        assert d.session.life is Life.OPEN
        d.append(1000, probability=0.0)  # so a unit is out, and answered before the next
        d.now += 0.9
        d.listen()
        d.now += 0.1
    d.do(Ticked())
    assert d.session.life is Life.CLOSING


def test_it_does_not_end_while_a_unit_is_out() -> None:
    d = Driver(AUTO_VAD)
    drain(d)
    d.append(1000, probability=0.0)
    assert len(d.asked(SubmitUnit)) == 1
    assert stays(d)
    d.listen()
    assert d.session.life is Life.CLOSING


def test_speech_in_a_quiet_moment_begins_the_pause_anew() -> None:
    d = Driver(replace(TURN_MODE, turn_detection=AUTO_VAD.turn_detection))
    drain(d)
    d.now += 1.9
    d.append(500, probability=0.99)
    assert stays(d)


@pytest.mark.parametrize("what", [TextAppended("half a"), "audio"])
def test_an_open_item_holds_it_until_it_is_gone(what: TextAppended | str) -> None:
    d = Driver(TURN_MODE)
    if isinstance(what, TextAppended):
        d.do(what)
    else:
        d.append(500)
    drain(d)
    assert stays(d)
    d.do(InputCleared())
    assert left(d)


def test_where_the_model_hears_a_stream_only_text_is_an_open_item() -> None:
    d = Driver()
    d.append(500)
    drain(d)
    d.now += PAUSE_S
    d.do(Ticked())
    assert d.session.life is Life.CLOSING
    other = Driver()
    other.do(TextAppended("half a"))
    drain(other)
    assert stays(other)


def test_what_waits_for_an_answer_holds_it() -> None:
    d = Driver(TURN_MODE)
    d.append(500, speech=True)
    d.do(InputCommitted(create_response=False))
    drain(d)
    assert left(d, CLIENT_S)
    d.released()
    assert d.said(SessionExpired)[-1].reason == "server_drain"


@pytest.mark.parametrize("what", ["text", "audio"])
def test_an_item_that_grows_is_waited_for_as_long_as_it_does(what: str) -> None:
    d = Driver(TURN_MODE)

    def grow() -> None:
        if what == "text":
            d.do(TextAppended("more"))
        else:
            d.append(500)

    grow()
    drain(d)
    for _ in range(3):
        assert stays(d)
        grow()
    assert left(d, CLIENT_S)


def test_an_answer_that_was_asked_for_is_given() -> None:
    d = Driver(TURN_MODE)
    d.append(500, speech=True)
    d.do(InputCommitted(create_response=True))
    drain(d)
    assert stays(d, 10.0)
    d.speak("yes")
    d.voice("yes", 1000, turn_end=True)
    d.voiced()
    assert left(d, 1.0 + PAUSE_S)


def test_settings_that_the_stages_think_about_are_answered() -> None:
    d = Driver(TURN_MODE)
    d.do(SessionConfigured(ConfigPatch((("temperature", 0.5),)), "u"))
    drain(d)
    assert stays(d, 10.0)
    d.configured()
    assert left(d)


def test_a_function_call_waits_for_its_output() -> None:
    d = Driver(TURN_MODE, profile=replace(PROFILE, tools=True))
    d.append(500, speech=True)
    d.do(InputCommitted(create_response=True))
    unit, call = d.last_unit(), FunctionCall("call_1", "look", "{}")
    asked = UnitResult(Decision.SPEAK, turn_end=True, calls=(call,))
    d.do(UnitFinished(unit.fence, unit.seq, asked))
    drain(d)
    assert stays(d)
    d.do(ItemCreated("user", "found", ItemId("out"), call_id="call_1"))
    assert stays(d)  # the output is for an answer, which nobody has asked for yet
    d.do(ResponseRequested(ResponseOptions()))
    assert stays(d)
    d.speak("found")
    d.voice("found", 1000, turn_end=True)
    d.voiced()
    assert left(d, 1.0 + PAUSE_S)


def test_a_function_whose_output_never_comes_holds_it_for_a_minute_whatever_else_comes() -> None:
    d = Driver(AUTO_VAD, profile=replace(PROFILE, tools=True))
    d.append(1000, probability=0.99)
    unit, calls = d.last_unit(), (FunctionCall("call_1", "look", "{}"),)
    d.do(UnitFinished(unit.fence, unit.seq, UnitResult(Decision.SPEAK, turn_end=True, calls=calls)))
    d.append(2000, probability=0.0)
    for _ in range(2):
        d.listen()
    drain(d)
    began_s = d.now
    while d.session.life is Life.OPEN:
        d.now += 1.0
        d.append(1000, probability=0.0)  # a microphone, and nobody speaks
        d.listen()
    assert d.now - began_s == pytest.approx(CLIENT_S)


def test_a_comment_that_is_wanted_is_made() -> None:
    d = Driver(profile=replace(PROFILE, messages=True))
    d.append(500)
    d.do(ContextAppended(ContextUse.COMMENTARY, "The oven is hot."))
    drain(d)
    assert d.session.life is Life.OPEN


def test_at_the_deadline_it_ends_whatever_goes_on() -> None:
    d = Driver()
    speaking(d)
    drain(d, 30.0)
    d.now += 29.9
    d.do(Ticked())
    assert d.session.life is Life.OPEN
    d.now += 0.1
    assert names(d.do(Ticked())) == ["ResponseFinished", "CloseStages"]
    assert d.said(ResponseFinished)[-1].status == "cancelled"
    d.released()
    assert d.said(SessionExpired)[-1].reason == "server_drain_deadline"
    assert d.asked(CloseSocket)[-1] == CloseSocket(1012, "server_drain_deadline")


def test_a_deadline_that_has_passed_ends_it_at_once() -> None:
    d = Driver()
    speaking(d)
    assert drain(d, 0.0) == ["SessionExpiring", "ResponseFinished", "CloseStages"]


def test_asked_again_with_the_same_deadline_nothing_is_told_twice() -> None:
    d = Driver()
    speaking(d)
    order = DrainRequested(d.now + 60)
    assert names(d.do(order)) == ["SessionExpiring"]
    assert names(d.do(order)) == []
    assert names(d.do(DrainRequested(d.now + 30))) == ["SessionExpiring"]
    assert d.said(SessionExpiring)[-1].expires_in_ms == 30_000
    assert d.asked(WakeAt)[-1].at_s == d.now + 30


def test_it_stays_when_the_server_stays() -> None:
    d = Driver(TURN_MODE)
    drain(d)
    assert names(d.do(DrainWithdrawn())) == []
    assert stays(d)


def test_a_session_that_is_opening_is_opened_and_told_then() -> None:
    d = Driver(TURN_MODE, opened=False)
    assert drain(d) == []
    opened = d.do(StagesOpened(d.session.fence))
    assert names(opened) == ["SessionCreated", "SessionUpdated", "SessionExpiring"]
    assert left(d)


def test_a_session_that_ends_already_is_left_alone() -> None:
    d = Driver(TURN_MODE)
    d.do(CloseRequested())
    assert drain(d) == []
    assert names(d.released()) == ["SessionClosed", "CloseSocket"]


# --- without a client ---------------------------------------------------------------------------


def test_without_a_client_it_waits_as_long_as_its_grace() -> None:
    d = Driver(TURN_MODE, is_resumable=True, limits=SessionLimits(disconnect_grace_s=30.0))
    d.do(SocketLost())
    assert drain(d) == ["SessionExpiring"]  # kept for whoever comes back
    assert left(d, 30.0)
    d.released()
    assert d.said(SessionExpired)[-1].reason == "disconnect_grace_expired"


def test_whoever_comes_back_goes_on_and_leaves_at_a_quiet_moment() -> None:
    d = Driver(TURN_MODE, is_resumable=True)
    token = d.said(SessionCreated)[0].resume_token
    assert token is not None
    d.do(SocketLost())
    drain(d)
    d.now += 20
    effects = d.do(ResumeRequested(AttachmentId("second"), token))
    assert d.asked(AttachSocket, effects)
    assert left(d)
    assert d.asked(CloseStages)


def test_a_ledger_knows_how_many_calls_wait() -> None:
    calls = CallLedger()
    assert calls.awaited == 0
    calls.make("a")
    calls.make("b")
    calls.answer("a")
    assert calls.awaited == 1
    calls.answer("b")
    assert calls.awaited == 0

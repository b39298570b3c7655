"""What comes before the session is open: kept in order, bounded, or given up."""

from session.config import SessionLimits
from session.effects import CloseSocket
from session.errors import ServerDraining, StageUnavailable, UnsupportedOption
from session.events import ErrorRaised, HeartbeatAnswered, SessionCreated
from session.machine import MAX_HELD
from session.socket_stimuli import SocketLost
from session.stimuli import (
    AudioAppended,
    CloseRequested,
    HeartbeatReceived,
    ItemCreated,
    OpenFailed,
    StagesOpened,
    TextAppended,
)
from tests.session.driver import Driver, names


def test_an_open_that_was_given_up_and_then_fails_closes_without_a_word() -> None:
    d = Driver(opened=False)
    d.do(SocketLost())
    effects = d.do(OpenFailed(d.session.fence, StageUnavailable("gone")))
    assert effects == [CloseSocket(1000, "disconnect")]
    assert d.session.is_over


def test_a_failed_open_ends_what_was_to_be_closed_behind_it() -> None:
    d = Driver(opened=False)
    d.do(HeartbeatReceived())
    d.do(CloseRequested())
    effects = d.do(OpenFailed(d.session.fence, StageUnavailable("gone")))
    assert names(effects) == ["ErrorRaised", "CloseSocket"]
    assert d.said(HeartbeatAnswered) == []


def test_a_client_that_floods_an_opening_session_is_given_up() -> None:
    d = Driver(opened=False, limits=SessionLimits(max_pending_input_bytes_per_session=1))
    for _ in range(MAX_HELD + 1):
        d.session.handle(HeartbeatReceived(), now=d.now)
    effects = d.do(StagesOpened(d.session.fence))
    assert names(effects) == ["CloseStages"]
    assert d.released()[-1] == CloseSocket(1013, "input_backpressure")


def test_what_is_kept_is_bounded_and_what_is_too_much_is_refused_in_its_place() -> None:
    d = Driver(opened=False, limits=SessionLimits(max_pending_input_bytes_per_session=4_000))
    d.do(HeartbeatReceived("1"))
    d.do(AudioAppended(bytes(4_000), event_id="2"))
    d.do(ItemCreated("user", "x" * 400, event_id="3"))
    d.do(TextAppended("y", event_id="4"))
    d.do(HeartbeatReceived("5"))
    effects = d.do(StagesOpened(d.session.fence))
    assert isinstance(d.events(effects)[0], SessionCreated)
    refused = [error.event_id for error in d.said(ErrorRaised, effects)]
    assert refused == ["2", "5"]
    assert len(d.said(HeartbeatAnswered, effects)) == 1
    assert d.asked(CloseSocket) == []


def test_an_open_that_the_model_refuses_is_the_clients_mistake() -> None:
    d = Driver(opened=False)
    refused = UnsupportedOption("no such voice", code="unsupported_voice", param="session.voice")
    effects = d.do(OpenFailed(d.session.fence, refused))
    assert d.asked(CloseSocket, effects) == [CloseSocket(1008, "unsupported_voice")]


def test_an_open_that_comes_as_the_server_goes_away_is_for_another_server() -> None:
    d = Driver(opened=False)
    effects = d.do(OpenFailed(d.session.fence, ServerDraining("no new sessions")))
    assert d.asked(CloseSocket, effects) == [CloseSocket(1012, "server_draining")]

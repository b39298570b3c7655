"""Sockets come and go; the session stays, and listens to one of them."""

import pytest

from session.config import ResponseOptions
from session.effects import (
    AttachSocket,
    CancelStages,
    CloseSocket,
    CloseStages,
    DetachSocket,
    Effect,
    RefuseSocket,
    SubmitUnit,
    TrimJournal,
    WakeAt,
)
from session.errors import LocalProtocolError
from session.events import HeartbeatAnswered, ResponseFinished, SessionCreated, SessionExpired
from session.ids import AttachmentId
from session.ledger.attachment import AttachmentLedger
from session.ledger.journal import CAN_REPLAY, Replay, ReplayOffer
from session.lifecycle import Life
from session.on_attachment import REFUSED_TEXT
from session.snapshot import SessionSnapshot
from session.socket_events import ResyncRequired
from session.socket_stimuli import (
    FIRST_ATTACHMENT,
    EventAcked,
    ReaderStalled,
    ResumeRequested,
    SocketLost,
)
from session.stimuli import (
    AttachedCommand,
    AudioAppended,
    BargedIn,
    CloseRequested,
    HeartbeatReceived,
    InputCommitted,
    ItemCreated,
    Received,
    ResponseRequested,
    StagesOpened,
    Ticked,
)
from tests.session.driver import AUTO, TURN_MODE, UNIT_BYTES, Driver, names, speaking

A = FIRST_ATTACHMENT
B = AttachmentId("att_b")
C = AttachmentId("att_c")


def resumable(**about: object) -> Driver:
    return Driver(is_resumable=True, **about)  # type: ignore[arg-type]  # a test's own


def token_of(effects: list[Effect]) -> str:
    """Return the token that a socket was given."""
    [attached] = [effect for effect in effects if isinstance(effect, AttachSocket)]
    return attached.resumed.resume_token


def first_token(driver: Driver) -> str:
    token = driver.said(SessionCreated)[0].resume_token
    assert token is not None
    return token


def resume(
    driver: Driver,
    attachment: AttachmentId,
    token: str,
    offer: ReplayOffer = CAN_REPLAY,
    last: int = 0,
) -> list[Effect]:
    asked = ResumeRequested(attachment, token, last, offer, event_id="r")
    return driver.do(asked)


def seen(driver: Driver) -> SessionSnapshot:
    """Return the session as a client may see it."""
    return driver.session._state.snapshot()  # noqa: SLF001  # nobody is told when nothing happens


def over(driver: Driver, attachment: AttachmentId, command: AttachedCommand) -> list[Effect]:
    return driver.do(Received(attachment, command))


# --- losing and getting back --------------------------------------------------------------------


def test_a_lost_socket_detaches_and_the_model_goes_on() -> None:
    d = resumable()
    speaking(d)
    effects = d.do(SocketLost(A))
    assert [type(e) for e in effects] == [DetachSocket, WakeAt]
    d.voice("three four")
    d.voiced()
    assert d.said(ResponseFinished)[0].status == "completed"
    assert d.session.life is Life.OPEN


def test_a_session_that_can_not_be_resumed_ends_with_its_socket() -> None:
    d = Driver()
    assert d.said(SessionCreated)[0].resume_token is None
    assert names(d.do(SocketLost(A))) == ["CloseStages"]


def test_a_socket_lost_during_the_open_abandons_it() -> None:
    d = resumable(opened=False)
    assert names(d.do(SocketLost(A))) == []
    assert names(d.do(StagesOpened(d.session.fence))) == ["CloseStages"]


def test_the_next_socket_goes_on_from_what_it_has_read() -> None:
    d = resumable()
    d.do(SocketLost(A))
    [attached] = [e for e in resume(d, B, first_token(d), last=7) if isinstance(e, AttachSocket)]
    assert (attached.attachment, attached.after_seq, attached.replaced) == (B, 7, None)
    assert attached.resumed.attachment_generation == 2
    assert names(over(d, B, HeartbeatReceived())) == ["HeartbeatAnswered"]


def test_tokens_rotate_and_old_ones_are_dead() -> None:
    d = resumable()
    first = first_token(d)
    d.do(SocketLost(A))
    second = token_of(resume(d, B, first))
    assert second != first
    over(d, B, HeartbeatReceived())
    d.do(SocketLost(B))
    assert refusal(resume(d, C, first)) == "session_resume_expired"
    assert token_of(resume(d, C, second))


def test_a_client_that_never_read_its_new_token_comes_with_the_old_one() -> None:
    """seed: a transport that closes immediately after resumable credentials are delivered."""
    d = resumable()
    first = first_token(d)
    d.do(SocketLost(A))
    second = token_of(resume(d, B, first))
    d.do(SocketLost(B))
    third = token_of(resume(d, C, first))
    assert third not in (first, second)
    over(d, C, HeartbeatReceived())
    for spent in (first, second):
        assert refusal(resume(d, B, spent)) == "session_resume_expired"


def test_it_gets_in_before_the_loss_of_its_socket_has_been_noticed() -> None:
    d = resumable()
    first = first_token(d)
    d.do(SocketLost(A))
    second = token_of(resume(d, B, first))
    effects = resume(d, C, first)
    [attached] = [e for e in effects if isinstance(e, AttachSocket)]
    assert attached.replaced is not None
    assert attached.replaced.attachment_generation == 2
    assert attached.resumed.attachment_generation == 3
    assert over(d, B, HeartbeatReceived()) == []
    assert d.do(SocketLost(B)) == []
    assert refusal(resume(d, B, second)) == "session_resume_expired"
    assert d.session.heeds(C)
    assert token_of(resume(d, B, first)), "whoever has not been heard of may try again and again"


@pytest.mark.parametrize("proof", [HeartbeatReceived(), EventAcked(0)])
def test_whatever_a_client_sends_ends_the_token_that_it_came_with(proof: AttachedCommand) -> None:
    d = resumable()
    first = first_token(d)
    second = token_of(resume(d, B, first))
    over(d, A, proof)  # not this one: it has been replaced
    over(d, B, proof)
    assert refusal(resume(d, C, first)) == "session_resume_expired"
    assert token_of(resume(d, C, second))


def test_the_token_that_was_never_read_is_good_too() -> None:
    d = resumable()
    d.do(SocketLost(A))
    second = token_of(resume(d, B, first_token(d)))
    d.do(SocketLost(B))
    assert token_of(resume(d, C, second))


def test_no_token_opens_a_session_that_can_not_be_resumed() -> None:
    d = Driver()
    assert refusal(resume(d, B, "")) == "session_resume_expired"
    assert d.session.heeds(A)


# --- takeover -------------------------------------------------------------------------------------


def test_a_takeover_tells_the_old_socket_and_ignores_it_from_then_on() -> None:
    d = resumable()
    effects = resume(d, B, first_token(d))
    [attached] = [e for e in effects if isinstance(e, AttachSocket)]
    assert attached.replaced is not None
    assert attached.replaced.attachment_generation == 1
    before = seen(d), d.session.stale
    stale: list[AttachedCommand] = [
        AudioAppended(bytes(UNIT_BYTES), is_speech=True),
        InputCommitted(),
        ItemCreated("user", "hello"),
        HeartbeatReceived(),
        BargedIn(),
        EventAcked(1),
        CloseRequested(),
    ]
    for command in stale:
        assert over(d, A, command) == []
    assert seen(d) == before[0]
    assert d.session.stale == before[1] + len(stale)
    assert d.do(SocketLost(A)) == []
    assert d.session.heeds(B)


def test_what_the_old_socket_sent_before_counts() -> None:
    """seed: takeover ownership of pending-turn reservations."""
    d = resumable(config=TURN_MODE)
    over(d, A, AudioAppended(bytes(UNIT_BYTES), is_speech=True))
    over(d, A, InputCommitted(create_response=False))
    resume(d, B, first_token(d))
    effects = over(d, B, ResponseRequested(ResponseOptions()))
    assert len(d.asked(SubmitUnit, effects)) == 1


def test_appends_keep_their_order_over_a_resume() -> None:
    d = resumable()
    over(d, A, AudioAppended(b"\x01\x01" * (UNIT_BYTES // 4)))
    d.do(SocketLost(A))
    resume(d, B, first_token(d))
    over(d, B, AudioAppended(b"\x02\x02" * (UNIT_BYTES // 4)))
    pcm = d.last_unit().unit.pcm
    assert pcm == b"\x01" * (UNIT_BYTES // 2) + b"\x02" * (UNIT_BYTES // 2)


def test_a_socket_that_has_the_session_can_not_ask_for_it() -> None:
    d = resumable()
    assert refusal(resume(d, A, first_token(d))) == "unsupported_session_resume"


# --- refusals -------------------------------------------------------------------------------------


def refusal(effects: list[Effect]) -> str:
    [refused] = [effect for effect in effects if isinstance(effect, RefuseSocket)]
    assert not isinstance(refused.answer, ResyncRequired)
    assert refused.event_id == "r"
    return refused.answer.wire_code


def test_unknown_wrong_and_over_are_told_apart_by_nobody() -> None:
    d = resumable()
    wrong = resume(d, B, "wrong")
    d.do(CloseRequested())
    closing = resume(d, B, first_token(d))
    texts = {e.answer.message for e in [*wrong, *closing] if isinstance(e, RefuseSocket)}  # type: ignore[union-attr]
    assert texts == {REFUSED_TEXT}


def test_a_wrong_token_learns_nothing_of_the_journal() -> None:
    d = resumable()
    gap = ReplayOffer(Replay.JOURNAL_GAP, 5, 9)
    assert refusal(resume(d, B, "wrong", gap)) == "session_resume_expired"


def test_a_gap_is_told_with_what_there_is_and_attaches_nobody() -> None:
    d = resumable()
    d.do(SocketLost(A))
    [refused] = resume(d, B, first_token(d), ReplayOffer(Replay.JOURNAL_GAP, 5, 9))
    assert isinstance(refused, RefuseSocket)
    assert isinstance(refused.answer, ResyncRequired)
    answer = refused.answer
    assert (answer.reason, answer.oldest_seq, answer.newest_seq) == ("journal_gap", 5, 9)
    assert not d.session.heeds(B)
    assert token_of(resume(d, B, first_token(d))), "the token has not been used"


def test_an_overflow_can_not_be_resumed() -> None:
    d = resumable()
    [refused] = resume(d, B, first_token(d), ReplayOffer(Replay.JOURNAL_OVERFLOW))
    assert isinstance(refused, RefuseSocket)
    assert isinstance(refused.answer, ResyncRequired)
    assert refused.answer.reason == "journal_overflow"


def test_a_number_that_was_never_sent_is_a_conflict() -> None:
    d = resumable()
    conflict = ReplayOffer(Replay.CONFLICT, 1, 3)
    assert refusal(resume(d, B, first_token(d), conflict, last=9)) == "session_resume_conflict"


# --- time -----------------------------------------------------------------------------------------


def test_nobody_comes_back_within_the_grace() -> None:
    d = resumable()
    d.do(SocketLost(A))
    due = d.asked(WakeAt)[-1].at_s
    assert due == pytest.approx(d.now + 30.0)
    d.now = due
    assert names(d.do(Ticked())) == ["CloseStages"]
    d.released()
    assert [e.reason for e in d.said(SessionExpired)] == ["disconnect_grace_expired"]
    assert refusal(resume(d, B, first_token(d))) == "session_resume_expired"


def test_the_grace_does_not_wait_for_a_unit() -> None:
    d = resumable()
    over(d, A, AudioAppended(bytes(UNIT_BYTES)))
    d.do(SocketLost(A))
    d.now += 30.0
    assert "CloseStages" in names(d.do(Ticked()))


def test_whoever_comes_back_in_time_is_not_put_out() -> None:
    d = resumable()
    d.do(SocketLost(A))
    d.now += 29.0
    resume(d, B, first_token(d))
    d.now += 10.0
    assert names(d.do(Ticked())) == []


def test_a_silent_socket_is_closed_and_its_session_kept() -> None:
    d = resumable()
    over(d, A, AudioAppended(bytes(UNIT_BYTES)))
    d.now += 299.0
    d.listen()  # an answer of the model keeps the session alive, but not the socket
    d.now += 1.0
    effects = d.do(Ticked())
    [detached] = [e for e in effects if isinstance(e, DetachSocket)]
    assert detached.close == CloseSocket(1001, "idle_timeout")
    assert not d.session.heeds(A)
    assert d.session.life is Life.OPEN


def test_a_stall_of_a_socket_that_was_replaced_ends_nothing() -> None:
    d = resumable()
    resume(d, B, first_token(d))
    assert names(d.do(ReaderStalled(A))) == []
    assert "CloseStages" in names(d.do(ReaderStalled(B)))


# --- acknowledging --------------------------------------------------------------------------------


def test_an_acknowledgement_trims_the_journal() -> None:
    d = resumable()
    assert TrimJournal(3) in over(d, A, EventAcked(3))


def test_the_ledger_can_not_be_attached_and_detached_at_once() -> None:
    ledger = AttachmentLedger(current=A, detached_at_s=1.0)
    with pytest.raises(LocalProtocolError):
        ledger.validate()


def test_a_detached_session_heeds_nobody() -> None:
    d = resumable(config=AUTO)
    d.do(SocketLost(A))
    assert over(d, A, HeartbeatReceived()) == []
    assert d.said(HeartbeatAnswered) == []
    assert d.asked(CancelStages) == []
    assert d.asked(CloseStages) == []
    assert d.session.life is Life.OPEN

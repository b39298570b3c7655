"""Handlers for the sockets of a session: one is attached, another may take its place.

seed: resumable attachment, takeover, session leases.
"""

from typing import Final, assert_never

from session.effects import (
    AttachSocket,
    CloseSocket,
    DetachSocket,
    Effect,
    RefuseSocket,
    TrimJournal,
)
from session.endings import GOING_AWAY, NORMAL_CLOSURE, close
from session.errors import ClientError, ResumeConflict, ResumeRefused, ResumeUnsupported
from session.ledger.journal import Replay
from session.lifecycle import Life
from session.socket_events import ResyncRequired, SessionReplaced, SessionResumed
from session.socket_stimuli import EventAcked, ResumeRequested, SocketLost
from session.state import SessionState

AttachmentStimulus = EventAcked | ResumeRequested | SocketLost

REFUSED_TEXT: Final = "no session can be resumed with this id and token; open a new one"


def handle(state: SessionState, stimulus: AttachmentStimulus, now: float) -> list[Effect]:
    """Apply what a socket did."""
    match stimulus:
        case EventAcked(server_event_seq=seq):
            return [TrimJournal(seq)]
        case ResumeRequested():
            return _resume(state, stimulus, now)
        case SocketLost():
            return _lost(state, stimulus, now)
        case _:
            assert_never(stimulus)


def detach_idle(state: SessionState, now: float) -> list[Effect]:
    """Let go of a client that has sent nothing for too long; it may come back."""
    attachment = state.attachment.current
    if attachment is None or not state.attachment.is_resumable:
        return close(state, "idle_timeout", code=GOING_AWAY, is_expiring=True)
    state.attachment.detach(now=now)
    return [DetachSocket(attachment, CloseSocket(GOING_AWAY, "idle_timeout"))]


def _resume(state: SessionState, request: ResumeRequested, now: float) -> list[Effect]:
    refusal = _refusal(state, request)
    if refusal is not None:
        return [RefuseSocket(request.attachment, refusal, request.event_id)]
    ledger = state.attachment
    replaced = None
    if ledger.current is not None:
        replaced = SessionReplaced(state.fence, ledger.generation)
    token = state.ids.token()
    ledger.attach(request.attachment, presented=request.resume_token, token=token)
    state.lease.receive(now)
    resumed = SessionResumed(state.snapshot(), ledger.generation, token)
    return [AttachSocket(request.attachment, resumed, request.last_server_event_seq, replaced)]


def _refusal(state: SessionState, request: ResumeRequested) -> ClientError | ResyncRequired | None:
    # In this order: whoever lacks the token learns nothing, not even that the session exists.
    if state.life is not Life.OPEN or not state.attachment.is_opened_by(request.resume_token):
        return ResumeRefused(REFUSED_TEXT)
    if state.attachment.heeds(request.attachment):
        return ResumeUnsupported("this socket has the session already")
    offer = request.offer
    match offer.replay:
        case Replay.POSSIBLE:
            return None
        case Replay.CONFLICT:
            return ResumeConflict(
                f"event {request.last_server_event_seq} was never sent",
                param="last_received_server_event_seq",
            )
        case Replay.JOURNAL_GAP | Replay.JOURNAL_OVERFLOW:
            return ResyncRequired(
                state.fence, offer.replay.value, offer.oldest_seq, offer.newest_seq
            )
        case _:
            assert_never(offer.replay)


def _lost(state: SessionState, lost: SocketLost, now: float) -> list[Effect]:
    if not state.attachment.heeds(lost.attachment):
        return []  # it had been replaced, or let go
    if state.life is not Life.OPEN or not state.attachment.is_resumable:
        # Before the session is open nobody has its token; after its end nobody needs it.
        return close(state, "disconnect", code=NORMAL_CLOSURE)
    state.attachment.detach(now=now)
    state.lease.touch(now)
    return [DetachSocket(lost.attachment)]

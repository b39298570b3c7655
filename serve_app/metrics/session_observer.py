"""Counts what happens in one session, from what its kernel is told and what it asks for.

Rule 1: everything is learned here, after the kernel has handled a stimulus, and nowhere else in
        the session.
Rule 2: whatever becomes of a session or its sockets, its end is counted once.
"""

from dataclasses import dataclass, field
from typing import Final

from serve_app.dialects import Dialect
from serve_app.handled import Handled
from serve_app.metrics.definitions import (
    DETACHED,
    RESUMES,
    SESSION_DURATION,
    SESSION_OPEN,
    SESSIONS_BEGUN,
    SESSIONS_ENDED,
    SESSIONS_REFUSED,
    SLOW_READERS,
    TAKEOVERS,
)
from serve_app.metrics.fairness import Fairness
from serve_app.metrics.label_values import error_name
from serve_app.metrics.meter import Meter, count_error
from serve_app.metrics.observed_answers import ObservedAnswers
from serve_app.metrics.observed_units import ObservedUnits
from session.effects import (
    AttachSocket,
    CancelStages,
    CloseSocket,
    DetachSocket,
    Effect,
    Emit,
    RefuseSocket,
    SubmitUnit,
    Synthesize,
)
from session.errors import ClientError, DuplexError, ResumeConflict, ResumeUnsupported
from session.events import (
    ErrorRaised,
    Event,
    OutputBufferCleared,
    OverlapDecided,
    PlaybackAdvanced,
    ResponseFinished,
    SessionClosed,
    SessionExpired,
    SpeechDelta,
    UserSpeechStarted,
    UserSpeechStopped,
)
from session.machine import DuplexSession
from session.socket_events import ResyncRequired
from session.stimuli import (
    AudioAppended,
    BargedIn,
    InputCancelled,
    InputCommitted,
    OpenFailed,
    OpenRequested,
    OutputClearRequested,
    PlaybackAcked,
    ResponseCancelRequested,
    ResponseRequested,
    SpeechArrived,
    SpeechFailed,
    SpeechFinished,
    StagesOpened,
    UnitFailed,
    UnitFinished,
)

BROKEN: Final = "broken"
CUTS: Final = BargedIn | ResponseCancelRequested | OutputClearRequested | InputCancelled
"""With these a client stops an answer itself."""


@dataclass(slots=True)
class SessionObserver:
    """Watches one session."""

    meter: Meter
    session: DuplexSession
    dialect: Dialect
    units: ObservedUnits
    answers: ObservedAnswers
    _began_at_s: float = 0.0
    _opened_at_s: float | None = None
    reason: str = field(default=BROKEN)
    """Why it ends; what ends without having said why has broken."""

    def handled(self, handled: Handled) -> None:
        """The kernel has handled a stimulus."""
        if isinstance(handled.told, AudioAppended):
            self.answers.hear(handled.told.pcm)
        else:
            self._note(handled)
        for effect in handled.effects:
            self._ask(effect, handled)

    def ended(self, *, now: float) -> None:
        """The session is over, and nothing of it goes on."""
        self.answers.count_heard()
        self.meter.count(SESSIONS_ENDED, self.reason)
        if self._opened_at_s is not None:
            self.meter.observe(SESSION_DURATION, now - self._opened_at_s)

    # --- what it is told ----------------------------------------------------------------------

    def _note(self, handled: Handled) -> None:
        told, now = handled.told, handled.now
        match told:
            case UnitFinished() | UnitFailed():
                self.units.finish(told, now=now, was_stale=handled.is_stale)
            case SpeechArrived():
                self.units.hear(told, now=now)
            case SpeechFinished(seq=seq):
                self.units.end_speech(seq, now=now, is_whole=True)
            case SpeechFailed(seq=seq):
                self.units.end_speech(seq, now=now, is_whole=False)
            case InputCommitted() | ResponseRequested():
                self.answers.ask(handled.at_s)
            case OpenRequested():
                self._began_at_s = now
                self.meter.count(SESSIONS_BEGUN, self.dialect.value)
            case StagesOpened() if not handled.is_stale:
                self._opened_at_s = now
                self.meter.observe(SESSION_OPEN, now - self._began_at_s)
            case OpenFailed(error=error):
                self.reason = "not_opened"
                name = "client_error" if isinstance(error, ClientError) else error_name(type(error))
                self.meter.count(SESSIONS_REFUSED, name)
            case _:
                pass

    # --- what it asks for ---------------------------------------------------------------------

    def _ask(self, effect: Effect, handled: Handled) -> None:
        now = handled.now
        match effect:
            case Emit(event=event):
                self._say(event, handled)
            case SubmitUnit():
                lag_s = self.session.waiting_input_ms / 1000
                is_continuous = self.session.config.auto_response
                self.units.submit(effect, now=now, lag_s=lag_s, is_continuous=is_continuous)
            case Synthesize(seq=seq):
                self.units.synthesize(seq, now=now)
            case CancelStages():
                self.units.cancel()
            case AttachSocket(replaced=replaced):
                self.meter.count(RESUMES, "resumed")
                if replaced is not None:
                    self.meter.count(TAKEOVERS)
            case RefuseSocket(answer=answer):
                self._refuse(answer)
            case DetachSocket(close=close):
                self.meter.count(DETACHED, "lost" if close is None else "idle")
            case CloseSocket(reason=reason) if self.reason == BROKEN:
                self.reason = reason  # abandoned before it was open
            case _:
                pass

    def _refuse(self, answer: ClientError | ResyncRequired) -> None:
        match answer:
            case ResyncRequired():
                result = "resync_required"
            case ResumeConflict():
                result = "conflict"
            case ResumeUnsupported():
                result = "unsupported"
            case _:
                result = "refused"
        self.meter.count(RESUMES, result)
        if isinstance(answer, DuplexError):
            count_error(self.meter, answer)

    def _say(self, event: Event, handled: Handled) -> None:
        at_s = handled.at_s
        match event:
            case SpeechDelta():
                self.answers.send(event, now=handled.now)
            case OverlapDecided():
                self.answers.rule(event, at_s=at_s)
            case UserSpeechStarted() | UserSpeechStopped():
                self._hear_edge(event, at_s=at_s)
            case ResponseFinished() | OutputBufferCleared():
                self._end_sound(event, handled)
            case PlaybackAdvanced() if isinstance(handled.told, PlaybackAcked):
                self.answers.advance(event, at_s=at_s)
            case ErrorRaised(error=error):
                count_error(self.meter, error)
            case SessionClosed(reason=reason) | SessionExpired(reason=reason):
                self.reason = reason
                if reason == "slow_reader":
                    self.meter.count(SLOW_READERS)
            case _:
                pass

    def _hear_edge(self, event: UserSpeechStarted | UserSpeechStopped, *, at_s: float) -> None:
        if isinstance(event, UserSpeechStopped):
            self.answers.end_speech(event, at_s=at_s)
            return
        detection = self.session.config.turn_detection
        padding_ms = 0 if detection is None else detection.prefix_padding_ms
        self.answers.begin_speech(event, at_s=at_s, padding_ms=padding_ms)

    def _end_sound(self, event: ResponseFinished | OutputBufferCleared, handled: Handled) -> None:
        if isinstance(event, ResponseFinished):
            self.answers.finish(event)
            if event.status != "cancelled":
                return
        # What ends because its session does has not been interrupted.
        if isinstance(handled.told, CUTS):
            self.answers.stop(is_clients=True, at_s=handled.at_s, now=handled.now)
        elif isinstance(handled.told, AudioAppended):
            self.answers.stop(is_clients=False, at_s=handled.at_s, now=handled.now)


def observe(
    session: DuplexSession, meter: Meter, fairness: Fairness, *, dialect: Dialect, unit_ms: int
) -> SessionObserver:
    """Return what watches a session from its beginning."""
    units = ObservedUnits(meter, fairness, session.fence.session_id, unit_ms / 1000)
    return SessionObserver(meter, session, dialect, units, ObservedAnswers(meter))

"""The traces of one session's units, as its gateway sees them: one trace a unit.

Rule 1: everything is learned here, after the kernel has handled a stimulus; the kernel knows
        nothing of traces.
Rule 2: a unit's span begins with what made the session submit it and ends when its answer is
        dealt with, also one that an interruption has made worthless.
Rule 3: a speech's span lasts until the last of its chunks has been given to the socket. When a
        client goes or comes back, what is on its way is not waited for.
Rule 4: an interruption ends every speech at once; what is open when its session ends, ends too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from serve_app.clock import Clock
from serve_app.handled import Handled
from serve_app.tracing.tracer import NO_TRACER, Span, TraceParent, Tracer
from session.effects import (
    AttachSocket,
    CancelStages,
    DetachSocket,
    Effect,
    Emit,
    SubmitUnit,
    Synthesize,
)
from session.errors import DuplexError
from session.events import SpeechDelta
from session.fence import Fence
from session.ids import ResponseId
from session.machine import DuplexSession
from session.stimuli import (
    SpeechArrived,
    SpeechFailed,
    SpeechFinished,
    UnitFailed,
    UnitFinished,
)
from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES, samples_to_ms

MOST_KEPT: Final = 64
"""Units whose spans are kept at once. What is never spoken must not pile up."""
CANCELLED: Final = {"duplex.cancelled": True}

Place = tuple[int, int]
"""Epoch and number of a unit."""


class SessionTrace(Protocol):
    """What a session's parts tell of its units, and ask for them."""

    def handled(self, handled: Handled) -> None:
        """The kernel has handled a stimulus."""
        ...

    def sent(self, speech: SpeechDelta) -> None:
        """A piece of speech has been given to the socket."""
        ...

    def ended(self) -> None:
        """The session is over."""
        ...

    def unit(self, fence: Fence, seq: int) -> TraceParent | None:
        """What Stage0 is given along with a unit."""
        ...

    def speech(self, fence: Fence, seq: int) -> TraceParent | None:
        """What Stage1 is given along with a unit's speech."""
        ...


class NoTrace:
    """Where nobody traces."""

    def handled(self, handled: Handled) -> None:
        """Do nothing."""

    def sent(self, speech: SpeechDelta) -> None:
        """Do nothing."""

    def ended(self) -> None:
        """Do nothing."""

    def unit(self, fence: Fence, seq: int) -> None:
        """There is none."""

    def speech(self, fence: Fence, seq: int) -> None:
        """There is none."""


NO_TRACE: Final = NoTrace()


@dataclass(slots=True)
class _Spoken:
    """A unit's speech on its way."""

    span: Span
    chunks: int = 0
    waits_for: tuple[ResponseId, int] | None = None
    """Answer and place in it of the last piece that has not been sent yet."""
    is_made: bool = False


@dataclass(slots=True)
class _Unit:
    """One unit's trace."""

    place: Place
    span: Span
    is_answered: bool = False
    spoken: _Spoken | None = None


@dataclass(slots=True)
class TracedUnits:
    """Implements SessionTrace where traces are sent somewhere."""

    session: DuplexSession
    tracer: Tracer
    clock: Clock
    _units: dict[Place, _Unit] = field(default_factory=dict)

    def handled(self, handled: Handled) -> None:
        """The kernel has handled a stimulus."""
        told, effects, now = handled.told, handled.effects, handled.now
        match told:
            case UnitFinished() | UnitFailed():
                self._answer(told, now=now, was_stale=handled.is_stale)
            case SpeechArrived():
                self._hear(told, effects)
            case SpeechFinished(fence=fence, seq=seq):
                self._make(fence, seq, None, now=now)
            case SpeechFailed(fence=fence, seq=seq, error=error):
                self._make(fence, seq, error, now=now)
            case _:
                pass
        for effect in effects:
            self._ask(effect, at_s=handled.at_s, now=now)

    def sent(self, speech: SpeechDelta) -> None:
        """A piece of speech has been given to the socket."""
        place = (speech.response_id, speech.audio_ms)
        for unit in self._units.values():
            spoken = unit.spoken
            if spoken is not None and spoken.waits_for == place:
                spoken.waits_for = None
                self._end_if_done(unit, now=self.clock.now())
                return

    def ended(self) -> None:
        """The session is over: nothing of it goes on."""
        for place in list(self._units):
            self._drop(place, now=self.clock.now())

    def unit(self, fence: Fence, seq: int) -> TraceParent | None:
        """What Stage0 is given along with a unit."""
        unit = self._units.get(_place(fence, seq))
        return None if unit is None else unit.span.parent

    def speech(self, fence: Fence, seq: int) -> TraceParent | None:
        """What Stage1 is given along with a unit's speech."""
        unit = self._units.get(_place(fence, seq))
        return None if unit is None or unit.spoken is None else unit.spoken.span.parent

    # --- what it asks for ---------------------------------------------------------------------

    def _ask(self, effect: Effect, *, at_s: float, now: float) -> None:
        match effect:
            case SubmitUnit():
                self._submit(effect, at_s=at_s, now=now)
            case Synthesize(fence=fence, seq=seq):
                unit = self._units.get(_place(fence, seq))
                if unit is not None:
                    unit.spoken = _Spoken(unit.span.child("speech", at_s=now))
            case CancelStages():
                self._cancel(now)
            case DetachSocket() | AttachSocket():
                for unit in list(self._units.values()):
                    if unit.spoken is not None:
                        unit.spoken.waits_for = None
                        self._end_if_done(unit, now=now)
            case _:
                pass

    def _submit(self, effect: SubmitUnit, *, at_s: float, now: float) -> None:
        fence, unit = effect.fence, effect.unit
        span = self.tracer.begin(
            "unit",
            at_s=at_s,
            values={
                "session.id": fence.session_id,
                "duplex.incarnation": fence.incarnation,
                "duplex.epoch": fence.epoch,
                "duplex.turn": fence.turn,
                "duplex.seq": effect.seq,
                "duplex.operation_id": effect.operation_id,
                "duplex.config_generation": effect.config_generation,
                "duplex.fed": "silence" if unit.is_continuation else "user",
                "duplex.audio_ms": samples_to_ms(len(unit.pcm) // SAMPLE_BYTES, INPUT_RATE_HZ),
            },
        )
        if span is None:
            return
        span.note("submitted", at_s=now)
        place = _place(fence, effect.seq)
        self._units[place] = _Unit(place, span)
        if len(self._units) > MOST_KEPT:
            self._drop(next(iter(self._units)), now=now)

    def _cancel(self, now: float) -> None:
        for place, unit in list(self._units.items()):
            if unit.is_answered:
                self._drop(place, now=now)
            else:
                unit.span.set(CANCELLED)

    # --- what it is told ----------------------------------------------------------------------

    def _answer(self, told: UnitFinished | UnitFailed, *, now: float, was_stale: bool) -> None:
        place = _place(told.fence, told.seq)
        unit = self._units.get(place)
        if unit is None or unit.is_answered:
            return
        unit.is_answered = True
        unit.span.set({"duplex.stale": was_stale})
        follows = False
        error: DuplexError | None = None
        if isinstance(told, UnitFinished):
            follows = told.result.speech_follows and not was_stale
            unit.span.set({"duplex.decision": told.result.decision.value})
        elif not was_stale:
            error = told.error
        unit.span.end(at_s=now, error=error)
        if not follows:
            del self._units[place]

    def _hear(self, told: SpeechArrived, effects: Sequence[Effect]) -> None:
        unit = self._units.get(_place(told.fence, told.seq))
        if unit is None or unit.spoken is None:
            return
        for effect in effects:
            if isinstance(effect, Emit) and isinstance(effect.event, SpeechDelta):
                unit.spoken.chunks += 1
                if self.session.is_attached:
                    event = effect.event
                    unit.spoken.waits_for = (event.response_id, event.audio_ms)

    def _make(self, fence: Fence, seq: int, error: DuplexError | None, *, now: float) -> None:
        """No more of a unit's speech will come."""
        unit = self._units.get(_place(fence, seq))
        if unit is None or unit.spoken is None:
            return
        unit.spoken.is_made = True
        if error is not None:
            self._end_speech(unit, unit.spoken, now=now, error=error)
        else:
            self._end_if_done(unit, now=now)

    def _end_if_done(self, unit: _Unit, *, now: float) -> None:
        spoken = unit.spoken
        if spoken is not None and spoken.is_made and spoken.waits_for is None:
            self._end_speech(unit, spoken, now=now)

    def _end_speech(
        self, unit: _Unit, spoken: _Spoken, *, now: float, error: DuplexError | None = None
    ) -> None:
        spoken.span.set({"duplex.chunks": spoken.chunks})
        spoken.span.end(at_s=now, error=error)
        del self._units[unit.place]

    def _drop(self, place: Place, *, now: float) -> None:
        """End what is open of a unit, and forget it."""
        unit = self._units.pop(place)
        if not unit.is_answered:
            unit.span.set(CANCELLED)
            unit.span.end(at_s=now)
        if unit.spoken is not None:
            unit.spoken.span.set({**CANCELLED, "duplex.chunks": unit.spoken.chunks})
            unit.spoken.span.end(at_s=now)


def session_trace(session: DuplexSession, tracer: Tracer, clock: Clock) -> SessionTrace:
    """Return what traces a session from its beginning."""
    return NO_TRACE if tracer is NO_TRACER else TracedUnits(session, tracer, clock)


def _place(fence: Fence, seq: int) -> Place:
    return fence.epoch, seq

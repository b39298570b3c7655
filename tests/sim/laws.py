"""The laws of a session, checked around each stimulus. Numbers are those of docs/session.md."""

import pickle
from collections import Counter
from dataclasses import fields
from typing import Protocol

from session.config import SessionLimits
from session.effects import (
    AttachSocket,
    CancelStages,
    CloseStages,
    ConfigureStages,
    DetachSocket,
    Effect,
    Emit,
    RefuseSocket,
    SubmitUnit,
    WakeAt,
)
from session.events import (
    ErrorRaised,
    Event,
    FunctionCalled,
    InputItemCommitted,
    ResponseFinished,
    ResponseStarted,
    SessionClosed,
    SessionCreated,
    SessionExpired,
    SpeechDelta,
)
from session.ids import AttachmentId
from session.item_events import (
    ItemAdded,
    ItemRemoved,
)
from session.ledger.journal import Replay, ReplayOffer
from session.lifecycle import Life
from session.machine import DuplexSession
from session.pump import continuation_deadline, residue_deadline
from session.socket_stimuli import ResumeRequested, SocketLost
from session.state import SessionState
from session.stimuli import (
    AudioAppended,
    ConfigureFailed,
    InputCancelled,
    ItemCreated,
    OpenFailed,
    Received,
    SessionConfigured,
    SpeechArrived,
    SpeechFailed,
    SpeechFinished,
    StagesConfigured,
    StagesOpened,
    Stimulus,
    Ticked,
    UnitFailed,
    UnitFinished,
)
from session.timers import next_deadline
from session.unit import Decision, Unit
from tests.session.observer import Observer
from tests.sim.answers import Updates, check_answered
from tests.sim.samples import Accepted
from tests.sim.stages import SlotBook
from tests.sim.told import Told
from tests.sim.violation import Violation

FENCED = (
    StagesOpened,
    OpenFailed,
    UnitFinished,
    UnitFailed,
    SpeechArrived,
    SpeechFinished,
    SpeechFailed,
    StagesConfigured,
    ConfigureFailed,
)


SLACK_S = 5.0
"""How much later than due something may happen where mailboxes are jammed."""


class Surroundings(Protocol):
    """What the laws look at besides the session."""

    limits: SessionLimits
    book: SlotBook
    seen: Counter[str]


class Laws:
    """Watches one session from its birth to its end."""

    def __init__(
        self,
        session: DuplexSession,
        common: Surroundings,
        observer: Observer,
        attachment: AttachmentId,
    ) -> None:
        self._session = session
        self._common = common
        self._observer = observer
        self.attached: AttachmentId | None = attachment
        """Whose words count."""
        self._newest_token = ""
        self._tokens: set[str] = set()
        """What opens the session on another socket now."""
        self._expected = Replay.POSSIBLE
        self._stale: bytes | None = None
        """The state before a stimulus that must not change it."""
        self._late_ticks = 0
        self._generation = 0
        self._bytes_in = 0
        self.submitted_at_s: float | None = None
        self._opened_at_s: float | None = None
        self._updates = Updates()
        self._unit: Unit | None = None
        self._answered: tuple[Unit, int] | None = None
        """The unit whose answer has come and may not count yet, and its epoch."""
        self._accepted = Accepted()
        self._told = Told()
        self._was_open = self._was_out = False
        self._is_configuring = False
        """Whether the stages owe an answer about settings, in this epoch."""

    @property
    def state(self) -> SessionState:
        """The session's tables; read here and nowhere else."""
        return self._session._state  # noqa: SLF001 - a law about tables has to see them

    def _frozen(self) -> bytes:
        """Return the tables as bytes, without what only time changes: the watch over silence."""
        state = self.state
        tables = [getattr(state, each.name) for each in fields(state) if each.name != "idle"]
        return pickle.dumps(tables)

    def offered(self, seq: int, offer: ReplayOffer, expected: Replay) -> None:
        """Compare what the journal says about a replay with what the record says."""
        if offer.replay is not expected:
            raise Violation(
                f"law 11: replay after {seq} is {offer.replay.value}, not {expected.value}"
            )
        self._expected = expected

    # --- before ---------------------------------------------------------------------------------

    def before(self, stimulus: Stimulus) -> None:
        """Note what must not change."""
        is_stale = self._is_stale(stimulus)
        self._was_open = self.state.life is Life.OPEN
        self._was_out = self._observer.out is not None or self._answered is not None
        command = stimulus.command if isinstance(stimulus, Received) and not is_stale else None
        if isinstance(command, SessionConfigured):
            self._updates.asked(command)
        elif isinstance(command, AudioAppended | ItemCreated):
            self._accepted.came(command.pcm)
            is_item = isinstance(command, ItemCreated) and bool(command.pcm)
            self._common.seen["spoken item"] += is_item
        self._stale = self._frozen() if is_stale else None
        if is_stale:
            self._common.seen[f"stale {type(stimulus).__name__}"] += 1
        fence, seq = getattr(stimulus, "fence", None), getattr(stimulus, "seq", None)
        if isinstance(stimulus, UnitFinished) and self._observer.out == (fence, seq):
            self._observer.answered()
            if self._unit is not None:
                self._answered = self._unit, stimulus.fence.epoch
        if isinstance(stimulus, StagesConfigured | ConfigureFailed) and not is_stale:
            self._note_configured(stimulus)

    def _note_configured(self, stimulus: StagesConfigured | ConfigureFailed) -> None:
        updates = self.state.updates
        if not updates or updates[0].generation != stimulus.generation:
            return  # said twice
        self._is_configuring = False
        if isinstance(stimulus, StagesConfigured):
            self._generation = stimulus.generation

    def _is_stale(self, stimulus: Stimulus) -> bool:
        if isinstance(stimulus, FENCED):
            mine = self._session.fence
            return (stimulus.fence.incarnation, stimulus.fence.epoch) != (
                mine.incarnation,
                mine.epoch,
            )
        return isinstance(stimulus, Received) and stimulus.attachment != self.attached

    # --- after ----------------------------------------------------------------------------------

    def after(self, stimulus: Stimulus, effects: list[Effect], now: float) -> None:
        """Check one step."""
        if self._stale is not None and (
            self._frozen() != self._stale or any(not _is_wake(e) for e in effects)
        ):
            raise Violation(f"law 2: a stale {type(stimulus).__name__} changes something")
        self._take_answered()
        self._observer.see(effects, self._session.fence)
        if isinstance(stimulus, Received) and stimulus.attachment == self.attached:
            self._tokens &= {self._newest_token}
        if self.state.life is Life.OPEN:
            self._updates.see(effects, len(self.state.updates))
            if self._was_open and self._stale is None and isinstance(stimulus, Received):
                check_answered(stimulus.command, effects)
                if isinstance(stimulus.command, InputCancelled):
                    self._accepted.cancel(self._unit if self._was_out else None)
        self._check_visibility(stimulus, effects)
        self._check_attachment(stimulus, effects)
        self._check_units(effects, now)
        self._check_told(effects)
        self._check_wakes(stimulus, effects, now)
        self._check_tables(now)
        for effect in effects:
            self._count(effect)

    def _take_answered(self) -> None:
        """The model has consumed a unit when its answer counts; a cancellation may come first."""
        if self._answered is None or self.state.append.early is not None:
            self._common.seen["answered early"] += self._answered is not None
            return
        (unit, epoch), self._answered = self._answered, None
        if epoch == self._session.fence.epoch:
            self._accepted.take(unit)
            self._told.take(unit)
        else:
            self._common.seen["early answer taken back"] += 1

    def _check_visibility(self, stimulus: Stimulus, effects: list[Effect]) -> None:
        """Law 12: on its own the model is seen when it says something, and not before."""
        if not isinstance(stimulus, FENCED):
            return
        events = [effect.event for effect in effects if isinstance(effect, Emit)]
        started = [event for event in events if isinstance(event, ResponseStarted)]
        if not started:
            return
        has_output = any(isinstance(event, SpeechDelta | FunctionCalled) for event in events)
        is_listening = (
            isinstance(stimulus, UnitFinished) and stimulus.result.decision is Decision.LISTEN
        )
        is_opening = isinstance(stimulus, StagesOpened)  # it brings what was held
        if not is_opening and (is_listening or not has_output):
            raise Violation("law 12: response.created without output")

    def _check_attachment(self, stimulus: Stimulus, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Emit(event=SessionCreated(resume_token=str(token))):
                    self._newest_token = token
                    self._tokens = {token}
                case AttachSocket(attachment=attachment, resumed=resumed):
                    assert isinstance(stimulus, ResumeRequested)
                    self._check_attached(stimulus)
                    self.attached = attachment
                    self._newest_token = resumed.resume_token
                    # Until the client is heard of, nobody knows which of the two it has.
                    self._tokens = {stimulus.resume_token, resumed.resume_token}
                case DetachSocket(attachment=attachment):
                    if attachment != self.attached:
                        raise Violation("an attachment is let go that was not the current one")
                    self.attached = None
                case RefuseSocket():
                    assert isinstance(stimulus, ResumeRequested)
                    self._check_refused(stimulus)
                case _:
                    pass
        is_lost = isinstance(stimulus, SocketLost) and stimulus.attachment == self.attached
        if is_lost and self.state.life is Life.OPEN:
            raise Violation("a lost socket is still attached")

    def _check_attached(self, asked: ResumeRequested) -> None:
        if asked.resume_token not in self._tokens:
            raise Violation("a token that is not good opens the session")
        if self.state.life is not Life.OPEN:
            raise Violation("a session that is not open is given to a socket")
        if self._expected is not Replay.POSSIBLE:
            raise Violation("law 11: resumed where the rest can not be sent")
        self._common.seen["takeover" if self.attached else "resume"] += 1
        is_unread = asked.resume_token != self._newest_token
        self._common.seen["takeover of an unread resume"] += bool(self.attached) and is_unread

    def _check_refused(self, asked: ResumeRequested) -> None:
        is_good = asked.resume_token in self._tokens
        is_open = self.state.life is Life.OPEN
        if is_good and is_open and self._expected is Replay.POSSIBLE:
            raise Violation("a socket is refused that should have got the session")
        reason = self._expected.value if is_good and is_open else "bad token"
        self._common.seen[f"resume refused: {reason}"] += 1

    def _check_units(self, effects: list[Effect], now: float) -> None:
        for effect in effects:
            match effect:
                case SubmitUnit(config_generation=generation, unit=unit):
                    if unit.is_continuation and self._has_input():
                        raise Violation("silence goes to the model while samples wait")
                    if generation != self._generation:
                        raise Violation(
                            f"law 7: settings {generation}, but {self._generation} are in force"
                        )
                    self.submitted_at_s, self._unit = now, unit
                case ConfigureStages():
                    if self._observer.out is not None:
                        raise Violation("law 7: settings change under a unit that is out")
                    self._is_configuring = True
                case CancelStages(heard=heard) if heard and not self._was_said(heard):
                    raise Violation(f"law 5: {heard!r} was heard and never said")
                case CancelStages() | CloseStages():
                    self.submitted_at_s, self._is_configuring = None, False
                case _:
                    pass
        if self._observer.out is None:
            self.submitted_at_s = None

    def _check_told(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Emit(event=ItemAdded(item=item)) if item.role in ("system", "assistant"):
                    self._told.came(item.item_id, item.text)
                case Emit(event=ItemRemoved(item_id=item_id)):
                    self._told.removed(item_id)
                case _:
                    pass
        if self.state.life is not Life.OPEN:
            return
        held = [turn.message.text for turn in self.state.input.queue.waiting if turn.message]
        is_out = self._observer.out is not None or self._answered is not None
        if is_out and self._unit is not None:
            held += [each.text for each in self._unit.messages]
        self._told.check(held)

    def _was_said(self, heard: str) -> bool:
        return any(said.startswith(heard) for said in self._observer.transcripts.values())

    def _has_input(self) -> bool:
        waits = self.state.config.auto_response and self.state.input.open_bytes > 0
        return waits or self.state.input.has_wanted_turn

    def _check_wakes(self, stimulus: Stimulus, effects: list[Effect], now: float) -> None:
        wakes = [effect.at_s for effect in effects if isinstance(effect, WakeAt)]
        is_late = isinstance(stimulus, Ticked) and any(at_s <= now for at_s in wakes)
        self._late_ticks = self._late_ticks + 1 if is_late else 0
        if self._late_ticks >= 2:
            raise Violation("a deadline stays in the past: the session wakes again and again")
        due, asked = next_deadline(self.state), self.state.wake_at_s
        if due is not None and (asked is None or asked > max(due, now)):
            raise Violation("a deadline without a wake-up")

    def _check_tables(self, now: float) -> None:
        state = self.state
        if len(state.history) > 512 or len(state.updates) > 256 or len(state.utterances) > 64:
            raise Violation("law 14: a table grows without bound")
        if state.life is Life.OPEN:
            self._check_time(now)
            self._check_progress(now)
        elif state.life in (Life.CLOSING, Life.HOLDING, Life.CLOSED):
            if state.response.active is not None or state.append.pending is not None:
                raise Violation("law 14: closed with an answer or a unit")
            if state.input.pending_bytes:
                raise Violation("law 1: closed with input that is nowhere")
        if state.life is Life.CLOSED and state.fence.session_id in self._common.book.holds:
            raise Violation("law 8: closed while the stages hold something")

    def _check_time(self, now: float) -> None:
        if self._opened_at_s is None:
            self._opened_at_s = now
        cap_s = self._common.limits.max_session_s
        if cap_s is not None and now > self._opened_at_s + cap_s + SLACK_S:
            raise Violation("a session outlives the longest time")

    def _check_progress(self, now: float) -> None:
        """Whatever can go on does: nothing waits that nobody waits for."""
        state = self.state
        if state.append.is_busy:
            limit_s = self._common.limits.stage_timeout_s * 4 + 30
            if self.submitted_at_s is not None and now - self.submitted_at_s > limit_s:
                raise Violation("a unit is out for ever")
            return
        if state.updates:
            if state.updates[0].generation is None or not self._is_configuring:
                raise Violation("a settings change that nobody has been asked about")
            return
        if state.input.has_wanted_turn:
            raise Violation("a turn waits although nothing is out")
        if state.config.auto_response and state.input.open_bytes >= state.unit_bytes:
            raise Violation("a whole unit waits although nothing is out")
        active = state.response.active
        if active is None:
            if state.input.has_deferred:
                raise Violation("deferred speech waits for an answer that is over")
            return
        deadlines = (continuation_deadline(state), residue_deadline(state))
        if active.is_idle and deadlines == (None, None):
            raise Violation("an answer hangs: no unit is out, none is due, nothing is spoken")

    def _count(self, effect: Effect) -> None:
        seen = self._common.seen
        if isinstance(effect, DetachSocket) and effect.close is not None:
            seen["let go for its silence"] += 1
        if isinstance(effect, CancelStages):
            seen["epoch moved"] += 1
        if isinstance(effect, SubmitUnit):
            seen["continuation"] += effect.unit.is_continuation
            seen["bare answer"] += effect.unit.is_bare and not effect.unit.is_fresh
            seen["answer apart"] += effect.unit.is_fresh
            seen["told"] += bool(effect.unit.messages)
        if isinstance(effect, Emit):
            _count_event(effect.event, seen)


def _count_event(event: Event, seen: Counter[str]) -> None:
    match event:
        case ResponseFinished(status=status):
            seen[f"answer {status}"] += 1
        case InputItemCommitted(is_deferred=True):
            seen["overlap deferred"] += 1
        case FunctionCalled():
            seen["tool call"] += 1
        case SessionClosed(reason=reason) | SessionExpired(reason=reason):
            seen[f"end: {reason}"] += 1
        case ErrorRaised(error=error):
            seen[f"error: {error.wire_code}"] += 1
        case _:
            seen[type(event).__name__] += 1


def _is_wake(effect: Effect) -> bool:
    return isinstance(effect, WakeAt)

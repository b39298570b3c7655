"""Two scripted stages in virtual time, and the glue that calls them for one session.

The doors keep what `stages/binding.py` keeps: the highest fence wins, units come in order, and
settings must have been told. The glue keeps what `serve_app/sessions/effects.py` keeps: calls wait
for the cancel before them, speech is kept until it is asked for, a call has a time limit.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from session.effects import (
    CancelStages,
    CloseStages,
    ConfigureStages,
    OpenStages,
    StageCall,
    SubmitUnit,
    Synthesize,
)
from session.errors import (
    AdmissionRefused,
    DuplexError,
    StageError,
    StageFailed,
    StageRefused,
    StageTimeout,
    StageUnavailable,
)
from session.fence import Fence, FenceVerdict
from session.ids import SessionId
from session.stimuli import (
    ConfigureFailed,
    OpenFailed,
    ReleaseFailed,
    SpeechArrived,
    SpeechFailed,
    SpeechFinished,
    StageLost,
    StagesConfigured,
    StagesOpened,
    StagesReleased,
    Stimulus,
    UnitFailed,
    UnitFinished,
)
from session.unit import SpeechChunk, UnitResult
from tests.sim.violation import Violation

ERRORS: dict[str, type[StageError]] = {
    "failed": StageFailed,
    "refused": StageRefused,
    "timeout": StageTimeout,
    "unavailable": StageUnavailable,
}
CallKind = type[StageCall]
MAX_KEPT_SPEECH = 256


@dataclass(slots=True)
class Hold:
    """What a stage pair knows of one session."""

    fence: Fence
    last_seq: int | None = None
    generations: set[int] = field(default_factory=lambda: {0})
    operations: set[str] = field(default_factory=set)


class SlotBook:
    """Both doors at once: which sessions hold a slot, and what each may do."""

    def __init__(self, max_sessions: int) -> None:
        self._max_sessions = max_sessions
        self.holds: dict[SessionId, Hold] = {}

    def admit(self, fence: Fence) -> bool:
        """Take a slot for a session, if there is one."""
        if len(self.holds) >= self._max_sessions:
            return False
        self.holds[fence.session_id] = Hold(fence)
        return True

    def append(self, call: SubmitUnit) -> None:
        """Let a unit in, or raise StageRefused."""
        hold = self._current(call.fence)
        if hold.last_seq is not None and call.seq != hold.last_seq + 1:
            raise StageRefused(f"unit {call.seq} is out of order after {hold.last_seq}")
        if call.config_generation not in hold.generations:
            raise StageRefused(f"no settings {call.config_generation}")
        if call.operation_id in hold.operations:
            raise Violation(f"law 9: operation {call.operation_id} begins twice")
        hold.operations.add(call.operation_id)
        hold.last_seq = call.seq
        hold.generations = {g for g in hold.generations if g >= call.config_generation}

    def speak(self, fence: Fence) -> None:
        """Let a speech in, or raise StageRefused."""
        self._current(fence)

    def configure(self, call: ConfigureStages) -> None:
        """Take new settings, or raise StageRefused."""
        self._current(call.fence).generations.add(call.generation)

    def cancel(self, call: CancelStages) -> None:
        """Enter the epoch of `current`, unless the session is there already or further."""
        hold = self.holds.get(call.current.session_id)
        if hold is not None and hold.fence.judge(call.current) is FenceVerdict.UNKNOWN:
            hold.fence, hold.last_seq = call.current, None

    def release(self, fence: Fence) -> None:
        """Give the slot back."""
        self.holds.pop(fence.session_id, None)

    def _current(self, fence: Fence) -> Hold:
        hold = self.holds.get(fence.session_id)
        if hold is None or hold.fence.judge(fence) is not FenceVerdict.CURRENT:
            raise StageRefused("the fence is not the present one")
        return hold


@dataclass(slots=True)
class Call:
    """A call that has not been answered."""

    effect: StageCall
    due_s: float
    """When its time is up."""
    text: str = ""
    """Of a speech: what has not been said yet."""


class StageSide:
    """What one session's effects on the stages act upon."""

    def __init__(
        self,
        book: SlotBook,
        *,
        timeout_s: float,
        post: Callable[[Stimulus], None],
        fence: Callable[[], Fence],
        told: Callable[[StageCall], None],
    ) -> None:
        self._book = book
        self._timeout_s = timeout_s
        self._post = post
        self._fence = fence
        self._told = told
        self.calls: list[Call] = []
        self.last_answers: dict[CallKind, Stimulus] = {}
        self.speech: dict[tuple[int, int], str] = {}
        """By epoch and unit. Answers that are only read never ask for theirs."""
        self._waiting: deque[Call] = deque()
        self.is_watched = False
        self.is_behind = False
        """A cancel was lost, so the doors may be an epoch behind."""

    @property
    def due_s(self) -> float | None:
        """When the first of the calls has run out of time."""
        return min((call.due_s for call in self.calls), default=None)

    def open_calls(self, kind: CallKind) -> list[Call]:
        """Return the calls of a kind that wait for an answer, oldest first."""
        return [call for call in self.calls if isinstance(call.effect, kind)]

    # --- the glue -------------------------------------------------------------------------------

    def perform(self, effect: StageCall, now: float) -> None:
        """Begin a call, or let it wait for the cancel before it."""
        call = Call(effect, now + self._timeout_s)
        match effect:
            case Synthesize(fence=fence, seq=seq):
                call.text = self._take_speech(fence.epoch, seq)
            case CancelStages():
                self._stop_speaking()
                self.speech = {
                    key: t for key, t in self.speech.items() if key[0] >= effect.current.epoch
                }
            case CloseStages():
                self.is_watched = False
                self._stop_speaking()
            case OpenStages():
                call.text = "" if self._book.admit(effect.fence) else "full"
            case _:
                pass
        if self.open_calls(CancelStages) and not isinstance(effect, CancelStages):
            self._waiting.append(call)
        else:
            self._enter(call)

    def _take_speech(self, epoch: int, seq: int) -> str:
        text = self.speech.get((epoch, seq))
        if text is None:
            raise Violation(f"the kernel asks for the speech of unit {seq}, which has none")
        self.speech = {key: t for key, t in self.speech.items() if key[0] != epoch or key[1] > seq}
        return text

    def _enter(self, call: Call) -> None:
        try:
            match call.effect:
                case SubmitUnit():
                    self._book.append(call.effect)
                case Synthesize(fence=fence):
                    self._book.speak(fence)
                case ConfigureStages():
                    self._book.configure(call.effect)
                case _:
                    pass
        except StageRefused as refused:
            is_current = self._fence().judge(call.effect.fence) is FenceVerdict.CURRENT  # type: ignore[union-attr]  # no cancel gets here
            if is_current and not self.is_behind:
                raise Violation(f"the door refused a current call: {refused}") from None
            self._answer(call, refused)
            return
        self.calls.append(call)
        self._told(call.effect)

    def _stop_speaking(self) -> None:
        self.calls = [call for call in self.calls if not isinstance(call.effect, Synthesize)]

    def run_out(self, now: float) -> None:
        """Fail the calls whose time is up."""
        for call in [call for call in self.calls if call.due_s <= now]:
            if isinstance(call.effect, CancelStages):
                self.cancelled(is_lost=True)
            else:
                self.calls.remove(call)
                self._answer(call, StageTimeout("no answer in time"))

    # --- the answers ----------------------------------------------------------------------------

    def opened(self, call: Call, error: str | None) -> None:
        """Answer an open."""
        self.calls.remove(call)
        fence = call.effect.fence  # type: ignore[union-attr]  # an open
        if call.text == "full":
            self._post(OpenFailed(fence, AdmissionRefused("all slots are taken")))
        elif error is not None:
            self._answer(call, ERRORS[error]("the stage could not open"))
        else:
            self.is_watched = True
            self._post(StagesOpened(fence))

    def finished(self, call: Call, result: UnitResult) -> None:
        """Answer a unit."""
        effect = call.effect
        assert isinstance(effect, SubmitUnit)
        self.calls.remove(call)
        is_stale = self._fence().judge(effect.fence) is FenceVerdict.STALE
        if result.speech_follows and not is_stale:
            self.speech[effect.fence.epoch, effect.seq] = result.text
            while len(self.speech) > MAX_KEPT_SPEECH:
                del self.speech[next(iter(self.speech))]
        self._say(effect, UnitFinished(effect.fence, effect.seq, result))

    def chunk(self, call: Call, ms: int, chars: int) -> None:
        """Let a speech go on by a chunk that says the next characters of its text."""
        effect = call.effect
        assert isinstance(effect, Synthesize)
        text, call.text = call.text[:chars], call.text[chars:]
        self._say(
            effect, SpeechArrived(effect.fence, effect.seq, SpeechChunk(bytes(48 * ms), text))
        )

    def spoken(self, call: Call) -> None:
        """End a speech."""
        effect = call.effect
        assert isinstance(effect, Synthesize)
        self.calls.remove(call)
        self._say(effect, SpeechFinished(effect.fence, effect.seq))

    def configured(self, call: Call) -> None:
        """Acknowledge settings."""
        effect = call.effect
        assert isinstance(effect, ConfigureStages)
        self.calls.remove(call)
        self._say(effect, StagesConfigured(effect.fence, effect.generation))

    def released(self, call: Call) -> None:
        """Confirm a release."""
        effect = call.effect
        assert isinstance(effect, CloseStages)
        self.calls.remove(call)
        self._book.release(effect.fence)
        self._post(StagesReleased(effect.fence))

    def cancelled(self, *, is_lost: bool) -> None:
        """End the oldest cancel, and let in what waited for it."""
        call = self.open_calls(CancelStages)[0]
        self.calls.remove(call)
        assert isinstance(call.effect, CancelStages)
        if is_lost:
            self.is_behind = True
        else:
            self._book.cancel(call.effect)
            self.is_behind = False
        while self._waiting and not self.open_calls(CancelStages):
            self._enter(self._waiting.popleft())

    def fail(self, call: Call, error: str) -> None:
        """Answer a call with an error."""
        self.calls.remove(call)
        self._answer(call, ERRORS[error]("the stage failed"))

    def again(self, kind: CallKind) -> None:
        """Say the last answer of a kind once more."""
        if kind in self.last_answers:
            self._post(self.last_answers[kind])

    def lose(self, stage: str) -> None:
        """Break a lease."""
        if self.is_watched:
            self.is_watched = False
            self._post(StageLost(stage, StageUnavailable("the lease is broken")))

    def _say(self, effect: StageCall, answer: Stimulus) -> None:
        self.last_answers[type(effect)] = answer
        self._post(answer)

    def _answer(self, call: Call, error: DuplexError) -> None:
        match call.effect:
            case OpenStages(fence=fence):
                self._book.release(fence)
                self._post(OpenFailed(fence, error))
            case SubmitUnit(fence=fence, seq=seq):
                self._post(UnitFailed(fence, seq, error))
            case Synthesize(fence=fence, seq=seq):
                self._post(SpeechFailed(fence, seq, error))
            case ConfigureStages(fence=fence, generation=generation):
                self._post(ConfigureFailed(fence, generation, error))
            case CloseStages(fence=fence):
                self._post(ReleaseFailed(fence, error))
            case CancelStages():
                raise AssertionError("a cancel is answered by `cancelled`")

"""One session in virtual time: its mailbox, the kernel, the outbox, and the laws after each step.

It mirrors `serve_app/sessions/session_actor.py`: letters are dealt with in the order they came,
effects are performed in order, and nothing goes on once the session is over.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from session.config import SessionConfig, SessionLimits
from session.effects import (
    AttachSocket,
    CloseSocket,
    DetachSocket,
    Effect,
    Emit,
    RefuseSocket,
    StageCall,
    TrimJournal,
    WakeAt,
)
from session.errors import ClientError, LocalProtocolError, MalformedEvent
from session.fence import Fence
from session.ids import AttachmentId, IdFactory, SessionId
from session.lifecycle import Life
from session.machine import DuplexSession
from session.model_profile import ModelProfile
from session.outbox import Outbox
from session.realtime.commands import SessionResumeAsked
from session.realtime.dialects.duplex import DuplexProjector
from session.realtime.facts import ServerFacts
from session.socket_stimuli import EventAcked, ReaderStalled, ResumeRequested
from session.stimuli import (
    AttachedCommand,
    AudioAppended,
    EventRefused,
    OpenRequested,
    Received,
    SpeechScore,
    Stimulus,
    Ticked,
)
from tests.session.observer import Observer
from tests.sim.laws import Laws
from tests.sim.shadow import Shadow
from tests.sim.stages import SlotBook, StageSide
from tests.sim.violation import Violation

WINDOW = 512


@dataclass(frozen=True, slots=True)
class Spoken:
    """An append before its windows are scored, as it waits in the mailbox."""

    append: AudioAppended
    probability: float


Content = Stimulus | AttachedCommand | SessionResumeAsked | Spoken


@dataclass(frozen=True, slots=True)
class Letter:
    """One thing that happened."""

    content: Content
    at_s: float
    attachment: AttachmentId | None = None


class MakeSession(Protocol):
    """Makes the kernel under test; a test of the simulator gives a broken one."""

    def __call__(
        self,
        *,
        fence: Fence,
        config: SessionConfig,
        limits: SessionLimits,
        profile: ModelProfile,
        ids: IdFactory,
    ) -> DuplexSession:
        """Return a new session."""
        ...


@dataclass(slots=True)
class Common:
    """What the sessions of a world share."""

    limits: SessionLimits
    profile: ModelProfile
    book: SlotBook
    ids: IdFactory
    now: Callable[[], float]
    seen: Counter[str]
    """How often each interesting thing has happened."""
    make_session: MakeSession
    make_outbox: type[Outbox]


class Actor:
    """Runs one session."""

    def __init__(
        self,
        common: Common,
        config: SessionConfig,
        opening: OpenRequested,
        *,
        told: Callable[["Actor", StageCall], None],
        answered: Callable[[AttachmentId, str | None], None],
    ) -> None:
        self.common = common
        self.is_resumable = opening.is_resumable
        fence = Fence(SessionId(common.ids.new("sess")), 0, 0, 0)
        self.session = common.make_session(
            fence=fence,
            config=config,
            limits=common.limits,
            profile=common.profile,
            ids=common.ids,
        )
        facts = ServerFacts("m", common.profile, common.limits.max_sessions, common.limits)
        self.projector = DuplexProjector(facts=facts, encode=lambda pcm, _: pcm)
        self.shadow = Shadow(
            self.projector,
            limits=common.limits,
            fence=lambda: self.session.fence,
            now=common.now,
        )
        self.outbox = common.make_outbox(
            self.shadow,
            ids=common.ids,
            limits=common.limits,
            attachment=opening.attachment,
            keeps_journal=opening.is_resumable,
        )
        self.stages = StageSide(
            common.book,
            timeout_s=common.limits.stage_timeout_s,
            post=self.post,
            fence=lambda: self.session.fence,
            told=lambda effect: told(self, effect),
        )
        self.laws = Laws(self.session, common, Observer(fence), opening.attachment)
        self.timer_s: float | None = None
        self.jammed_until_s = 0.0
        self._mailbox: deque[Letter] = deque()
        self._answered = answered
        self._asking: set[AttachmentId] = set()
        self._heard_samples = 0
        self._is_stall_told = False
        self.post(opening)

    @property
    def session_id(self) -> SessionId:
        """Name of the session."""
        return self.session.fence.session_id

    @property
    def is_over(self) -> bool:
        """Whether nothing of it goes on."""
        return self.session.is_over

    @property
    def is_ending(self) -> bool:
        """Whether sockets do not change any more."""
        return self.session.life is not Life.OPEN

    @property
    def has_mail(self) -> bool:
        """Whether a letter can be dealt with now."""
        is_free = self.common.now() >= self.jammed_until_s
        return bool(self._mailbox) and not self.is_over and is_free

    # --- in -------------------------------------------------------------------------------------

    def post(self, content: Content, attachment: AttachmentId | None = None) -> None:
        """Put what happened at the end of the mailbox."""
        self._mailbox.append(Letter(content, self.common.now(), attachment))

    def ask(self, asked: SessionResumeAsked, attachment: AttachmentId) -> None:
        """A socket wants this session."""
        self._asking.add(attachment)
        self.post(asked, attachment)

    def drain(self, pump: Callable[[], None]) -> None:
        """Deal with everything in the mailbox; the sockets are written to after each letter."""
        while self._mailbox and not self.is_over and self.common.now() >= self.jammed_until_s:
            letter = self._mailbox.popleft()
            for effect in self._handle(self._stimulus(letter)):
                self._perform(effect, letter.at_s)
            pump()
            reader = self.outbox.attached
            if reader is not None and self.outbox.is_over_bound and not self._is_stall_told:
                self._is_stall_told = True
                self.common.seen["slow reader"] += 1
                self.post(ReaderStalled(reader))
        if self.is_over:
            self.stages.calls.clear()  # the tasks of a session end with it
            for attachment in sorted(self._asking):
                self._answer(attachment, "session_resume_expired")

    def _stimulus(self, letter: Letter) -> Stimulus:
        content, attachment = letter.content, letter.attachment
        if isinstance(content, SessionResumeAsked):
            assert attachment is not None
            seq = content.last_server_event_seq
            offer = self.outbox.offer(seq, now=self.common.now())
            self.laws.offered(seq, offer, self.shadow.expected(seq, self.common.now()))
            return ResumeRequested(attachment, content.resume_token, seq, offer, content.event_id)
        if isinstance(content, Spoken):
            content = self._scored(content, attachment)
        if isinstance(content, EventAcked):
            newest = self.outbox.journal.newest_seq
            if content.server_event_seq > newest:
                content = EventRefused(MalformedEvent("never sent"), content.event_id)
        if attachment is None:
            return content
        return Received(attachment, content)  # type: ignore[arg-type]  # stimuli come without

    def _scored(self, spoken: Spoken, attachment: AttachmentId | None) -> AudioAppended:
        if attachment is None or not self.session.heeds(attachment):
            return spoken.append
        samples = len(spoken.append.pcm) // 2
        first = self._heard_samples // WINDOW
        self._heard_samples += samples
        if not self.session.wants_speech_scores:
            return spoken.append
        last = self._heard_samples // WINDOW
        scores = tuple(
            SpeechScore(spoken.probability, (window + 1) * WINDOW) for window in range(first, last)
        )
        return replace(spoken.append, scores=scores)

    def _handle(self, stimulus: Stimulus) -> list[Effect]:
        now = self.common.now()
        self.laws.before(stimulus)
        try:
            effects = self.session.handle(stimulus, now=now)
            self.session.validate()
        except LocalProtocolError as error:
            raise Violation(f"{type(stimulus).__name__}: {error}") from error
        self.laws.after(stimulus, effects, now)
        return effects

    # --- out ------------------------------------------------------------------------------------

    def _perform(self, effect: Effect, at_s: float) -> None:
        now = self.common.now()
        match effect:
            case Emit() | CloseSocket() | AttachSocket() | DetachSocket() | TrimJournal():
                if isinstance(effect, Emit):
                    self.shadow.emitted.append(effect.event)
                if isinstance(effect, TrimJournal):
                    self.shadow.acknowledge(effect.upto_seq)
                self.outbox.perform(effect, fence=self.session.fence, at_s=at_s, now=now)
                if isinstance(effect, AttachSocket):
                    self._answer(effect.attachment, None)
            case RefuseSocket(attachment=attachment, answer=answer):
                code = answer.wire_code if isinstance(answer, ClientError) else answer.reason
                self._answer(attachment, code)
            case WakeAt(at_s=wake_s):
                self.timer_s = wake_s
            case _:
                self.stages.perform(effect, now)

    def _answer(self, attachment: AttachmentId, refusal: str | None) -> None:
        if attachment in self._asking:
            self._asking.discard(attachment)
            self._answered(attachment, refusal)

    # --- time -----------------------------------------------------------------------------------

    @property
    def due_s(self) -> float | None:
        """When it next has to do something by itself."""
        if self.is_over:
            return None
        times = [self.timer_s, self.stages.due_s]
        if self._mailbox and self.jammed_until_s > self.common.now():
            times.append(self.jammed_until_s)
        return min((time for time in times if time is not None), default=None)

    def run_due(self) -> None:
        """Do what is due now."""
        now = self.common.now()
        self.stages.run_out(now)
        if self.timer_s is not None and self.timer_s <= now:
            self.timer_s = None
            self.post(Ticked())

    def check_remains(self) -> None:
        """Law 14: a session that is over is in no table any more."""
        if not self.shadow.emitted and self.projector._answers:  # noqa: SLF001 - a law about tables
            raise Violation("law 14: the dialect still knows an answer")
        if self.shadow.emitted and self.laws.attached is None:
            raise Violation("law 6: something was said and never written down")

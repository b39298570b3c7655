"""One session: its mailbox, the one consumer of it, and the tasks that its effects began.

Rule 1: the consumer takes one letter at a time, in wire order; slow conversion holds the next one
        back, slow stages do not. While the stages are asked about a new input format, what the
        client says waits for their answer: until then nobody knows how to read its audio.
Rule 2: only the consumer calls `DuplexSession.handle`, and only it performs effects.
Rule 3: whatever goes wrong here ends this session and no other, and gives its stages back.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from serve_app.audio.input_audio import InputAudio, item_created
from serve_app.audio.speech_scorer import OpenScorer
from serve_app.clock import Clock
from serve_app.dialects import Dialect
from serve_app.handled import handle
from serve_app.logs.session_records import SessionRecord, SessionRecords
from serve_app.metrics.fairness import Fairness
from serve_app.metrics.meter import NO_METER, Meter, count_error
from serve_app.metrics.session_observer import observe
from serve_app.metrics.timings import GatewayTimings
from serve_app.ports import StageDirectory, StageOpener
from serve_app.sessions.effects import Shell, perform, release
from serve_app.sessions.mailbox import Letter, Mailbox
from serve_app.sessions.outbound import Outbound
from serve_app.tracing.traced_units import session_trace
from serve_app.tracing.tracer import NO_TRACER, Tracer
from session.config import SessionLimits
from session.effects import CloseSocket, Effect, Emit, SubmitUnit
from session.errors import (
    LocalProtocolError,
    MalformedEvent,
    ResumeRefused,
    ResumeUnsupported,
    UnsupportedOption,
)
from session.events import ErrorRaised, Event
from session.fence import Fence
from session.ids import AttachmentId
from session.lifecycle import Life
from session.machine import DuplexSession
from session.on_attachment import REFUSED_TEXT
from session.outbox import Outbox
from session.realtime.commands import AudioReceived, Command, ItemReceived, SessionResumeAsked
from session.socket_stimuli import EventAcked, ReaderStalled, ResumeRequested, SocketLost
from session.stimuli import (
    AttachedCommand,
    EventRefused,
    InputCancelled,
    InputCleared,
    InputCommitted,
    Received,
    Stimulus,
)

READER_PATIENCE_S: Final = 2.0
"""A client with too much to read gets so long to catch up; meanwhile nothing more is made."""


@dataclass(frozen=True, slots=True)
class World:
    """What every session of a gateway shares."""

    directory: StageDirectory
    clock: Clock
    limits: SessionLimits
    open_scorer: OpenScorer
    timings: GatewayTimings
    meter: Meter = NO_METER
    fairness: Fairness = field(default_factory=Fairness)
    tracer: Tracer = NO_TRACER
    records: SessionRecords = field(default_factory=SessionRecords)


class SessionActor:
    """Runs one session from its first event to the release of its stages."""

    def __init__(
        self,
        session: DuplexSession,
        *,
        world: World,
        open_stages: StageOpener,
        outbox: Outbox,
        record: SessionRecord,
        dialect: Dialect = Dialect.DUPLEX,
    ) -> None:
        self._session = session
        self.record = record
        self._world = world
        self._open_stages = open_stages
        unit_ms = world.directory.descriptor.profile.unit_ms
        self._observer = observe(
            session, world.meter, world.fairness, dialect=dialect, unit_ms=unit_ms
        )
        self._trace = session_trace(session, world.tracer, world.clock)
        self.outbound = Outbound(
            outbox, clock=world.clock, fence=lambda: session.fence, sent=self._trace.sent
        )
        self._asking: dict[AttachmentId, asyncio.Future[Event | None]] = {}
        self._mailbox = Mailbox(world.limits.max_pending_input_bytes_per_session)
        self._audio = InputAudio(world.open_scorer)
        self._postponed: deque[Letter] = deque()
        """What the client said while it is open in which format its audio is."""
        self._is_stall_told = False
        self._has_ended = False

    @property
    def fence(self) -> Fence:
        """The session's present fence."""
        return self._session.fence

    @property
    def is_over(self) -> bool:
        """Whether it holds nothing any more."""
        return self._session.is_over

    @property
    def end_reason(self) -> str:
        """Why it ended, as the metrics have it; of use when it is over."""
        return self._observer.reason

    @property
    def state(self) -> str:
        """Where it is: opening, active (with a client), detached or closing."""
        match self._session.life:
            case Life.OPENING | Life.ABANDONED:
                return "opening"
            case Life.OPEN:
                return "active" if self._session.is_attached else "detached"
            case _:
                return "closing"

    @property
    def is_flooded(self) -> bool:
        """Whether the client sends on and on although it is refused."""
        return self._mailbox.is_flooded

    def post(
        self,
        content: Command | Stimulus,
        *,
        attachment: AttachmentId | None = None,
        frame_bytes: int = 0,
    ) -> None:
        """Put what happened at the end of the mailbox.

        What came over a socket comes with its attachment and the size of its frame.
        """
        self._mailbox.post(
            content,
            at_s=self._world.clock.now(),
            attachment=attachment,
            frame_bytes=frame_bytes,
        )

    async def attach(self, attachment: AttachmentId, asked: SessionResumeAsked) -> Event | None:
        """Ask to go on with this session over another socket.

        Returns None when the socket has the session, or the event that says why it has not.
        """
        answer: asyncio.Future[Event | None] = asyncio.get_running_loop().create_future()
        self._asking[attachment] = answer
        self._mailbox.post(asked, at_s=self._world.clock.now(), attachment=attachment)
        if self._has_ended:
            self._refuse_asking()
        return await answer

    async def run(self) -> None:
        """Deal with the mailbox until the session is over and its stages are free."""
        shell: Shell | None = None
        try:
            async with asyncio.TaskGroup() as group:
                shell = self._shell(group)
                await self._run_mailbox(shell)
                shell.end()
        except Exception as error:  # noqa: BLE001 - a fault of ours ends this session alone
            self.record.broke(error)
            if shell is not None:
                shell.end()
            self._refuse_from_now_on()  # giving the stages back may take its time
            await self._give_up(shell)
        finally:
            now = self._world.clock.now()
            self._observer.ended(now=now)
            self._trace.ended()
            self.record.ended(self._observer.reason, now=now)
            self._refuse_from_now_on()
            self.outbound.finish()

    def _shell(self, group: asyncio.TaskGroup) -> Shell:
        return Shell(
            open_stages=self._open_stages,
            clock=self._world.clock,
            limits=self._world.limits,
            outbound=self.outbound,
            group=group,
            post=self.post,
            current_fence=lambda: self._session.fence,
            answer_socket=self._answer_socket,
            trace=self._trace,
            note_replicas=self.record.held_by,
        )

    async def _run_mailbox(self, shell: Shell) -> None:
        while not self._session.is_over:
            letter = await self._mailbox.take()
            if _is_clients(letter) and (self._postponed or self._session.awaits_input_format):
                self._postponed.append(letter)
                continue
            await self._deal_with(letter, shell)
            while self._postponed and not self._session.awaits_input_format:
                await self._deal_with(self._postponed.popleft(), shell)

    async def _deal_with(self, letter: Letter, shell: Shell) -> None:
        shell.now_s = letter.at_s
        for stimulus in await self._stimuli(letter):
            self._measure(letter, self._handle(stimulus, shell))
        self._mailbox.settle(letter)
        await self._wait_for_reader(shell)

    def _handle(self, stimulus: Stimulus, shell: Shell) -> Sequence[Effect]:
        now = self._world.clock.now()
        try:
            handled = handle(self._session, stimulus, at_s=shell.now_s, now=now)
            for effect in handled.effects:
                perform(effect, shell)
        except Exception:
            self.record.broke_at(stimulus, now=now)
            raise
        self._observer.handled(handled)
        self._trace.handled(handled)
        self.record.handled(handled)
        return handled.effects

    async def _stimuli(self, letter: Letter) -> Sequence[Stimulus]:
        """Say what a letter means to the kernel."""
        content, attachment = letter.content, letter.attachment
        if attachment is None:
            return [content]  # type: ignore[list-item]  # the server itself sends no commands
        if isinstance(content, SessionResumeAsked) and attachment in self._asking:
            return [self._resume(content, attachment)]
        if not self._session.heeds(attachment):
            return []  # before its audio is mixed up with that of the socket which has its place
        return [Received(attachment, command) for command in await self._commands(content)]

    def _resume(self, asked: SessionResumeAsked, attachment: AttachmentId) -> Stimulus:
        """Add what the journal can offer."""
        seq = asked.last_server_event_seq
        offer = self.outbound.outbox.offer(seq, now=self._world.clock.now())
        return ResumeRequested(attachment, asked.resume_token, seq, offer, asked.event_id)

    async def _commands(self, content: Command | Stimulus) -> Sequence[AttachedCommand]:
        """Say what a client's command means to the kernel."""
        match content:
            case AudioReceived():
                return [await self._appended(content)]
            case ItemReceived():
                return [await item_created(content, self._session.config)]
            case InputCommitted():
                return [*await self._rest_of_item(), content]
            case InputCleared() | InputCancelled():
                self._audio.forget()
                return [content]
            case EventAcked():
                return [self._acknowledged(content)]
            case SessionResumeAsked():
                return [EventRefused(no_resume(), content.event_id)]
            case _:
                return [content]  # type: ignore[list-item]  # decode makes nothing else

    def _acknowledged(self, acked: EventAcked) -> AttachedCommand:
        newest = self.outbound.outbox.journal.newest_seq
        if acked.server_event_seq <= newest:
            return acked
        error = MalformedEvent(
            f"event {acked.server_event_seq} was never sent; the newest is {newest}",
            code="invalid_event_ack",
            param="server_event_seq",
        )
        return EventRefused(error, acked.event_id)

    async def _appended(self, received: AudioReceived) -> AttachedCommand:
        if received.video_frames and not self._world.directory.descriptor.profile.video_input:
            return EventRefused(no_video(), received.event_id)
        return await self._audio.append(
            received, self._session.config, wants_scores=self._session.wants_speech_scores
        )

    async def _rest_of_item(self) -> list[AttachedCommand]:
        rest = await self._audio.rest(
            self._session.config, wants_scores=self._session.wants_speech_scores
        )
        return [] if rest is None else [rest]

    def _measure(self, letter: Letter, effects: Sequence[Effect]) -> None:
        if not isinstance(letter.content, AudioReceived):
            return
        taken_s = self._world.clock.now() - letter.at_s
        has_unit = any(isinstance(effect, SubmitUnit) for effect in effects)
        self._world.timings.handle(taken_s, has_unit=has_unit)

    async def _wait_for_reader(self, shell: Shell) -> None:
        """Make no more while the client has too much to read; end a session whose client does not.

        Nothing is bounded if what comes in is dealt with faster than what goes out is read.
        """
        outbound = self.outbound
        reader = outbound.outbox.attached
        if reader is None or self._is_stall_told or not outbound.outbox.is_over_bound:
            return
        if not await outbound.caught_up(READER_PATIENCE_S):
            self._is_stall_told = True
            self._handle(ReaderStalled(reader), shell)

    def _answer_socket(self, attachment: AttachmentId, answer: Event | None) -> None:
        asking = self._asking.pop(attachment, None)
        if asking is not None and not asking.done():
            asking.set_result(answer)

    def _refuse_from_now_on(self) -> None:
        """Nobody can have this session any more."""
        self._has_ended = True
        self._refuse_asking()

    def _refuse_asking(self) -> None:
        """The session is over: whoever still waits for it does not get it."""
        for attachment in list(self._asking):
            self._answer_socket(attachment, ErrorRaised(ResumeRefused(REFUSED_TEXT)))

    async def _give_up(self, shell: Shell | None) -> None:
        """Say that we broke, and free the stages without the kernel."""
        broken = LocalProtocolError("the server made a mistake; this session can not go on")
        now = self._world.clock.now()
        count_error(self._world.meter, broken)
        self.outbound.perform(Emit(ErrorRaised(broken)), at_s=now)
        self.outbound.perform(CloseSocket(1011, "internal_error"), at_s=now)
        if shell is not None and shell.stages is not None:
            retry_s = self._world.limits.reaper_interval_s
            await release(shell.stages, self.fence, self._world.clock, retry_s)


def _is_clients(letter: Letter) -> bool:
    """Whether a letter has its place in the order of what clients do."""
    return letter.attachment is not None or isinstance(letter.content, SocketLost)


def no_video() -> UnsupportedOption:
    """Return the error for pictures where the model has no eyes."""
    return UnsupportedOption(
        "this model takes no pictures: leave video_frames out",
        code="invalid_input_modality",
        param="video_frames",
    )


def no_resume() -> ResumeUnsupported:
    """Return the error for a socket that has a session and asks for another."""
    return ResumeUnsupported(
        "session.resume must be the first event of a socket: this one has a session already"
    )

"""The session's only door: a stimulus goes in, effects come out."""

from collections import deque
from typing import assert_never

from session import (
    endings,
    leaving,
    on_attachment,
    on_commit,
    on_context,
    on_input,
    on_item,
    on_lifecycle,
    on_response,
    on_stage,
)
from session.by_the_clock import note_played
from session.config import SessionConfig, SessionLimits
from session.effects import Effect
from session.errors import InputBackpressure
from session.fence import Fence, FenceVerdict
from session.ids import AttachmentId, IdFactory
from session.lifecycle import Life
from session.model_profile import ModelProfile
from session.service_stimuli import DrainRequested, DrainWithdrawn
from session.socket_stimuli import EventAcked, ReaderStalled, ResumeRequested, SocketLost
from session.state import SessionState
from session.stimuli import (
    AudioAppended,
    BargedIn,
    ClientCommand,
    CloseRequested,
    ConfigureFailed,
    EventRefused,
    HeartbeatReceived,
    InputCancelled,
    InputCleared,
    InputCommitted,
    ItemCreated,
    ItemDeleted,
    ItemRetrieved,
    ItemTruncated,
    OpenFailed,
    OpenRequested,
    OutputClearRequested,
    PlaybackAcked,
    Received,
    ReleaseFailed,
    ResponseCancelRequested,
    ResponseRequested,
    SessionConfigured,
    SpeechArrived,
    SpeechFailed,
    SpeechFinished,
    StageLost,
    StagesConfigured,
    StagesOpened,
    StagesReleased,
    Stimulus,
    TextAppended,
    Ticked,
    TurnSignalled,
    UnitFailed,
    UnitFinished,
)
from session.stream_stimuli import ContextAppended, InputMuteSet
from session.timers import fire, wake_up
from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES, samples_to_ms

HELD_COMMAND_BYTES = 1024
"""What a command counts for besides its audio or text while the session is opening."""
MAX_HELD = 32_768
"""Commands and refusals that are kept while the session is opening."""


class DuplexSession:
    """All facts of one session; mutated only through `handle`."""

    def __init__(
        self,
        *,
        fence: Fence,
        config: SessionConfig,
        limits: SessionLimits,
        profile: ModelProfile,
        ids: IdFactory,
    ) -> None:
        self._state = SessionState(
            fence=fence, config=config, limits=limits, profile=profile, ids=ids
        )
        self._held: deque[ClientCommand | CloseRequested] = deque()
        self._held_bytes = 0
        self.stale = 0
        """Stimuli that were dropped because their fence or their attachment is over."""

    @property
    def fence(self) -> Fence:
        """The current fence."""
        return self._state.fence

    @property
    def config(self) -> SessionConfig:
        """The public settings in force."""
        return self._state.config

    @property
    def is_over(self) -> bool:
        """Whether the session has reached its end and holds nothing any more."""
        return self._state.life is Life.CLOSED

    @property
    def life(self) -> Life:
        """Where the session is between its first event and its last."""
        return self._state.life

    @property
    def is_attached(self) -> bool:
        """Whether a client's socket has the session."""
        return self._state.attachment.current is not None

    @property
    def waiting_input_ms(self) -> int:
        """Sound of the open item that no unit has taken yet."""
        return samples_to_ms(self._state.input.open_bytes // SAMPLE_BYTES, INPUT_RATE_HZ)

    @property
    def wants_speech_scores(self) -> bool:
        """Whether appends should carry voice-activity windows."""
        return self._state.detector is not None

    @property
    def awaits_input_format(self) -> bool:
        """Whether a waiting session.update would change how audio is to be read."""
        config = self._state.config
        waiting = (update.candidate for update in self._state.updates)
        return any(candidate.input_format != config.input_format for candidate in waiting)

    def heeds(self, attachment: AttachmentId) -> bool:
        """Whether what comes over `attachment` counts: it is the current one."""
        return self._state.attachment.heeds(attachment)

    def validate(self) -> None:
        """Raise LocalProtocolError unless all ledgers balance and agree."""
        self._state.validate()

    def handle(self, stimulus: Stimulus, *, now: float) -> list[Effect]:
        """Apply one stimulus at `now` (monotonic seconds) and say what must happen next.

        Raises LocalProtocolError for our own faults and nothing else.
        """
        effects = self._dispatch(stimulus, now)
        effects += endings.end_drain(self._state, now)
        effects += leaving.leave(self._state, now)
        effects += wake_up(self._state, now)
        return effects

    def _dispatch(self, stimulus: Stimulus, now: float) -> list[Effect]:
        match stimulus:
            case OpenRequested():
                return on_lifecycle.handle_opening(self._state, stimulus, now)
            case CloseRequested() if self._state.life is Life.OPENING:
                return self._hold(stimulus)  # after everything that was sent before it
            case Received():
                return self._from_attachment(stimulus, now)
            case EventAcked() | ResumeRequested() | SocketLost():
                return on_attachment.handle(self._state, stimulus, now)
            case (
                CloseRequested()
                | ReaderStalled()
                | StageLost()
                | StagesReleased()
                | ReleaseFailed()
            ):
                return endings.handle(self._state, stimulus, now)
            case DrainRequested() | DrainWithdrawn():
                return leaving.handle(self._state, stimulus)
            case StagesOpened() | OpenFailed():
                return self._from_stage(stimulus, now) + self._release_held(now)
            case (
                StagesConfigured()
                | ConfigureFailed()
                | UnitFinished()
                | UnitFailed()
                | SpeechArrived()
                | SpeechFinished()
                | SpeechFailed()
            ):
                return self._from_stage(stimulus, now)
            case Ticked():
                note_played(self._state, now)
                return fire(self._state, now)
            case _:
                # After the end there is silence; whatever was still on its way means nothing.
                return self._admit(stimulus, now)

    def _from_attachment(self, received: Received, now: float) -> list[Effect]:
        if not self.heeds(received.attachment):
            self.stale += 1
            return []
        self._state.attachment.spoke()
        self._state.lease.receive(now)
        note_played(self._state, now)
        return self._dispatch(received.command, now)

    def _from_stage(
        self,
        stimulus: StagesOpened
        | OpenFailed
        | StagesConfigured
        | ConfigureFailed
        | UnitFinished
        | UnitFailed
        | SpeechArrived
        | SpeechFinished
        | SpeechFailed,
        now: float,
    ) -> list[Effect]:
        if self._state.fence.judge(stimulus.fence) is not FenceVerdict.CURRENT:
            self.stale += 1  # the one place that says so
            return []
        self._state.lease.touch(now)
        note_played(self._state, now)
        match stimulus:
            case StagesOpened() | OpenFailed():
                return on_lifecycle.handle_opening(self._state, stimulus, now)
            case StagesConfigured() | ConfigureFailed():
                return on_lifecycle.handle_settings(self._state, stimulus, now)
            case _:
                return on_stage.handle(self._state, stimulus, now)

    def _admit(self, command: ClientCommand, now: float) -> list[Effect]:
        """Take a command now, keep it until the session is open, or drop it after the end."""
        self._state.lease.receive(now)
        note_played(self._state, now)
        if self._state.life is Life.OPENING:
            return self._hold(command)
        return self._from_client(command, now) if self._state.accepts_input else []

    def _hold(self, command: ClientCommand | CloseRequested) -> list[Effect]:
        if len(self._held) >= MAX_HELD:
            # A client that goes on like this before it has been answered is no client.
            return endings.close(self._state, "input_backpressure", code=endings.TRY_AGAIN_LATER)
        size = HELD_COMMAND_BYTES
        if isinstance(command, AudioAppended):
            size += len(command.pcm)
        elif isinstance(command, TextAppended | ItemCreated | ContextAppended):
            size += len(command.text)
            size += len(command.pcm) if isinstance(command, ItemCreated) else 0
        limit = self._state.limits.max_pending_input_bytes_per_session
        if self._held_bytes + size > limit:
            error = InputBackpressure("the session is still opening; send slower")
            self._held.append(EventRefused(error, command.event_id))
        else:
            self._held_bytes += size
            self._held.append(command)
        return []

    def _release_held(self, now: float) -> list[Effect]:
        """session.created precedes the answer to anything that the client said before it."""
        effects: list[Effect] = []
        while self._held:
            effects += self._dispatch(self._held.popleft(), now)
        return effects

    def _from_client(self, command: ClientCommand, now: float) -> list[Effect]:
        match command:
            case AudioAppended() | TextAppended() | InputCleared() | InputCancelled():
                return on_input.handle(self._state, command, now)
            case InputCommitted():
                return on_commit.handle(self._state, command, now)
            case (
                ResponseRequested()
                | ResponseCancelRequested()
                | OutputClearRequested()
                | BargedIn()
            ):
                return on_response.handle(self._state, command, now)
            case (
                ItemCreated() | ItemRetrieved() | ItemDeleted() | ItemTruncated() | PlaybackAcked()
            ):
                return on_item.handle(self._state, command)
            case SessionConfigured():
                return on_lifecycle.handle_settings(self._state, command, now)
            case ContextAppended():
                return on_context.handle(self._state, command, now)
            case HeartbeatReceived() | TurnSignalled() | InputMuteSet() | EventRefused():
                return on_lifecycle.handle_notice(self._state, command)
            case _:
                assert_never(command)

"""Performs what a session asks of the world: one small function per effect.

Rule 1: effects begin in the order they are asked for; what takes time goes on as a task of the
        session and comes back through the mailbox.
Rule 2: calls of a new epoch reach the stages only after the cancel that began it.
Rule 3: the speech of a unit is kept from Stage0's answer until Stage1 is given it, or until it is
        stale; it is never looked into.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Final, assert_never

from serve_app.audio.voice_sample import with_voice
from serve_app.clock import Clock, Timer, sleep_until
from serve_app.logs.log_lines import say, trouble
from serve_app.ports import Replicas, SpeechRef, StageOpener, StageSession
from serve_app.sessions.outbound import Outbound
from serve_app.tracing.traced_units import NO_TRACE, SessionTrace
from session.config import SessionLimits
from session.effects import (
    AttachSocket,
    CancelStages,
    CloseSocket,
    CloseStages,
    ConfigureStages,
    DetachSocket,
    Effect,
    Emit,
    OpenStages,
    Output,
    RefuseSocket,
    StageCall,
    SubmitUnit,
    Synthesize,
    TrimJournal,
    WakeAt,
)
from session.errors import (
    ClientError,
    DuplexError,
    StageContractBroken,
    StageError,
    StageUnavailable,
)
from session.events import ErrorRaised, Event
from session.fence import Fence, FenceVerdict
from session.ids import AttachmentId
from session.socket_events import ResyncRequired
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
    Ticked,
    UnitFailed,
    UnitFinished,
)

log = logging.getLogger(__name__)

MAX_KEPT_SPEECH: Final = 256
"""Units whose speech waits to be spoken. Answers that are only read never ask for theirs."""


class KeptSpeech:
    """References to speech that Stage0 has made and Stage1 has not been given yet."""

    def __init__(self) -> None:
        self._refs: dict[tuple[Fence, int], SpeechRef] = {}

    def __len__(self) -> int:
        return len(self._refs)

    def keep(self, fence: Fence, seq: int, speech: SpeechRef) -> None:
        """Hold the speech of unit `seq`; past the bound, let go of the oldest."""
        self._refs[_place(fence), seq] = speech
        if len(self._refs) > MAX_KEPT_SPEECH:
            del self._refs[next(iter(self._refs))]

    def take(self, fence: Fence, seq: int) -> SpeechRef | None:
        """Hand out the speech of unit `seq`; earlier units of its epoch will not be asked for."""
        epoch = _place(fence)
        speech = self._refs.get((epoch, seq))
        for key in [key for key in self._refs if key[0] == epoch and key[1] <= seq]:
            del self._refs[key]
        return speech

    def drop_stale(self, current: Fence) -> None:
        """Let go of everything that `current` has left behind."""
        for key in [key for key in self._refs if _is_stale(current, key[0])]:
            del self._refs[key]


@dataclass(slots=True)
class Shell:
    """What the effects of one session act upon."""

    open_stages: StageOpener
    clock: Clock
    limits: SessionLimits
    outbound: Outbound
    group: asyncio.TaskGroup
    post: Callable[[Stimulus], None]
    current_fence: Callable[[], Fence]
    answer_socket: Callable[[AttachmentId, Event | None], None]
    """Tells a socket that asked for the session why it does not get it, or None: it has it."""
    note_replicas: Callable[[Replicas], None]
    trace: SessionTrace = NO_TRACE
    stages: StageSession | None = None
    speech: KeptSpeech = field(default_factory=KeptSpeech)
    timer: Timer | None = None
    cancelling: asyncio.Task[None] | None = None
    watching: asyncio.Task[None] | None = None
    speaking: dict[asyncio.Task[None], Fence] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    now_s: float = 0.0
    """When the stimulus that is being dealt with came in."""

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin something that takes time, as a task of this session."""
        started = self.task(work)
        del started  # the group and `tasks` hold it

    def task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin something that takes time and may be cancelled or waited for."""
        task = self.group.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def end(self) -> None:
        """The session is over: nothing of it goes on."""
        if self.timer is not None:
            self.timer.cancel()
        for task in self.tasks:
            task.cancel()

    def opened(self) -> StageSession:
        """Return the stages; the kernel asks nothing of them before they are open."""
        if self.stages is None:
            raise StageUnavailable("the stages are not open")
        return self.stages


def perform(effect: Effect, shell: Shell) -> None:
    """Do one effect, or begin it."""
    match effect:
        case Emit() | CloseSocket() | AttachSocket() | DetachSocket() | TrimJournal():
            _put_out(effect, shell)
        case RefuseSocket():
            _refuse_socket(effect, shell)
        case WakeAt():
            _set_timer(effect, shell)
        case _:
            _call_stages(effect, shell)


def _call_stages(effect: StageCall, shell: Shell) -> None:
    match effect:
        case CancelStages():
            _cancel_stages(effect, shell)
        case Synthesize():
            _synthesize(effect, shell)
        case OpenStages():
            shell.start(_open_stages(effect, shell))
        case SubmitUnit():
            shell.start(_submit_unit(effect, shell))
        case ConfigureStages():
            shell.start(_configure_stages(effect, shell))
        case CloseStages():
            _close_stages(effect, shell)
        case _:
            assert_never(effect)


def _put_out(effect: Output, shell: Shell) -> None:
    shell.outbound.perform(effect, at_s=shell.now_s)
    if isinstance(effect, AttachSocket):
        shell.answer_socket(effect.attachment, None)


async def release(stages: StageSession, fence: Fence, clock: Clock, retry_s: float) -> None:
    """Close both stages; a release that fails is tried again, for as long as it takes."""
    while True:
        try:
            await stages.close(fence)
        except StageError as error:
            say(log, logging.WARNING, "release failed, will try again", fence, trouble(error))
            await sleep_until(clock, clock.now() + retry_s)
        else:
            return


def _refuse_socket(effect: RefuseSocket, shell: Shell) -> None:
    match effect.answer:
        case ResyncRequired() as event:
            shell.answer_socket(effect.attachment, event)
        case error:
            shell.answer_socket(effect.attachment, ErrorRaised(error, effect.event_id))


def _set_timer(effect: WakeAt, shell: Shell) -> None:
    if shell.timer is not None:
        shell.timer.cancel()
    shell.timer = shell.clock.call_at(effect.at_s, lambda: shell.post(Ticked()))


async def _open_stages(effect: OpenStages, shell: Shell) -> None:
    try:
        runtime = await with_voice(effect.runtime)
        stages = await shell.open_stages(effect.fence, runtime)
    except DuplexError as error:
        shell.post(OpenFailed(effect.fence, error))
        return
    shell.stages = stages
    shell.note_replicas(stages.replicas)
    shell.watching = shell.task(_watch(stages, shell))
    shell.post(StagesOpened(effect.fence))


async def _watch(stages: StageSession, shell: Shell) -> None:
    stage, error = await stages.wait_lost()
    lost = error if isinstance(error, DuplexError) else StageUnavailable(str(error))
    shell.post(StageLost(stage, lost))


async def _submit_unit(effect: SubmitUnit, shell: Shell) -> None:
    await _after_cancel(shell)
    try:
        appended = await shell.opened().append(
            effect.fence,
            seq=effect.seq,
            operation_id=effect.operation_id,
            unit=effect.unit,
            config_generation=effect.config_generation,
            trace=shell.trace.unit(effect.fence, effect.seq),
        )
    except (StageError, ClientError) as error:
        shell.post(UnitFailed(effect.fence, effect.seq, error))
        return
    is_spoken = appended.result.speech_follows
    if is_spoken and not _is_stale(shell.current_fence(), effect.fence):
        shell.speech.keep(effect.fence, effect.seq, appended.speech)
    shell.post(UnitFinished(effect.fence, effect.seq, appended.result))


def _synthesize(effect: Synthesize, shell: Shell) -> None:
    speech = shell.speech.take(effect.fence, effect.seq)
    if speech is None:
        missing = StageContractBroken(f"Stage0 gave no speech for unit {effect.seq}")
        shell.post(SpeechFailed(effect.fence, effect.seq, missing))
        return
    task = shell.task(_speak(effect, speech, shell))
    shell.speaking[task] = effect.fence
    task.add_done_callback(lambda done: shell.speaking.pop(done, None))


async def _speak(effect: Synthesize, speech: SpeechRef, shell: Shell) -> None:
    await _after_cancel(shell)
    fence, seq = effect.fence, effect.seq
    try:
        trace = shell.trace.speech(fence, seq)
        # A cancelled task ends the port's generator where it waits, and so the remote call.
        async for chunk in shell.opened().speak(fence, seq=seq, speech=speech, trace=trace):
            shell.post(SpeechArrived(fence, seq, chunk))
    except StageError as error:
        shell.post(SpeechFailed(fence, seq, error))
    else:
        shell.post(SpeechFinished(fence, seq))


def _cancel_stages(effect: CancelStages, shell: Shell) -> None:
    shell.speech.drop_stale(effect.current)
    for task, fence in shell.speaking.items():
        if _is_stale(effect.current, fence):
            task.cancel()
    shell.cancelling = shell.task(_cancel(effect, shell, after=shell.cancelling))


async def _cancel(effect: CancelStages, shell: Shell, after: asyncio.Task[None] | None) -> None:
    if after is not None:
        await asyncio.wait({after})
    try:
        await shell.opened().cancel(
            effect.cancelled, effect.current, effect.heard, effect.consumed_seq
        )
    except StageError as error:
        # The doors refuse the old fence from the next call on; a lost stage reports itself.
        say(log, logging.WARNING, "cancel failed", effect.cancelled, trouble(error))


async def _configure_stages(effect: ConfigureStages, shell: Shell) -> None:
    await _after_cancel(shell)
    try:
        # It can not change, and may be megabytes.
        runtime = replace(effect.runtime, voice_sample=b"")
        await shell.opened().configure(effect.fence, runtime, effect.generation)
    except (StageError, ClientError) as error:
        shell.post(ConfigureFailed(effect.fence, effect.generation, error))
    else:
        shell.post(StagesConfigured(effect.fence, effect.generation))


def _close_stages(effect: CloseStages, shell: Shell) -> None:
    if shell.watching is not None:
        shell.watching.cancel()
    for task in shell.speaking:
        task.cancel()
    shell.start(_close(effect, shell))


async def _close(effect: CloseStages, shell: Shell) -> None:
    await _after_cancel(shell)
    if shell.stages is not None:
        try:
            await shell.stages.close(effect.fence)
        except StageError as error:
            shell.post(ReleaseFailed(effect.fence, error))
            return
        shell.stages = None
    shell.post(StagesReleased(effect.fence))


async def _after_cancel(shell: Shell) -> None:
    """Let the stages enter the present epoch first."""
    if shell.cancelling is not None:
        await asyncio.wait({shell.cancelling})


def _place(fence: Fence) -> Fence:
    """The fence without its turn, which moves between a unit's answer and its speech."""
    return Fence(fence.session_id, fence.incarnation, fence.epoch, 0)


def _is_stale(current: Fence, presented: Fence) -> bool:
    return current.judge(presented) is FenceVerdict.STALE

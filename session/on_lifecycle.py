"""Handlers for a session's birth, its settings, and what changes nothing else."""

from collections import deque
from dataclasses import replace
from typing import Final, assert_never

from session.config import MAX_INSTRUCTIONS_CHARS, ConfigPatch, SessionConfig
from session.effects import CloseSocket, Effect, Emit, OpenStages
from session.endings import (
    INTERNAL_ERROR,
    POLICY_VIOLATION,
    SERVICE_RESTART,
    TRY_AGAIN_LATER,
    give_back,
)
from session.errors import (
    ClientError,
    DuplexError,
    InputBackpressure,
    LimitError,
    ServerDraining,
    UnsupportedOption,
)
from session.events import (
    ErrorRaised,
    HeartbeatAnswered,
    SessionCreated,
    SessionUpdated,
    TurnMoved,
)
from session.fitting import UPDATE_CODES, fitted
from session.lifecycle import Life, LifeTrigger, TurnTrigger, move_life, move_turn
from session.messages import tell
from session.pump import pump
from session.speech_edges import close_open_speech
from session.state import PendingUpdate, SessionState, make_detector
from session.stimuli import (
    ConfigureFailed,
    EventRefused,
    HeartbeatReceived,
    OpenFailed,
    OpenRequested,
    SessionConfigured,
    StagesConfigured,
    StagesOpened,
    TurnSignalled,
)
from session.stream_events import ContextAccepted, InputMuteChanged
from session.stream_stimuli import ContextUse, InputMuteSet
from session.vad import SpeechDetector

MAX_WAITING_UPDATES: Final = 16
"""Updates that may wait for the stages, each with all settings, a voice recording among them."""

Opening = OpenRequested | StagesOpened | OpenFailed
Settings = SessionConfigured | StagesConfigured | ConfigureFailed
Notice = HeartbeatReceived | TurnSignalled | InputMuteSet | EventRefused


def handle_opening(state: SessionState, stimulus: Opening, now: float) -> list[Effect]:
    """Apply one step of the open."""
    match stimulus:
        case OpenRequested():
            state.attachment.attach_first(stimulus.attachment, is_resumable=stimulus.is_resumable)
            state.lease.open(now)
            state.open_event_id = stimulus.event_id
            state.detector = make_detector(state.config)
            return [OpenStages(state.fence, state.runtime(state.config))]
        case StagesOpened():
            return _opened(state, now)
        case OpenFailed(error=error):
            was_abandoned = state.life is Life.ABANDONED
            state.life = move_life(state.life, LifeTrigger.OPEN_FAILED)
            if was_abandoned:
                return [CloseSocket(state.close_code, state.close_reason)]
            code = close_code(error)
            refused = ErrorRaised(error, state.open_event_id)
            return [Emit(refused), CloseSocket(code, error.wire_code)]
        case _:
            assert_never(stimulus)


def close_code(error: DuplexError) -> int:
    """Return what the socket of a session is closed with that could not open."""
    match error:
        case LimitError():
            return TRY_AGAIN_LATER
        case ClientError():
            return POLICY_VIOLATION
        case ServerDraining():
            return SERVICE_RESTART
        case _:
            return INTERNAL_ERROR


def handle_settings(state: SessionState, stimulus: Settings, now: float) -> list[Effect]:
    """Apply one step of a settings change."""
    match stimulus:
        case SessionConfigured():
            return _configure(state, stimulus, now)
        case StagesConfigured(generation=generation):
            update = _answered(state, generation)
            if update is None:
                return []
            state.config_generation = generation
            adopted = _adopt(state, update.patch, update.candidate, update.event_id)
            return adopted + pump(state, now)
        case ConfigureFailed(generation=generation, error=error):
            update = _answered(state, generation)
            if update is None:
                return []
            refused = [Emit(ErrorRaised(error, update.event_id)), *_without_refused(state)]
            return [*refused, *pump(state, now)]
        case _:
            assert_never(stimulus)


def handle_notice(state: SessionState, stimulus: Notice) -> list[Effect]:
    """Apply a stimulus that changes no ledger by itself."""
    match stimulus:
        case HeartbeatReceived():
            return [Emit(HeartbeatAnswered(state.fence))]
        case TurnSignalled():
            return _signal(state, stimulus)
        case InputMuteSet(is_muted=is_muted, event_id=event_id):
            return [Emit(InputMuteChanged(is_muted, event_id))]
        case EventRefused(error=error, event_id=event_id):
            return [Emit(ErrorRaised(error, event_id))]
        case _:
            assert_never(stimulus)


def _opened(state: SessionState, now: float) -> list[Effect]:
    was_abandoned = state.life is Life.ABANDONED
    state.life = move_life(state.life, LifeTrigger.OPENED)
    if was_abandoned:
        return give_back(state)
    state.lease.open(now)
    token: str | None = None
    if state.attachment.is_resumable:
        token = state.ids.token()
        state.attachment.give_token(token)
    snapshot = state.snapshot()
    created = SessionCreated(snapshot, state.attachment.generation, token)
    effects: list[Effect] = [Emit(created), Emit(SessionUpdated(snapshot, state.open_event_id))]
    for message in state.config.opening_messages:
        effects += tell(state, message)
    return effects + pump(state, now)


def _configure(state: SessionState, configured: SessionConfigured, now: float) -> list[Effect]:
    candidate = _candidate(state, configured.patch, is_lenient=configured.is_lenient)
    error: DuplexError | None = _update_refusal(state, candidate)
    if error is None and len(state.updates) >= MAX_WAITING_UPDATES:
        error = InputBackpressure(
            f"{MAX_WAITING_UPDATES} updates wait for the model; send this one again later"
        )
    if error is not None:
        return [Emit(ErrorRaised(error, configured.event_id))]
    unchanged = state.runtime(candidate) == state.runtime(_newest_candidate(state))
    if unchanged and not state.updates:
        # The stages know generations that they were told of, so this is none.
        return _adopt(state, configured.patch, candidate, configured.event_id) + pump(state, now)
    state.updates.append(
        PendingUpdate(
            configured.patch, candidate, configured.event_id, is_lenient=configured.is_lenient
        )
    )
    return pump(state, now)


def _candidate(state: SessionState, patch: ConfigPatch, *, is_lenient: bool) -> SessionConfig:
    """Return what the settings become with a patch."""
    before = _newest_candidate(state)
    after = patch.apply_to(before)
    return fitted(after, before, state.profile) if is_lenient else after


def _newest_candidate(state: SessionState) -> SessionConfig:
    """Settings as they will be once every waiting update is accepted."""
    return state.updates[-1].candidate if state.updates else state.config


def _without_refused(state: SessionState) -> list[Effect]:
    """Apply what waits to the settings that hold, so that nothing of a refused update is in it."""
    waiting, state.updates = state.updates, deque()
    refused: list[Effect] = []
    for update in waiting:
        candidate = _candidate(state, update.patch, is_lenient=update.is_lenient)
        error = _update_refusal(state, candidate)
        if error is None:
            state.updates.append(replace(update, candidate=candidate))
        else:
            refused.append(Emit(ErrorRaised(error, update.event_id)))
    return refused


def _update_refusal(state: SessionState, candidate: SessionConfig) -> ClientError | None:
    config = state.config
    if candidate.conflict:
        return UnsupportedOption(candidate.conflict, param="session.overlap_policy")
    if state.profile.tools and candidate.tools_fault is not None:
        return candidate.tools_fault.error()
    if candidate.model != config.model:
        return UnsupportedOption(
            "the model of a session can not change",
            code="model_update_unsupported",
            param="session.model",
        )
    if len(candidate.instructions or "") > MAX_INSTRUCTIONS_CHARS:
        return UnsupportedOption(
            f"the instructions would be longer than {MAX_INSTRUCTIONS_CHARS} characters",
            code="string_above_max_length",
            param="session.instructions",
        )
    for name in UPDATE_CODES:
        changed = getattr(candidate, name) != getattr(config, name)
        if changed and name not in state.profile.updatable:
            return UnsupportedOption(
                f"{config.model} can not change {name} during a session",
                code=UPDATE_CODES[name],
                param=f"session.{name}",
            )
    if state.profile.ref_audio and candidate.ref_audio != config.ref_audio:
        return UnsupportedOption(
            "the recording of the voice can not change during a session",
            code="ref_audio_update_unsupported",
            param="session.ref_audio",
        )
    if candidate.voice != config.voice and state.response.started:
        return UnsupportedOption(
            "the voice can not change after the first audio",
            code="voice_update_after_audio_unsupported",
            param="session.voice",
        )
    return None


def _answered(state: SessionState, generation: int) -> PendingUpdate | None:
    if state.updates and state.updates[0].generation == generation:
        return state.updates.popleft()
    return None


def _adopt(
    state: SessionState, patch: ConfigPatch, candidate: SessionConfig, event_id: str | None
) -> list[Effect]:
    had = state.config.turn_detection
    effects = close_open_speech(state) if candidate.turn_detection is None else []
    state.config = candidate
    if candidate.turn_detection != had:
        state.detector = _changed_detector(state)
    if patch.is_appendix:
        return [*effects, Emit(ContextAccepted(ContextUse.INSTRUCTIONS, event_id))]
    return [*effects, Emit(SessionUpdated(state.snapshot(), event_id))]


def _changed_detector(state: SessionState) -> SpeechDetector | None:
    """Keep the position and an open onset when only thresholds change."""
    detector, settings = state.detector, state.config.turn_detection
    if detector is None or settings is None:
        return make_detector(state.config)
    return replace(detector, settings=settings)


def _signal(state: SessionState, signal: TurnSignalled) -> list[Effect]:
    """Local markers only: none of them calls a stage (seed: Non-cancel signal semantics)."""
    triggers = {
        "user_started": TurnTrigger.USER_STARTED,
        "user_committed": TurnTrigger.USER_COMMITTED,
        "assistant_started": TurnTrigger.ANSWER_STARTED,
        "assistant_done": TurnTrigger.ANSWER_ENDED,
        "playback_ack": TurnTrigger.ANSWER_HEARD,
    }
    trigger = triggers.get(signal.signal)
    if trigger is None:
        error = UnsupportedOption(
            f"unknown turn.signal event {signal.signal!r}", code="bad_event", param="event"
        )
        return [Emit(ErrorRaised(error, signal.event_id))]
    state.turn = move_turn(state.turn, trigger)
    return [Emit(TurnMoved(state.fence, signal.signal, state.turn.value))]

"""A projector to test with, and one sample of every event of the kernel."""

import json
from dataclasses import replace
from typing import Any

from session.config import AudioEncoding, AudioFormat, SessionLimits, default_config
from session.errors import IllegalNow
from session.events import (
    AnswerItemOpened,
    ErrorRaised,
    Event,
    FunctionCalled,
    HeartbeatAnswered,
    InputBufferCleared,
    InputItemCommitted,
    InputTimedOut,
    ListenDecided,
    OutputBufferCleared,
    OverlapDecided,
    PlaybackAdvanced,
    ResponseFinished,
    ResponseStarted,
    SessionClosed,
    SessionCreated,
    SessionExpired,
    SessionUpdated,
    SpeakDecided,
    SpeechDelta,
    TurnMoved,
    UserSpeechStarted,
    UserSpeechStopped,
)
from session.fence import Fence
from session.ids import ItemId, ResponseId, SessionId
from session.item_events import (
    InputTranscribed,
    ItemAdded,
    ItemCut,
    ItemDone,
    ItemRemoved,
    ItemShown,
    ItemView,
    TextMark,
)
from session.model_profile import ModelProfile
from session.realtime.dialects.audio_pieces import Encode
from session.realtime.dialects.duplex import DuplexProjector
from session.realtime.facts import ServerFacts
from session.snapshot import Playback, SessionSnapshot
from session.socket_events import ResyncRequired, SessionExpiring, SessionReplaced, SessionResumed
from session.stream_events import ContextAccepted, InputCounted, InputMuteChanged
from session.stream_stimuli import ContextUse
from tests.fakes.ids import SeqIds

PCM16 = AudioFormat(AudioEncoding.PCM16, 24_000)
FENCE = Fence(SessionId("sess_1"), incarnation=0, epoch=0, turn=0)
NEXT = FENCE.next_epoch()
RESPONSE = ResponseId("resp_1")
ITEM = ItemId("item_resp_1")
USER_ITEM = ItemId("item_1")
QUIET_CONFIG = default_config("test-model", ModelProfile())
SNAPSHOT = SessionSnapshot(FENCE, "open", "idle", QUIET_CONFIG, Playback())
USER_SPEECH = ItemView(USER_ITEM, "user", "completed", "", is_audio=True, audio_ms=900)
ANSWER = ItemView(
    ITEM, "assistant", "completed", "Hello there.", True, audio_ms=200, marks=(TextMark(12, 200),)
)
SPOKEN = Playback(generated_ms=200, sent_ms=200)


def facts(*, max_sessions: int = 4, profile: ModelProfile | None = None) -> ServerFacts:
    return ServerFacts(
        "test-model", profile or ModelProfile(), max_sessions, SessionLimits(max_sessions=9)
    )


def as_is(pcm: bytes, audio_format: AudioFormat) -> bytes:
    """Stand for the encoder of the format that the model speaks itself."""
    assert audio_format == PCM16
    return pcm


def projector(encode: Encode = as_is) -> DuplexProjector:
    return DuplexProjector(facts=facts(), encode=encode)


def texts(by: DuplexProjector, *events: Event) -> list[str]:
    """Project events in order and write each wire event."""
    ids = SeqIds()
    return [sent.to_text(ids.new("event")) for event in events for sent in by.project(event)]


def project(*events: Event, by: DuplexProjector | None = None) -> list[dict[str, Any]]:
    """Project events in order by one projector; return what is sent, as read by a client."""
    projecting = by or projector()
    return [json.loads(text) for text in texts(projecting, *events)]


def types(*events: Event) -> list[str]:
    """Return the types of what is sent for events."""
    return [sent["type"] for sent in project(*events)]


STARTED = ResponseStarted(FENCE, RESPONSE, ITEM, USER_ITEM, ("text", "audio"), PCM16)
SPEAK = SpeakDecided(FENCE, RESPONSE, ITEM)
DELTA = SpeechDelta(
    fence=FENCE,
    response_id=RESPONSE,
    item_id=ITEM,
    pcm=bytes(4_800),
    transcript="Hello ",
    audio_ms=100,
    marks=(TextMark(6, 100),),
    playback=Playback(100, 100),
    output_format=PCM16,
)
LAST_DELTA = replace(
    DELTA,
    transcript="there.",
    audio_ms=200,
    marks=(TextMark(12, 200),),
    playback=SPOKEN,
    is_turn_end=True,
)
FINISHED = ResponseFinished(
    fence=FENCE,
    current=FENCE,
    response_id=RESPONSE,
    item=ANSWER,
    previous_item_id=USER_ITEM,
    status="completed",
    reason="stop",
    playback=SPOKEN,
    is_committed=False,
    output_modalities=("text", "audio"),
)
CALL = ItemView(
    ItemId("item_call"), "assistant", "completed", '{"city":"Oslo"}', False,
    call_id="call_1", call_name="look_up",
)  # fmt: skip
CALLED = FunctionCalled(RESPONSE, CALL, USER_ITEM, output_index=0)
OPENED = AnswerItemOpened(RESPONSE, ITEM, USER_ITEM, output_index=0, is_text_only=False)
CANCELLED = replace(
    FINISHED,
    current=NEXT,
    status="cancelled",
    reason="turn_detected",
    item=replace(ANSWER, status="incomplete", text="Hello"),
    playback=Playback(200, 200, 100, 100),
    is_committed=True,
)

STREAM_SAMPLES: tuple[Event, ...] = (
    InputCounted(1_200),
    ContextAccepted(ContextUse.THINKING, "c-2"),
    InputMuteChanged(is_muted=True, client_event_id="c-3"),
)
"""What only a wire without turns leads to."""

SAMPLES: tuple[Event, ...] = (
    SessionCreated(SNAPSHOT, 1, "token"),
    SessionResumed(SNAPSHOT, 2, "token"),
    SessionReplaced(FENCE, 1),
    ResyncRequired(FENCE, "journal_gap", 3, 9),
    SessionExpiring(FENCE, "max_session_duration", 60_000),
    SessionUpdated(SNAPSHOT),
    SessionClosed(FENCE, "client_close"),
    SessionExpired(FENCE, "idle_ttl_expired"),
    HeartbeatAnswered(FENCE),
    UserSpeechStarted(1_040, USER_ITEM),
    UserSpeechStopped(2_860, USER_ITEM),
    InputItemCommitted(FENCE, USER_ITEM, None, 1),
    InputTimedOut(13_216, 19_232, USER_ITEM),
    InputBufferCleared(),
    ItemAdded(USER_SPEECH, None),
    ItemDone(USER_SPEECH, None),
    InputTranscribed(USER_ITEM, "How warm is it?", 1_820),
    ItemShown(ANSWER),
    ItemRemoved(USER_ITEM),
    ItemCut(ITEM, 0, 600),
    STARTED,
    OPENED,
    CALLED,
    SPEAK,
    DELTA,
    FINISHED,
    ListenDecided(FENCE, "model_listen", is_model_listen=True),
    OutputBufferCleared(RESPONSE),
    PlaybackAdvanced(FENCE, RESPONSE, ITEM, SPOKEN, is_history_committed=True),
    OverlapDecided(FENCE, "listen_only", "listen", "policy_listen_only", 200, 400),
    TurnMoved(FENCE, "user_started", "user_speaking"),
    ErrorRaised(IllegalNow("nothing to commit", code="input_audio_buffer_empty"), "c-1"),
)

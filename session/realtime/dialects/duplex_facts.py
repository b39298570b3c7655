"""The events of the duplex wire that say one thing at once; those of an answer are in `duplex`."""

from typing import Literal, assert_never

from session import events as kernel
from session import item_events as items
from session import socket_events
from session.realtime import server_events as wire
from session.realtime import session_events as session_wire
from session.realtime.capabilities import Capabilities
from session.realtime.dialects import shapes
from session.realtime.event_objects import (
    AcknowledgedFact,
    CommittedFact,
    DurationUsage,
    ListeningResponse,
    ListenMetadata,
    OverlapMetadata,
    SpeakMetadata,
)
from session.realtime.server_objects import ItemObject
from session.realtime.session_events import ServerEvent

SessionEvent = (
    kernel.SessionCreated
    | socket_events.SessionResumed
    | socket_events.SessionReplaced
    | socket_events.ResyncRequired
    | socket_events.SessionExpiring
    | kernel.SessionUpdated
    | kernel.SessionClosed
    | kernel.SessionExpired
    | kernel.HeartbeatAnswered
    | kernel.TurnMoved
    | kernel.ErrorRaised
)
InputEvent = (
    kernel.UserSpeechStarted
    | kernel.UserSpeechStopped
    | kernel.InputItemCommitted
    | kernel.InputTimedOut
    | kernel.InputBufferCleared
    | items.InputTranscribed
)
ItemEvent = items.ItemAdded | items.ItemDone | items.ItemShown | items.ItemRemoved | items.ItemCut
OutputEvent = (
    kernel.ListenDecided
    | kernel.SpeakDecided
    | kernel.OutputBufferCleared
    | kernel.PlaybackAdvanced
    | kernel.OverlapDecided
    | kernel.FunctionCalled
)
Fact = SessionEvent | InputEvent | ItemEvent | OutputEvent


def facts(event: Fact, capabilities: Capabilities) -> list[ServerEvent]:
    """Project one fact, whatever it is of."""
    match event:
        case (
            kernel.SessionCreated()
            | socket_events.SessionResumed()
            | socket_events.SessionReplaced()
            | socket_events.ResyncRequired()
            | socket_events.SessionExpiring()
            | kernel.SessionUpdated()
            | kernel.SessionClosed()
            | kernel.SessionExpired()
            | kernel.HeartbeatAnswered()
            | kernel.TurnMoved()
            | kernel.ErrorRaised()
        ):
            return session_events(event, capabilities)
        case (
            kernel.UserSpeechStarted()
            | kernel.UserSpeechStopped()
            | kernel.InputItemCommitted()
            | kernel.InputTimedOut()
            | kernel.InputBufferCleared()
            | items.InputTranscribed()
        ):
            return input_events(event)
        case (
            items.ItemAdded()
            | items.ItemDone()
            | items.ItemShown()
            | items.ItemRemoved()
            | items.ItemCut()
        ):
            return item_events(event)
        case (
            kernel.ListenDecided()
            | kernel.SpeakDecided()
            | kernel.OutputBufferCleared()
            | kernel.PlaybackAdvanced()
            | kernel.OverlapDecided()
            | kernel.FunctionCalled()
        ):
            return output_events(event)
        case _:
            assert_never(event)


def session_events(event: SessionEvent, capabilities: Capabilities) -> list[ServerEvent]:
    """Project what happened to the session."""
    match event:
        case (
            kernel.SessionCreated()
            | socket_events.SessionResumed()
            | socket_events.SessionReplaced()
            | socket_events.ResyncRequired()
        ):
            return [_attached(event, capabilities)]
        case kernel.SessionUpdated(session):
            return [
                session_wire.SessionUpdated(session=shapes.session_object(session, capabilities))
            ]
        case kernel.SessionClosed(fence, reason):
            return [session_wire.SessionClosed(session_id=fence.session_id, reason=reason)]
        case kernel.SessionExpired(fence, reason):
            return [session_wire.SessionExpired(session_id=fence.session_id, reason=reason)]
        case socket_events.SessionExpiring(fence, reason, expires_in_ms):
            return [
                session_wire.SessionExpiring(
                    session_id=fence.session_id, reason=reason, expires_in_ms=expires_in_ms
                )
            ]
        case kernel.HeartbeatAnswered(fence):
            return [session_wire.SessionHeartbeatAck(session_id=fence.session_id)]
        case kernel.TurnMoved(fence, signal, turn_state):
            return [
                wire.TurnEvent(
                    session_id=fence.session_id,
                    event=signal,
                    turn_state=turn_state,
                    epoch=fence.epoch,
                )
            ]
        case kernel.ErrorRaised(error, event_id):
            return [wire.ErrorEvent(error=shapes.error_object(error, event_id))]
        case _:
            assert_never(event)


def _attached(
    event: kernel.SessionCreated
    | socket_events.SessionResumed
    | socket_events.SessionReplaced
    | socket_events.ResyncRequired,
    capabilities: Capabilities,
) -> ServerEvent:
    """Project what concerns the socket more than the session."""
    match event:
        case kernel.SessionCreated(session, generation, token):
            return session_wire.SessionCreated(
                session=shapes.session_object(session, capabilities),
                attachment_generation=None if token is None else generation,
                resume_token=token,
            )
        case socket_events.SessionResumed(session, generation, resumed_token):
            return session_wire.SessionResumed(
                session_id=session.fence.session_id,
                session=shapes.session_object(session, capabilities),
                attachment_generation=generation,
                resume_token=resumed_token,
            )
        case socket_events.SessionReplaced(fence, generation):
            return session_wire.SessionReplaced(
                session_id=fence.session_id, attachment_generation=generation
            )
        case socket_events.ResyncRequired(fence, reason):
            is_gap = reason == "journal_gap"
            return session_wire.SessionResyncRequired(
                session_id=fence.session_id,
                reason="journal_gap" if is_gap else "journal_overflow",
                oldest_server_event_seq=event.oldest_seq,
                newest_server_event_seq=event.newest_seq,
            )
        case _:
            assert_never(event)


def input_events(event: InputEvent) -> list[ServerEvent]:
    """Project what happened to the input buffer."""
    match event:
        case kernel.UserSpeechStarted(audio_start_ms, item_id):
            return [wire.SpeechStarted(audio_start_ms=audio_start_ms, item_id=item_id)]
        case kernel.UserSpeechStopped(audio_end_ms, item_id):
            return [wire.SpeechStopped(audio_end_ms=audio_end_ms, item_id=item_id)]
        case kernel.InputItemCommitted():
            return [
                wire.InputCommitted(
                    previous_item_id=event.previous_item_id,
                    item_id=event.item_id,
                    event=_committed(event),
                )
            ]
        case kernel.InputTimedOut(audio_start_ms, audio_end_ms, item_id):
            return [
                wire.InputTimedOut(
                    audio_start_ms=audio_start_ms, audio_end_ms=audio_end_ms, item_id=item_id
                )
            ]
        case kernel.InputBufferCleared():
            return [wire.InputCleared()]
        case items.InputTranscribed(item_id, transcript, audio_ms):
            return [
                wire.TranscriptionCompleted(
                    item_id=item_id,
                    transcript=shapes.fitted(transcript),
                    usage=DurationUsage(seconds=audio_ms / 1000),
                )
            ]
        case _:
            assert_never(event)


def item_events(event: ItemEvent) -> list[ServerEvent]:
    """Project what happened to an item that is not an answer's."""
    match event:
        case items.ItemAdded(item, previous):
            return item_joined(shapes.item_object(item), previous)
        case items.ItemDone(item, previous):
            return [wire.ItemDone(previous_item_id=previous, item=shapes.item_object(item))]
        case items.ItemShown(item):
            return [wire.ItemRetrieved(item=shapes.item_object(item))]
        case items.ItemRemoved(item_id):
            return [wire.ItemDeleted(item_id=item_id)]
        case items.ItemCut(item_id, content_index, audio_end_ms):
            return [
                wire.ItemTruncated(
                    item_id=item_id, content_index=content_index, audio_end_ms=audio_end_ms
                )
            ]
        case _:
            assert_never(event)


def item_joined(item: ItemObject, previous: str | None) -> list[ServerEvent]:
    """Return both events, by the new name and the old, that an item joined the conversation."""
    return [
        wire.ItemAdded(previous_item_id=previous, item=item),
        wire.ItemCreated(previous_item_id=previous, item=item),
    ]


def output_events(event: OutputEvent) -> list[ServerEvent]:
    """Project decisions, and what became of output."""
    match event:
        case kernel.ListenDecided():
            return [_listen(event)]
        case kernel.SpeakDecided():
            return [_speak(event)]
        case kernel.OutputBufferCleared(response_id):
            return [wire.OutputBufferCleared(response_id=response_id)]
        case kernel.PlaybackAdvanced():
            return [wire.PlaybackAcknowledged(event=_acknowledged(event))]
        case kernel.FunctionCalled():
            return _called(event)
        case kernel.OverlapDecided(fence):
            return [
                wire.OverlapDecision(
                    session_id=fence.session_id,
                    epoch=fence.epoch,
                    policy=event.policy,
                    action=event.action,
                    reason=event.reason,
                    metadata=OverlapMetadata(
                        duration_ms=event.duration_ms, overlap_speech_ms=event.overlap_speech_ms
                    ),
                )
            ]
        case _:
            assert_never(event)


def _called(event: kernel.FunctionCalled) -> list[ServerEvent]:
    done = shapes.call_object(event.item)
    begun = done.model_copy(update={"status": "in_progress", "arguments": ""})
    response_id, index = event.response_id, event.output_index
    previous = event.previous_item_id
    joined = [] if event.is_out_of_band else item_joined(begun, previous)
    call: list[ServerEvent] = [
        *joined,
        wire.OutputItemAdded(response_id=response_id, output_index=index, item=begun),
        wire.FunctionCallArgumentsDelta(
            response_id=response_id,
            item_id=done.id,
            output_index=index,
            call_id=done.call_id,
            delta=done.arguments,
        ),
        wire.FunctionCallArgumentsDone(
            response_id=response_id,
            item_id=done.id,
            output_index=index,
            call_id=done.call_id,
            name=done.name,
            arguments=done.arguments,
        ),
        wire.OutputItemDone(response_id=response_id, output_index=index, item=done),
    ]
    if not event.is_out_of_band:
        call.append(wire.ItemDone(previous_item_id=previous, item=done))
    return call


def _listen(event: kernel.ListenDecided) -> wire.ResponseListen:
    return wire.ResponseListen(
        session_id=event.fence.session_id,
        epoch=event.fence.epoch,
        response_id=event.response_id,
        response=ListeningResponse(
            id=event.response_id,
            metadata=ListenMetadata(reason=event.reason, model_listen=event.is_model_listen),
        ),
    )


def _speak(event: kernel.SpeakDecided) -> wire.ResponseSpeak:
    return wire.ResponseSpeak(
        response_id=event.response_id,
        item_id=event.item_id,
        metadata=SpeakMetadata(session_id=event.fence.session_id, epoch=event.fence.epoch),
    )


def _committed(event: kernel.InputItemCommitted) -> CommittedFact:
    is_deferred: Literal[True] | None = True if event.is_deferred else None
    return CommittedFact(
        session_id=event.fence.session_id,
        turn_id=event.fence.turn if event.turn is None else event.turn,
        epoch=event.fence.epoch,
        history_len=event.history_len,
        realtime_item_id=event.item_id,
        overlap_deferred=is_deferred,
        response_create_deferred=is_deferred,
        empty=True if event.is_empty else None,
        is_speech=None if event.is_speech else False,
        no_response=True if event.expects_no_response else None,
        overlap_ack=True if event.is_overlap_ack else None,
    )


def _acknowledged(event: kernel.PlaybackAdvanced) -> AcknowledgedFact:
    return AcknowledgedFact(
        session_id=event.fence.session_id,
        epoch=event.fence.epoch,
        response_id=event.response_id,
        item_id=event.item_id,
        played_ms=event.playback.played_ms,
        committed_ms=event.playback.committed_ms,
        truncate=event.is_truncated,
        playback=shapes.playback_object(event.playback),
        history_committed=event.is_history_committed,
    )

"""The OpenAI Realtime wire: `/v1/realtime`.

Rule 1: names, literals and shapes of the standard only. Events that it does not have are shown to a
        client that has used one itself, and then as the duplex dialect has them.
Rule 2: an answer's events come in one order: created, rate limits, item, part, deltas, the done
        events from the inside out, response.done. What is closed was open.
Rule 3: a transcript's or text's done event is its deltas, joined.
Rule 4: an item is told of after the commit that made it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import assert_never

from session import events as kernel
from session import item_events as items
from session import socket_events
from session.config import SessionConfig
from session.ids import ResponseId
from session.outbox import WireEvent
from session.realtime.dialects import duplex_facts
from session.realtime.dialects import openai_shapes as shapes
from session.realtime.dialects.audio_pieces import Encode
from session.realtime.dialects.openai_answers import AnswerWriter
from session.realtime.event_objects import DurationUsage
from session.realtime.facts import ServerFacts
from session.realtime.openai import server_events as wire
from session.realtime.openai.objects import ItemObject
from session.realtime.opening import Opening

VENDOR_EVENTS = (
    kernel.HeartbeatAnswered,
    kernel.ListenDecided,
    kernel.SpeakDecided,
    kernel.PlaybackAdvanced,
    kernel.OverlapDecided,
    kernel.TurnMoved,
    kernel.SessionClosed,
    socket_events.SessionExpiring,
)
"""What the standard has no event for."""


@dataclass(slots=True)
class _Known:
    """What earlier events have told."""

    is_update_due: bool
    """Whether the settings that a session opens with were asked for by the client."""
    config: SessionConfig | None = None
    """None before the session is open."""
    uncommitted: items.ItemAdded | None = None
    """A spoken item whose commit has not been told yet."""
    answers: dict[ResponseId, AnswerWriter] = field(default_factory=dict)


class OpenAIProjector:
    """Turns one session's events into wire events, at the moment they are sent."""

    def __init__(self, *, facts: ServerFacts, encode: Encode, opening: Opening) -> None:
        self._opening = opening
        self._encode = encode
        self._conversation_id = f"conv_{opening.session_id.removeprefix('sess_')}"
        longest_s = facts.limits.max_session_s
        self._expires_at = None if longest_s is None else opening.began_unix_s + int(longest_s)
        self._known = _Known(is_update_due=opening.is_configured)
        self._capabilities = facts.capabilities()

    def project(self, event: kernel.Event) -> list[WireEvent]:
        """Return the event's wire events in order."""
        return list(self._events(event))

    def _events(self, event: kernel.Event) -> Iterator[WireEvent]:
        if isinstance(event, VENDOR_EVENTS):
            if self._opening.habits.uses_vendor_events:
                yield from duplex_facts.facts(event, self._capabilities)
            return
        waiting, self._known.uncommitted = self._known.uncommitted, None
        if waiting is not None and not isinstance(event, kernel.InputItemCommitted):
            yield self._item_added(waiting)
            waiting = None
        match event:
            case (
                kernel.ResponseStarted()
                | kernel.AnswerItemOpened()
                | kernel.FunctionCalled()
                | kernel.SpeechDelta()
                | kernel.ResponseFinished()
            ):
                yield from self._answer_events(event)
            case kernel.InputItemCommitted():
                yield wire.InputCommitted(
                    item_id=event.item_id, previous_item_id=event.previous_item_id
                )
                if waiting is not None:
                    yield self._item_added(waiting)
            case items.ItemAdded(item) if item.role == "user" and item.is_audio:
                self._known.uncommitted = event
            case (
                items.ItemAdded()
                | items.ItemDone()
                | items.ItemShown()
                | items.ItemRemoved()
                | items.ItemCut()
                | items.InputTranscribed()
            ):
                yield from self._item_events(event)
            case _:
                yield from self._session_events(event)

    # --- session and input --------------------------------------------------------------------

    def _session_events(self, event: kernel.Event) -> Iterator[WireEvent]:
        match event:
            case kernel.SessionCreated(session=session):
                self._known.config = session.config
                if self._opening.is_lobby:
                    shown = shapes.session_object(session, self._expires_at)
                    yield wire.SessionCreated(session=shown)
            case kernel.SessionUpdated(session=session):
                self._known.config = session.config
                if self._known.is_update_due:
                    shown = shapes.session_object(session, self._expires_at)
                    yield wire.SessionUpdated(session=shown)
                self._known.is_update_due = True
            case kernel.SessionExpired(reason=reason):
                yield wire.Error(error=shapes.error_object(shapes.expired_error(reason), None))
            case kernel.ErrorRaised(error=error, event_id=event_id):
                yield wire.Error(error=shapes.error_object(error, event_id))
            case kernel.OutputBufferCleared(response_id=response_id):
                if self._opening.habits.clears_output:
                    yield wire.OutputCleared(response_id=response_id)
            case _:
                yield from _input_events(event)

    # --- items --------------------------------------------------------------------------------

    def _item_events(
        self,
        event: items.ItemAdded
        | items.ItemDone
        | items.ItemShown
        | items.ItemRemoved
        | items.ItemCut
        | items.InputTranscribed,
    ) -> Iterator[WireEvent]:
        match event:
            case items.ItemAdded():
                yield self._item_added(event)
            case items.ItemDone(item=item, previous_item_id=previous):
                yield wire.ItemDone(previous_item_id=previous, item=self._item(item))
            case items.ItemShown(item=item):
                yield wire.ItemRetrieved(item=self._item(item))
            case items.ItemRemoved(item_id=item_id):
                yield wire.ItemDeleted(item_id=item_id)
            case items.ItemCut():
                yield wire.ItemTruncated(
                    item_id=event.item_id,
                    content_index=event.content_index,
                    audio_end_ms=event.audio_end_ms,
                )
            case items.InputTranscribed():
                if not self._shows_transcript:
                    return
                yield wire.TranscriptionCompleted(
                    item_id=event.item_id,
                    transcript=event.transcript,
                    usage=DurationUsage(seconds=event.audio_ms / 1000),
                )
            case _:
                assert_never(event)

    @property
    def _shows_transcript(self) -> bool:
        config = self._known.config
        return config is not None and config.wants_transcription

    def _item(self, item: items.ItemView) -> ItemObject:
        return shapes.item_object(item, shows_transcript=self._shows_transcript)

    def _item_added(self, event: items.ItemAdded) -> WireEvent:
        return wire.ItemAdded(previous_item_id=event.previous_item_id, item=self._item(event.item))

    # --- answers ------------------------------------------------------------------------------

    def _answer_events(
        self,
        event: kernel.ResponseStarted
        | kernel.AnswerItemOpened
        | kernel.FunctionCalled
        | kernel.SpeechDelta
        | kernel.ResponseFinished,
    ) -> Iterator[WireEvent]:
        answers, config = self._known.answers, self._known.config
        if isinstance(event, kernel.ResponseStarted) and config is not None:
            conversation_id = None if event.is_out_of_band else self._conversation_id
            answers[event.response_id] = AnswerWriter(
                event, config, conversation_id, self._encode, self._opening.read_rates
            )
        writer = answers[event.response_id]
        yield from writer.write(event)
        if isinstance(event, kernel.ResponseFinished):
            del answers[event.response_id]


def _input_events(event: kernel.Event) -> Iterator[WireEvent]:
    match event:
        case kernel.UserSpeechStarted(audio_start_ms=start_ms, item_id=item_id):
            yield wire.SpeechStarted(item_id=item_id, audio_start_ms=start_ms)
        case kernel.UserSpeechStopped(audio_end_ms=end_ms, item_id=item_id):
            yield wire.SpeechStopped(item_id=item_id, audio_end_ms=end_ms)
        case kernel.InputBufferCleared():
            yield wire.InputCleared()
        case kernel.InputTimedOut():
            yield wire.TimeoutTriggered(
                item_id=event.item_id,
                audio_start_ms=event.audio_start_ms,
                audio_end_ms=event.audio_end_ms,
            )
        case _:
            return  # of sockets that take a session over, which there is none of here

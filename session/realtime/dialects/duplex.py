"""The duplex wire: `/v1/realtime?duplex=1`.

Rule 1: an answer's events come in one order: created, item, part, speak, deltas, done events from
        the inside out, response.done, rate_limits.updated.
Rule 2: what closes was open. `audio.done` needs a delta, `audio_transcript.done` needs text.
Rule 3: `audio_transcript.done` is the transcript deltas that this projector has sent, joined. The
        item says what was heard, which is less for an answer that was cut short.
Rule 4: an answer's items are its message, if it says anything, and its function calls. A call comes
        and goes at once; the message stays open to the end of the answer.
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

from session import events as kernel
from session.ids import ResponseId
from session.realtime import server_events as wire
from session.realtime.dialects import duplex_facts, shapes
from session.realtime.dialects.audio_pieces import Encode, Piece
from session.realtime.dialects.audio_pieces import pieces as audio_pieces
from session.realtime.event_objects import (
    AudioPart,
    CreatedEcho,
    CreatedMetadata,
    CreatedResponse,
    DeltaMetadata,
    DoneMetadata,
    DoneResponse,
    StatusDetails,
    TextPart,
)
from session.realtime.facts import ServerFacts
from session.realtime.server_objects import ItemObject
from session.realtime.session_events import ServerEvent
from session.stream_events import ContextAccepted, InputCounted, InputMuteChanged


@dataclass(slots=True)
class _Answer:
    """What has been sent of one answer."""

    is_text: bool
    message_index: int = 0
    """Place of the message among the answer's items."""
    texts: list[str] = field(default_factory=list)
    has_output: bool = False
    has_spoken: bool = False


class DuplexProjector:
    """Turns one session's events into wire events, at the moment they are sent."""

    def __init__(self, *, facts: ServerFacts, encode: Encode) -> None:
        self._capabilities = facts.capabilities()
        self._encode = encode
        self._answers: dict[ResponseId, _Answer] = {}

    def project(self, event: kernel.Event) -> list[ServerEvent]:
        """Return the event's wire events in order."""
        match event:
            case kernel.ResponseStarted():
                is_text = "audio" not in event.output_modalities
                answer = _Answer(is_text)
                self._answers[event.response_id] = answer
                return _started(event, answer)
            case kernel.AnswerItemOpened():
                answer = self._answer(event.response_id, is_text=event.is_text_only)
                answer.message_index = event.output_index
                return _placed(answer, _message_opened(event, answer))
            case kernel.SpeakDecided():
                answer = self._answer(event.response_id, is_text=False)
                return _placed(answer, _speak(event, answer))
            case kernel.SpeechDelta():
                answer = self._answer(event.response_id, is_text=event.is_text_only)
                return _placed(answer, self._delta(event, answer))
            case kernel.ResponseFinished():
                is_text = "audio" not in event.output_modalities
                answer = self._answer(event.response_id, is_text=is_text)
                del self._answers[event.response_id]
                return _finished(event, answer)
            case InputCounted() | ContextAccepted() | InputMuteChanged():
                return []  # only what this dialect does not have leads to these
            case _:
                return duplex_facts.facts(event, self._capabilities)

    def _answer(self, response_id: ResponseId, *, is_text: bool) -> _Answer:
        """Return what is known of an answer; one that began on another socket starts here."""
        return self._answers.setdefault(response_id, _Answer(is_text))

    def _delta(self, event: kernel.SpeechDelta, answer: _Answer) -> list[ServerEvent]:
        if answer.is_text:
            return _text_delta(event, answer)
        pieces = audio_pieces(event, self._encode)
        if not pieces and not event.transcript:
            return []
        answer.has_output = True
        answer.texts.append(event.transcript)
        if not pieces:
            metadata = _delta_metadata(event, event.audio_ms, is_last=True)
            return [_transcript_delta(event, event.transcript, metadata)]
        return list(chain.from_iterable(_pairs(event, pieces)))


# --- the life of an answer ------------------------------------------------------------------


def _placed(answer: _Answer, events: list[ServerEvent]) -> list[ServerEvent]:
    """Name the place of the message, where function calls have come before it."""
    if answer.message_index == 0:
        return events
    at = {"output_index": answer.message_index}
    return [
        sent.model_copy(update=at) if "output_index" in type(sent).model_fields else sent
        for sent in events
    ]


def _started(event: kernel.ResponseStarted, answer: _Answer) -> list[ServerEvent]:
    echo = CreatedEcho(response_id=event.response_id, epoch=event.fence.epoch)
    metadata = {**dict(event.metadata), "duplex_event": echo}
    created = wire.ResponseCreated(
        response_id=event.response_id,
        response=CreatedResponse(
            id=event.response_id,
            modalities=event.output_modalities,
            metadata=CreatedMetadata.model_validate(metadata),
        ),
    )
    return [created, *(_message_opened(event, answer) if event.has_message else [])]


def _message_opened(
    event: kernel.ResponseStarted | kernel.AnswerItemOpened, answer: _Answer
) -> list[ServerEvent]:
    item = shapes.empty_item_object(event.item_id)
    # An answer outside the conversation has an item, but no place among the others.
    joined = [] if event.is_out_of_band else duplex_facts.item_joined(item, event.previous_item_id)
    return [
        *joined,
        wire.OutputItemAdded(response_id=event.response_id, item=item),
        wire.ContentPartAdded(
            response_id=event.response_id, item_id=event.item_id, part=_part(answer, "")
        ),
    ]


def _speak(event: kernel.SpeakDecided, answer: _Answer) -> list[ServerEvent]:
    if answer.has_spoken:
        return []
    answer.has_spoken = True
    return duplex_facts.output_events(event)


def _text_delta(event: kernel.SpeechDelta, answer: _Answer) -> list[ServerEvent]:
    if not event.transcript:
        return []
    answer.has_output = True
    answer.texts.append(event.transcript)
    return [
        wire.TextDelta(
            response_id=event.response_id,
            item_id=event.item_id,
            delta=event.transcript,
            metadata=_delta_metadata(event, event.audio_ms, is_last=True),
        )
    ]


def _pairs(
    event: kernel.SpeechDelta, pieces: list[Piece]
) -> Iterator[tuple[wire.AudioDelta, wire.AudioTranscriptDelta]]:
    """Yield an audio delta and its transcript delta for each piece; the first has the text."""
    for index, piece in enumerate(pieces):
        audio = wire.AudioDelta(
            response_id=event.response_id,
            item_id=event.item_id,
            delta=base64.b64encode(piece.audio).decode("ascii"),
            format=event.output_format.encoding.value,
            sample_rate_hz=event.output_format.rate_hz,
            metadata=_delta_metadata(event, piece.end_ms, is_last=piece is pieces[-1]),
        )
        yield audio, _transcript_delta(event, event.transcript if index == 0 else "", None)


def _transcript_delta(
    event: kernel.SpeechDelta, text: str, metadata: DeltaMetadata | None
) -> wire.AudioTranscriptDelta:
    return wire.AudioTranscriptDelta(
        response_id=event.response_id, item_id=event.item_id, delta=text, metadata=metadata
    )


def _delta_metadata(event: kernel.SpeechDelta, end_ms: int, *, is_last: bool) -> DeltaMetadata:
    return DeltaMetadata(
        session_id=event.fence.session_id,
        epoch=event.fence.epoch,
        end_of_turn=event.is_turn_end and is_last,
        audio_duration_ms=end_ms,
        audio_text_marks=shapes.mark_objects(event.marks) if is_last else (),
        playback=shapes.playback_object(event.playback),
        vllm_omni=shapes.vendor_metadata(event.metrics) if is_last else None,
    )


def _finished(event: kernel.ResponseFinished, answer: _Answer) -> list[ServerEvent]:
    output = [shapes.item_object(call) for call in event.calls]
    done: list[ServerEvent] = []
    if event.message_index is not None:
        item = shapes.item_object(event.item)
        output.insert(event.message_index, item)
        answer.message_index = event.message_index
        done = _placed(answer, _message_done(event, answer, item))
    response = DoneResponse(
        id=event.response_id,
        status=event.status,
        status_details=StatusDetails(type=event.status, reason=event.reason),
        output=tuple(output),
        modalities=event.output_modalities,
        metadata=_done_metadata(event),
    )
    return [
        *done,
        wire.ResponseDone(response_id=event.response_id, response=response),
        wire.RateLimitsUpdated(),
    ]


def _message_done(
    event: kernel.ResponseFinished, answer: _Answer, item: ItemObject
) -> list[ServerEvent]:
    done: list[ServerEvent] = [
        *_streams_done(event, answer),
        wire.ContentPartDone(
            response_id=event.response_id,
            item_id=event.item.item_id,
            part=_part(answer, shapes.fitted("".join(answer.texts))),
        ),
        wire.OutputItemDone(response_id=event.response_id, item=item),
    ]
    if not event.is_out_of_band:
        done.append(wire.ItemDone(previous_item_id=event.previous_item_id, item=item))
    return done


def _streams_done(event: kernel.ResponseFinished, answer: _Answer) -> Iterator[ServerEvent]:
    if not answer.has_output:
        return
    response_id, item_id = event.response_id, event.item.item_id
    text = "".join(answer.texts)
    if answer.is_text:
        yield wire.TextDone(response_id=response_id, item_id=item_id, text=text)
        return
    yield wire.AudioDone(response_id=response_id, item_id=item_id)
    if text:
        yield wire.AudioTranscriptDone(response_id=response_id, item_id=item_id, transcript=text)


def _done_metadata(event: kernel.ResponseFinished) -> DoneMetadata:
    own: dict[str, object] = {
        "cancelled_epoch": event.fence.epoch if event.status == "cancelled" else None,
        "epoch": event.current.epoch,
        "committed_ms": event.playback.committed_ms,
        "committed": event.is_committed,
        "playback": shapes.playback_object(event.playback),
        "vllm_omni": shapes.vendor_metadata(event.metrics),
    }
    return DoneMetadata.model_validate({**dict(event.metadata), **own})


def _part(answer: _Answer, text: str) -> AudioPart | TextPart:
    return TextPart(text=text) if answer.is_text else AudioPart(transcript=text)

"""One answer on the OpenAI wire, from response.created to response.done."""

import base64
from collections.abc import Iterator
from typing import assert_never

from session.config import SessionConfig
from session.events import (
    AnswerItemOpened,
    FunctionCalled,
    ResponseFinished,
    ResponseStarted,
    SpeechDelta,
)
from session.ids import ItemId
from session.outbox import WireEvent
from session.realtime.dialects import openai_shapes as shapes
from session.realtime.dialects.audio_pieces import Encode, pieces
from session.realtime.dialects.shapes import fitted
from session.realtime.event_objects import AudioPart, TextPart
from session.realtime.openai import server_events as wire
from session.realtime.openai.objects import (
    FunctionCallItem,
    ResponseAudioObject,
    ResponseObject,
    ResponseOutputObject,
)
from session.realtime.rate_limits import ReadRates

AnswerEvent = ResponseStarted | AnswerItemOpened | FunctionCalled | SpeechDelta | ResponseFinished


class AnswerWriter:
    """Knows what has been sent of one answer."""

    def __init__(
        self,
        started: ResponseStarted,
        config: SessionConfig,
        conversation_id: str | None,
        encode: Encode,
        read_rates: ReadRates,
    ) -> None:
        self._id = started.response_id
        self._is_text = "audio" not in started.output_modalities
        self._encode = encode
        self._read_rates = read_rates
        self._output_index = 0
        """Place of the message among the answer's items."""
        self._texts: list[str] = []
        self._has_audio = False
        output = ResponseOutputObject(
            format=shapes.format_object(started.output_format), voice=config.voice
        )
        self._response = ResponseObject(
            id=started.response_id,
            status="in_progress",
            conversation_id=conversation_id,
            output_modalities=started.output_modalities,
            max_output_tokens=shapes.limit_object(config.max_output_tokens),
            audio=ResponseAudioObject(output=output),
            metadata=dict(started.metadata) or None,
        )

    def write(self, event: AnswerEvent) -> Iterator[WireEvent]:
        """Yield the event's wire events in order."""
        match event:
            case ResponseStarted():
                yield wire.ResponseCreated(response=self._response)
                yield wire.RateLimitsUpdated(rate_limits=shapes.rate_objects(self._read_rates()))
                if event.has_message:
                    yield from self._opened(event)
            case AnswerItemOpened():
                self._output_index = event.output_index
                yield from self._opened(event)
            case FunctionCalled():
                yield from self._called(event)
            case SpeechDelta():
                yield from self._delta(event)
            case ResponseFinished():
                yield from self._finished(event)
            case _:
                assert_never(event)

    def _opened(self, event: ResponseStarted | AnswerItemOpened) -> Iterator[WireEvent]:
        item = shapes.empty_message(event.item_id)
        yield wire.OutputItemAdded(response_id=self._id, output_index=self._output_index, item=item)
        # An answer outside the conversation has an item, but no place among the others.
        if not event.is_out_of_band:
            yield wire.ItemAdded(previous_item_id=event.previous_item_id, item=item)
        yield wire.ContentPartAdded(
            response_id=self._id,
            item_id=event.item_id,
            output_index=self._output_index,
            part=self._part(""),
        )

    def _part(self, text: str) -> AudioPart | TextPart:
        return TextPart(text=text) if self._is_text else AudioPart(transcript=text)

    def _delta(self, event: SpeechDelta) -> Iterator[WireEvent]:
        item_id, index = event.item_id, self._output_index
        if event.transcript:
            self._texts.append(event.transcript)
            kind = wire.TextDelta if self._is_text else wire.TranscriptDelta
            yield kind(
                response_id=self._id, item_id=item_id, output_index=index, delta=event.transcript
            )
        if self._is_text:
            return
        for piece in pieces(event, self._encode):
            self._has_audio = True
            yield wire.AudioDelta(
                response_id=self._id,
                item_id=item_id,
                output_index=index,
                delta=base64.b64encode(piece.audio).decode("ascii"),
            )

    def _called(self, event: FunctionCalled) -> Iterator[WireEvent]:
        done = FunctionCallItem(
            id=event.item.item_id,
            status="completed",
            call_id=event.item.call_id or "",
            name=event.item.call_name or "",
            arguments=event.item.text,
        )
        begun = done.model_copy(update={"status": "in_progress", "arguments": ""})
        index, previous = event.output_index, event.previous_item_id
        yield wire.OutputItemAdded(response_id=self._id, output_index=index, item=begun)
        if not event.is_out_of_band:
            yield wire.ItemAdded(previous_item_id=previous, item=begun)
        yield wire.ArgumentsDelta(
            response_id=self._id,
            item_id=done.id,
            output_index=index,
            call_id=done.call_id,
            delta=done.arguments,
        )
        yield wire.ArgumentsDone(
            response_id=self._id,
            item_id=done.id,
            output_index=index,
            call_id=done.call_id,
            name=done.name,
            arguments=done.arguments,
        )
        yield wire.OutputItemDone(response_id=self._id, output_index=index, item=done)
        if not event.is_out_of_band:
            yield wire.ItemDone(previous_item_id=previous, item=done)

    def _finished(self, event: ResponseFinished) -> Iterator[WireEvent]:
        output = [shapes.item_object(call, shows_transcript=False) for call in event.calls]
        if event.message_index is not None:
            item = shapes.item_object(event.item, shows_transcript=False)
            output.insert(event.message_index, item)
            yield from self._streams_done(event.item.item_id)
            yield wire.OutputItemDone(
                response_id=self._id, output_index=self._output_index, item=item
            )
            if not event.is_out_of_band:
                yield wire.ItemDone(previous_item_id=event.previous_item_id, item=item)
        done = self._response.model_copy(
            update={
                "status": event.status,
                "status_details": shapes.status_details(event),
                "output": tuple(output),
                "usage": shapes.usage_object(event),
            }
        )
        yield wire.ResponseDone(response=done)

    def _streams_done(self, item_id: ItemId) -> Iterator[WireEvent]:
        text, index = "".join(self._texts), self._output_index
        at = {"response_id": self._id, "item_id": item_id, "output_index": index}
        if self._is_text:
            if text:
                yield wire.TextDone.model_validate({**at, "text": fitted(text)})
        else:
            if self._has_audio:
                yield wire.AudioDone.model_validate(at)
            if text:
                yield wire.TranscriptDone.model_validate({**at, "transcript": fitted(text)})
        yield wire.ContentPartDone.model_validate({**at, "part": self._part(fitted(text))})

"""The live wire: `/v1/live/sessions`.

Rule 1: there are no turns, items or answers here. What the kernel says of them is not shown, but
        for the sound, its words and the words of the user.
Rule 2: the timeline is the input that has come in: a client of this wire streams without pause, so
        its input is its clock. Words of the user lie where they were said. Words of the model lie
        where a client that plays all it gets without pause plays them.
Rule 3: times are told in whole frames, and what the model says never starts before the frame in
        which it was made.
"""

import base64
import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, assert_never

from session import events as kernel
from session import item_events as items
from session import stream_events as stream
from session.config import SessionConfig, SessionLimits
from session.errors import WrongType
from session.ids import ItemId, ResponseId
from session.leaving import AT_QUIET
from session.realtime.dialects.audio_pieces import Encode, pieces
from session.realtime.dialects.shapes import error_object
from session.realtime.facts import ServerFacts
from session.realtime.live import server_events as wire
from session.realtime.live.session_config import ENCODINGS
from session.realtime.opening import Opening
from session.socket_events import SessionExpiring
from session.stream_events import FRAME_MS
from session.stream_stimuli import ContextUse
from session.unit import OUTPUT_RATE_HZ, SAMPLE_BYTES, samples_to_ms

USAGE_STEP_MS: Final = 10_000
"""How much input there is between two reports of usage."""
NEVER_UNIX_S: Final = 253_402_300_799
"""The last second of the year 9999: when a session ends that may last for ever."""
KEPT_UTTERANCES: Final = 64
"""Utterances whose words may still come."""
CLIENT_CLOSE: Final = "client_close"


@dataclass(slots=True)
class _Utterance:
    """Where the user spoke, in milliseconds of the timeline."""

    start_ms: int
    end_ms: int | None = None


class LiveProjector:
    """Turns one session's events into wire events, at the moment they are sent."""

    def __init__(self, *, facts: ServerFacts, encode: Encode, opening: Opening) -> None:
        self._model = facts.model_id
        self._limits = facts.limits
        self._opening = opening
        self._encode = encode
        self._resource: wire.SessionResource | None = None
        self._is_started = False
        """The settings that a session opens with come with the name of the client's start."""
        self._input_ms = 0
        self._spoken_to_ms = 0
        """Where on the timeline all that was sent will have been played."""
        self._speaks: ResponseId | None = None
        self._utterances: OrderedDict[ItemId, _Utterance] = OrderedDict()
        self._has_said: set[str] = set()

    def project(self, event: kernel.Event) -> list[wire.LiveEvent]:
        """Return the event's wire events in order."""
        match event:
            case (
                kernel.SessionCreated()
                | kernel.SessionUpdated()
                | kernel.SessionClosed()
                | kernel.SessionExpired()
            ):
                return list(self._session(event))
            case kernel.UserSpeechStarted() | kernel.UserSpeechStopped():
                self._note_speech(event)
                return []
            case items.InputTranscribed():
                return self._heard(event)
            case kernel.SpeechDelta():
                return list(self._spoken(event))
            case kernel.ResponseFinished():
                if not event.was_said:
                    self._spoken_to_ms = self._input_ms  # the rest is never sent
                return []
            case _:
                return self._notice(event)

    # --- the session --------------------------------------------------------------------------

    def _session(
        self,
        event: kernel.SessionCreated
        | kernel.SessionUpdated
        | kernel.SessionClosed
        | kernel.SessionExpired,
    ) -> Iterator[wire.LiveEvent]:
        match event:
            case kernel.SessionCreated():
                self._resource = self._started(event.session.config)
            case kernel.SessionUpdated(client_event_id=asked) if not self._is_started:
                self._is_started = True
                yield wire.SessionStarted(session=self._known, client_event_id=asked)
            case kernel.SessionUpdated(client_event_id=asked):
                echoed = _echoed(event.session.config)
                self._resource = self._known.model_copy(update=echoed)
                yield wire.SessionUpdated(session=self._resource, client_event_id=asked)
            case kernel.SessionClosed() | kernel.SessionExpired():
                yield from self._closed(event)
            case _:
                assert_never(event)

    @property
    def _known(self) -> wire.SessionResource:
        """The session as it was told last; one that never opened has the server's own settings."""
        if self._resource is None:
            self._resource = self._started(SessionConfig(model=self._model))
        return self._resource

    def _started(self, config: SessionConfig) -> wire.SessionResource:
        output = config.output_format
        encoding = next(name for name, kind in ENCODINGS.items() if kind is output.encoding)
        return wire.SessionResource(
            id=self._opening.session_id,
            expires_at=_expires_at(self._opening, self._limits),
            model=config.model,
            audio=wire.AudioObject(
                format=wire.FormatObject.model_validate({"type": encoding, "rate": output.rate_hz}),
                output=wire.OutputObject(voice=config.voice),
            ),
            instructions=config.instructions,
            **_echoed(config),
        )

    def _closed(
        self, event: kernel.SessionClosed | kernel.SessionExpired
    ) -> Iterator[wire.LiveEvent]:
        client_event_id = None
        if isinstance(event, kernel.SessionClosed):
            client_event_id = event.client_event_id
        if event.reason != CLIENT_CLOSE:
            yield wire.InfoEvent(code=event.reason, message=f"the session ends: {event.reason}")
        yield wire.SessionClosed(
            reason=_REASONS.get(event.reason, "connection_lost"),
            session=self._known,
            usage=wire.Usage(seconds=-(-self._input_ms // 1000)),
            client_event_id=client_event_id,
        )

    # --- words and sound ----------------------------------------------------------------------

    def _note_speech(self, event: kernel.UserSpeechStarted | kernel.UserSpeechStopped) -> None:
        if isinstance(event, kernel.UserSpeechStarted):
            self._utterances[event.item_id] = _Utterance(event.audio_start_ms)
            if len(self._utterances) > KEPT_UTTERANCES:
                self._utterances.popitem(last=False)
        elif event.item_id in self._utterances:
            self._utterances[event.item_id].end_ms = event.audio_end_ms

    def _heard(self, event: items.InputTranscribed) -> list[wire.LiveEvent]:
        said = self._utterances.pop(event.item_id, None)
        if said is None:
            said = _Utterance(max(0, self._input_ms - event.audio_ms))
        end_ms = self._input_ms if said.end_ms is None else said.end_ms
        kind: Final = "session.input_transcript.delta"
        words = self._joined(kind, event.transcript, is_new=True)
        return self._words(kind, words, said.start_ms, end_ms)

    def _spoken(self, event: kernel.SpeechDelta) -> Iterator[wire.LiveEvent]:
        for piece in pieces(event, self._encode):
            yield wire.OutputAudioDelta(delta=base64.b64encode(piece.audio).decode("ascii"))
        start_ms = max(self._spoken_to_ms, self._input_ms)
        chunk_ms = samples_to_ms(len(event.pcm) // SAMPLE_BYTES, OUTPUT_RATE_HZ)
        self._spoken_to_ms = start_ms + chunk_ms
        kind: Final = "session.output_transcript.delta"
        is_first = event.response_id != self._speaks
        self._speaks = event.response_id
        words = self._joined(kind, event.transcript, is_new=is_first)
        yield from self._words(kind, words, start_ms, self._spoken_to_ms)

    def _joined(self, kind: str, text: str, *, is_new: bool) -> str:
        """Put a space before what begins anew: clients join all deltas."""
        if not text:
            return text
        needs_space = is_new and kind in self._has_said and not text[0].isspace()
        self._has_said.add(kind)
        return f" {text}" if needs_space else text

    @staticmethod
    def _words(kind: str, text: str, start_ms: int, end_ms: int) -> list[wire.LiveEvent]:
        if not text:
            return []
        start = start_ms // FRAME_MS * FRAME_MS
        end = max(start, -(-end_ms // FRAME_MS) * FRAME_MS)
        timed = {"type": kind, "delta": text, "start_ms": start, "end_ms": end}
        return [wire.TranscriptDelta.model_validate(timed)]

    # --- notices ------------------------------------------------------------------------------

    def _notice(self, event: kernel.Event) -> list[wire.LiveEvent]:
        match event:
            case stream.InputCounted(input_ms):
                return self._counted(input_ms)
            case stream.ContextAccepted(use, event_id):
                return [self._context(use, event_id)]
            case stream.InputMuteChanged(is_muted, event_id):
                kind = wire.InputAudioMuted if is_muted else wire.InputAudioUnmuted
                return [kind(client_event_id=event_id)]
            case SessionExpiring(_, reason, expires_in_ms):
                left = f"the session ends in {expires_in_ms // 1000} s"
                if reason == AT_QUIET:
                    left += " at the latest, before that at a quiet moment: the server goes away"
                return [wire.InfoEvent(code="session_expiring", message=left)]
            case kernel.ErrorRaised(error, event_id):
                told = error_object(error, None)
                details = wire.ErrorDetails(
                    type=told.type,
                    code="invalid_type" if isinstance(error, WrongType) else told.code,
                    message=told.message,
                    param=told.param,
                    client_event_id=event_id,
                )
                return [wire.ErrorEvent(error=details, client_event_id=event_id)]
            case _:
                return []  # Rule 1

    def _counted(self, input_ms: int) -> list[wire.LiveEvent]:
        steps = self._input_ms // USAGE_STEP_MS
        self._input_ms = input_ms
        if input_ms // USAGE_STEP_MS == steps:
            return []
        return [wire.UsageUpdated(usage=wire.Usage(seconds=input_ms // 1000))]

    def _context(self, use: ContextUse, event_id: str | None) -> wire.LiveEvent:
        placed = {
            "type": f"session.{use.value}.appended",
            "start_ms": self._input_ms,
            "end_ms": self._input_ms,
            "client_event_id": event_id,
        }
        return wire.ContextAppended.model_validate(placed)


def _expires_at(opening: Opening, limits: SessionLimits) -> int:
    if limits.max_session_s is None:
        return NEVER_UNIX_S
    return opening.began_unix_s + int(limits.max_session_s)


def _echoed(config: SessionConfig) -> dict[str, object]:
    return {name: json.loads(text) for name, text in config.echoed}


_REASONS: Final[dict[str, str]] = {
    CLIENT_CLOSE: "close_requested",
    "max_session_duration": "expired",
    "idle_timeout": "expired",
    "idle_ttl_expired": "expired",
}
"""What the wire calls the kernel's reasons; every other one is a connection_lost."""

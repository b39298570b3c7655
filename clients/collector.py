"""Timings of a session as its client saw them, by response.

Rule 1: audio timing is on the client's monotonic receive clock and belongs to one response.
Rule 2: a latency is named after its origin: `response.created`, an explicit commit, or the end
        of the speech that the driver sent. None of them is called TTFP.
Rule 3: a response answers the latest mark of each kind made before its `response.created`, and a
        mark is answered once: later responses to the same input have no such latency.
Rule 4: engine timings (`stage_metrics`) have another clock. They are kept beside the client's,
        as the server sent them, and never combined with them.
"""

from collections import Counter
from dataclasses import asdict, dataclass, field

from clients import events as ev
from clients.events import JsonObject
from clients.stats import Summary, summarize


@dataclass(frozen=True, slots=True)
class ResponseTimings:
    """One response on the client's clock; None where an origin or the audio is missing."""

    response_created_to_first_audio_ms: float | None
    commit_to_first_audio_ms: float | None
    speech_end_to_first_audio_ms: float | None
    inter_chunk_gap_ms: Summary
    chunk_duration_ms: Summary
    max_chunk_gap_ms: float | None
    audio_ms: float


@dataclass(frozen=True, slots=True)
class ResponseFigures:
    """One response: how it ended, the client's timings, and the engine's, apart."""

    response_id: str
    status: str
    timings: ResponseTimings
    stage_metrics: JsonObject | None


@dataclass(frozen=True, slots=True)
class CollectedFigures:
    """A whole session."""

    responses: tuple[ResponseFigures, ...]
    events: dict[str, int]
    errors: dict[str, int]
    """Number of errors by code."""

    def as_json(self) -> dict[str, object]:
        """Return plain values for a JSON file."""
        return asdict(self)


@dataclass(slots=True)
class _Record:
    created_s: float
    commit_s: float | None
    speech_end_s: float | None
    status: str = "in_progress"
    received_s: list[float] = field(default_factory=list)
    durations_ms: list[float] = field(default_factory=list)
    stage_metrics: JsonObject | None = None

    def gaps_ms(self) -> list[float]:
        pairs = zip(self.received_s, self.received_s[1:], strict=False)
        return [(later - earlier) * 1000 for earlier, later in pairs]

    def timings(self) -> ResponseTimings:
        gaps_ms = self.gaps_ms()
        return ResponseTimings(
            response_created_to_first_audio_ms=self._to_first_audio_ms(self.created_s),
            commit_to_first_audio_ms=self._to_first_audio_ms(self.commit_s),
            speech_end_to_first_audio_ms=self._to_first_audio_ms(self.speech_end_s),
            inter_chunk_gap_ms=summarize(gaps_ms),
            chunk_duration_ms=summarize(self.durations_ms),
            max_chunk_gap_ms=round(max(gaps_ms), 3) if gaps_ms else None,
            audio_ms=round(sum(self.durations_ms), 3),
        )

    def _to_first_audio_ms(self, origin_s: float | None) -> float | None:
        if origin_s is None or not self.received_s:
            return None
        return round((self.received_s[0] - origin_s) * 1000, 3)


class EventCollector:
    """Collects figures from events. `observe` is an observer for `DuplexClient`."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}
        self._events: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._commit_s: float | None = None
        self._speech_end_s: float | None = None

    def mark_commit(self, at_s: float) -> None:
        """The driver has sent an explicit commit, at this time on the client's clock."""
        self._commit_s = at_s

    def mark_speech_end(self, at_s: float) -> None:
        """Speech in the driver's audio ended, at this time on the client's clock."""
        self._speech_end_s = at_s

    def observe(self, event: ev.ServerEvent) -> None:
        """Take one event, stamped with when it was received."""
        self._events[event.type] += 1
        match event:
            case ev.ErrorEvent():
                self._errors[event.code] += 1
            case ev.ResponseCreated():
                self._begin(event)
            case ev.ResponseEvent():
                self._observe_response(event)
            case _:
                pass

    def figures(self) -> CollectedFigures:
        """Return the figures so far."""
        responses = tuple(
            ResponseFigures(response_id, record.status, record.timings(), record.stage_metrics)
            for response_id, record in self._records.items()
        )
        return CollectedFigures(responses, dict(self._events), dict(self._errors))

    def gaps_ms(self) -> list[float]:
        """Every inter-chunk gap of every response, for summaries over many sessions."""
        return [gap for record in self._records.values() for gap in record.gaps_ms()]

    def _begin(self, event: ev.ResponseCreated) -> None:
        self._records[event.response_id] = _Record(
            event.received_s, self._commit_s, self._speech_end_s
        )
        self._commit_s = self._speech_end_s = None

    def _observe_response(self, event: ev.ResponseEvent) -> None:
        record = self._records.get(event.response_id)
        if record is None:
            return
        if event.stage_metrics is not None:
            # The server accumulates over the units of the response: the latest is the whole.
            record.stage_metrics = event.stage_metrics
        if isinstance(event, ev.AudioDelta):
            record.received_s.append(event.received_s)
            record.durations_ms.append(event.duration_ms)
        elif isinstance(event, ev.ResponseDone):
            record.status = event.status

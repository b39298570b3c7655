"""The result of a load run: figures of each session, a summary of all, and how it was made."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Final

from clients.collector import ResponseFigures, ResponseTimings
from clients.load_plan import SessionSamples
from clients.provenance import Provenance
from clients.stats import Summary, TailSummary, summarize, summarize_tail

LATE_MS: Final = 20.0
"""A send this much behind the schedule of a microphone counts as late."""


@dataclass(frozen=True, slots=True)
class SessionFigures:
    """One session, summarised."""

    index: int
    outcome: str
    code: str
    detail: str
    is_retryable: bool
    open_ms: float | None
    seconds: float
    appends: int
    late_sends: int
    send_lag_ms: Summary
    heartbeat_rtt_ms: Summary
    unanswered_heartbeats: int
    response_created_to_first_audio_ms: tuple[float, ...]
    commit_to_first_audio_ms: tuple[float, ...]
    speech_end_to_first_audio_ms: tuple[float, ...]
    inter_chunk_gap_ms: Summary
    playback_stall_ms: Summary
    responses: dict[str, int]
    """Number of responses by status."""
    audio_ms: float
    resumes: int
    dropped_audio_ms: float
    events: dict[str, int]
    errors: dict[str, int]


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """All sessions together."""

    outcomes: dict[str, int]
    refusals: dict[str, int]
    """Number of refusals by code."""
    open_ms: Summary
    response_created_to_first_audio_ms: Summary
    commit_to_first_audio_ms: Summary
    speech_end_to_first_audio_ms: Summary
    inter_chunk_gap_ms: TailSummary
    max_chunk_gap_ms: float | None
    playback_stall_ms: TailSummary
    """Silences a listener would have heard within an answer because audio was late."""
    heartbeat_rtt_ms: TailSummary
    """Through the service's whole inbound and outbound path, behind an append."""
    unanswered_heartbeats: int
    appends: int
    send_lag_ms: TailSummary
    late_sends: int
    """Appends sent more than `LATE_MS` behind schedule; many mean an overloaded generator."""
    responses: dict[str, int]
    errors: dict[str, int]
    events: int
    resumes: int
    """Lost connections after which the session was taken up again."""
    dropped_audio_ms: float
    """Speech that was never sent, because a gap was too long to keep it."""


@dataclass(frozen=True, slots=True)
class EchoFigures:
    """The same frames at the same pace against a bare WebSocket echo."""

    server: str
    sessions: int
    seconds: float
    append_rtt_ms: TailSummary
    heartbeat_rtt_ms: TailSummary
    send_lag_ms: TailSummary


@dataclass(frozen=True, slots=True)
class EchoRatio:
    """Heartbeat round trip of the service divided by that of the echo, in one run."""

    p50: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class LoadReport:
    """A load run."""

    made: Provenance
    url: str
    preset: str
    audio: str
    sessions: int
    processes: int
    seconds: float
    ramp_s: float
    chunk_ms: int
    commits: bool
    """Whether an explicit commit followed each end of speech."""
    wall_s: float
    generator_cpu_cores: float
    """CPU seconds of the generator per second of the run."""
    summary: LoadSummary
    echo: EchoFigures | None
    echo_ratio: EchoRatio | None
    per_session: tuple[SessionFigures, ...]

    def as_json(self) -> dict[str, object]:
        """Return plain values for a JSON file."""
        return asdict(self)


def session_figures(samples: SessionSamples) -> SessionFigures:
    """Summarise one session."""
    responses = samples.figures.responses
    return SessionFigures(
        index=samples.index,
        outcome=samples.outcome,
        code=samples.code,
        detail=samples.detail,
        is_retryable=samples.is_retryable,
        open_ms=None if samples.open_ms is None else round(samples.open_ms, 3),
        seconds=samples.seconds,
        appends=len(samples.send_lags_ms),
        late_sends=_late(samples.send_lags_ms),
        send_lag_ms=summarize(samples.send_lags_ms),
        heartbeat_rtt_ms=summarize(samples.heartbeat_ms),
        unanswered_heartbeats=samples.unanswered_heartbeats,
        response_created_to_first_audio_ms=_latencies(responses, _from_created),
        commit_to_first_audio_ms=_latencies(responses, _from_commit),
        speech_end_to_first_audio_ms=_latencies(responses, _from_speech_end),
        inter_chunk_gap_ms=summarize(samples.gaps_ms),
        playback_stall_ms=summarize(samples.stalls_ms),
        responses=dict(Counter(response.status for response in responses)),
        audio_ms=round(sum(response.timings.audio_ms for response in responses), 3),
        resumes=samples.resumes,
        dropped_audio_ms=round(samples.dropped_audio_ms, 3),
        events=samples.figures.events,
        errors=samples.figures.errors,
    )


def summarize_load(samples: Sequence[SessionSamples]) -> LoadSummary:
    """Summarise all sessions over their single measurements, not over their summaries."""
    responses = [response for one in samples for response in one.figures.responses]
    lags_ms = _joined(one.send_lags_ms for one in samples)
    gaps_ms = _joined(one.gaps_ms for one in samples)
    return LoadSummary(
        outcomes=dict(Counter(one.outcome for one in samples)),
        refusals=dict(Counter(one.code for one in samples if one.outcome == "refused")),
        open_ms=summarize([one.open_ms for one in samples if one.open_ms is not None]),
        response_created_to_first_audio_ms=summarize(_latencies(responses, _from_created)),
        commit_to_first_audio_ms=summarize(_latencies(responses, _from_commit)),
        speech_end_to_first_audio_ms=summarize(_latencies(responses, _from_speech_end)),
        inter_chunk_gap_ms=summarize_tail(gaps_ms),
        max_chunk_gap_ms=round(max(gaps_ms), 3) if gaps_ms else None,
        playback_stall_ms=summarize_tail(_joined(one.stalls_ms for one in samples)),
        heartbeat_rtt_ms=summarize_tail(_joined(one.heartbeat_ms for one in samples)),
        unanswered_heartbeats=sum(one.unanswered_heartbeats for one in samples),
        appends=len(lags_ms),
        send_lag_ms=summarize_tail(lags_ms),
        late_sends=_late(lags_ms),
        responses=dict(Counter(response.status for response in responses)),
        errors=_summed(one.figures.errors for one in samples),
        events=sum(_summed(one.figures.events for one in samples).values()),
        resumes=sum(one.resumes for one in samples),
        dropped_audio_ms=round(sum(one.dropped_audio_ms for one in samples), 3),
    )


def echo_ratio(summary: LoadSummary, echo: EchoFigures) -> EchoRatio:
    """Compare the service's heartbeats with the echo's."""
    mine, theirs = summary.heartbeat_rtt_ms, echo.heartbeat_rtt_ms
    return EchoRatio(p50=_ratio(mine.p50, theirs.p50), p99=_ratio(mine.p99, theirs.p99))


def _from_created(timings: ResponseTimings) -> float | None:
    return timings.response_created_to_first_audio_ms


def _from_commit(timings: ResponseTimings) -> float | None:
    return timings.commit_to_first_audio_ms


def _from_speech_end(timings: ResponseTimings) -> float | None:
    return timings.speech_end_to_first_audio_ms


def _latencies(
    responses: Iterable[ResponseFigures], origin: Callable[[ResponseTimings], float | None]
) -> tuple[float, ...]:
    latencies = (origin(response.timings) for response in responses)
    return tuple(latency for latency in latencies if latency is not None)


def _late(lags_ms: Iterable[float]) -> int:
    return sum(lag > LATE_MS for lag in lags_ms)


def _joined(lists: Iterable[Sequence[float]]) -> list[float]:
    return list(chain.from_iterable(lists))


def _summed(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)


def _ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else round(value / base, 2)

"""The figures of the performance contract, from events with times that the test gives."""

import pytest

from clients import events as ev
from clients.collector import EventCollector, ResponseFigures
from clients.stats import percentile, summarize, summarize_tail


def created(response_id: str, at_s: float) -> ev.ResponseCreated:
    return ev.ResponseCreated(type="response.created", response_id=response_id, received_s=at_s)


def delta(response_id: str, at_s: float, milliseconds: float = 200.0) -> ev.AudioDelta:
    return ev.AudioDelta(
        type="response.audio.delta",
        response_id=response_id,
        audio=b"",
        encoding="pcm16",
        rate_hz=24_000,
        duration_ms=milliseconds,
        received_s=at_s,
    )


def done(
    response_id: str, at_s: float, stage_metrics: ev.JsonObject | None = None
) -> ev.ResponseDone:
    return ev.ResponseDone(
        type="response.done",
        response_id=response_id,
        status="completed",
        received_s=at_s,
        stage_metrics=stage_metrics,
    )


def collect(*steps: ev.ServerEvent) -> dict[str, ResponseFigures]:
    collector = EventCollector()
    for step in steps:
        collector.observe(step)
    return {figures.response_id: figures for figures in collector.figures().responses}


def test_first_audio_gaps_and_durations_belong_to_their_response() -> None:
    figures = collect(
        created("A", 10.0),
        delta("A", 10.25, 400.0),
        created("B", 10.3),
        delta("A", 10.35, 200.0),
        delta("B", 10.8, 100.0),
        delta("A", 10.85, 200.0),
        delta("B", 10.9, 300.0),
        done("A", 11.0),
    )
    a, b = figures["A"].timings, figures["B"].timings
    assert a.response_created_to_first_audio_ms == pytest.approx(250)
    assert b.response_created_to_first_audio_ms == pytest.approx(500)
    assert a.inter_chunk_gap_ms.count == 2
    assert a.inter_chunk_gap_ms.mean == pytest.approx(300)
    assert a.max_chunk_gap_ms == pytest.approx(500)
    assert b.max_chunk_gap_ms == pytest.approx(100)
    assert (a.chunk_duration_ms.count, a.chunk_duration_ms.max) == (3, 400.0)
    assert (a.audio_ms, b.audio_ms) == (800.0, 400.0)
    assert (figures["A"].status, figures["B"].status) == ("completed", "in_progress")


def test_a_response_without_audio_has_no_latency() -> None:
    timings = collect(created("A", 1.0), done("A", 2.0))["A"].timings
    assert timings.response_created_to_first_audio_ms is None
    assert timings.max_chunk_gap_ms is None
    assert timings.inter_chunk_gap_ms == summarize([])


def test_latencies_are_measured_from_the_driver_s_marks() -> None:
    collector = EventCollector()
    collector.mark_speech_end(9.0)
    collector.mark_commit(9.5)
    collector.observe(created("A", 10.0))
    collector.observe(delta("A", 10.2))
    (figures,) = collector.figures().responses
    assert figures.timings.speech_end_to_first_audio_ms == pytest.approx(1200)
    assert figures.timings.commit_to_first_audio_ms == pytest.approx(700)


def test_a_mark_is_answered_once_and_by_the_latest_mark() -> None:
    collector = EventCollector()
    collector.mark_speech_end(1.0)
    collector.mark_speech_end(9.0)
    for name, at_s in (("A", 10.0), ("B", 20.0)):
        collector.observe(created(name, at_s))
        collector.observe(delta(name, at_s + 0.1))
    first, second = (f.timings for f in collector.figures().responses)
    assert first.speech_end_to_first_audio_ms == pytest.approx(1100)
    assert first.commit_to_first_audio_ms is None
    assert second.speech_end_to_first_audio_ms is None


def test_a_mark_after_the_response_began_is_not_its_origin() -> None:
    collector = EventCollector()
    collector.observe(created("A", 10.0))
    collector.mark_speech_end(10.1)
    collector.mark_commit(10.1)
    collector.observe(delta("A", 10.2))
    (figures,) = collector.figures().responses
    assert figures.timings.speech_end_to_first_audio_ms is None
    assert figures.timings.commit_to_first_audio_ms is None


def test_engine_timings_stand_apart_as_the_server_sent_them() -> None:
    engine = {"vllm_ttft_ms": 31.0, "vllm_itls_ms": [12.0, 11.0]}
    partly = ev.TranscriptDelta(
        type="response.audio_transcript.delta",
        response_id="A",
        stage_metrics={"vllm_ttft_ms": 31.0, "vllm_itls_ms": [12.0]},
    )
    figures = collect(created("A", 5.0), partly, delta("A", 5.5), done("A", 6.0, engine))["A"]
    assert figures.stage_metrics == engine
    assert figures.timings.response_created_to_first_audio_ms == pytest.approx(500)


def test_events_and_errors_are_counted() -> None:
    collector = EventCollector()
    for _ in range(3):
        collector.observe(ev.ErrorEvent(type="error", code="bad_audio", message=""))
    collector.observe(ev.RateLimitsUpdated(type="rate_limits.updated"))
    collector.observe(delta("never created", 1.0))
    figures = collector.figures()
    assert figures.errors == {"bad_audio": 3}
    assert figures.events == {
        "error": 3,
        "rate_limits.updated": 1,
        "response.audio.delta": 1,
    }
    assert figures.responses == ()


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([5.0], 95, 5.0), ([1.0, 2.0], 50, 1.5), ([4.0, 1.0, 3.0, 2.0, 5.0], 25, 2.0)],
)
def test_percentiles_are_interpolated(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == expected


def test_a_summary_has_the_names_of_the_contract() -> None:
    values = [float(n) for n in range(1, 101)]
    summary = summarize(values)
    assert (summary.count, summary.mean, summary.p50, summary.max) == (100, 50.5, 50.5, 100.0)
    assert summary.p95 == pytest.approx(95.05)
    assert summarize_tail(values).p99 == pytest.approx(99.01)
    assert summarize_tail([]).p99 is None

"""The load generator: what it sends, what it counts, and what it says about itself."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from clients.load import PAUSE_S, main, run_share, said_with_pauses, summary_lines
from clients.load_plan import LoadPlan, SessionSamples
from clients.load_report import LoadReport, session_figures, summarize_load
from clients.load_session import LoadSession
from clients.presets import preset
from clients.provenance import provenance
from clients.stats import summarize_tail
from clients.synthetic import bursts
from tests.clients.fast_time import FastTime
from tests.clients.transcript_server import Line, TranscriptServer, playing

OPENING: list[Line] = [
    {"in": {"type": "session.update"}},
    {"out": {"type": "session.created", "session": {"id": "s", "model": "m"}}},
]
HEARTBEAT: list[Line] = [
    {"in": {"type": "session.heartbeat"}},
    {"out": {"type": "session.heartbeat_ack", "session_id": "s"}},
]
CLOSING: list[Line] = [
    {"in": {"type": "session.close"}},
    {"out": {"type": "session.closed", "reason": "client_close"}},
]
ONE_SECOND = OPENING + HEARTBEAT + CLOSING
THREE_SECONDS = OPENING + HEARTBEAT * 3 + CLOSING


def plan(server: TranscriptServer | None = None, **changes: object) -> LoadPlan:
    recording, spans = bursts()
    made = LoadPlan(
        url=server.url if server else "ws://127.0.0.1:1/",
        settings=preset("auto"),
        recording=recording,
        spans=spans,
        sessions=1,
        seconds=3.0,
        ramp_s=0.0,
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # fields of LoadPlan


async def run_one(server: TranscriptServer, **changes: object) -> SessionSamples:
    time = FastTime()
    told: list[str] = []
    session = LoadSession(
        0, plan(server, **changes), tell=told.append, clock=time.clock, sleep=time.sleep
    )
    samples = await session.run()
    assert told[-1] == samples.outcome
    return samples


async def test_a_session_speaks_at_the_pace_of_a_microphone_and_times_heartbeats() -> None:
    async with playing(THREE_SECONDS) as server:
        samples = await run_one(server)
    assert samples.outcome == "completed"
    assert len(server.sent("input_audio_buffer.append")) == 15
    assert len(samples.send_lags_ms) == 15
    assert len(samples.heartbeat_ms) == 3
    assert (samples.unanswered_heartbeats, samples.open_ms is not None) == (0, True)
    assert samples.seconds >= 3.0


async def test_answers_are_acknowledged_and_waited_for() -> None:
    async with playing("auto_reply") as server:
        samples = await run_one(server)
    figures = session_figures(samples)
    assert figures.responses == {"completed": 1}
    assert figures.audio_ms == 1000.0
    assert len(figures.response_created_to_first_audio_ms) == 1
    assert figures.inter_chunk_gap_ms.count == 1


async def test_an_open_answer_is_drained_with_silence_up_to_a_bound() -> None:
    lines = [
        *OPENING,
        {"in": {"type": "input_audio_buffer.append"}},
        {"out": {"type": "response.created", "response_id": "r", "response": {}}},
        *CLOSING,
    ]
    async with playing(lines) as server:
        samples = await run_one(server, seconds=2.0, drain_s=2.0)
    assert samples.outcome == "completed"
    appends = [event["audio"] for event in server.sent("input_audio_buffer.append")]
    assert len(appends) == 20
    assert all(audio.strip("A=") == "" for audio in appends[10:])
    assert session_figures(samples).responses == {"in_progress": 1}


async def test_a_commit_follows_the_end_of_speech() -> None:
    async with playing(THREE_SECONDS) as server:
        await run_one(server, commits=True)
    kinds = [event["type"] for event in server.received]
    assert kinds.count("input_audio_buffer.commit") == 1
    before = kinds[: kinds.index("input_audio_buffer.commit")]
    # 0.6 s of quiet and 2 s of speech end in the 13th block.
    assert before.count("input_audio_buffer.append") == 13


@pytest.mark.parametrize(
    ("lines", "outcome", "code"),
    [
        ("refused", "refused", "resource_exhausted"),
        ("lost_in_an_answer", "failed", "DuplexDisconnected"),
    ],
)
async def test_what_goes_wrong_is_a_result(lines: str, outcome: str, code: str) -> None:
    async with playing(lines) as server:
        samples = await run_one(server)
    assert (samples.outcome, samples.code) == (outcome, code)
    assert samples.detail


async def test_a_session_that_comes_back_is_whole_and_counted() -> None:
    opening: list[Line] = [
        {"in": {"type": "session.update"}},
        {"out": {"type": "session.created", "session": {"id": "s"}, "resume_token": "secret-1"}},
    ]
    append: Line = {"in": {"type": "input_audio_buffer.append"}}
    lost: list[Line] = [*opening, append, {"in": {"type": "session.heartbeat"}}, {"abort": True}]
    back: list[Line] = [
        {"in": {"type": "session.resume"}},
        {"out": {"type": "session.resumed", "session_id": "s", "resume_token": "secret-2"}},
    ]
    async with playing(lost, then=[[*back, *HEARTBEAT, *CLOSING]]) as server:
        samples = await run_one(server, seconds=6.0)
    assert (samples.outcome, samples.resumes, samples.dropped_audio_ms) == ("completed", 1, 0)
    summary = summarize_load([samples, samples])
    assert summary.resumes == 2
    # One was swallowed with the connection, one answered; no answer goes to the wrong one.
    assert (len(samples.heartbeat_ms), samples.unanswered_heartbeats) == (1, 5)


async def test_nobody_there_is_a_result() -> None:
    (samples,) = await run_share(plan(), range(1), with_progress=False)
    assert samples.outcome == "unreachable"


async def test_late_sends_are_counted() -> None:
    class Overslept(FastTime):
        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep((seconds + 0.5) / self.speed)

    time = Overslept()
    async with playing(THREE_SECONDS) as server:
        session = LoadSession(
            0, plan(server), tell=lambda _: None, clock=time.clock, sleep=time.sleep
        )
        summary = summarize_load([await session.run()])
    assert summary.appends == 15
    assert summary.late_sends == 15
    assert summary.send_lag_ms.p95 is not None
    assert summary.send_lag_ms.p95 > 400


def test_sessions_start_over_the_ramp() -> None:
    ramp = plan(sessions=4, ramp_s=2.0)
    assert [ramp.start_after_s(index) for index in range(4)] == [0.0, 0.5, 1.0, 1.5]


def test_the_summary_is_over_single_measurements() -> None:
    one = SessionSamples(0, "completed", send_lags_ms=(1.0,) * 99, gaps_ms=(10.0,))
    two = SessionSamples(1, "completed", send_lags_ms=(100.0,), gaps_ms=(30.0,))
    refused = SessionSamples(2, "refused", code="resource_exhausted")
    summary = summarize_load([one, two, refused])
    assert summary.outcomes == {"completed": 2, "refused": 1}
    assert summary.refusals == {"resource_exhausted": 1}
    assert summary.send_lag_ms == summarize_tail([1.0] * 99 + [100.0])
    assert (summary.late_sends, summary.appends) == (1, 100)
    assert summary.max_chunk_gap_ms == 30.0


def test_an_overloaded_generator_says_so() -> None:
    def lines(lag_ms: float) -> list[str]:
        samples = [SessionSamples(0, "completed", send_lags_ms=(lag_ms,) * 10)]
        report = LoadReport(
            made=provenance(["test"]),
            url="",
            preset="auto",
            audio="",
            sessions=1,
            processes=1,
            seconds=1.0,
            ramp_s=0.0,
            chunk_ms=200,
            commits=False,
            wall_s=1.0,
            generator_cpu_cores=0.1,
            summary=summarize_load(samples),
            echo=None,
            echo_ratio=None,
            per_session=(),
        )
        return summary_lines(report)

    assert any("sent late" in line for line in lines(50.0))
    assert not any("sent late" in line for line in lines(1.0))
    assert any("nobody was answered" in line for line in lines(1.0))


@pytest.mark.timeout(90)
async def test_the_program_writes_a_report_that_says_how_it_was_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "load.json"
    async with playing(ONE_SECOND) as server:
        argv = ["--url", server.url, "--sessions", "2", "--seconds", "1", "--ramp-s", "0.1"]
        status = await asyncio.to_thread(main, [*argv, "--json", str(out)])
    assert status == 0
    report = json.loads(out.read_text())
    assert report["made"]["argv"] == ["clients.load", *argv, "--json", str(out)]
    assert report["made"]["host_cores"] >= 1
    assert (report["sessions"], report["preset"]) == (2, "auto")
    assert report["summary"]["outcomes"] == {"completed": 2}
    assert report["summary"]["heartbeat_rtt_ms"]["count"] == 2
    assert [one["index"] for one in report["per_session"]] == [0, 1]
    assert "2 completed" in capsys.readouterr().out


@pytest.mark.timeout(90)
async def test_several_processes_share_the_sessions_and_the_echo_gives_a_ratio(
    tmp_path: Path,
) -> None:
    out = tmp_path / "load.json"
    async with playing(ONE_SECOND) as server:
        argv = ["--url", server.url, "--sessions", "3", "--seconds", "1", "--ramp-s", "0.1"]
        argv += ["--processes", "2", "--echo", "--json", str(out)]
        status = await asyncio.to_thread(main, argv)
    assert status == 0
    report = json.loads(out.read_text())
    assert [one["index"] for one in report["per_session"]] == [0, 1, 2]
    assert report["echo"]["append_rtt_ms"]["count"] == 3 * 5
    assert report["echo"]["heartbeat_rtt_ms"]["count"] == 3
    assert report["echo"]["server"].startswith("uvicorn")
    assert report["echo_ratio"]["p99"] > 0


async def test_no_completed_session_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    async with playing("refused") as server:
        status = await asyncio.to_thread(
            main, ["--url", server.url, "--sessions", "2", "--seconds", "1", "--ramp-s", "0"]
        )
    assert status == 1
    assert "2 refused (2 resource_exhausted)" in capsys.readouterr().out


def test_a_missing_file_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--sessions", "1", "--in", str(tmp_path / "none.wav")]) == 2
    assert "none.wav" in capsys.readouterr().err


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_a_number_of_sessions_is_above_zero(
    number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([f"--sessions={number}"])
    assert stopped.value.code == 2
    assert "not a whole number above zero" in capsys.readouterr().err


def test_a_recording_that_is_said_again_and_again_has_an_end_each_time() -> None:
    recording, spans = bursts()
    said, found = said_with_pauses(recording)
    assert said.pcm.startswith(recording.pcm)
    assert said.seconds == recording.seconds + PAUSE_S
    assert len(found) == len(spans)
    assert all(span.end_ms <= recording.seconds * 1000 for span in found)

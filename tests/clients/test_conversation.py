"""`converse` against golden transcripts, in fast time."""

import json

import numpy as np
import pytest

from clients import events as ev
from clients.conversation import ConverseOptions, Progress, Report, converse
from clients.errors import DuplexRefused
from clients.levels import speech_spans
from clients.presets import preset
from clients.source import RecordingSource
from clients.synthetic import RATE_HZ, speech_like
from clients.wav import Recording, to_pcm16
from tests.clients.fast_time import FastTime
from tests.clients.transcript_server import Line, TranscriptServer, pcm, playing

SPOKEN = Recording(to_pcm16(speech_like(0.38)), RATE_HZ)
TIME = FastTime()


async def talk(server: TranscriptServer, options: ConverseOptions | None = None) -> Report:
    source = RecordingSource(SPOKEN, speech_spans(SPOKEN), clock=TIME.clock, sleep=TIME.sleep)
    chosen = options or ConverseOptions(quiet_s=1.0, reply_timeout_s=20.0)
    return await converse(server.url, preset("auto"), source, options=chosen, clock=TIME.clock)


async def test_an_answered_question_is_reported_whole() -> None:
    async with playing("auto_reply") as server:
        report = await talk(server)
    assert (report.session_id, report.model) == ("sess_1", "scripted")
    assert (report.ended, report.is_whole, report.has_reply) == ("settled", True, True)
    (reply,) = report.replies
    assert (reply.transcript, reply.status, reply.heard_ms) == (
        *("It is four o'clock.", "completed", 1000),
    )
    assert [line.transcript for line in report.user_lines] == ["What time is it?"]
    assert (report.errors, report.listen_decisions) == ((), 1)
    assert report.reply_audio == Recording(pcm(400) + pcm(600), 24_000)
    assert reply.stage_metrics is not None
    assert reply.stage_metrics["vllm_itls_ms"] == [11.0, 9.0]
    assert reply.timings.audio_ms == 1000.0
    latency = reply.timings.speech_end_to_first_audio_ms
    assert latency is not None
    assert latency > 0


async def test_the_microphone_stays_open_and_playback_is_acknowledged() -> None:
    async with playing("auto_reply") as server:
        report = await talk(server)
    appends = server.sent("input_audio_buffer.append")
    assert len(appends) == report.send_lag_ms.count
    # The question fills two blocks. While the answer plays, the microphone hears silence.
    assert len(appends) > 3
    assert all(event["audio"].strip("A=") == "" for event in appends[2:])
    acks = [event["played_ms"] for event in server.sent("playback.ack")]
    assert acks[-1] == 1000
    assert acks == sorted(set(acks))
    assert server.received[-1]["type"] == "session.close"
    opening = server.received[0]["session"]
    assert (opening["sample_rate_hz"], opening["input_audio_format"]) == (16_000, "pcm16")


async def test_the_timeline_is_as_long_as_the_conversation_and_holds_what_was_heard() -> None:
    async with playing("auto_reply") as server:
        report = await talk(server)
    heard = report.heard_audio
    assert heard.seconds == pytest.approx(report.seconds, abs=0.002)
    samples = np.frombuffer(heard.pcm, "<i2")
    assert samples[0] == samples[-1] == 0
    assert samples[samples != 0].tobytes() == pcm(400) + pcm(600)


async def test_an_interrupted_answer_is_cut_where_it_was_heard() -> None:
    async with playing("barge_in") as server:
        report = await talk(server)
    first, second = report.replies
    assert (first.status, first.reason, second.status) == (
        *("cancelled", "turn_detected", "completed"),
    )
    assert 0 < first.heard_ms < 12_000
    assert second.heard_ms == 200
    assert len(report.reply_audio.pcm) == len(pcm(12_000) + pcm(200))
    sounding_ms = np.count_nonzero(np.frombuffer(report.heard_audio.pcm, "<i2")) / 24
    assert sounding_ms == pytest.approx(first.heard_ms + 200, abs=2)
    last_of_first = [e for e in server.sent("playback.ack") if e["response_id"] == "resp_A"][-1]
    assert last_of_first["played_ms"] == first.heard_ms


async def test_no_answer_ends_by_itself_and_says_so() -> None:
    async with playing("silent") as server:
        report = await talk(server, ConverseOptions(reply_timeout_s=2.0))
    assert (report.ended, report.is_whole, report.has_reply) == ("no_reply", True, False)
    assert [error.code for error in report.errors] == ["stage_failed"]
    assert report.reply_audio.pcm == b""
    # 0.38 s of speech, then the timeout.
    assert report.seconds >= 2.3


async def test_an_unanswered_second_question_is_waited_for() -> None:
    lines: list[Line] = [
        {"in": {"type": "session.update"}},
        {"out": {"type": "session.created", "session": {"id": "s", "model": "m"}}},
        {"in": {"type": "input_audio_buffer.append"}},
        {"out": {"type": "response.created", "response_id": "r", "response": {}}},
        {"out": {"type": "response.audio.delta", "response_id": "r", "delta": "@pcm:100"}},
        {"out": {"type": "response.done", "response_id": "r", "response": {"status": "completed"}}},
        {"out": {"type": "input_audio_buffer.speech_started", "item_id": "i"}},
        {"out": {"type": "input_audio_buffer.speech_stopped", "item_id": "i"}},
        {"out": {"type": "input_audio_buffer.committed", "item_id": "i"}},
        {"in": {"type": "session.close"}},
        {"out": {"type": "session.closed", "reason": "client_close"}},
    ]
    async with playing(lines) as server:
        report = await talk(server, ConverseOptions(quiet_s=0.5, reply_timeout_s=8.0))
    assert report.ended == "settled"
    assert report.seconds >= 8.0


async def test_a_conversation_that_breaks_off_is_reported_as_far_as_it_went() -> None:
    async with playing("lost_in_an_answer") as server:
        report = await talk(server)
    assert not report.is_whole
    assert "1006" in report.ended
    assert report.has_reply
    assert report.replies[0].status == "in_progress"


async def test_a_conversation_goes_on_after_a_lost_connection() -> None:
    delta = {"type": "response.audio.delta", "response_id": "r", "delta": "@pcm:100"}
    lost: list[Line] = [
        {"in": {"type": "session.update"}},
        {"out": {"type": "session.created", "session": {"id": "s"}, "resume_token": "secret-1"}},
        {"in": {"type": "input_audio_buffer.append"}},
        {"out": {"type": "response.created", "response_id": "r", "response": {"id": "r"}}},
        {"out": delta},
        {"abort": True},
    ]
    back: list[Line] = [
        {"in": {"type": "session.resume"}},
        {"out": {"type": "session.resumed", "session_id": "s", "resume_token": "secret-2"}},
        {"out": delta},
        {"out": {"type": "response.done", "response_id": "r", "response": {"status": "completed"}}},
        {"in": {"type": "session.close"}},
        {"out": {"type": "session.closed", "reason": "client_close"}},
    ]
    seen: list[Progress] = []
    async with playing(lost, then=[back]) as server:
        report = await talk(server, ConverseOptions(quiet_s=1.0, watch=(seen.append,)))
    assert (report.ended, report.is_whole, report.resumes) == ("settled", True, 1)
    assert report.reply_audio.pcm == pcm(100) + pcm(100)
    news = [line for progress in seen for line in progress.news]
    assert news[0].startswith("connection lost (close code 1006)")
    assert news[1].startswith("connected again after")


async def test_a_conversation_with_a_hole_goes_on_and_says_so() -> None:
    begun: Line = {"out": {"type": "response.created", "server_event_seq": 1, "response_id": "A"}}
    voice: Line = {"type": "response.audio.delta", "response_id": "A", "delta": "@pcm:100"}
    onset: Line = {"type": "input_audio_buffer.speech_started", "item_id": "i"}
    lost: list[Line] = [
        {"in": {"type": "session.update"}},
        {"out": {"type": "session.created", "session": {"id": "s"}, "resume_token": "t"}},
        begun,
        {"out": {**voice, "server_event_seq": 2}},
        {"out": {**onset, "server_event_seq": 3}},
        {"abort": True},
    ]
    again: list[Line] = [
        {"in": {"type": "session.resume"}},
        {"out": {"type": "session.resync_required", "oldest_server_event_seq": 9}},
        {"in": {"type": "session.resume"}},
        {"out": {"type": "session.resumed", "session_id": "s", "resume_token": "t2"}},
        {"out": {**voice, "server_event_seq": 9}},
        {"in": {"type": "session.close"}},
        {"out": {"type": "session.closed", "reason": "client_close"}},
    ]
    seen: list[Progress] = []
    async with playing(lost, then=[again]) as server:
        options = ConverseOptions(quiet_s=1.0, reply_timeout_s=1.0, watch=(seen.append,))
        report = await talk(server, options)
    assert (report.ended, report.is_whole, report.resumes) == ("settled", True, 1)
    [reply] = report.replies
    assert (reply.status, reply.reason) == ("lost", "events_lost")
    assert report.reply_audio.pcm == pcm(100)
    news = [line for progress in seen for line in progress.news]
    assert news[2:] == [
        "the gap was too long: 5 events are lost",
        "assistant:  [lost, events_lost, 0.1 s]",
    ]
    assert seen[-1].state != "speaking"


async def test_a_refusal_is_raised() -> None:
    async with playing("refused") as server:
        with pytest.raises(DuplexRefused):
            await talk(server)


async def test_a_time_limit_ends_a_talkative_session() -> None:
    async with playing("auto_reply") as server:
        report = await talk(server, ConverseOptions(quiet_s=60.0, time_limit_s=2.0))
    assert report.ended == "time_limit"


async def test_who_looks_on_sees_states_levels_and_lines() -> None:
    seen: list[Progress] = []
    events: list[ev.ServerEvent] = []
    options = ConverseOptions(quiet_s=1.0, watch=(seen.append,), observers=(events.append,))
    async with playing("auto_reply") as server:
        await talk(server, options)
    states = [progress.state for progress in seen]
    assert {"speaking", "listening"} <= set(states)
    assert seen[0].user_dbfs > -40 > seen[-1].user_dbfs
    loudest = max(progress.assistant_dbfs for progress in seen)
    assert loudest > -40 > seen[-1].assistant_dbfs
    assert [line for progress in seen for line in progress.news] == [
        "user: What time is it?",
        "assistant: It is four o'clock. [completed, 1.0 s]",
    ]
    assert seen[-1].transcript == "It is four o'clock."
    assert isinstance(events[0], ev.SessionCreated)


async def test_the_report_is_plain_json_without_audio() -> None:
    async with playing("auto_reply") as server:
        report = await talk(server)
    plain = json.loads(json.dumps(report.as_json()))
    assert plain["replies"][0]["timings"]["response_created_to_first_audio_ms"] >= 0
    assert "reply_audio" not in plain
    assert plain["send_lag_ms"].keys() == {"count", "mean", "p50", "p95", "max", "p99"}

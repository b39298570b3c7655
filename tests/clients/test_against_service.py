"""The client against the service: its gateway over a real socket, with the scripted model."""

import asyncio
from typing import Any

import numpy as np
import pytest

from clients import events as ev
from clients.conversation import ConverseOptions, converse
from clients.duplex import DuplexClient
from clients.errors import DuplexRefused, RequestRefused
from clients.load_plan import LoadPlan
from clients.load_report import summarize_load
from clients.load_session import LoadSession
from clients.playback import PlaybackClock
from clients.presets import PRESET_NAMES, preset
from clients.session_config import base_settings, with_input
from clients.source import RecordingSource
from clients.synthetic import RATE_HZ, bursts, speech_like
from clients.wav import Recording, to_pcm16
from session.config import SessionLimits
from tests.clients.fast_time import FastTime
from tests.fakes.server import Service, serving
from tests.fakes.stages import ScriptedDirectory

TIME = FastTime()
SECOND = to_pcm16(speech_like(1.0))
TURNS = base_settings(extra_body={"auto_response": False})


def stages(*, max_sessions: int = 1, **script: Any) -> ScriptedDirectory:
    return ScriptedDirectory(max_sessions=max_sessions, **script)


def url(service: Service) -> str:
    return f"ws://127.0.0.1:{service.port}/v1/realtime?duplex=1"


@pytest.mark.parametrize("name", [name for name in PRESET_NAMES if name != "personaplex"])
async def test_every_preset_holds_a_conversation(name: str) -> None:
    quiet = np.zeros(4000)
    question = Recording(to_pcm16(np.concatenate([speech_like(1.5), quiet])), RATE_HZ)
    source = RecordingSource(question, clock=TIME.clock, sleep=TIME.sleep)
    options = ConverseOptions(quiet_s=3.0, reply_timeout_s=30.0)
    async with serving(stages(sentence="Yes.", sentences=1)) as service:
        report = await converse(
            url(service), preset(name), source, options=options, clock=TIME.clock
        )
    assert (report.ended, report.is_whole, report.errors) == ("settled", True, ())
    assert report.model == "scripted"
    assert [(reply.transcript, reply.status) for reply in report.replies] == [("Yes.", "completed")]
    assert report.replies[0].heard_ms == 600
    assert report.events["playback.acknowledged"] >= 1
    assert len(report.reply_audio.pcm) == 600 * 48


@pytest.mark.parametrize("rate_hz", [8000, 44_100, 48_000])
async def test_the_service_converts_the_declared_rate(rate_hz: int) -> None:
    tone = 0.3 * np.sin(2 * np.pi * 300 * np.arange(rate_hz * 3 // 2) / rate_hz)
    recording = Recording(to_pcm16(tone), rate_hz)
    source = RecordingSource(recording, clock=TIME.clock, sleep=TIME.sleep)
    async with serving(stages(sentence="Yes.", sentences=1)) as service:
        report = await converse(url(service), preset("auto"), source, clock=TIME.clock)
    assert (report.ended, report.errors) == ("settled", ())
    assert report.has_reply


async def test_a_committed_turn_gets_the_response_that_was_asked_for() -> None:
    async with (
        serving(stages(sentence="Part {part}.", sentences=2)) as service,
        DuplexClient(url(service), TURNS) as client,
    ):
        with pytest.raises(RequestRefused) as refused:
            await client.create_response()
        committed = client.expect(ev.InputCommitted)
        await client.append_audio(SECOND)
        await client.commit(create_response=False)
        assert (await committed).item_id
        response = await client.create_response({"metadata": {"purpose": "test"}})
        await response.wait_done()
    assert refused.value.code == "response_create_without_input"
    assert (response.status, response.transcript) == ("completed", "Part 1. Part 2.")
    assert len(response.audio) == 2 * 600 * 48
    done = [event for event in response.events if isinstance(event, ev.ResponseDone)]
    assert len(done) == 1
    spoken = [type(event) for event in response.events].count(ev.AudioDelta)
    assert spoken == [type(event) for event in response.events].count(ev.TranscriptDelta)


async def test_an_interruption_is_told_and_what_was_heard_is_accepted() -> None:
    speaker = PlaybackClock()
    answer: dict[str, Any] = {"sentence": "On and on.", "sentences": 20, "sentence_ms": 1000}
    async with (
        serving(stages(speak_at_units=[1], **answer)) as service,
        DuplexClient(url(service), preset("auto"), observers=(speaker.observe,)) as client,
    ):
        played = client.expect(ev.AudioDelta)
        await client.append_audio(SECOND)
        response = await client.next_response()
        await played
        acknowledged = client.expect(ev.PlaybackAcknowledged)
        await client.ack_playback(response.response_id, 200)
        assert (await acknowledged).played_ms == 200
        await client.barge_in()
        await response.wait_done()
        late = client.expect(ev.PlaybackAcknowledged)
        await client.ack_playback(response.response_id, 300)
        assert (await late).played_ms == 300
        assert await client.heartbeat() > 0
        assert response.transcript.count("On and on.") < 20
        assert speaker.is_idle(response.events[-1].received_s)
    assert (response.status, response.reason) == ("cancelled", "barge_in")


async def test_a_full_service_refuses_and_says_that_later_may_do() -> None:
    limits = SessionLimits(max_sessions=1)
    async with serving(stages(), limits=limits) as service:
        async with DuplexClient(url(service)):
            with pytest.raises(DuplexRefused) as refused:
                await DuplexClient(url(service)).open()
        async with DuplexClient(url(service)):
            pass
    assert (refused.value.code, refused.value.retryable) == ("resource_exhausted", True)


async def test_an_unacceptable_setting_is_a_refusal_with_the_field_s_name() -> None:
    settings = with_input(TURNS, rate_hz=96_000)
    async with serving(stages()) as service:
        with pytest.raises(DuplexRefused, match="48000") as refused:
            await DuplexClient(url(service), settings).open()
        await service.idle()
    assert not refused.value.retryable


async def test_a_small_load_is_measured_whole() -> None:
    recording, spans = bursts()
    limits = SessionLimits(max_sessions=3)
    script: dict[str, Any] = {"sentence": "Yes.", "sentences": 1}
    async with serving(stages(max_sessions=3, **script), limits=limits) as service:
        plan = LoadPlan(
            url=url(service),
            settings=preset("auto"),
            recording=recording,
            spans=spans,
            sessions=4,
            seconds=6.0,
            ramp_s=0.0,
        )
        sessions = [
            LoadSession(n, plan, tell=lambda _: None, clock=TIME.clock, sleep=TIME.sleep)
            for n in range(4)
        ]
        summary = summarize_load(await asyncio.gather(*(session.run() for session in sessions)))
    assert summary.outcomes == {"completed": 3, "refused": 1}
    assert summary.refusals == {"resource_exhausted": 1}
    assert summary.responses == {"completed": 3}
    assert summary.speech_end_to_first_audio_ms.count == 3
    assert summary.heartbeat_rtt_ms.count + summary.unanswered_heartbeats >= 3 * 6
    assert summary.unanswered_heartbeats == 0
    assert summary.errors == {"resource_exhausted": 1}

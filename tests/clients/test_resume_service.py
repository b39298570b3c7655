"""The client comes back to the real gateway over a road that breaks."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest

from clients import commands
from clients import events as ev
from clients.conversation import ConverseOptions, converse
from clients.duplex import ClientLimits, DuplexClient
from clients.errors import ResumeRefused, SessionOver
from clients.presets import preset
from clients.resuming import ResumePolicy
from clients.session_config import base_settings
from clients.source import RecordingSource
from clients.synthetic import RATE_HZ, speech_like
from clients.wav import Recording, to_pcm16
from session.config import SessionLimits
from tests.clients.fast_time import FastTime
from tests.clients.waits import Blocked, Waits
from tests.fakes.server import hear, serving
from tests.fakes.stages import ScriptedDirectory, answering
from tests.support.lossy_road import LossyRoad, lossy_road

SECOND = to_pcm16(speech_like(1.0))
AUTO = base_settings(extra_body={"auto_response": True})


class Cutter:
    """An observer that cuts the road at certain events, each time once."""

    def __init__(self, *kinds: type[ev.ServerEvent]) -> None:
        self._left = list(kinds)
        self.road: LossyRoad | None = None
        self.seqs: list[int] = []
        self.healed = asyncio.Event()
        """Set when the client has come back from the last cut."""

    def observe(self, event: ev.ServerEvent) -> None:
        if event.seq is not None:
            self.seqs.append(event.seq)
        if self._left and isinstance(event, self._left[0]):
            assert self.road is not None
            self._left.pop(0)
            self.road.cut()
        elif not self._left and isinstance(event, ev.Resumed):
            self.healed.set()


@pytest.mark.parametrize(
    "cuts",
    [
        (ev.AudioDelta,),
        (ev.AudioDelta, ev.Resumed),
        (ev.SessionUpdated, ev.AudioDelta, ev.Resumed),
    ],
    ids=lambda cuts: "-".join(kind.__name__ for kind in cuts),
)
async def test_an_answer_is_whole_wherever_the_road_breaks(
    cuts: tuple[type[ev.ServerEvent], ...],
) -> None:
    directory = answering(sentence="Part {part}.", sentences=3, chunk_ms=100)
    cutter = Cutter(*cuts)
    async with (
        serving(directory, limits=SessionLimits()) as service,
        lossy_road(service.port) as road,
    ):
        cutter.road = road
        client = DuplexClient(road.url, AUTO, observers=(cutter.observe,), limits=Waits().limits())
        async with client:
            # Audio that was on its way at a cut is lost, so the question is asked after the first.
            if cuts[0] is ev.SessionUpdated:
                await client.expect(ev.Resumed)
            await client.append_audio(SECOND)
            answer = await (await client.next_response()).wait_done()
            await cutter.healed.wait()
            await client.heartbeat()  # the session lives
            assert client.continuity.resumes == len(cuts)
        assert road.connections == 1 + len(cuts)
        await service.idle()
    assert answer.transcript == "Part 1. Part 2. Part 3."
    assert len(answer.audio) == 3 * 600 * 48
    assert cutter.seqs == list(range(1, len(cutter.seqs) + 1))


async def test_a_client_whose_resume_was_answered_into_the_void_gets_in_at_once() -> None:
    """The service has changed the token and does not know that nobody has read the new one."""
    cutter = Cutter(ev.AudioDelta)
    directory = answering(sentence="Part {part}.", sentences=3, chunk_ms=100)
    async with (
        serving(directory, limits=SessionLimits()) as service,
        lossy_road(service.port) as road,
    ):
        cutter.road = road
        road.lose_at(b'"session.resumed"')
        client = DuplexClient(road.url, AUTO, observers=(cutter.observe,), limits=Waits().limits())
        async with client:
            back = client.expect(ev.Resumed)
            await client.append_audio(SECOND)
            answer = await (await client.next_response()).wait_done()
            resumed = await back
            await client.heartbeat()
            # Another socket with the token before finds it spent now.
            request = commands.resume_session(client.session.session_id, first_token(client), 1)
            async with service.dial("duplex=1&resume=1") as line:
                await line.send(commands.as_text(request))
                assert (await hear(line))["error"]["code"] == "session_resume_expired"
        assert road.connections == 3
        await service.idle()
    assert resumed.attachment_generation == 3, "the second socket was given the session too"
    assert answer.transcript == "Part 1. Part 2. Part 3."
    assert cutter.seqs == list(range(1, len(cutter.seqs) + 1))


async def test_a_session_goes_on_when_the_service_has_not_kept_what_was_missed() -> None:
    """The service forgets at once what it has sent, so whatever the road loses is gone."""
    limits = replace(SessionLimits(), resume_replay_ttl_s=1e-9)
    directory = answering(sentence="Part {part}.", sentences=3, chunk_ms=100)
    async with serving(directory, limits=limits) as service, lossy_road(service.port) as road:
        async with DuplexClient(road.url, AUTO, limits=Waits().limits()) as client:
            lost = client.expect(ev.EventsLost)
            directory.knobs.hold("append")
            await client.append_audio(SECOND)
            await directory.knobs.wait_called("append")
            directory.knobs.release("append")
            directory.knobs.hold("append")  # the second sentence waits until the first is here
            half = await client.next_response()
            async for _ in half:
                if len(half.audio) == 600 * 48:
                    break
            road.lose_at(b'"response.audio.delta"')
            directory.knobs.release("append")
            await half.wait_done()
            told = await lost
            await client.heartbeat()
            missed = client.continuity.lost_events
            assert missed == told.last_seq - told.first_seq + 1 > 0
            assert (half.status, len(half.audio)) == ("lost", 600 * 48)
        await service.idle()


def first_token(client: DuplexClient) -> str:
    token = client.session.resume_token
    assert token is not None
    return token


async def test_a_conversation_over_a_bad_road_settles() -> None:
    time = FastTime()
    question = Recording(to_pcm16(np.concatenate([speech_like(1.5), np.zeros(4000)])), RATE_HZ)
    source = RecordingSource(question, clock=time.clock, sleep=time.sleep)
    cutter = Cutter(ev.AudioDelta, ev.PlaybackAcknowledged)
    options = ConverseOptions(quiet_s=3.0, observers=(cutter.observe,))
    directory = ScriptedDirectory(sentence="Yes.", sentences=1)
    async with (
        serving(directory, limits=SessionLimits()) as service,
        lossy_road(service.port) as road,
    ):
        cutter.road = road
        report = await converse(road.url, preset("auto"), source, options=options, clock=time.clock)
    assert (report.ended, report.is_whole, report.errors) == ("settled", True, ())
    assert report.resumes == 2
    assert [(reply.transcript, reply.heard_ms) for reply in report.replies] == [("Yes.", 600)]


async def test_who_is_replaced_is_told_and_does_not_come_back() -> None:
    async with (
        serving(ScriptedDirectory(), limits=SessionLimits()) as service,
        lossy_road(service.port) as road,
    ):
        async with DuplexClient(road.url, AUTO, limits=Waits().limits()) as client:
            created = client.session
            request = {
                "type": "session.resume",
                "session_id": created.session_id,
                "resume_token": created.resume_token,
                # session.updated, which the client has read and acknowledged by now.
                "last_received_server_event_seq": 1,
            }
            async with service.dial("duplex=1&resume=1") as line:
                await line.send(json.dumps(request))
                assert (await hear(line))["type"] == "session.resumed"
                with pytest.raises(SessionOver, match="another connection"):
                    await client.next_response()
                await line.send(json.dumps({"type": "session.close"}))
                await line.wait_closed()
        assert road.connections == 1


async def test_a_session_whose_grace_is_over_is_a_refusal() -> None:
    waits = Blocked()
    limits = replace(SessionLimits(), disconnect_grace_s=0.05)
    directory = ScriptedDirectory()
    async with serving(directory, limits=limits) as service, lossy_road(service.port) as road:
        client = DuplexClient(road.url, AUTO, limits=waits.limits())
        await client.open()
        road.cut()
        await waits.begun.wait()
        await service.idle()
        waits.passes.set()
        with pytest.raises(ResumeRefused) as refused:
            await client.next_response()
        with pytest.raises(ResumeRefused):
            await client.close()
    assert refused.value.code == "session_resume_expired"


async def test_a_client_that_closes_leaves_nothing_behind() -> None:
    limits = ClientLimits(resume=ResumePolicy())
    async with serving(ScriptedDirectory(), limits=SessionLimits()) as service:
        url = f"ws://127.0.0.1:{service.port}/v1/realtime?duplex=1"
        async with DuplexClient(url, AUTO, limits=limits) as client:
            await client.append_audio(SECOND)
        await service.idle()

"""What is counted of a session, from its first event to its end, however that comes."""

from dataclasses import replace

import pytest

from serve_app.metrics.definitions import (
    ACK_LAG,
    AUDIO_SECONDS,
    BARGE_IN_STOP,
    DEADLINE_MISSES,
    DETACHED,
    ERRORS_SENT,
    FIRST_AUDIO,
    OVERLAPPED,
    RESPONSES,
    RESUMES,
    SESSION_DURATION,
    SESSION_OPEN,
    SESSIONS_BEGUN,
    SESSIONS_ENDED,
    SESSIONS_REFUSED,
    SPEECH_FACTOR,
    SPOKEN,
    TAKEOVERS,
    UNDERRUN,
    UNIT_GAP,
    UNIT_LAG,
    UNIT_SECONDS,
    UNITS,
)
from serve_app.metrics.fairness import Fairness
from serve_app.metrics.metric import OTHER
from serve_app.metrics.observed_answers import ObservedAnswers
from serve_app.metrics.observed_units import MOST_OUT, ObservedUnits
from session.config import SessionLimits, TurnDetection
from session.effects import CloseSocket, SubmitUnit
from session.errors import AdmissionRefused, MalformedEvent, StageFailed, StageUnavailable
from session.events import (
    ErrorRaised,
    OverlapDecided,
    PlaybackAdvanced,
    ResponseFinished,
    SessionCreated,
    SpeechDelta,
    UserSpeechStarted,
    UserSpeechStopped,
)
from session.fence import Fence
from session.ids import AttachmentId, ItemId, OperationId, ResponseId, SessionId
from session.realtime.commands import SessionResumeAsked
from session.snapshot import Playback
from session.socket_stimuli import SocketLost
from session.stimuli import (
    BargedIn,
    CloseRequested,
    EventRefused,
    InputCancelled,
    InputCommitted,
    PlaybackAcked,
    SpeechArrived,
    UnitFailed,
    UnitFinished,
)
from session.unit import Decision, SpeechChunk, StageTime, Unit, UnitResult
from tests.fakes.meter import CountedMeter
from tests.fakes.rig import Rig, audio, config, settle
from tests.fakes.stages import ScriptedDirectory, answering

# --- whole sessions -----------------------------------------------------------------------------


async def test_a_conversation_is_counted_from_its_beginning_to_its_end() -> None:
    async with Rig(answering(), config=config()) as rig:
        await rig.until(SessionCreated)
        rig.post(audio(1_000))
        await rig.until(ResponseFinished)
        rig.clock.advance(2.0)
        await rig.close()
        meter = rig.meter
    assert meter.of(SESSIONS_BEGUN) == {("duplex",): 1}
    assert meter.of(SESSIONS_ENDED) == {("client_close",): 1}
    assert meter.values(SESSION_OPEN) == [0.0]
    assert meter.values(SESSION_DURATION) == [2.0]
    assert meter.of(UNITS)["speak", "user"] == 1
    assert len(meter.values(UNIT_SECONDS, "stage0", "total")) == sum(meter.of(UNITS).values())
    assert len(meter.values(UNIT_SECONDS, "stage1", "total")) == 1
    assert len(meter.values(SPEECH_FACTOR)) == 1
    assert meter.of(RESPONSES) == {("completed", "stop"): 1}
    assert meter.of(SPOKEN) == {("smooth",): 1}
    assert meter.of(AUDIO_SECONDS) == {("in",): 1.0, ("out",): pytest.approx(0.6)}
    assert meter.of(UNDERRUN) == meter.of(ERRORS_SENT) == {}


@pytest.mark.parametrize(
    ("fault", "reason", "error"),
    [
        (AdmissionRefused("full"), "admission_refused", ("rate_limit_error", "admission_refused")),
        (StageUnavailable("gone"), "stage_unavailable", ("server_error", "stage_unavailable")),
        (MalformedEvent("voice"), "client_error", ("invalid_request_error", "malformed_event")),
    ],
)
async def test_a_session_that_is_refused(
    fault: AdmissionRefused, reason: str, error: tuple[str, str]
) -> None:
    directory = ScriptedDirectory()
    directory.knobs.fail_next("open", fault)
    async with Rig(directory) as rig:
        await rig.until(CloseSocket)
        await rig.ended()
        meter = rig.meter
    assert meter.of(SESSIONS_REFUSED) == {(reason,): 1}
    assert meter.of(SESSIONS_ENDED) == {("not_opened",): 1}
    assert meter.of(ERRORS_SENT) == {error: 1}
    assert meter.values(SESSION_DURATION) == []


async def test_the_ends_of_a_session() -> None:
    async with Rig(ScriptedDirectory()) as rig:
        await rig.until(SessionCreated)
        rig.post(SocketLost())
        await rig.ended()
        assert rig.meter.of(SESSIONS_ENDED) == {("disconnect",): 1}
    async with Rig(ScriptedDirectory()) as rig:
        await rig.until(SessionCreated)
        rig.directory.opened[0].lose("stage1", StageUnavailable("gone"))
        await rig.ended()
        assert rig.meter.of(SESSIONS_ENDED) == {("stage1_lost",): 1}
    async with Rig(ScriptedDirectory()) as rig:
        await rig.until(SessionCreated)
        rig.post(CloseRequested("whatever a client writes"))
        await rig.ended()
        assert rig.meter.of(SESSIONS_ENDED) == {(OTHER,): 1}
    async with Rig(ScriptedDirectory()) as rig:
        rig.knobs.hold("open")
        rig.post(CloseRequested())  # before it is open
        await settle()
        rig.knobs.release("open")
        await rig.ended()
        assert rig.meter.of(SESSIONS_ENDED) == {("client_close",): 1}
    async with Rig(ScriptedDirectory()) as rig:
        rig.session.breaks_at = BargedIn
        rig.post(BargedIn())
        await rig.ended()
        assert rig.meter.of(SESSIONS_ENDED) == {("broken",): 1}
        assert rig.meter.of(ERRORS_SENT) == {("server_error", "local_protocol_error"): 1}


async def test_a_socket_that_is_lost_and_others_that_want_the_session() -> None:
    limits = SessionLimits(disconnect_grace_s=30.0)
    async with Rig(ScriptedDirectory(), limits=limits, is_resumable=True) as rig:
        created = await rig.until(SessionCreated)
        assert rig.actor.state == "active"
        rig.post(SocketLost())
        await settle()
        assert rig.actor.state == "detached"
        assert rig.meter.of(DETACHED) == {("lost",): 1}
        token = created.resume_token
        assert token is not None
        asked = SessionResumeAsked(SessionId("sess_1"), token, 0)
        assert await rig.actor.attach(AttachmentId("two"), replace(asked, resume_token="x"))
        assert await rig.actor.attach(AttachmentId("three"), asked) is None
        rig.actor.post(SocketLost(AttachmentId("three")))
        await settle()
        assert rig.meter.of(RESUMES) == {("refused",): 1, ("resumed",): 1}
        assert rig.meter.of(ERRORS_SENT) == {("invalid_request_error", "resume_refused"): 1}
        assert rig.meter.of(TAKEOVERS) == {}
        rig.clock.advance(31.0)
        await rig.ended()
        assert rig.meter.of(SESSIONS_ENDED) == {("disconnect_grace_expired",): 1}


async def test_what_a_client_does_wrong_is_an_error_that_it_is_sent() -> None:
    async with Rig(ScriptedDirectory()) as rig:
        await rig.until(SessionCreated)
        rig.post(EventRefused(MalformedEvent("no")))
        await rig.until(ErrorRaised)
        assert rig.meter.of(ERRORS_SENT) == {("invalid_request_error", "malformed_event"): 1}


async def test_a_unit_that_fails_and_one_that_is_too_late_to_count() -> None:
    async with Rig(answering(), config=config()) as rig:
        await rig.until(SessionCreated)
        rig.knobs.fail_next("append", StageFailed("no"))
        rig.post(audio(1_000))
        await rig.until(ErrorRaised)
        assert rig.meter.of(UNITS) == {("failed", "user"): 1}
        rig.knobs.hold("answer")
        rig.post(audio(1_000))
        await rig.knobs.wait_called("answer")
        rig.post(InputCancelled())
        await settle()
        rig.knobs.release("answer")
        await settle()
        assert rig.meter.of(UNITS)["stale", "user"] == 1


async def test_a_client_that_interrupts_stops_the_answer_at_once() -> None:
    directory = answering(sentences=40)
    async with Rig(directory, config=config()) as rig:
        await rig.until(SessionCreated)
        rig.post(audio(1_000))
        await rig.until(SpeechDelta)
        rig.post(BargedIn())
        await rig.until(ResponseFinished)
        assert rig.meter.of(RESPONSES) == {("cancelled", "barge_in"): 1}
        assert rig.meter.values(BARGE_IN_STOP, "client") == [0.0]
        assert rig.meter.values(BARGE_IN_STOP, "speech") == []


async def test_speech_that_interrupts_is_timed_from_its_first_sound() -> None:
    settings = config(turn_detection=TurnDetection(prefix_padding_ms=0))
    async with Rig(answering(sentences=40), config=settings) as rig:
        await rig.until(SessionCreated)
        rig.post(audio(1_000, loud=False))
        await rig.until(SpeechDelta)
        rig.post(audio(320))
        await rig.until(ResponseFinished)
        [took_s] = rig.meter.values(BARGE_IN_STOP, "speech")
        # The append came with its 320 ms: its first sound was so long ago.
        assert took_s == pytest.approx(0.320, abs=0.033)
        assert rig.meter.of(OVERLAPPED) == {("barge_in", "server_vad_speech_started"): 1}


async def test_a_session_that_ends_has_not_been_interrupted() -> None:
    async with Rig(answering(sentences=40), config=config()) as rig:
        await rig.until(SessionCreated)
        rig.post(audio(1_000))
        await rig.until(SpeechDelta)
        await rig.close()
        assert rig.meter.of(RESPONSES) == {("cancelled", OTHER): 1}
        assert rig.meter.values(BARGE_IN_STOP, "client") == []


async def test_commit_to_first_audio() -> None:
    turns = replace(config(), auto_response=False)
    async with Rig(answering(), config=turns) as rig:
        await rig.until(SessionCreated)
        rig.knobs.hold("append")
        rig.post(audio(1_000), InputCommitted(create_response=True))
        await rig.knobs.wait_called("append")
        rig.clock.advance(0.7)
        rig.knobs.release("append")
        await rig.until(ResponseFinished)
        assert rig.meter.values(FIRST_AUDIO, "commit") == [pytest.approx(0.7)]
        assert rig.meter.of(DEADLINE_MISSES) == {}


# --- units --------------------------------------------------------------------------------------

F = Fence(SessionId("s"), 0, 0, 0)


def units() -> tuple[ObservedUnits, CountedMeter]:
    meter = CountedMeter()
    return ObservedUnits(meter, Fairness(), SessionId("s"), 1.0), meter


def submit(seq: int, pcm_ms: int = 1_000, *, is_continuation: bool = False) -> SubmitUnit:
    unit = Unit(bytes(pcm_ms * 32), is_continuation=is_continuation)
    return SubmitUnit(F, seq, OperationId(f"op{seq}"), unit, 0)


def finished(seq: int, time: StageTime | None = None) -> UnitFinished:
    return UnitFinished(F, seq, UnitResult(Decision.LISTEN, time=time))


def test_the_parts_of_a_unit_make_up_its_whole() -> None:
    watched, meter = units()
    watched.submit(submit(1), now=10.0, lag_s=0.0, is_continuous=True)
    watched.finish(finished(1, StageTime(0.1, 0.5)), now=10.8, was_stale=False)
    parts = [meter.values(UNIT_SECONDS, "stage0", part) for part in ("queue", "compute")]
    assert parts == [[0.1], [0.5]]
    assert meter.values(UNIT_SECONDS, "stage0", "transfer") == [pytest.approx(0.2)]
    assert meter.values(UNIT_SECONDS, "stage0", "total") == [pytest.approx(0.8)]
    assert meter.of(DEADLINE_MISSES) == {}


def test_a_unit_is_late_when_it_takes_longer_than_it_lasts() -> None:
    watched, meter = units()
    watched.submit(submit(1, pcm_ms=3_000), now=0.0, lag_s=0.0, is_continuous=False)
    watched.finish(finished(1), now=2.9, was_stale=False)
    assert meter.of(DEADLINE_MISSES) == {}
    watched.submit(submit(2, pcm_ms=100), now=10.0, lag_s=0.0, is_continuous=False)
    watched.finish(finished(2), now=11.1, was_stale=False)
    assert meter.of(DEADLINE_MISSES) == {("stage0",): 1}


def test_gap_and_lag_are_those_of_a_stream() -> None:
    watched, meter = units()
    for seq, at_s in enumerate((0.0, 1.0, 2.5)):
        watched.submit(submit(seq), now=at_s, lag_s=seq / 10, is_continuous=True)
    assert meter.values(UNIT_GAP) == [1.0, 1.5]
    assert meter.values(UNIT_LAG) == [0.0, 0.1, 0.2]
    watched.submit(submit(3, is_continuation=True), now=3.0, lag_s=0.0, is_continuous=True)
    watched.submit(submit(4), now=9.0, lag_s=0.0, is_continuous=False)
    assert len(meter.values(UNIT_GAP)) == 2


def test_speech_that_takes_longer_than_it_lasts_is_late() -> None:
    watched, meter = units()
    for seq, took_s in ((1, 0.5), (2, 1.5)):
        watched.synthesize(seq, now=0.0)
        half = SpeechChunk(bytes(24_000), "", time=StageTime(0.1, 0.2))
        watched.hear(SpeechArrived(F, seq, half), now=0.4)
        watched.hear(SpeechArrived(F, seq, half), now=took_s)
        watched.end_speech(seq, now=took_s, is_whole=True)
    assert meter.values(UNIT_SECONDS, "stage1", "total") == [0.4, 0.4]
    assert meter.values(UNIT_SECONDS, "stage1", "transfer") == [pytest.approx(0.1)] * 2
    assert meter.values(SPEECH_FACTOR) == [0.5, 1.5]
    assert meter.of(DEADLINE_MISSES) == {("stage1",): 1}


def test_what_nobody_waits_for_is_not_counted_and_not_kept() -> None:
    watched, meter = units()
    watched.finish(UnitFailed(F, 7, StageFailed("x")), now=1.0, was_stale=False)
    watched.hear(SpeechArrived(F, 7, SpeechChunk(bytes(2), "")), now=1.0)
    watched.synthesize(8, now=1.0)
    watched.cancel()
    watched.end_speech(8, now=2.0, is_whole=True)
    for seq in range(2 * MOST_OUT):
        watched.submit(submit(seq), now=1.0, lag_s=0.0, is_continuous=False)
    watched.finish(finished(0), now=2.0, was_stale=False)
    assert not meter.counts
    watched.finish(finished(2 * MOST_OUT - 1), now=2.0, was_stale=False)
    assert meter.of(UNITS) == {("listen", "user"): 1}


# --- answers ------------------------------------------------------------------------------------

R = ResponseId("r")


def delta(ms: int) -> SpeechDelta:
    fmt = config().output_format
    return SpeechDelta(F, R, ItemId("i"), bytes(ms * 48), "", ms, (), Playback(), fmt)


def test_playback_that_runs_dry() -> None:
    meter = CountedMeter()
    watched = ObservedAnswers(meter)
    watched.send(delta(1_000), now=0.0)
    watched.send(delta(1_000), now=0.9)
    watched.send(delta(1_000), now=2.5)  # half a second after it was needed
    assert meter.of(UNDERRUN) == {(): pytest.approx(0.5)}
    assert meter.of(AUDIO_SECONDS) == {("out",): 3.0}
    # 3 s in: it has played two seconds, stood still for half of one, and played half.
    ack = PlaybackAdvanced(F, R, ItemId("i"), Playback(3_000, 3_000, 2_300, 2_300), False)
    watched.advance(ack, at_s=3.0)
    assert meter.values(ACK_LAG) == [pytest.approx(0.2)]


def test_speech_end_to_first_audio_by_the_place_in_the_stream() -> None:
    meter = CountedMeter()
    watched = ObservedAnswers(meter)
    watched.hear(bytes(2_000 * 32))
    watched.begin_speech(UserSpeechStarted(200, ItemId("u")), at_s=2.0, padding_ms=300)
    watched.hear(bytes(1_000 * 32))
    # Told at 3.0 s of the stream: the user stopped at 2.4 s of it.
    watched.end_speech(UserSpeechStopped(2_400, ItemId("u")), at_s=13.0)
    watched.send(delta(100), now=13.9)
    assert meter.values(FIRST_AUDIO, "speech_end") == [pytest.approx(1.5)]
    watched.stop(is_clients=False, at_s=14.0, now=14.0)
    assert meter.values(BARGE_IN_STOP, "speech") == [pytest.approx(14.0 - 0.5)]


def test_without_a_detector_an_interruption_began_when_its_speech_did() -> None:
    meter = CountedMeter()
    watched = ObservedAnswers(meter)
    watched.stop(is_clients=False, at_s=1.0, now=1.0)
    assert meter.values(BARGE_IN_STOP, "speech") == []
    ruling = OverlapDecided(F, "barge_in_on_speech", "barge_in", "long_overlap_speech", 200, 1_200)
    watched.rule(ruling, at_s=5.0)
    watched.stop(is_clients=False, at_s=5.0, now=5.1)
    assert meter.values(BARGE_IN_STOP, "speech") == [pytest.approx(1.3)]


async def test_an_acknowledgement_is_measured() -> None:
    async with Rig(answering(), config=config()) as rig:
        await rig.until(SessionCreated)
        rig.post(audio(1_000))
        await rig.until(ResponseFinished)
        rig.clock.advance(0.5)
        rig.post(PlaybackAcked(played_ms=200))
        await rig.until(PlaybackAdvanced)
        assert rig.meter.values(ACK_LAG) == [pytest.approx(0.3)]

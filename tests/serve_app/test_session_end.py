"""How a session ends: on request, by a lost socket or stage, and by a fault of our own."""

import pytest

from serve_app.sessions.session_actor import READER_PATIENCE_S
from session.config import (
    ConfigPatch,
    SessionLimits,
)
from session.effects import CloseSocket
from session.errors import (
    AdmissionRefused,
    StageFailed,
    StageUnavailable,
)
from session.events import (
    ErrorRaised,
    HeartbeatAnswered,
    ResponseFinished,
    ResponseStarted,
    SessionClosed,
    SessionExpired,
    SessionUpdated,
)
from session.ids import AttachmentId
from session.realtime.commands import SessionResumeAsked
from session.socket_stimuli import FIRST_ATTACHMENT, ReaderStalled, SocketLost
from session.stimuli import (
    BargedIn,
    CloseRequested,
    HeartbeatReceived,
    InputCleared,
    SessionConfigured,
    SpeechArrived,
    StagesReleased,
    Stimulus,
    UnitFinished,
)
from tests.fakes.rig import Rig, audio, config, events_of, names, settle
from tests.fakes.stages import ScriptedDirectory, answering

# --- the end ------------------------------------------------------------------------------------


async def test_close_frees_both_stages_before_it_says_so() -> None:
    directory = answering()
    async with Rig(directory, config=config()) as rig:
        rig.post(audio(1_000))
        await rig.until(ResponseFinished)
        directory.knobs.hold("close")
        rig.post(CloseRequested("client_close"))
        await directory.knobs.wait_called("close")
        await settle()
        assert not rig.handled(StagesReleased)
        directory.knobs.release("close")
        said = await rig.read_until(CloseSocket)
        assert names(said) == ["SessionClosed", "CloseSocket"]
        assert said[-1] == CloseSocket(1000, "client_close")
        await rig.ended()
    assert directory.open_sessions == directory.bound_sessions == 0
    assert rig.clock.pending == 0


async def test_a_failed_release_keeps_the_slot_and_is_tried_again() -> None:
    directory = ScriptedDirectory()
    async with Rig(directory, config=config()) as rig:
        await rig.until(SessionUpdated)
        directory.knobs.fail_next("close", StageFailed("not yet"))
        rig.post(CloseRequested())
        await directory.knobs.wait_called("close")
        await settle()
        assert directory.open_sessions == 1
        assert not rig.handled(StagesReleased)
        rig.clock.advance(rig.limits.reaper_interval_s)
        await rig.until(SessionClosed)
        await rig.ended()
    assert directory.open_sessions == 0


@pytest.mark.parametrize("held", ["open", "append", "speak", "chunk", "configure", "cancel"])
async def test_a_lost_socket_frees_the_slot_whatever_is_going_on(held: str) -> None:
    directory = answering()
    directory.knobs.hold(held)
    rig = Rig(directory, config=config())
    async with rig:
        rig.post(audio(1_000))
        if held == "configure":
            rig.post(SessionConfigured(ConfigPatch((("voice", "low"),))))
        if held == "cancel":
            await rig.until(ResponseStarted)
            rig.post(BargedIn())
        await directory.knobs.wait_called(held)
        rig.post(SocketLost())
        await settle()
        if held in {"open", "cancel"}:
            directory.knobs.release(held)
        await rig.ended()
    assert directory.open_sessions == directory.bound_sessions == 0
    assert rig.clock.pending == 0


async def test_a_socket_that_is_lost_while_closing_changes_nothing() -> None:
    directory = ScriptedDirectory()
    async with Rig(directory, config=config()) as rig:
        await rig.until(SessionUpdated)
        directory.knobs.hold("close")
        rig.post(CloseRequested(), SocketLost(), SocketLost())
        await directory.knobs.wait_called("close")
        directory.knobs.release("close")
        await rig.until(SessionClosed)
        await rig.ended()
    assert directory.knobs.names().count("close") == 1


async def test_a_refused_admission_closes_with_try_again() -> None:
    directory = ScriptedDirectory(max_sessions=0)
    async with Rig(directory, config=config()) as rig:
        error = await rig.until(ErrorRaised)
        assert isinstance(error.error, AdmissionRefused)
        assert await rig.until(CloseSocket) == CloseSocket(1013, "resource_exhausted")
        await rig.ended()
    assert directory.open_sessions == 0


async def test_a_lost_stage_ends_the_session() -> None:
    directory = ScriptedDirectory()
    async with Rig(directory, config=config()) as rig:
        await rig.until(SessionUpdated)
        directory.opened[0].lose("stage0", StageUnavailable("its process is gone"))
        said = await rig.read_until(CloseSocket)
        assert names(said) == ["ErrorRaised", "SessionExpired", "CloseSocket"]
        assert events_of(SessionExpired, said)
        await rig.ended()
    assert directory.open_sessions == 0


async def test_a_client_that_is_sent_much_at_once_and_reads_it_is_not_slow() -> None:
    limits = SessionLimits(max_output_events_per_session=8)
    async with Rig(ScriptedDirectory(), config=config(), limits=limits) as rig:
        await rig.until(SessionUpdated)
        rig.post(*(HeartbeatReceived(str(number)) for number in range(100)))
        await settle()
        assert len(rig.handled(HeartbeatReceived)) < 20, "what is not read holds back the rest"
        for _ in range(100):
            assert isinstance(await rig.next(), HeartbeatAnswered)
        assert not rig.handled(ReaderStalled)


async def test_a_reader_that_is_gone_holds_nothing_back() -> None:
    limits = SessionLimits(max_output_events_per_session=2)
    async with Rig(ScriptedDirectory(), config=config(), limits=limits, is_resumable=True) as rig:
        await rig.until(SessionUpdated)
        rig.post(*(HeartbeatReceived() for _ in range(9)))
        await settle()
        rig.actor.outbound.leave(FIRST_ATTACHMENT)
        rig.post(SocketLost())
        await settle()
        assert rig.handled(SocketLost)
        assert not rig.handled(ReaderStalled)
        rig.clock.advance(rig.limits.disconnect_grace_s)
        await rig.ended()


async def test_a_client_that_does_not_read_is_told_of_once() -> None:
    limits = SessionLimits(max_output_bytes_per_session=4_096)
    async with Rig(answering(), config=config(), limits=limits) as rig:
        rig.post(audio(1_000))
        await rig.knobs.wait_called("chunk")
        await settle()
        assert not rig.handled(ReaderStalled), "it may still catch up"
        rig.clock.advance(READER_PATIENCE_S)
        await rig.ended()
        assert len(rig.handled(ReaderStalled)) == 1
        said = await rig.read_until(CloseSocket)
        assert said[-1] == CloseSocket(1013, "slow_reader")
        assert len(events_of(ResponseFinished, said)) == len(events_of(ResponseStarted, said))
    assert rig.directory.open_sessions == 0


# --- our own faults -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [InputCleared, UnitFinished, SpeechArrived])
async def test_a_kernel_that_breaks_ends_its_own_session_only(
    kind: type[Stimulus], caplog: pytest.LogCaptureFixture
) -> None:
    directory = answering(max_sessions=2)
    async with (
        Rig(directory, config=config()) as rig,
        Rig(directory, config=config(), session_id="sess_2") as other,
    ):
        rig.session.breaks_at = kind
        rig.post(audio(1_000), InputCleared())
        said = await rig.read_until(CloseSocket)
        await rig.ended()
        assert said[-1] == CloseSocket(1011, "internal_error")
        assert names(said)[-2] == "ErrorRaised"
        [broke] = [vars(said) for said in caplog.records if said.message == "session broke"]
        assert broke["session"] == "sess_1"
        assert f"{kind.__name__}" in broke["story"][-1]
        assert "broke" in broke["story"][-1]
        assert "OpenRequested" in broke["story"][0]
        assert directory.open_sessions == 1
        other.post(audio(1_000))
        await other.until(ResponseFinished)
    assert directory.open_sessions == directory.bound_sessions == 0


@pytest.mark.parametrize("call", ["append", "speak", "configure"])
async def test_a_port_that_breaks_its_promise_ends_its_own_session(call: str) -> None:
    directory = answering()
    directory.knobs.fail_next(call, KeyError("a bug"))
    async with Rig(directory, config=config()) as rig:
        rig.post(audio(1_000), SessionConfigured(ConfigPatch((("voice", "low"),))))
        assert await rig.until(CloseSocket) == CloseSocket(1011, "internal_error")
        await rig.ended()
    assert directory.open_sessions == directory.bound_sessions == 0


async def test_nobody_waits_for_a_session_that_broke_and_can_not_give_its_stages_back() -> None:
    directory = answering()
    directory.knobs.hold("close")
    async with Rig(directory, config=config()) as rig:
        await rig.until(SessionUpdated)
        rig.session.breaks_at = InputCleared
        rig.post(InputCleared())
        await directory.knobs.wait_called("close")
        asked = SessionResumeAsked(rig.actor.fence.session_id, "token", 0)
        refused = await rig.actor.attach(AttachmentId("att_late"), asked)
        assert isinstance(refused, ErrorRaised)
        assert refused.error.wire_code == "session_resume_expired"
        directory.knobs.release("close")
        await rig.ended()
    assert directory.open_sessions == directory.bound_sessions == 0

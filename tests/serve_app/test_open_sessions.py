"""Sessions run on their own, and end with the process."""

import asyncio

import pytest

from serve_app.sessions.open_sessions import OpenSessions
from session.events import SessionClosed, SessionUpdated
from session.socket_stimuli import SocketLost
from session.stimuli import (
    OpenRequested,
)
from tests.fakes.rig import Rig
from tests.fakes.stages import ScriptedDirectory


async def started(sessions: OpenSessions, rig: Rig) -> None:
    """Run the rig's session in `sessions` until it is open."""
    sessions.start(rig.actor)
    rig.post(OpenRequested())
    await rig.until(SessionUpdated)


async def test_all_are_asked_to_close_and_are_waited_for() -> None:
    directory = ScriptedDirectory(max_sessions=3)
    sessions = OpenSessions()
    rigs = [Rig(directory, session_id=f"sess_{number}") for number in range(3)]
    for rig in rigs:
        await started(sessions, rig)
    assert len(sessions) == 3
    assert [sessions.find(rig.actor.fence.session_id) for rig in rigs] == [r.actor for r in rigs]
    await sessions.close_all("server_shutdown", within_s=5)
    for rig in rigs:
        assert (await rig.until(SessionClosed)).reason == "server_shutdown"
    assert len(sessions) == directory.open_sessions == 0
    assert all(sessions.find(rig.actor.fence.session_id) is None for rig in rigs)


async def test_one_that_does_not_end_is_not_waited_for_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    directory = ScriptedDirectory()
    sessions = OpenSessions()
    rig = Rig(directory)
    await started(sessions, rig)
    directory.knobs.hold("close")
    await sessions.close_all("server_shutdown", within_s=0.01)
    assert len(sessions) == 1
    said = caplog.records[-1]
    assert said.message == "sessions had not given their stages back in time"
    assert vars(said)["count"] == 1
    directory.knobs.release("close")
    async with asyncio.timeout(5):
        await sessions.wait_idle()
    assert sessions.find(rig.actor.fence.session_id) is None


async def test_one_that_can_not_give_back_its_stages_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    directory = ScriptedDirectory()
    sessions = OpenSessions()
    rig = Rig(directory)
    await started(sessions, rig)
    rig.session.breaks_at = SocketLost
    directory.knobs.fail_next("close", KeyError("a bug"))
    rig.post(SocketLost())
    async with asyncio.timeout(5):
        await sessions.wait_idle()
    assert "could not give its stages back" in caplog.text
    assert sessions.find(rig.actor.fence.session_id) is None

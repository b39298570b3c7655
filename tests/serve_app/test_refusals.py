"""A client that sends wrong events on and on is cut off, one that is often wrong is not."""

import pytest

from serve_app.gateway.refusals import MOST_REFUSALS, WITHIN_S, Refusals
from serve_app.metrics.definitions import FLOODS, SESSIONS_ENDED
from tests.fakes.line import dialled
from tests.fakes.stages import ScriptedDirectory
from tests.fakes.wire import client, update

FLOOD = (1008, "too_many_refusals")
UNKNOWN = client("no.such.event")
ILLEGAL = client("response.cancel")


@pytest.mark.parametrize(
    "wrong", [pytest.param(UNKNOWN, id="unread"), pytest.param(ILLEGAL, id="illegal")]
)
async def test_small_wrong_events_that_are_answered_at_once_are_a_flood_too(wrong: str) -> None:
    async with dialled(ScriptedDirectory()) as line:
        line.socket.say(update())
        await line.until("session.updated")
        for _ in range(MOST_REFUSALS):
            line.socket.say(wrong)
            assert (await line.hear())["type"] == "error"
        assert line.socket.closed is None
        line.socket.say(wrong)
        assert await line.socket.wait_closed() == FLOOD
        assert line.meter.of(FLOODS) == {(): 1}
        await line.ended()
        assert line.meter.of(SESSIONS_ENDED) == {("too_many_refusals",): 1}


async def test_so_are_they_before_there_is_a_session() -> None:
    async with dialled(ScriptedDirectory()) as line:
        for _ in range(MOST_REFUSALS + 1):
            line.socket.say(UNKNOWN)
        assert await line.socket.wait_closed() == FLOOD
        assert len(line.sessions) == 0


def test_who_is_wrong_with_every_frame_of_a_microphone_is_not_flooding() -> None:
    refusals = Refusals()
    for frame in range(10 * MOST_REFUSALS):
        refusals.note(now=frame * 0.01)
        assert not refusals.are_many


def test_what_is_long_ago_does_not_count() -> None:
    refusals = Refusals()
    for _ in range(MOST_REFUSALS):
        refusals.note(now=0.0)
    refusals.note(now=WITHIN_S)
    assert not refusals.are_many
    for _ in range(MOST_REFUSALS):
        refusals.note(now=WITHIN_S)
    assert refusals.are_many

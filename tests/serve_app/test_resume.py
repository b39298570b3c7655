"""A client that lost its socket goes on where it was; one that was replaced is heard no more."""

from typing import Any

import pytest

from serve_app.gateway.connection import STUCK_AFTER_S
from session.config import SessionLimits
from tests.fakes.line import Line, dialled
from tests.fakes.rig import settle
from tests.fakes.stages import ScriptedDirectory, answering
from tests.fakes.wire import append, client, update

RESUMES = SessionLimits()
AUTO = {"auto_response": True}


def resume(created: dict[str, Any], last: int = 0, *, token: str | None = None) -> str:
    return client(
        "session.resume",
        session_id=created.get("session_id") or created["session"]["id"],
        resume_token=created["resume_token"] if token is None else token,
        last_received_server_event_seq=last,
        event_id="r",
    )


async def opened(line: Line, **session: Any) -> dict[str, Any]:
    """Open a session; return session.created. session.updated has number 1."""
    line.socket.say(update(**session))
    created = await line.hear()
    assert created["type"] == "session.created"
    assert (await line.hear())["server_event_seq"] == 1
    return created


async def code(line: Line) -> str:
    """Return the code of the error that comes next."""
    event = await line.hear()
    assert event["type"] == "error", event
    return str(event["error"]["code"])


async def test_an_answer_goes_on_on_the_next_socket_as_if_nothing_had_been() -> None:
    async with dialled(answering(), limits=RESUMES) as line:
        created = await opened(line, extra_body=AUTO)
        line.socket.say(append(1_000))
        before = await line.until("response.speak")
        line.socket.vanish()
        await line.hung_up()
        await settle()
        again = line.another()
        again.socket.say(resume(created, before[-1]["server_event_seq"]))
        resumed, *after = await again.until("rate_limits.updated")
        assert resumed["type"] == "session.resumed"
        assert resumed["attachment_generation"] == 2
        assert resumed["session"]["id"] == created["session"]["id"]
        assert "server_event_seq" not in resumed
        numbers = [event["server_event_seq"] for event in before + after]
        assert numbers == list(range(2, 2 + len(numbers)))
        ids = [event["event_id"] for event in before + after]
        assert len(set(ids)) == len(ids)
        deltas = [e["delta"] for e in after if e["type"] == "response.audio_transcript.delta"]
        [done] = [e for e in after if e["type"] == "response.audio_transcript.done"]
        assert "".join(deltas) == done["transcript"]
        again.socket.say(client("session.close"))
        await again.until("session.closed")


async def test_missed_events_come_again_with_the_ids_that_they_had() -> None:
    async with dialled(ScriptedDirectory(), limits=RESUMES) as line:
        created = await opened(line)
        for _ in range(3):
            line.socket.say(client("session.heartbeat"))
        first = [await line.hear() for _ in range(3)]
        line.socket.vanish()
        await line.hung_up()
        again = line.another()
        again.socket.say(resume(created, 2))
        assert (await again.hear())["type"] == "session.resumed"
        assert [await again.hear() for _ in range(2)] == first[1:]
        again.socket.vanish()


async def test_a_takeover_replaces_the_socket_and_ignores_what_it_still_says() -> None:
    async with dialled(ScriptedDirectory(), limits=RESUMES) as line:
        created = await opened(line)
        again = line.another()
        again.socket.say(resume(created, 1))
        resumed = await again.hear()
        replaced = await line.hear()
        assert replaced["type"] == "session.replaced"
        assert replaced["attachment_generation"] == 1
        assert await line.socket.wait_closed() == (1000, "session_replaced")
        for _ in range(3):
            line.socket.say(client("session.close"))
        again.socket.say(client("session.heartbeat"))
        assert (await again.hear())["type"] == "session.heartbeat_ack"
        assert resumed["resume_token"] != created["resume_token"]
        again.socket.vanish()


async def test_a_takeover_does_not_wait_for_a_socket_that_does_not_read() -> None:
    async with dialled(answering(), limits=RESUMES) as line:
        created = await opened(line, extra_body=AUTO)
        line.socket.stop_reading()
        line.socket.say(append(1_000))
        await line.directory.knobs.wait_called("chunk")
        await settle()
        again = line.another()
        again.socket.say(resume(created, 1))
        said = await again.until("rate_limits.updated")
        assert [event.get("server_event_seq") for event in said] == [None, *range(2, 1 + len(said))]
        line.clock.advance(STUCK_AFTER_S)
        await line.hung_up()
        assert line.socket.closed is None
        again.socket.vanish()


async def test_unknown_over_and_wrong_are_one_refusal_and_leave_another_try() -> None:
    async with dialled(ScriptedDirectory(), limits=RESUMES) as line:
        created = await opened(line)
        other = line.another()
        other.socket.say(resume(created, token="wrong"))
        wrong = await other.hear()
        unknown = {**created, "session": {"id": "sess_nobody"}}
        other.socket.say(resume(unknown))
        missing = await other.hear()
        for refused in (wrong, missing):
            refused.pop("event_id")
        assert wrong == missing
        assert wrong["error"]["code"] == "session_resume_expired"
        assert wrong["error"]["event_id"] == "r"
        line.socket.say(client("session.close"))
        await line.until("session.closed")
        await line.hung_up()
        other.socket.say(resume(created))
        assert await code(other) == "session_resume_expired"
        assert len(line.sessions) == 0
        other.socket.say(update())
        assert (await other.hear())["type"] == "session.created"
        other.socket.vanish()


@pytest.mark.parametrize("token", [None, "wrong"])
async def test_a_resume_that_waits_long_has_no_time_limit_and_harms_nobody(
    token: str | None,
) -> None:
    async with dialled(ScriptedDirectory(), limits=RESUMES) as line:
        created = await opened(line)
        line.directory.knobs.hold("configure")
        line.socket.say(update(voice="low", input_audio_format="g711_ulaw"))
        await line.directory.knobs.wait_called("configure")
        other = line.another()
        other.socket.say(resume(created, 1, token=token))
        await settle()
        line.clock.advance(RESUMES.config_timeout_s)
        await settle()
        line.directory.knobs.release("configure")
        if token is None:
            assert (await other.hear())["type"] == "session.resumed"
            assert (await other.hear())["type"] == "session.updated"
            other.socket.vanish()
            return
        assert (await line.hear())["type"] == "session.updated"
        assert await code(other) == "session_resume_expired"
        line.clock.advance(1)
        assert await code(other) == "config_timeout", "a refusal gives no more time"
        assert await other.socket.wait_closed() == (1000, "config_timeout")
        line.socket.say(client("session.heartbeat"))
        assert (await line.hear())["type"] == "session.heartbeat_ack"


async def test_a_socket_with_a_session_can_not_ask_for_one() -> None:
    async with dialled(ScriptedDirectory(), limits=RESUMES) as line:
        created = await opened(line)
        line.socket.say(resume(created))
        assert await code(line) == "unsupported_session_resume"


async def test_numbers_that_were_never_sent_are_refused() -> None:
    async with dialled(ScriptedDirectory(), limits=RESUMES) as line:
        created = await opened(line)
        line.socket.say(client("session.event_ack", server_event_seq=99))
        assert await code(line) == "invalid_event_ack"
        other = line.another()
        other.socket.say(resume(created, 99))
        assert await code(other) == "session_resume_conflict"
        other.socket.vanish()


async def test_what_was_acknowledged_is_gone_and_a_gap_says_what_is_left() -> None:
    async with dialled(ScriptedDirectory(), limits=RESUMES) as line:
        created = await opened(line)
        for _ in range(3):
            line.socket.say(client("session.heartbeat"))
            await line.hear()
        line.socket.say(client("session.event_ack", server_event_seq=2))
        await settle()
        other = line.another()
        other.socket.say(resume(created, 0))
        gap = await other.hear()
        assert gap["type"] == "session.resync_required"
        assert gap["reason"] == "journal_gap"
        assert (gap["oldest_server_event_seq"], gap["newest_server_event_seq"]) == (3, 4)
        other.socket.say(resume(created, gap["oldest_server_event_seq"] - 1))
        assert (await other.hear())["type"] == "session.resumed"
        assert [(await other.hear())["server_event_seq"] for _ in range(2)] == [3, 4]
        other.socket.vanish()


async def test_a_journal_that_overflows_is_told_and_nobody_comes_back() -> None:
    limits = SessionLimits(resume_replay_max_bytes_per_session=4_000)
    async with dialled(ScriptedDirectory(), limits=limits) as line:
        created = await opened(line)
        said: list[dict[str, Any]] = []
        while not said or said[-1]["type"] != "session.resync_required":
            line.socket.say(client("session.heartbeat"))
            said.append(await line.hear())
        assert said[-1]["reason"] == "journal_overflow"
        line.socket.say(client("session.heartbeat"))
        acks = [await line.hear()]
        assert "server_event_seq" not in acks[-1]
        other = line.another()
        other.socket.say(resume(created, 1))
        refused = await other.hear()
        assert refused["reason"] == "journal_overflow"
        assert refused["newest_server_event_seq"] is None
        other.socket.vanish()


async def test_the_format_of_the_input_is_what_it_was() -> None:
    async with dialled(answering(), limits=RESUMES) as line:
        created = await opened(line, input_audio_format="pcm16", sample_rate_hz=8_000)
        line.socket.vanish()
        await line.hung_up()
        again = line.another()
        again.socket.say(resume(created, 1))
        resumed = await again.hear()
        assert resumed["session"]["sample_rate_hz"] == 8_000
        again.socket.say(append(250))  # 500 ms at 8 kHz
        again.socket.say(client("input_audio_buffer.commit", create_response=False))
        said = await again.until("conversation.item.done")
        [added] = [e for e in said if e["type"] == "conversation.item.added"]
        assert added["item"]["role"] == "user"
        again.socket.vanish()


async def test_nobody_comes_back_and_the_slot_is_free() -> None:
    async with dialled(ScriptedDirectory(max_sessions=1), limits=RESUMES) as line:
        created = await opened(line)
        line.socket.vanish()
        await line.hung_up()
        await settle()
        late = line.another()
        late.socket.say(update())
        assert await code(late) == "resource_exhausted", "a session in its grace keeps its slot"
        line.clock.advance(RESUMES.disconnect_grace_s)
        while len(line.sessions):
            await settle()
        again = line.another()
        again.socket.say(resume(created))
        assert await code(again) == "session_resume_expired"
        again.socket.say(update())
        assert (await again.hear())["type"] == "session.created"
        again.socket.vanish()


async def test_a_silent_socket_is_closed_and_its_client_may_come_back() -> None:
    limits = SessionLimits(idle_ttl_s=None)
    async with dialled(ScriptedDirectory(), limits=limits) as line:
        created = await opened(line, idle_timeout_s=5.0)
        line.clock.advance(5.0)
        assert await line.socket.wait_closed() == (1001, "idle_timeout")
        again = line.another()
        again.socket.say(resume(created, 1))
        assert (await again.hear())["type"] == "session.resumed"
        again.socket.vanish()


async def test_a_session_that_has_lasted_long_enough_is_warned_and_ended() -> None:
    limits = SessionLimits(max_session_s=20.0)
    async with dialled(ScriptedDirectory(), limits=limits) as line:
        await opened(line)
        line.clock.advance(10.0)
        expiring = await line.hear()
        assert (expiring["type"], expiring["expires_in_ms"]) == ("session.expiring", 10_000)
        line.clock.advance(10.0)
        expired = await line.hear()
        assert (expired["type"], expired["reason"]) == ("session.expired", "max_session_duration")
        assert await line.socket.wait_closed() == (1001, "max_session_duration")


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_socket_that_breaks_while_it_asks_leaves_the_session_to_the_next(
    is_cancelled: bool,
) -> None:
    async with dialled(ScriptedDirectory(), limits=RESUMES) as line:
        created = await opened(line)
        line.socket.vanish()
        await line.hung_up()
        broken = line.another()
        assert broken.task is not None
        broken.socket.say(resume(created, 1))
        broken.socket.vanish()
        if is_cancelled:
            await settle()
            broken.task.cancel()
        await broken.hung_up()
        again = line.another()
        again.socket.say(resume(created, 1))
        resumed = await again.hear()
        assert (resumed["type"], resumed["attachment_generation"]) == ("session.resumed", 3)
        again.socket.vanish()


async def test_the_session_is_told_of_the_end_on_whatever_socket_it_has() -> None:
    async with dialled(ScriptedDirectory(), limits=RESUMES) as line:
        created = await opened(line)
        line.socket.vanish()
        await line.hung_up()
        again = line.another()
        again.socket.say(resume(created, 1))
        again.socket.say(client("session.close", reason="enough"))
        assert [(await again.hear())["type"] for _ in range(2)] == [
            "session.resumed",
            "session.closed",
        ]
        assert await again.socket.wait_closed() == (1000, "enough")

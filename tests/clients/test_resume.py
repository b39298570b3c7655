"""`DuplexClient` comes back to its session after a lost connection, or says why it can not."""

import asyncio
import base64
from collections.abc import Awaitable

import pytest

from clients import commands
from clients import events as ev
from clients.duplex import ClientLimits, DuplexClient
from clients.errors import (
    BadServerEvent,
    DuplexDisconnected,
    DuplexRefused,
    DuplexUnreachable,
    EventsMissed,
    ResumeRefused,
    SessionOver,
)
from clients.resuming import ResumePolicy
from tests.clients.transcript_server import Line, TranscriptServer, pcm, playing
from tests.clients.waits import Blocked, Waits

TOKEN = "secret-1"
GO: Line = {"in": {"type": "turn.signal"}}
GO_SIGNAL: commands.Command = {"type": "turn.signal", "event": "user_started"}
RESUME: Line = {"in": {"type": "session.resume"}}
NEVER: Line = {"in": {"type": "never"}}


def out(kind: str, seq: int | None = None, **fields: object) -> Line:
    numbered = {} if seq is None else {"server_event_seq": seq}
    return {"out": {"type": kind, "event_id": f"event_{seq}", **numbered, **fields}}


def mark(seq: int) -> Line:
    return out("turn.event", seq, event=f"mark-{seq}")


def resumed(generation: int = 2) -> list[Line]:
    token = f"secret-{generation}"
    answer = out(
        "session.resumed",
        session_id="sess_r",
        session={"id": "sess_r"},
        attachment_generation=generation,
        resume_token=token,
    )
    return [RESUME, answer]


def refused(code: str) -> list[Line]:
    error = {"type": "invalid_request_error", "code": code, "message": "no"}
    return [RESUME, {"out": {"type": "error", "error": error}}, {"close": 1000}]


def closing(seq: int) -> list[Line]:
    return [
        {"in": {"type": "session.close"}},
        out("session.closed", seq, reason="client_close"),
        {"close": 1000},
    ]


OPENING: list[Line] = [
    {"in": {"type": "session.update"}},
    out(
        "session.created",
        session={"id": "sess_r", "model": "m"},
        attachment_generation=1,
        resume_token=TOKEN,
    ),
    out("session.updated", 1, session={"id": "sess_r"}),
]
CUT: Line = {"abort": True}


def client_of(server: TranscriptServer, waits: Waits | None = None) -> DuplexClient:
    return DuplexClient(server.url, limits=(waits or Waits()).limits())


async def names_of(client: DuplexClient) -> list[str]:
    return [event.type async for event in client]


async def test_an_answer_that_is_cut_in_its_middle_is_whole() -> None:
    def delta(seq: int, ms: int) -> Line:
        return out("response.audio.delta", seq, response_id="r", delta=f"@pcm:{ms}")

    created = out("response.created", 2, response_id="r", response={"id": "r"})
    done = out("response.done", 5, response_id="r", response={"id": "r", "status": "completed"})
    first = [*OPENING, GO, created, delta(3, 100), CUT]
    second = [*resumed(), delta(4, 50), done, *closing(6)]
    async with playing(first, then=[second]) as server:
        async with client_of(server) as client:
            await client.send(GO_SIGNAL)
            answer = await (await client.next_response()).wait_done()
            assert client.continuity.resumes == 1
        names = await names_of(client)
    assert answer.audio == pcm(100) + pcm(50)
    assert names == [
        *("session.created", "session.updated", "response.created", "response.audio.delta"),
        *("connection.lost", "session.resumed", "response.audio.delta", "response.done"),
        "session.closed",
    ]
    (request,) = server.sent("session.resume")
    assert request == {
        "type": "session.resume",
        "session_id": "sess_r",
        "resume_token": TOKEN,
        "last_received_server_event_seq": 3,
    }
    assert server.paths == ["/v1/realtime?duplex=1", "/v1/realtime?duplex=1&resume=1"]


async def test_each_resume_brings_a_new_token() -> None:
    first = [*OPENING, GO, CUT]
    second = [*resumed(2), CUT]  # cut right after session.resumed
    third = [*resumed(3), mark(2), *closing(3)]
    async with playing(first, then=[second, third]) as server, client_of(server) as client:
        marked = client.expect(ev.TurnEvent)
        await client.send(GO_SIGNAL)
        await marked
        assert client.continuity.resumes == 2
    tokens = [event["resume_token"] for event in server.sent("session.resume")]
    assert tokens == ["secret-1", "secret-2"]


async def test_the_new_token_is_known_to_be_read_though_nothing_follows() -> None:
    acked: Line = {"in": {"type": "session.event_ack", "server_event_seq": 1}}
    second = [*resumed(), acked, out("session.heartbeat_ack"), *closing(2)]
    async with playing([*OPENING, GO, CUT], then=[second]) as server, client_of(server) as client:
        beat = client.expect(ev.HeartbeatAck)
        await client.send(GO_SIGNAL)
        await beat


async def test_an_event_that_came_before_is_not_given_twice() -> None:
    first = [*OPENING, GO, mark(2), mark(3), CUT]
    second = [*resumed(), mark(2), mark(3), mark(4), *closing(5)]
    async with playing(first, then=[second]) as server:
        async with client_of(server) as client:
            fourth = client.expect(ev.TurnEvent, lambda event: event.signal == "mark-4")
            await client.send(GO_SIGNAL)
            await fourth
        signals = [e.signal async for e in client if isinstance(e, ev.TurnEvent)]
    assert signals == ["mark-2", "mark-3", "mark-4"]


async def test_a_missing_event_is_a_fault_that_is_told() -> None:
    async with playing([*OPENING, GO, mark(3), NEVER], then=[]) as server:
        client = client_of(server)
        await client.open()
        await client.send(GO_SIGNAL)
        with pytest.raises(BadServerEvent, match="event 3 came after event 1"):
            await client.next_response()
        with pytest.raises(BadServerEvent):
            await client.close()


async def test_events_are_acknowledged_and_a_burst_by_one_acknowledgement() -> None:
    burst = [mark(seq) for seq in range(2, 102)]
    acked: Line = {"in": {"type": "session.event_ack", "server_event_seq": 101}}
    lines = [*OPENING, GO, *burst, acked, out("session.heartbeat_ack"), *closing(102)]
    async with playing(lines) as server, client_of(server) as client:
        beat = client.expect(ev.HeartbeatAck)
        await client.send(GO_SIGNAL)
        await beat
    seqs = [event["server_event_seq"] for event in server.sent("session.event_ack")]
    assert seqs == sorted(set(seqs))
    assert len(seqs) < 100
    assert all(
        event.keys() == {"type", "server_event_seq"} for event in server.sent("session.event_ack")
    )


async def test_a_server_that_does_not_number_its_events_gets_no_acknowledgement() -> None:
    opening: list[Line] = [{"in": {"type": "session.update"}}, out("session.created", session={})]
    beat: list[Line] = [{"in": {"type": "session.heartbeat"}}, out("session.heartbeat_ack")]
    closed: list[Line] = [{"in": {"type": "session.close"}}, out("session.closed"), {"close": 1000}]
    async with playing(opening + beat + closed) as server, client_of(server) as client:
        await client.heartbeat()
    assert [event["type"] for event in server.received] == [
        *("session.update", "session.heartbeat", "session.close"),
    ]


async def test_audio_of_the_gap_is_sent_after_the_resume_in_order_and_before_newer() -> None:
    first = [*OPENING, GO, CUT]
    append: Line = {"in": {"type": "input_audio_buffer.append"}}
    second = [*resumed(), append, append, {"in": {"type": "input_audio_buffer.commit"}}]
    second += [append, mark(2), *closing(3)]
    waits = Blocked()
    async with playing(first, then=[second]) as server, client_of(server, waits) as client:
        marked = client.expect(ev.TurnEvent)
        back = client.expect(ev.Resumed)
        await client.send(GO_SIGNAL)
        await waits.begun.wait()
        await client.append_audio(b"\1\0" * 1600)
        await client.append_audio(b"\2\0" * 1600)
        await client.commit()
        assert client.continuity.kept_audio_ms == 200
        waits.passes.set()
        await back
        await client.append_audio(b"\3\0" * 1600)
        await marked
        assert client.continuity.kept_audio_ms == 0
        assert client.continuity.dropped_audio_ms == 0
    heard = [base64.b64decode(e["audio"])[0] for e in server.sent("input_audio_buffer.append")]
    assert heard == [1, 2, 3]
    assert server.received[-1]["type"] == "session.close"


BIG = 700_000
"""Bytes of an append of which a few do not fit into a socket at once."""


async def test_nothing_newer_passes_what_waits_to_be_sent() -> None:
    append: Line = {"in": {"type": "input_audio_buffer.append"}}
    second = [*resumed(), *[append] * 10, mark(2), *closing(3)]
    waits = Blocked()
    async with playing([*OPENING, GO, CUT], then=[second]) as server:
        limits = waits.limits(kept_audio_s=1000.0)
        async with DuplexClient(server.url, limits=limits) as client:
            marked, back = client.expect(ev.TurnEvent), client.expect(ev.Resumed)
            await client.send(GO_SIGNAL)
            await waits.begun.wait()
            for n in range(1, 10):
                await client.append_audio(bytes([n]) * BIG)
            waits.passes.set()
            await back
            await client.append_audio(b"\x0a\0")
            await marked
    heard = [base64.b64decode(e["audio"])[0] for e in server.sent("input_audio_buffer.append")]
    assert heard == list(range(1, 11))


async def test_what_could_not_be_sent_after_one_resume_is_sent_after_the_next() -> None:
    append: Line = {"in": {"type": "input_audio_buffer.append"}}
    third = [*resumed(3), *[append] * 3, mark(2), *closing(3)]
    waits = Blocked()
    async with playing([*OPENING, GO, CUT], then=[[*resumed(2), CUT], third]) as server:
        limits = waits.limits(kept_audio_s=1000.0)
        async with DuplexClient(server.url, limits=limits) as client:
            marked = client.expect(ev.TurnEvent)
            await client.send(GO_SIGNAL)
            await waits.begun.wait()
            for n in (1, 2, 3):
                await client.append_audio(bytes([n]) * BIG)
            waits.passes.set()
            await marked
    heard = [base64.b64decode(e["audio"])[0] for e in server.sent("input_audio_buffer.append")]
    assert heard == [1, 2, 3]


async def test_of_a_long_gap_the_newest_audio_is_kept_and_the_rest_counted() -> None:
    second = [*resumed(), *[{"in": {"type": "input_audio_buffer.append"}}] * 5, mark(2)]
    waits = Blocked()
    async with playing([*OPENING, GO, CUT], then=[[*second, *closing(3)]]) as server:
        limits = waits.limits(kept_audio_s=1.0)
        async with DuplexClient(server.url, limits=limits) as client:
            marked = client.expect(ev.TurnEvent)
            await client.send(GO_SIGNAL)
            await waits.begun.wait()
            for n in range(1, 9):
                await client.append_audio(bytes([n, 0]) * 3200)
            assert client.continuity.dropped_audio_ms == 600
            assert client.continuity.kept_audio_ms == 1000
            waits.passes.set()
            await marked
    heard = [base64.b64decode(e["audio"])[0] for e in server.sent("input_audio_buffer.append")]
    assert heard == [4, 5, 6, 7, 8]


async def test_a_dead_server_is_tried_five_times_with_growing_delays() -> None:
    waits = Waits()
    async with playing([*OPENING, GO, CUT], then=[]) as server:
        client = client_of(server, waits)
        await client.open()
        await client.send(GO_SIGNAL)
        with pytest.raises(DuplexDisconnected, match="5 attempts to come back failed") as lost:
            await client.next_response()
        assert isinstance(lost.value.__cause__, DuplexUnreachable)
        with pytest.raises(DuplexDisconnected):
            await client.append_audio(b"\0\0")
        with pytest.raises(DuplexDisconnected):
            await client.close()
    assert waits.delays_s == [0.375, 0.625, 1.125, 2.125, 2.125]
    assert len(server.paths) == 6


@pytest.mark.parametrize(("draw", "shortest", "longest"), [(0.0, 0.25, 0.25), (1.0, 0.5, 4.0)])
def test_delays_stay_in_their_bounds(draw: float, shortest: float, longest: float) -> None:
    policy = ResumePolicy(draw=lambda: draw)
    delays_s = [policy.delay_s(attempt) for attempt in range(5)]
    assert (min(delays_s), max(delays_s)) == (shortest, longest)


async def test_sockets_that_are_cut_at_once_count_as_attempts() -> None:
    flapping = [[*resumed(n), CUT] for n in range(2, 9)]
    waits = Waits()
    async with playing([*OPENING, GO, CUT], then=flapping) as server:
        client = client_of(server, waits)
        await client.open()
        await client.send(GO_SIGNAL)
        with pytest.raises(DuplexDisconnected, match="5 attempts"):
            await client.next_response()
        with pytest.raises(DuplexDisconnected):
            await client.close()
    assert len(waits.delays_s) == 5


@pytest.mark.parametrize(
    "code",
    [
        *("invalid_session_resume", "session_resume_expired"),
        *("unsupported_session_resume", "session_resume_conflict"),
    ],
)
async def test_a_refusal_is_final(code: str) -> None:
    waits = Waits()
    async with playing([*OPENING, GO, CUT], then=[refused(code)]) as server:
        client = client_of(server, waits)
        await client.open()
        await client.send(GO_SIGNAL)
        with pytest.raises(ResumeRefused) as no:
            await client.next_response()
        with pytest.raises(ResumeRefused):
            await client.close()
    assert no.value.code == code
    assert len(waits.delays_s) == 1


def gap(oldest: int | None, newest: int | None = None) -> Line:
    return out(
        "session.resync_required",
        session_id="sess_r",
        reason="journal_gap",
        oldest_server_event_seq=oldest,
        newest_server_event_seq=newest,
    )


def begun(seq: int, response_id: str) -> Line:
    return out("response.created", seq, response_id=response_id, response={"id": response_id})


def voice(seq: int, response_id: str) -> Line:
    return out("response.audio.delta", seq, response_id=response_id, delta="@pcm:100")


def done(seq: int, response_id: str) -> Line:
    response = {"id": response_id, "status": "completed"}
    return out("response.done", seq, response_id=response_id, response=response)


async def test_events_that_are_gone_are_told_and_the_session_goes_on() -> None:
    first = [*OPENING, GO, begun(2, "half"), voice(3, "half"), CUT]
    # In the gap "half" went on and "headless" began; both end after it. "whole" is after it.
    second: list[Line] = [RESUME, gap(7, 9), *resumed()]
    second += [voice(7, "half"), voice(8, "headless"), done(9, "half"), done(10, "headless")]
    second += [out("output_audio_buffer.cleared", 11, response_id="half")]
    second += [begun(12, "whole"), voice(13, "whole"), done(14, "whole"), *closing(15)]
    async with playing(first, then=[second]) as server:
        async with client_of(server) as client:
            await client.send(GO_SIGNAL)
            half = await (await client.next_response()).wait_done()
            whole = await (await client.next_response()).wait_done()
        names = await names_of(client)
    assert (half.status, half.reason, half.audio) == ("lost", "events_lost", pcm(100))
    assert (whole.response_id, whole.status, whole.audio) == ("whole", "completed", pcm(100))
    assert names == [
        *("session.created", "session.updated", "response.created", "response.audio.delta"),
        *("connection.lost", "session.resumed", "events.lost", "response.lost"),
        *("output_audio_buffer.cleared", "response.created", "response.audio.delta"),
        *("response.done", "session.closed"),
    ]
    asked = [e["last_received_server_event_seq"] for e in server.sent("session.resume")]
    assert asked == [3, 6]
    assert client.continuity.lost_events == 3
    assert server.sent("session.event_ack")[-1]["server_event_seq"] >= 14


async def test_whoever_waited_for_what_may_be_lost_is_told() -> None:
    first = [*OPENING, GO, {"in": {"type": "response.create"}}, CUT]
    beat: list[Line] = [{"in": {"type": "session.heartbeat"}}, out("session.heartbeat_ack")]
    second: list[Line] = [RESUME, gap(4), *resumed(), *beat, *closing(4)]
    waits = Blocked()
    async with playing(first, then=[second]) as server, client_of(server, waits) as client:
        lost = client.expect(ev.EventsLost)
        cleared = client.expect(ev.InputCleared)
        given_up = client.expect(ev.InputCleared)
        given_up.cancel()
        await client.send(GO_SIGNAL)
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(missed(client.create_response()))
            any_answer = group.create_task(missed(client.next_response()))
            await waits.begun.wait()
            later = client.expect(ev.HeartbeatAck)
            waits.passes.set()
        told = await lost
        assert (told.first_seq, told.last_seq) == (2, 3)
        for failure in (asked.result(), any_answer.result()):
            assert (failure.first_seq, failure.last_seq) == (2, 3)
        with pytest.raises(EventsMissed, match="ask again"):
            await cleared
        await client.send(commands.heartbeat())
        await later  # who began to wait in the gap has missed nothing


async def missed(waiting: Awaitable[object]) -> EventsMissed:
    with pytest.raises(EventsMissed) as error:
        await waiting
    return error.value


async def test_a_gap_may_grow_while_it_is_asked_about() -> None:
    second: list[Line] = [RESUME, gap(3, 8), RESUME, gap(6, 8), *resumed(), mark(6), *closing(7)]
    async with playing([*OPENING, GO, CUT], then=[second]) as server:
        async with client_of(server) as client:
            marked = client.expect(ev.TurnEvent)
            lost = client.expect(ev.EventsLost)
            await client.send(GO_SIGNAL)
            told = await lost
            with pytest.raises(EventsMissed):
                await marked
        assert (told.first_seq, told.last_seq) == (2, 5)
        assert "turn.event" in await names_of(client)


@pytest.mark.parametrize("oldest", [None, 2], ids=["unnamed", "nothing missing"])
async def test_a_gap_that_asking_again_can_not_mend_is_a_refusal(oldest: int | None) -> None:
    async with playing([*OPENING, GO, CUT], then=[[RESUME, gap(oldest)]]) as server:
        client = client_of(server)
        await client.open()
        await client.send(GO_SIGNAL)
        with pytest.raises(ResumeRefused, match="journal_gap"):
            await client.next_response()
        with pytest.raises(ResumeRefused):
            await client.close()


async def test_another_refusal_is_tried_again() -> None:
    async with playing(
        [*OPENING, GO, CUT], then=[refused("stage_busy"), [*resumed(), mark(2), *closing(3)]]
    ) as server:
        async with client_of(server) as client:
            marked = client.expect(ev.TurnEvent)
            await client.send(GO_SIGNAL)
            await marked
        assert len(server.sent("session.resume")) == 2


async def test_a_session_that_another_takes_over_is_over() -> None:
    replaced = out("session.replaced", session_id="sess_r", attachment_generation=2)
    waits = Waits()
    async with playing([*OPENING, GO, replaced, {"close": 1000}], then=[]) as server:
        async with client_of(server, waits) as client:
            await client.send(GO_SIGNAL)
            with pytest.raises(SessionOver, match="another connection"):
                await client.next_response()
        assert (await names_of(client))[-1] == "session.replaced"
    assert waits.delays_s == []


async def test_a_journal_that_overflowed_ends_the_coming_back() -> None:
    overflow = out("session.resync_required", session_id="sess_r", reason="journal_overflow")
    waits = Waits()
    async with playing([*OPENING, GO, overflow, mark(2), CUT], then=[]) as server:
        client = client_of(server, waits)
        await client.open()
        seen = client.expect(ev.ResyncRequired)
        await client.send(GO_SIGNAL)
        assert (await seen).reason == "journal_overflow"
        with pytest.raises(DuplexDisconnected, match="1006"):
            await client.next_response()
        with pytest.raises(DuplexDisconnected):
            await client.close()
    assert waits.delays_s == []


async def test_resuming_can_be_switched_off() -> None:
    async with playing([*OPENING, GO, CUT], then=[]) as server:
        client = DuplexClient(server.url, limits=ClientLimits(resume=None))
        await client.open()
        await client.send(GO_SIGNAL)
        with pytest.raises(DuplexDisconnected, match="no reason given"):
            await client.next_response()
        with pytest.raises(DuplexDisconnected):
            await client.close()
        assert len(server.paths) == 1


async def test_a_close_within_a_gap_gives_up_coming_back() -> None:
    waits = Blocked()
    async with playing([*OPENING, GO, CUT], then=[[*resumed(), NEVER]]) as server:
        client = client_of(server, waits)
        await client.open()
        await client.send(GO_SIGNAL)
        await waits.begun.wait()
        with pytest.raises(DuplexDisconnected):
            await client.close()
        assert len(server.paths) == 1
        assert server.sent("session.close") == []


async def test_a_connection_lost_while_closing_is_not_made_again() -> None:
    waits = Waits()
    lines = [*OPENING, {"in": {"type": "session.close"}}, CUT]
    async with playing(lines, then=[[*resumed(), NEVER]]) as server:
        client = client_of(server, waits)
        await client.open()
        with pytest.raises(DuplexDisconnected):
            await client.close()
    assert waits.delays_s == []


async def test_a_failing_body_closes_the_session_too() -> None:
    async def fail(url: str) -> None:
        async with DuplexClient(url):
            raise LookupError

    async with playing([*OPENING, *closing(2)]) as server:
        with pytest.raises(LookupError):
            await fail(server.url)
        assert len(server.sent("session.close")) == 1


async def test_the_token_is_in_no_text() -> None:
    async with playing([*OPENING, *closing(2)]) as server, client_of(server) as client:
        created = client.session
        assert created.resume_token == TOKEN
        assert TOKEN not in repr(created)
        assert TOKEN not in repr(created.raw)


NEVER_PLAYED: list[Line] = []


async def test_a_key_that_no_longer_counts_ends_the_coming_back() -> None:
    async with playing([*OPENING, GO, CUT], then=[NEVER_PLAYED], api_key="k") as server:
        client = DuplexClient(server.url, api_key="k", limits=Waits().limits())
        await client.open()
        server.api_key = "another"
        await client.send(GO_SIGNAL)
        with pytest.raises(ResumeRefused, match="http_401") as no:
            await client.next_response()
        assert isinstance(no.value.__cause__, DuplexRefused)
        with pytest.raises(ResumeRefused):
            await client.close()

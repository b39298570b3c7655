"""`DuplexClient` against a server that plays golden transcripts."""

import asyncio
import base64
import socket

import pytest

from clients import commands
from clients import events as ev
from clients.duplex import ClientLimits, DuplexClient
from clients.errors import (
    AnswerTimedOut,
    BadServerEvent,
    DuplexDisconnected,
    DuplexRefused,
    DuplexUnreachable,
    EventBacklogFull,
    EventsNotKept,
    RequestRefused,
    SessionOver,
)
from tests.clients.transcript_server import Line, pcm, playing

OPENING: list[Line] = [
    {"in": {"type": "session.update"}},
    {"out": {"type": "session.created", "session": {"id": "sess_t", "model": "m"}}},
]
CLOSING: list[Line] = [
    {"in": {"type": "session.close"}},
    {"out": {"type": "session.closed", "reason": "client_close"}},
    {"close": 1000},
]
GO: Line = {"in": {"type": "turn.signal"}}
GO_SIGNAL: commands.Command = {"type": "turn.signal", "event": "user_started"}
MARK: Line = {"out": {"type": "turn.event", "event": "mark"}}


async def test_open_sends_the_settings_and_close_waits_for_the_terminal() -> None:
    async with playing(OPENING + CLOSING) as server:
        client = DuplexClient(server.url, {"instructions": "be brief"})
        created = await client.open()
        assert (created.session_id, created.model) == ("sess_t", "m")
        assert await client.open() is created
        terminal = await client.close()
    assert isinstance(terminal, ev.SessionClosed)
    assert server.received[0]["session"] == {"instructions": "be brief"}
    assert server.received[0]["event_id"] == "c-1"
    assert [event["type"] for event in server.received] == ["session.update", "session.close"]


async def test_the_api_key_is_a_bearer_token() -> None:
    async with playing(OPENING + CLOSING, api_key="key-1") as server:
        async with DuplexClient(server.url, api_key="key-1") as client:
            assert client.session.session_id == "sess_t"
        with pytest.raises(DuplexRefused) as refused:
            await DuplexClient(server.url, api_key="wrong").open()
    assert (refused.value.code, refused.value.retryable) == ("http_401", False)


async def test_an_error_before_the_session_is_a_refusal() -> None:
    async with playing("refused") as server:
        with pytest.raises(DuplexRefused, match="all 1 sessions are taken") as refused:
            async with DuplexClient(server.url):
                pass
    assert (refused.value.code, refused.value.retryable) == ("resource_exhausted", True)


async def test_a_refusal_that_waits_for_nothing_is_one_too() -> None:
    async with playing("refused_at_once") as server:
        with pytest.raises(DuplexRefused, match="not enabled") as refused:
            await DuplexClient(server.url).open()
    assert (refused.value.code, refused.value.retryable) == ("unsupported", False)


async def test_a_close_before_the_session_is_a_refusal() -> None:
    async with playing("closed_without_a_word") as server:
        with pytest.raises(DuplexRefused, match="draining") as refused:
            await DuplexClient(server.url).open()
    assert (refused.value.code, refused.value.retryable) == ("closed_1012", True)


async def test_nobody_there_is_unreachable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{unused.getsockname()[1]}/"
        with pytest.raises(DuplexUnreachable, match="can not connect"):
            await DuplexClient(url).open()


@pytest.mark.parametrize("url", ["http://127.0.0.1/", "no url", "ws://[::1"])
async def test_what_is_no_websocket_url_is_unreachable(url: str) -> None:
    with pytest.raises(DuplexUnreachable):
        await DuplexClient(url).open()


async def test_a_server_that_says_nothing_times_out() -> None:
    async with playing([{"in": {"type": "never"}}]) as server:
        limits = ClientLimits(open_timeout_s=0.05)
        with pytest.raises(AnswerTimedOut, match=r"session\.created"):
            await DuplexClient(server.url, limits=limits).open()


async def test_each_request_has_its_wire_form_and_its_answer() -> None:
    async with playing("requests") as server, DuplexClient(server.url) as client:
        assert await client.heartbeat() > 0
        committed = client.expect(ev.InputCommitted)
        await client.append_audio(b"\1\0" * 160, {"is_speech": True})
        await client.commit(create_response=False)
        assert (await committed).expects_no_response
        with pytest.raises(RequestRefused, match="nothing to answer") as refused:
            await client.create_response()
        assert refused.value.code == "response_create_without_input"
        response = await client.create_response()
        await client.cancel_response(response.response_id)
        assert (await response.wait_done()).reason == "client_cancelled"
        truncated = client.expect(ev.ItemEvent, lambda e: e.type == "conversation.item.truncated")
        await client.ack_playback("resp_A", 120)
        await client.truncate("item_resp_A", 120)
        assert (await truncated).audio_end_ms == 120
        cleared = client.expect(ev.InputCleared)
        await client.barge_in()
        await client.clear()
        await cleared
    (appended,) = server.sent("input_audio_buffer.append")
    assert base64.b64decode(appended["audio"]) == b"\1\0" * 160
    ids = [event["event_id"] for event in server.received]
    assert ids == [f"c-{n}" for n in range(1, len(ids) + 1)]


async def test_interleaved_responses_are_told_apart() -> None:
    async with playing("interleaved") as server, DuplexClient(server.url) as client:
        asked = await client.create_response({"metadata": {"purpose": "side"}})
        spontaneous = await client.next_response()
        await asyncio.gather(asked.wait_done(), spontaneous.wait_done())
        kinds = [type(event) async for event in spontaneous]
    assert (asked.response_id, spontaneous.response_id) == ("resp_B", "resp_A")
    assert (asked.status, asked.reason) == ("failed", "stage_failed")
    assert (asked.transcript, asked.audio) == ("aside", pcm(300))
    assert (spontaneous.status, spontaneous.transcript) == ("completed", "first answer")
    assert spontaneous.audio == pcm(100) + pcm(50)
    assert kinds == [type(event) for event in spontaneous.events]
    assert kinds[0] is ev.ResponseCreated
    assert kinds[-1] is ev.ResponseDone


async def test_the_newer_names_make_the_same_response() -> None:
    async with playing("newer_names") as server, DuplexClient(server.url) as client:
        await client.append_audio(b"\0\0")
        response = await (await client.next_response()).wait_done()
    assert (response.transcript, response.audio) == ("Hello.", pcm(100))


async def test_events_are_iterated_from_the_open_to_the_terminal() -> None:
    async with playing([*OPENING, GO, *[MARK] * 3, *CLOSING]) as server:
        client = DuplexClient(server.url, limits=ClientLimits(event_backlog=8))
        await client.open()
        third = client.expect(ev.TurnEvent, _counts_to(3))
        await client.send(GO_SIGNAL)
        await third
        await client.close()
        names = [event.type async for event in client]
    assert names == ["session.created", *["turn.event"] * 3, "session.closed"]


async def test_a_slow_program_gets_every_event() -> None:
    lines = [{"out": {"type": "turn.event", "event": f"mark-{n}"}} for n in range(200)]
    async with (
        playing([*OPENING, GO, *lines, *CLOSING]) as server,
        DuplexClient(server.url, limits=ClientLimits(event_backlog=4)) as client,
    ):
        events = aiter(client)
        await client.send(GO_SIGNAL)
        signals = []
        async for event in events:
            await asyncio.sleep(0)  # lets the reader run ahead as far as it may
            if isinstance(event, ev.TurnEvent):
                signals.append(event.signal)
                if len(signals) == 200:
                    break
    assert signals == [f"mark-{n}" for n in range(200)]


async def test_a_program_that_stops_taking_events_is_told() -> None:
    async with playing([*OPENING, GO, *[MARK] * 20, {"in": {"type": "never"}}]) as server:
        client = DuplexClient(server.url, limits=ClientLimits(event_backlog=4, stall_s=0.05))
        await client.open()
        async for _ in client:
            break
        await client.send(GO_SIGNAL)
        with pytest.raises(EventBacklogFull, match="keep iterating"):
            await client.next_response()
        with pytest.raises(EventBacklogFull):
            await client.append_audio(b"\0\0")
        with pytest.raises(EventBacklogFull):
            await client.close()


async def test_a_program_that_never_iterates_is_not_held_up() -> None:
    async with playing([*OPENING, GO, *[MARK] * 20, *CLOSING]) as server:
        client = DuplexClient(server.url, limits=ClientLimits(event_backlog=4, stall_s=0.05))
        await client.open()
        twentieth = client.expect(ev.TurnEvent, _counts_to(20))
        await client.send(GO_SIGNAL)
        await twentieth
        with pytest.raises(EventsNotKept, match="right after the open"):
            await anext(aiter(client))
        await client.close()


async def test_a_lost_connection_reaches_everybody_who_waits() -> None:
    async with playing("lost_in_an_answer") as server:
        client = DuplexClient(server.url)
        await client.open()

        async def response_done() -> None:
            response = await client.next_response()
            await response.wait_done()

        async def all_events() -> None:
            async for _ in client:
                pass

        waiters = [
            asyncio.ensure_future(waiting)
            for waiting in (response_done(), client.create_response(), all_events())
        ]
        expected = client.expect(ev.HeartbeatAck)
        await client.append_audio(b"\0\0")
        outcomes = await asyncio.gather(*waiters, expected, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [DuplexDisconnected] * 4
        with pytest.raises(DuplexDisconnected, match="1006"):
            await client.append_audio(b"\0\0")
        with pytest.raises(DuplexDisconnected):
            await client.close()


async def test_what_is_no_event_ends_the_client_with_that_reason() -> None:
    async with playing([*OPENING, {"out": {"no": "type"}}, {"in": {"type": "x"}}]) as server:
        client = DuplexClient(server.url)
        await client.open()
        with pytest.raises(BadServerEvent):
            await client.next_response()
        with pytest.raises(BadServerEvent):
            await client.close()


async def test_a_failing_observer_ends_the_client_with_its_reason() -> None:
    def observe(event: ev.ServerEvent) -> None:
        if isinstance(event, ev.TurnEvent):
            raise ZeroDivisionError("the observer's own")

    async with playing([*OPENING, MARK, {"in": {"type": "x"}}]) as server:
        client = DuplexClient(server.url, observers=(observe,))
        await client.open()
        with pytest.raises(ZeroDivisionError, match="the observer's own"):
            await client.next_response()
        with pytest.raises(ZeroDivisionError):
            await client.close()


async def test_an_expired_session_is_over() -> None:
    expiry = {"out": {"type": "session.expired", "reason": "idle_ttl_expired"}}
    async with playing([*OPENING, expiry, {"close": 1000}]) as server:
        async with DuplexClient(server.url) as client:
            with pytest.raises(SessionOver, match="idle_ttl_expired"):
                await client.next_response()
            with pytest.raises(SessionOver, match="idle_ttl_expired"):
                await client.send(commands.heartbeat())
            names = [event.type async for event in client]
        assert names == ["session.created", "session.expired"]


async def test_the_error_of_the_body_is_the_one_that_is_seen() -> None:
    async def fail_at_once(url: str) -> None:
        async with DuplexClient(url) as client:
            await client.append_audio(b"\0\0")
            raise LookupError

    async with playing("lost_in_an_answer") as server:
        with pytest.raises(LookupError):
            await fail_at_once(server.url)


async def test_an_unopened_client_says_what_to_do() -> None:
    client = DuplexClient("ws://127.0.0.1:1/")
    with pytest.raises(RuntimeError, match="async with"):
        await client.append_audio(b"\0\0")
    with pytest.raises(RuntimeError, match="async with"):
        _ = client.session
    assert await client.close() is None


async def test_finished_responses_are_kept_up_to_the_bound() -> None:
    def answer(name: str) -> list[Line]:
        return [
            {"out": {"type": "response.created", "response_id": name, "response": {"id": name}}},
            {"out": {"type": "response.done", "response_id": name, "response": {"id": name}}},
        ]

    lines = [line for n in range(6) for line in answer(f"resp_{n}")]
    async with (
        playing([*OPENING, GO, *lines, MARK, *CLOSING]) as server,
        DuplexClient(server.url, limits=ClientLimits(kept_responses=2)) as client,
    ):
        marked = client.expect(ev.TurnEvent)
        await client.send(GO_SIGNAL)
        await marked
        kept = [(await client.next_response()).response_id for _ in range(2)]
    assert kept == ["resp_4", "resp_5"]


class _counts_to:  # reads as a predicate
    def __init__(self, wanted: int) -> None:
        self.seen, self.wanted = 0, wanted

    def __call__(self, _: ev.TurnEvent) -> bool:
        self.seen += 1
        return self.seen == self.wanted

"""The outbound queue counts what has not been sent, and keeps nothing for a socket that is gone."""

from serve_app.outbound import EVENT_BYTES, Outbound
from session.config import AudioEncoding, AudioFormat
from session.effects import CloseSocket
from session.events import HeartbeatAnswered, Playback, SpeechDelta
from session.fence import Fence
from session.ids import ItemId, ResponseId, SessionId

FENCE = Fence(SessionId("sess_1"), 0, 0, 0)
BEAT = HeartbeatAnswered(FENCE)


def delta(pcm: bytes) -> SpeechDelta:
    return SpeechDelta(
        fence=FENCE,
        response_id=ResponseId("resp_1"),
        item_id=ItemId("item_1"),
        pcm=pcm,
        transcript="",
        audio_ms=0,
        marks=(),
        playback=Playback(),
        output_format=AudioFormat(AudioEncoding.PCM16, 24_000),
    )


async def test_what_is_taken_counts_until_it_is_sent() -> None:
    outbound = Outbound(max_bytes=2 * EVENT_BYTES)
    for _ in range(3):
        outbound.put(BEAT, at_s=0.0)
    assert outbound.is_over_bound
    first = await outbound.take()
    assert outbound.is_over_bound
    outbound.sent(first)
    assert not outbound.is_over_bound


async def test_audio_weighs_what_its_base64_weighs() -> None:
    outbound = Outbound(max_bytes=EVENT_BYTES + 4_000)
    outbound.put(delta(bytes(3_000)), at_s=0.0)
    assert not outbound.is_over_bound
    outbound.sent(await outbound.take())
    outbound.put(delta(bytes(3_003)), at_s=0.0)
    assert outbound.is_over_bound


async def test_order_is_kept_and_the_close_comes_last() -> None:
    outbound = Outbound(max_bytes=10_000)
    for content in (BEAT, delta(b""), CloseSocket(1000, "bye")):
        outbound.put(content, at_s=1.5)
    taken = [await outbound.take() for _ in range(3)]
    assert [one.content for one in taken] == [BEAT, delta(b""), CloseSocket(1000, "bye")]
    assert {one.at_s for one in taken} == {1.5}


def test_nothing_is_kept_for_a_socket_that_is_gone() -> None:
    outbound = Outbound(max_bytes=EVENT_BYTES)
    for _ in range(5):
        outbound.put(BEAT, at_s=0.0)
    outbound.abandon()
    assert not outbound.is_over_bound
    for _ in range(5):
        outbound.put(BEAT, at_s=0.0)
    assert not outbound.is_over_bound

"""What the engine does when its backend fails, and at moments that a test must hold still."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from session.ids import RequestId
from stages.engine.engine import ResumableEngine
from stages.engine.errors import (
    Busy,
    EngineDied,
    EngineFailed,
    NotOpen,
    SegmentCancelled,
    SegmentFailed,
    WorkerFailed,
)
from stages.engine.settings import EngineSettings
from stages.engine.values import Ids, Pieces, Sampling, Segment, SegmentDone, Tokens
from stages.engine.watchdog import LOOKS
from tests.fakes.engine_backend import FakeBackend

pytestmark = pytest.mark.models  # the checks of embeddings are torch's

SETTINGS = EngineSettings(
    model=Path("model"),
    tokenizer=Path("model"),
    dtype="float32",
    max_model_len=256,
    session_tokens=256,
    max_sessions=4,
    max_in_flight=1,
    max_num_seqs=5,
    max_num_batched_tokens=512,
)
FIRST: Pieces = (Ids((1, 2, 3)),)
SECOND: Pieces = (Ids((4, 5)),)


class Rig:
    """An engine over the fake, and time that passes when it is told to."""

    def __init__(self, settings: EngineSettings = SETTINGS) -> None:
        self.backend = FakeBackend(max_model_len=256, kv_blocks=128)
        self.looks = asyncio.Semaphore(0)
        self.engine = ResumableEngine(
            settings, self.backend, lambda: self.backend.now_s, self._pause
        )
        self.count = 0

    async def _pause(self, _: float) -> None:
        await self.looks.acquire()

    async def pass_by(self, looks: int) -> None:
        for _ in range(looks):
            self.looks.release()
            await settle()

    def segment(self, pieces: Pieces, deadline_s: float = 0.0, max_tokens: int = 3) -> Segment:
        self.count += 1
        sampling = Sampling(max_tokens=max_tokens)
        return Segment(RequestId(f"segment-{self.count}"), pieces, sampling, deadline_s)

    def begin(
        self, key: str, pieces: Pieces, deadline_s: float = 0.0
    ) -> "asyncio.Task[SegmentDone]":
        return asyncio.create_task(self.engine.append(key, self.segment(pieces, deadline_s)))

    async def append(self, key: str, pieces: Pieces) -> Tokens:
        return (await self.engine.append(key, self.segment(pieces))).token_ids

    async def expected(self) -> Tokens:
        """Return what SECOND brings behind FIRST when nothing goes wrong."""
        await self.engine.open("smooth")
        await self.append("smooth", FIRST)
        tokens = await self.append("smooth", SECOND)
        await self.engine.close("smooth")
        return tokens


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def error_of(call: Coroutine[Any, Any, Any] | asyncio.Task[Any]) -> type[object]:
    """Return the kind of the error that `call` ends with, or of its result."""
    results: list[object] = await asyncio.gather(call, return_exceptions=True)
    return type(results[0])


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    await made.engine.start()
    yield made
    await made.engine.stop()
    assert made.backend.is_stopped
    assert made.engine.capacity().open_sessions == 0


async def test_a_dead_backend_ends_who_is_inside_who_waits_and_who_comes(rig: Rig) -> None:
    for key in ("a", "b", "c"):
        await rig.engine.open(key)
    rig.backend.hold()
    inside, waiting = rig.begin("a", FIRST), rig.begin("b", FIRST)
    await rig.backend.reached.wait()
    died = asyncio.create_task(rig.engine.died())
    rig.backend.die("its process is gone")
    assert await died == "its process is gone"
    assert [await error_of(call) for call in (inside, waiting)] == [EngineDied] * 2
    late = [rig.engine.append("c", rig.segment(FIRST)), rig.engine.open("d")]
    late += [rig.engine.prepare("c"), rig.engine.replace("c", FIRST)]
    assert [await error_of(call) for call in late] == [EngineDied] * 4
    assert not await rig.engine.cancel("a")
    await rig.engine.close("a")


async def test_an_output_that_says_dead_is_enough(rig: Rig) -> None:
    await rig.engine.open("a")
    rig.backend.hold()
    inside = rig.begin("a", FIRST)
    await rig.backend.reached.wait()
    rig.backend.death = "the output loop failed"  # nobody else has been told
    rig.backend.go_on()
    assert await error_of(inside) is EngineDied
    assert await rig.engine.died() == "the output loop failed"


async def test_a_stuck_backend_is_dead(rig: Rig) -> None:
    await rig.engine.open("a")
    await rig.engine.open("b")
    rig.backend.hold()
    inside, waiting = rig.begin("a", FIRST), rig.begin("b", FIRST)
    await rig.backend.reached.wait()
    await rig.pass_by(LOOKS)
    assert not inside.done()
    await rig.pass_by(1)
    assert [await error_of(call) for call in (inside, waiting)] == [EngineDied] * 2
    assert "session a" in await rig.engine.died()


async def test_waiting_at_the_door_is_not_being_stuck(rig: Rig) -> None:
    await rig.engine.open("a")
    await rig.engine.open("b")
    rig.backend.hold()
    inside, waiting = rig.begin("a", FIRST), rig.begin("b", FIRST)
    for _ in range(2):
        await rig.backend.reached.wait()
        await rig.pass_by(LOOKS)
        rig.backend.go_on()
        rig.backend.hold()
    rig.backend.go_on()
    assert len((await inside).token_ids) == len((await waiting).token_ids) == 3


async def test_an_abort_without_an_answer_is_being_stuck(rig: Rig) -> None:
    await rig.engine.open("a")
    rig.backend.hold()
    inside = rig.begin("a", FIRST)
    await rig.backend.reached.wait()
    rig.backend.is_deaf = True
    cancel = asyncio.create_task(rig.engine.cancel("a"))
    await settle()
    assert not cancel.done(), "the engine has not dropped it"
    await rig.pass_by(LOOKS + 1)
    assert await cancel
    assert await error_of(inside) in (SegmentCancelled, EngineDied)
    assert "abort" in await rig.engine.died()


async def test_a_call_of_a_worker_fails_by_itself_or_with_the_engine(rig: Rig) -> None:
    assert await rig.engine.call_worker("add", 1, 2) == [("add", 1, 2)]
    assert await error_of(rig.engine.call_worker("fail")) is WorkerFailed
    rig.backend.is_deaf = True
    call = asyncio.create_task(rig.engine.call_worker("add"))
    await settle()
    rig.backend.die("gone")
    assert await error_of(call) is EngineDied


async def test_a_backend_that_does_not_start_is_stopped() -> None:
    rig = Rig()
    rig.backend.start_error = OSError("no such model")
    with pytest.raises(EngineFailed, match="no such model"):
        await rig.engine.start()
    assert rig.backend.is_stopped


async def test_a_pool_too_small_for_one_session_is_no_start() -> None:
    rig = Rig(replace(SETTINGS, max_model_len=4096, session_tokens=4096))
    with pytest.raises(EngineFailed, match="one session needs"):
        await rig.engine.start()
    assert rig.backend.is_stopped


async def test_a_stop_ends_all_calls_and_is_no_death() -> None:
    rig = Rig()
    await rig.engine.start()
    await rig.engine.open("a")
    rig.backend.hold()
    inside = rig.begin("a", FIRST)
    await rig.backend.reached.wait()
    died = asyncio.create_task(rig.engine.died())
    await rig.engine.stop()
    assert await error_of(inside) is SegmentCancelled
    assert await error_of(rig.engine.open("b")) is EngineDied
    assert not died.done()
    died.cancel()


async def test_a_segment_that_breaks_off_costs_only_itself(rig: Rig) -> None:
    expected = await rig.expected()
    await rig.engine.open("a")
    await rig.append("a", FIRST)
    rig.backend.break_after = 2
    assert await error_of(rig.engine.append("a", rig.segment((Ids((9, 9)),)))) is SegmentFailed
    assert rig.engine.held_tokens("a") == 5
    assert await rig.append("a", SECOND) == expected
    assert rig.backend.fed[-1] == 5 + 2, "the record was fed in front"


async def test_the_record_is_fed_again_only_when_it_must_be(rig: Rig) -> None:
    await rig.engine.open("a")
    await rig.append("a", FIRST)
    await rig.append("a", SECOND)
    assert rig.backend.fed == [3, 2]
    assert len(rig.backend.names) == 1


async def test_a_cancel_reaches_what_waits_at_the_door(rig: Rig) -> None:
    await rig.engine.open("a")
    await rig.engine.open("b")
    rig.backend.hold()
    inside, waiting = rig.begin("a", FIRST), rig.begin("b", FIRST)
    await rig.backend.reached.wait()
    assert await rig.engine.cancel("b")
    assert await error_of(waiting) is SegmentCancelled
    rig.backend.go_on()
    assert len((await inside).token_ids) == 3
    assert rig.engine.held("b") == ()
    assert len(rig.backend.names) == 1, "the backend never heard of it"


async def test_the_next_segment_waits_until_the_old_request_is_gone(rig: Rig) -> None:
    await rig.engine.open("a")
    rig.backend.hold()
    inside = rig.begin("a", FIRST)
    await rig.backend.reached.wait()
    rig.backend.is_deaf = True
    inside.cancel()
    following = rig.begin("a", SECOND)
    rig.backend.go_on()
    await settle()
    assert list(rig.backend.requests) == ["a.1"], "two requests of one session at once"
    assert not following.done()
    rig.backend.die("enough")
    assert await error_of(following) is EngineDied


async def test_segments_that_wait_go_in_by_their_deadlines(rig: Rig) -> None:
    for key in ("a", "b", "c", "d"):
        await rig.engine.open(key)
    rig.backend.hold()
    calls = [rig.begin(key, FIRST, due) for key, due in (("a", 9), ("b", 3), ("c", 1), ("d", 2))]
    await rig.backend.reached.wait()
    rig.backend.go_on()
    await asyncio.gather(*calls)
    assert [name[0] for name in rig.backend.names] == ["a", "c", "d", "b"]


async def test_segments_of_one_session_do_not_overlap(rig: Rig) -> None:
    expected = await rig.expected()
    await rig.engine.open("a")
    first, second = rig.begin("a", FIRST), rig.begin("a", SECOND)
    await first
    assert (await second).token_ids == expected


async def test_a_rebuild_goes_last_and_only_once(rig: Rig) -> None:
    expected = await rig.expected()
    await rig.engine.open("a")
    await rig.engine.open("b")
    await rig.append("a", FIRST)
    await rig.engine.replace("a", rig.engine.held("a"))
    rig.backend.hold()
    other = rig.begin("b", FIRST, 5)
    await rig.backend.reached.wait()
    prepared = asyncio.create_task(rig.engine.prepare("a"))
    await settle()
    append = rig.begin("a", SECOND, 9)
    rig.backend.go_on()
    assert (await append).token_ids == expected
    await asyncio.gather(other, prepared)
    assert rig.backend.fed[-1] == 5 + 2, "nothing was left to rebuild"


async def test_a_memory_is_not_replaced_under_a_segment(rig: Rig) -> None:
    await rig.engine.open("a")
    rig.backend.hold()
    inside = rig.begin("a", FIRST)
    await rig.backend.reached.wait()
    assert await error_of(rig.engine.replace("a", SECOND)) is Busy
    rig.backend.go_on()
    await inside
    assert rig.engine.held_tokens("a") == 5


async def test_a_result_that_nobody_took_is_taken_back(rig: Rig) -> None:
    """The task is cancelled in the moment between the segment's end and its hearing of it."""
    expected = await rig.expected()
    await rig.engine.open("a")
    await rig.append("a", FIRST)
    held = rig.engine.held("a")
    lost = rig.begin("a", (Ids((9, 9)),))
    for _ in range(100):
        if rig.engine.held("a") != held:
            break
        await asyncio.sleep(0)
    assert rig.engine.held("a") != held, "it has ended"
    assert not lost.done(), "and its caller has not heard of it"
    lost.cancel()
    assert await error_of(lost) is asyncio.CancelledError
    assert rig.engine.held("a") == held
    assert await rig.append("a", SECOND) == expected


async def test_two_closes_end_together(rig: Rig) -> None:
    await rig.engine.open("a")
    await rig.append("a", FIRST)
    one = asyncio.create_task(rig.engine.close("a"))
    await asyncio.sleep(0)
    assert await error_of(rig.engine.open("a")) is NotOpen, "it is closing"
    await asyncio.gather(one, rig.engine.close("a"))
    await rig.engine.open("a")


async def test_a_close_goes_on_when_its_caller_gives_up(rig: Rig) -> None:
    await rig.engine.open("a")
    await rig.append("a", FIRST)
    close = asyncio.create_task(rig.engine.close("a"))
    await asyncio.sleep(0)
    close.cancel()
    await settle()
    assert rig.backend.requests == {}
    assert rig.engine.capacity().open_sessions == 0


async def test_waiting_and_sampling_are_timed_apart(rig: Rig) -> None:
    rig.backend.seconds_a_token = 0.5
    await rig.engine.open("a")
    await rig.engine.open("b")
    first, second = rig.begin("a", FIRST), rig.begin("b", FIRST)
    assert (await first).timing.queued_ms == 0.0
    timing = (await second).timing
    assert (timing.queued_ms, timing.ttft_ms) == (1500.0, 500.0)
    assert timing.itls_ms == (500.0, 500.0)


async def test_a_listener_hears_what_came_while_more_was_to_come() -> None:
    rig = Rig()
    await rig.engine.start()
    await rig.engine.open("one")
    heard: list[Tokens] = []
    done = await rig.engine.append("one", rig.segment(FIRST, max_tokens=4), heard.append)
    assert heard == [done.token_ids[:1], done.token_ids[:2], done.token_ids[:3]]
    rig.backend.break_after = 2
    heard.clear()
    with pytest.raises(SegmentFailed):
        await rig.engine.append("one", rig.segment(SECOND, max_tokens=4), heard.append)
    assert len(heard) == 2
    await rig.engine.stop()

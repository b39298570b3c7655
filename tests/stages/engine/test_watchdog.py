"""When an engine counts as dead."""

import asyncio

from stages.engine.watchdog import LOOKS, Watchdog


class Looks:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self._permits = asyncio.Semaphore(0)

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await self._permits.acquire()

    async def pass_by(self, looks: int) -> None:
        for _ in range(looks):
            self._permits.release()
            for _ in range(3):
                await asyncio.sleep(0)


async def never() -> str:
    await asyncio.Event().wait()
    return "never"


async def test_nothing_asked_is_never_stuck() -> None:
    looks = Looks()
    dog = Watchdog(1.0, looks.pause)
    running = asyncio.create_task(dog.run(never()))
    await looks.pass_by(5 * LOOKS)
    assert not dog.death.done()
    assert set(looks.pauses) == {1.0 / LOOKS}
    running.cancel()
    await asyncio.wait({running})


async def test_no_output_for_the_whole_limit_is_stuck() -> None:
    looks = Looks()
    dog = Watchdog(1.0, looks.pause)
    running = asyncio.create_task(dog.run(never()))
    with dog.watching("a segment of session s"):
        await looks.pass_by(LOOKS)
        assert not dog.death.done()
        await looks.pass_by(1)
    assert "a segment of session s" in dog.death.result()
    running.cancel()
    await asyncio.wait({running})


async def test_output_starts_the_count_anew() -> None:
    dog = Watchdog(1.0)
    with dog.watching("one") as one:
        for _ in range(5 * LOOKS):
            dog.look()
            one.progressed()
        assert not dog.death.done()


async def test_an_engine_that_works_for_others_is_busy() -> None:
    dog = Watchdog(1.0)
    with dog.watching("a long one"), dog.watching("another") as other:
        for _ in range(5 * LOOKS):
            dog.look()
            other.progressed()
        assert not dog.death.done()
        for _ in range(LOOKS + 1):
            dog.look()
        assert dog.death.done()


async def test_what_comes_after_a_long_idle_time_has_its_whole_limit() -> None:
    dog = Watchdog(1.0)
    for _ in range(5 * LOOKS):
        dog.look()
    with dog.watching("one"):
        for _ in range(LOOKS):
            dog.look()
        assert not dog.death.done()
        dog.look()
        assert dog.death.done()


async def test_what_has_ended_is_not_watched() -> None:
    dog = Watchdog(1.0)
    with dog.watching("one"):
        dog.look()
    for _ in range(2 * LOOKS):
        dog.look()
    assert not dog.death.done()


async def test_the_first_reason_stands() -> None:
    dog = Watchdog(1.0)
    dog.declare_dead("first")
    dog.declare_dead("second")
    assert dog.death.result() == "first"


async def test_a_backend_that_is_dead_is_dead() -> None:
    async def dead() -> str:
        return "its process is gone"

    dog = Watchdog(1.0)
    await dog.run(dead())
    assert dog.death.result() == "its process is gone"


async def test_a_backend_that_can_not_tell_is_dead() -> None:
    async def broken() -> str:
        raise OSError("no answer")

    dog = Watchdog(1.0)
    await dog.run(broken())
    assert dog.death.result() == "OSError: no answer"

"""Who goes through the door, and when."""

import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from stages.engine.door import Door


class Caller:
    """One that wants to go in, and stays until it is told to leave."""

    def __init__(self, door: Door, key: str, deadline_s: float) -> None:
        self.key = key
        self.deadline_s = deadline_s
        self.is_inside = False
        self.leave = asyncio.Event()
        self.task = asyncio.create_task(self._go(door))

    async def _go(self, door: Door) -> None:
        async with door.enter(self.key, self.deadline_s):
            self.is_inside = True
            try:
                await self.leave.wait()
            finally:
                self.is_inside = False


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def end(*callers: Caller) -> None:
    for caller in callers:
        caller.task.cancel()
    await asyncio.gather(*(caller.task for caller in callers), return_exceptions=True)


async def test_the_earliest_deadline_goes_first_and_equals_in_their_order() -> None:
    door = Door(1)
    first = Caller(door, "first", 100)
    await settle()
    waiting = [Caller(door, key, due) for key, due in (("c", 3), ("a", 1), ("b1", 2), ("b2", 2))]
    await settle()
    order: list[str] = []
    inside = first
    for _ in waiting:
        inside.leave.set()
        await settle()
        (inside,) = [caller for caller in waiting if caller.is_inside]
        order.append(inside.key)
    assert order == ["a", "b1", "b2", "c"]
    await end(first, *waiting)


async def test_one_session_is_inside_once_and_does_not_hold_up_the_others() -> None:
    door = Door(2)
    one, again, other = (Caller(door, key, due) for key, due in (("s", 1), ("s", 2), ("t", 3)))
    await settle()
    assert (one.is_inside, again.is_inside, other.is_inside) == (True, False, True)
    one.leave.set()
    await settle()
    assert again.is_inside
    await end(one, again, other)


async def test_giving_up_while_waiting_leaves_no_trace() -> None:
    door = Door(1)
    inside, gone, last = (Caller(door, key, due) for key, due in (("a", 1), ("b", 2), ("c", 3)))
    await settle()
    gone.task.cancel()
    await settle()
    assert door.waiting == 1
    inside.leave.set()
    await settle()
    assert last.is_inside
    await end(inside, gone, last)
    assert not door.inside


async def test_giving_up_at_the_moment_of_ones_turn_passes_it_on() -> None:
    door = Door(1)
    inside, gone, last = (Caller(door, key, due) for key, due in (("a", 1), ("b", 2), ("c", 3)))
    await settle()
    inside.leave.set()
    for _ in range(10):
        if "b" in door.inside:
            break
        await asyncio.sleep(0)
    assert "b" in door.inside
    assert not gone.is_inside, "its turn has come, and it has not heard of it"
    gone.task.cancel()
    await settle()
    assert last.is_inside
    assert door.inside == {"c"}
    await end(inside, gone, last)


async def test_a_turn_is_not_given_to_one_that_was_just_cancelled() -> None:
    door = Door(1)
    inside, gone, last = (Caller(door, key, due) for key, due in (("a", 1), ("b", 2), ("c", 3)))
    await settle()
    inside.task.cancel()  # it leaves before the other hears of its own end
    gone.task.cancel()
    await settle()
    assert last.is_inside
    assert isinstance(
        (await asyncio.gather(inside.task, return_exceptions=True))[0], asyncio.CancelledError
    )
    await end(inside, gone, last)


Step = tuple[str, str, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["come", "come", "leave", "cancel", "settle"]),
        st.sampled_from("abcd"),
        st.integers(0, 3),
    ),
    max_size=40,
)


@given(places=st.integers(1, 3), story=steps)
def test_the_rules_hold_in_any_story(places: int, story: list[Step]) -> None:
    asyncio.run(_tell(places, story))


async def _tell(places: int, story: list[Step]) -> None:
    door = Door(places)
    callers: list[Caller] = []
    for what, key, number in story:
        mine = [caller for caller in callers if caller.key == key and not caller.task.done()]
        if what == "come":
            callers.append(Caller(door, key, float(number)))
        elif what == "settle":
            await settle()
            _check(door, callers, places)
        elif mine and what == "leave":
            mine[number % len(mine)].leave.set()
        elif mine:
            mine[number % len(mine)].task.cancel()
        if number == 0:
            await asyncio.sleep(0)
    await end(*callers)
    await settle()
    assert not door.inside
    assert door.waiting == 0


def _check(door: Door, callers: list[Caller], places: int) -> None:
    inside = Counter(caller.key for caller in callers if caller.is_inside)
    assert inside.total() <= places
    assert all(count == 1 for count in inside.values())
    assert door.inside == set(inside)
    waiting = {caller.key for caller in callers if not caller.task.done() and not caller.is_inside}
    free = places - inside.total()
    assert not free or waiting <= set(inside), "a place is free and somebody waits for it"

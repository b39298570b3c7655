"""The door in front of a model: Stage0's half, and what both halves share."""

import asyncio
import logging
from collections.abc import Awaitable

import pytest

from session.config import RuntimeConfig
from session.errors import StageContractBroken, StageFailed, StageRefused
from session.fence import Fence
from session.ids import OperationId, RequestId, SessionId
from session.tools import FunctionCall
from session.unit import Decision, Unit, UnitResult
from stages.binding import MAX_ARGUMENTS_CHARS, MAX_UNIT_BYTES, Stage0Door
from stages.contract import Appended, Released, Speech
from stages.held_sessions import KEPT_INCARNATIONS
from tests.support.models import HandStage0, settle

RUNTIME = RuntimeConfig()
SILENCE = Unit(pcm=bytes(32_000))


def fence(session: str = "sess_a", incarnation: int = 0, epoch: int = 0, turn: int = 0) -> Fence:
    return Fence(SessionId(session), incarnation, epoch, turn)


def say(text: str) -> Unit:
    return Unit(pcm=b"", text=text)


class Caller:
    """Speaks for one session to one door: numbers units and names operations."""

    def __init__(self, door: Stage0Door, at: Fence) -> None:
        self.door = door
        self.at = at
        self.seq = 0

    async def append(
        self, unit: Unit = SILENCE, *, op: str = "", seq: int | None = None, generation: int = 0
    ) -> Appended:
        self.seq = self.seq + 1 if seq is None else seq
        operation = OperationId(op or f"op_{self.at.epoch}_{self.seq}")
        return await self.door.append(
            self.at, seq=self.seq, operation_id=operation, unit=unit, config_generation=generation
        )

    async def cancel(self, heard: str = "", *, consumed: int | None = None) -> Released:
        cancelled, self.at, self.seq = self.at, self.at.next_epoch(), 0
        return await self.door.cancel(cancelled, self.at, heard, consumed)


@pytest.fixture
def model() -> HandStage0:
    return HandStage0()


@pytest.fixture
def door(model: HandStage0) -> Stage0Door:
    return Stage0Door(model, cache_size=3)


@pytest.fixture
async def caller(door: Stage0Door) -> Caller:
    await door.open(fence(), RUNTIME)
    return Caller(door, fence())


async def refused(call: Awaitable[object]) -> str:
    """Await a call that the door must refuse, and return what it says."""
    with pytest.raises(StageRefused) as caught:
        await call
    return caught.value.message


async def test_a_unit_reaches_the_model_and_its_answer_comes_back(caller: Caller) -> None:
    assert (await caller.append()).result.decision is Decision.LISTEN
    spoken = await caller.append(say("hello"))
    assert spoken.result.text == "hello"
    assert spoken.speech is not None
    assert spoken.speech.text == "hello"


@pytest.mark.parametrize(
    "presented",
    [
        fence(epoch=1),
        fence(incarnation=1),
        fence(session="sess_b"),
    ],
)
async def test_a_fence_that_does_not_hold_is_refused(
    caller: Caller, model: HandStage0, presented: Fence
) -> None:
    caller.at = presented
    await refused(caller.append())
    assert model.calls["work"] == 0


async def test_the_turn_does_not_make_a_fence_stale(caller: Caller) -> None:
    caller.at = fence(turn=7)
    await caller.append()


async def test_units_follow_one_another(caller: Caller, model: HandStage0) -> None:
    await caller.append(seq=5)
    assert "out of order" in await refused(caller.append(seq=7, op="gap"))
    assert "out of order" in await refused(caller.append(seq=5, op="again"))
    await caller.append(seq=6)
    assert model.calls["work"] == 2


async def test_a_unit_that_failed_may_be_replaced_or_passed_over(
    caller: Caller, model: HandStage0
) -> None:
    await caller.append()
    model.fail_next("work", StageFailed("too loud"))
    with pytest.raises(StageFailed, match="too loud"):
        await caller.append()
    await caller.append(seq=2, op="replacement")
    model.fail_next("work", StageFailed("too loud"))
    with pytest.raises(StageFailed):
        await caller.append()
    await caller.append(seq=4)


async def test_a_repeated_operation_is_answered_from_memory(
    caller: Caller, model: HandStage0
) -> None:
    first = await caller.append(say("one"), op="op_x")
    await caller.append(say("two"))
    assert await caller.append(say("not looked at"), op="op_x", seq=9) is first
    assert model.calls["work"] == 2


async def test_an_operation_repeated_while_it_runs_joins_it(
    caller: Caller, model: HandStage0
) -> None:
    gate = model.gates["work"]
    gate.hold()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(caller.append(op="op_x"))
        await gate.reached.wait()
        second = tasks.create_task(caller.append(op="op_x", seq=1))
        await settle()
        gate.release()
    assert first.result() is second.result()
    assert model.calls["work"] == 1


async def test_a_failed_operation_may_be_tried_again(caller: Caller, model: HandStage0) -> None:
    model.fail_next("work", StageFailed("once"))
    with pytest.raises(StageFailed):
        await caller.append(op="op_x")
    await caller.append(op="op_x", seq=1)


async def test_only_so_many_operations_are_remembered(caller: Caller, model: HandStage0) -> None:
    for number in range(5):
        await caller.append(op=f"op_{number}")
    await caller.append(op="op_2", seq=1)  # one of the three that are kept
    assert model.calls["work"] == 5
    assert "out of order" in await refused(caller.append(op="op_1", seq=1))


async def test_a_second_append_at_the_same_time_is_refused(
    caller: Caller, model: HandStage0
) -> None:
    gate = model.gates["work"]
    gate.hold()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(caller.append())
        await gate.reached.wait()
        assert "still running" in await refused(caller.append())
        gate.release()
    assert first.result().result.decision is Decision.LISTEN


async def test_sessions_do_not_wait_for_each_other(
    caller: Caller, door: Stage0Door, model: HandStage0
) -> None:
    other = Caller(door, fence("sess_b"))
    await door.open(other.at, RUNTIME)
    gate = model.gates["work"]
    gate.hold()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(caller.append())
        tasks.create_task(other.append())
        await settle()
        assert model.inside == 2
        gate.release()


async def test_the_callers_patience_does_not_cut_the_model(
    caller: Caller, model: HandStage0
) -> None:
    gate = model.gates["work"]
    gate.hold()
    impatient = asyncio.ensure_future(caller.append(say("late"), op="op_x"))
    await gate.reached.wait()
    impatient.cancel()
    await asyncio.wait({impatient})
    gate.release()
    assert (await caller.append(op="op_x", seq=1)).result.text == "late"
    assert model.calls["work"] == 1


# --- cancel -------------------------------------------------------------------------------------


async def test_a_cancel_voids_the_running_append_and_tells_the_model_what_was_heard(
    caller: Caller, model: HandStage0
) -> None:
    gate = model.gates["work"]
    gate.hold()
    running = asyncio.ensure_future(caller.append(say("a long answer")))
    await gate.reached.wait()
    assert await caller.cancel(heard="a long") == Released(calls=1)
    assert "cancelled" in await refused(running)
    assert model.heard == [("sess_a", "a long")]
    gate.release()
    assert (await caller.append()).result.decision is Decision.LISTEN
    assert model.most_inside == 1


@pytest.mark.parametrize(("consumed", "undoes"), [(2, False), (1, True), (None, False)])
async def test_a_unit_whose_answer_did_not_count_is_undone(
    caller: Caller, model: HandStage0, consumed: int | None, undoes: bool
) -> None:
    await caller.append()
    await caller.append()
    await caller.cancel(consumed=consumed)
    assert model.undone == [undoes]


async def test_a_unit_that_runs_or_failed_is_not_undone_once_more(
    caller: Caller, model: HandStage0
) -> None:
    await caller.append()
    model.gates["work"].hold()
    running = asyncio.ensure_future(caller.append())
    await model.gates["work"].reached.wait()
    await caller.cancel(consumed=1)
    await refused(running)
    model.gates["work"].release()
    await settle()
    model.faults["work"].append(StageFailed("poison"))
    with pytest.raises(StageFailed):
        await caller.append()
    await caller.cancel(consumed=0)
    assert model.undone == [False, False]


async def test_the_next_epoch_waits_until_the_model_is_done_with_the_old_one(
    caller: Caller, model: HandStage0
) -> None:
    work, interrupt = model.gates["work"], model.gates["interrupt"]
    work.hold()
    interrupt.hold()
    async with asyncio.TaskGroup() as tasks:
        old = tasks.create_task(refused(caller.append()))
        await work.reached.wait()
        tasks.create_task(caller.cancel())
        await interrupt.reached.wait()
        new = tasks.create_task(caller.append())
        work.release()
        await settle()
        assert len(model.units) == 1  # the interrupt has not ended yet
        interrupt.release()
    assert old.done()
    assert new.result().result.decision is Decision.LISTEN
    assert model.most_inside == 1


async def test_an_old_fence_stays_refused_for_ever(caller: Caller, door: Stage0Door) -> None:
    await caller.cancel()
    late = Caller(door, fence())
    assert "stale" in await refused(late.append())


async def test_a_late_or_repeated_cancel_changes_nothing(
    caller: Caller, door: Stage0Door, model: HandStage0
) -> None:
    await caller.cancel()
    await caller.cancel()
    assert await door.cancel(fence(), fence(epoch=1, turn=1), "") == Released()
    assert await door.cancel(fence(epoch=1), fence(epoch=2), "") == Released()
    assert model.calls["interrupt"] == 2
    await caller.append()


async def test_a_lost_cancel_is_made_good_by_the_next(caller: Caller, door: Stage0Door) -> None:
    caller.at = fence(epoch=3)
    await door.cancel(fence(epoch=2), caller.at, "")
    await caller.append()


@pytest.mark.parametrize(
    "current",
    [
        None,
        fence(epoch=0),
        fence(session="sess_b", epoch=1),
        fence(incarnation=1, epoch=1),
    ],
)
async def test_a_cancel_without_a_valid_successor_is_refused_and_releases_nothing(
    caller: Caller, door: Stage0Door, model: HandStage0, current: Fence
) -> None:
    gate = model.gates["work"]
    gate.hold()
    running = asyncio.ensure_future(caller.append())
    await gate.reached.wait()
    await refused(door.cancel(fence(), current, ""))
    gate.release()
    assert (await running).result.decision is Decision.LISTEN
    assert model.calls["interrupt"] == 0


async def test_a_cancel_of_a_life_that_was_never_opened_is_refused(door: Stage0Door) -> None:
    await door.open(fence(), RUNTIME)
    await refused(door.cancel(fence(incarnation=1), fence(incarnation=1, epoch=1), ""))
    assert door.fence_of(SessionId("sess_a")) == fence()


# --- configure ----------------------------------------------------------------------------------


async def test_settings_hold_from_the_append_that_names_them(
    caller: Caller, door: Stage0Door, model: HandStage0
) -> None:
    quiet = RuntimeConfig(instructions="be quiet")
    await caller.append()
    await door.configure(caller.at, quiet, 1)
    await caller.append(generation=0)  # accepted before the update, whoever was faster
    await caller.append(generation=1)
    assert [runtime for _, _, runtime in model.units] == [RUNTIME, RUNTIME, quiet]
    assert "settings 0" in await refused(caller.append(generation=0))


async def test_settings_are_never_changed_under_a_running_append(
    caller: Caller, door: Stage0Door, model: HandStage0
) -> None:
    gate = model.gates["work"]
    gate.hold()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(caller.append())
        await gate.reached.wait()
        tasks.create_task(door.configure(caller.at, RuntimeConfig(voice="b"), 1))
        await settle()
        assert model.calls["configure"] == 0
        gate.release()
    assert model.calls["configure"] == 1
    assert model.most_inside == 1


async def test_refused_settings_leave_the_old_ones(
    caller: Caller, door: Stage0Door, model: HandStage0
) -> None:
    model.fail_next("configure", StageFailed("no such voice"))
    with pytest.raises(StageFailed, match="no such voice"):
        await door.configure(caller.at, RuntimeConfig(voice="x"), 1)
    await refused(caller.append(generation=1))
    await caller.append(generation=0)
    assert model.units[-1][2] == RUNTIME


async def test_settings_older_than_those_in_use_are_refused(
    caller: Caller, door: Stage0Door
) -> None:
    await door.configure(caller.at, RUNTIME, 2)
    await caller.append(generation=2)
    assert "stale" in await refused(door.configure(caller.at, RUNTIME, 1))


# --- open and close -----------------------------------------------------------------------------


async def test_a_life_must_be_newer_than_every_one_before(door: Stage0Door) -> None:
    await door.open(fence(incarnation=4), RUNTIME)
    await door.close(fence(incarnation=4))
    for old in (3, 4):
        assert "not newer" in await refused(door.open(fence(incarnation=old), RUNTIME))
    await door.open(fence(incarnation=5), RUNTIME)


async def test_a_newer_life_waits_for_the_release_of_the_older(door: Stage0Door) -> None:
    await door.open(fence(), RUNTIME)
    assert "not been released" in await refused(door.open(fence(incarnation=1), RUNTIME))


async def test_a_failed_open_leaves_nothing(door: Stage0Door, model: HandStage0) -> None:
    model.fail_next("open", MemoryError("no room"))
    with pytest.raises(StageFailed, match="MemoryError: no room"):
        await door.open(fence(), RUNTIME)
    assert door.bound_sessions == 0
    await door.open(fence(), RUNTIME)


async def test_closing_twice_frees_once(
    caller: Caller, door: Stage0Door, model: HandStage0
) -> None:
    assert await door.close(caller.at) == Released(sessions=1)
    assert await door.close(caller.at) == Released()
    assert model.calls["close"] == 1
    assert model.open_sessions == set()
    assert "not open" in await refused(caller.append())


async def test_a_close_wakes_whoever_waits_and_counts_the_calls(
    caller: Caller, door: Stage0Door, model: HandStage0
) -> None:
    gate = model.gates["work"]
    gate.hold()
    running = asyncio.ensure_future(caller.append())
    await gate.reached.wait()
    assert await door.close(caller.at) == Released(sessions=1, calls=1)
    await refused(running)
    assert model.inside == 0


async def test_a_stale_close_is_refused_and_one_after_a_lost_cancel_holds(
    caller: Caller, door: Stage0Door
) -> None:
    await caller.cancel()
    assert "stale" in await refused(door.close(fence()))
    assert await door.close(fence(epoch=5)) == Released(sessions=1)


async def test_a_close_of_another_life_touches_nothing(caller: Caller, door: Stage0Door) -> None:
    assert await door.close(fence(incarnation=1)) == Released()
    assert await door.close(fence("sess_never")) == Released()
    await caller.append()


async def test_what_could_not_be_released_stays_bound_until_a_retry_succeeds(
    caller: Caller, door: Stage0Door, model: HandStage0
) -> None:
    model.fail_next("close", OSError("device busy"))
    with pytest.raises(StageFailed, match="OSError: device busy"):
        await door.close(caller.at)
    assert door.bound_sessions == 1
    await refused(caller.append())
    await refused(door.open(fence(incarnation=1), RUNTIME))
    assert await door.close(caller.at) == Released(sessions=1)
    assert door.bound_sessions == 0


async def test_a_close_during_the_open_takes_back_what_was_opened(
    door: Stage0Door, model: HandStage0
) -> None:
    gate = model.gates["open"]
    gate.hold()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(door.open(fence(), RUNTIME))
        await gate.reached.wait()
        closing = tasks.create_task(door.close(fence()))
        await settle()
        gate.release()
    assert closing.result() == Released(sessions=1)
    assert model.open_sessions == set()


async def test_the_memory_of_past_sessions_is_bounded(door: Stage0Door) -> None:
    for number in range(KEPT_INCARNATIONS + 50):
        await door.open(fence(f"sess_{number}"), RUNTIME)
        await door.close(fence(f"sess_{number}"))
    assert "not newer" in await refused(door.open(fence(f"sess_{KEPT_INCARNATIONS}"), RUNTIME))
    await door.open(fence("sess_0"), RUNTIME)


# --- faults -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "unit",
    [
        Unit(pcm=b"\x00" * 3),
        Unit(pcm=b""),
        Unit(pcm=bytes(MAX_UNIT_BYTES + 2)),
    ],
    ids=["odd", "empty", "too long"],
)
async def test_a_poisoned_unit_harms_only_itself(
    caller: Caller, door: Stage0Door, model: HandStage0, unit: Unit
) -> None:
    other = Caller(door, fence("sess_b"))
    await door.open(other.at, RUNTIME)
    await caller.append()
    await other.append()
    with pytest.raises(StageFailed, match="bad unit"):
        await caller.append(unit)
    assert len(model.units) == 2
    await other.append()
    await caller.append(seq=3, op="good")  # it was tried, so it may be passed over


async def test_an_empty_unit_may_close_the_input(caller: Caller) -> None:
    await caller.append(Unit(pcm=b"", closes_input=True))


async def test_a_fault_of_the_plugin_is_named_to_the_caller_and_traced_in_the_log(
    caller: Caller, model: HandStage0, caplog: pytest.LogCaptureFixture
) -> None:
    model.fail_next("work", ZeroDivisionError("by nought"))
    with caplog.at_level(logging.ERROR), pytest.raises(StageFailed) as caught:
        await caller.append()
    assert caught.value.message == "the model failed: ZeroDivisionError: by nought"
    [record] = caplog.records
    assert record.exc_info is not None
    assert "models.py" not in caught.value.message


class Contradiction(HandStage0):
    """Decides to listen and hands over speech all the same, or the other way round."""

    async def append(
        self, session_id: SessionId, unit: Unit, *, request_id: RequestId | None = None
    ) -> Appended:
        """Swap the speech."""
        answer = await super().append(session_id, unit)
        if answer.speech is None:
            return Appended(UnitResult(Decision.SPEAK, "words"), None)
        return Appended(UnitResult(Decision.LISTEN), answer.speech)


@pytest.mark.parametrize("unit", [SILENCE, say("hello")])
async def test_an_answer_that_contradicts_itself_breaks_the_contract(unit: Unit) -> None:
    door = Stage0Door(Contradiction(), cache_size=3)
    await door.open(fence(), RUNTIME)
    with pytest.raises(StageContractBroken):
        await Caller(door, fence()).append(unit)


class Fixed(HandStage0):
    """Answers every unit with the same thing."""

    def __init__(self, answer: Appended) -> None:
        super().__init__()
        self.answer = answer

    async def append(
        self, session_id: SessionId, unit: Unit, *, request_id: RequestId | None = None
    ) -> Appended:
        """Answer."""
        del session_id, unit
        return self.answer


def calling(decision: Decision, arguments: str = "{}") -> Appended:
    return Appended(
        UnitResult(decision, turn_end=True, calls=(FunctionCall("call_1", "f", arguments),)), None
    )


async def appended_by(answer: Appended) -> Appended:
    door = Stage0Door(Fixed(answer), cache_size=3)
    await door.open(fence(), RUNTIME)
    return await Caller(door, fence()).append(SILENCE)


@pytest.mark.parametrize(
    "answer",
    [
        calling(Decision.SPEAK),
        Appended(UnitResult(Decision.SPEAK, "shown", has_speech=False), None),
        Appended(
            UnitResult(Decision.SPEAK, has_speech=True),
            Speech("", segment_end=True, turn_end=False),
        ),
        Appended(UnitResult(Decision.SPEAK, turn_end=True), None),
    ],
)
async def test_text_speech_and_calls_come_apart(answer: Appended) -> None:
    assert await appended_by(answer) == answer


@pytest.mark.parametrize(
    "answer",
    [
        calling(Decision.LISTEN),
        Appended(UnitResult(Decision.LISTEN, "words", has_speech=False), None),
        Appended(UnitResult(Decision.SPEAK, has_speech=True), None),
        Appended(
            UnitResult(Decision.SPEAK, "shown", has_speech=False),
            Speech("x", segment_end=True, turn_end=False),
        ),
    ],
)
async def test_a_result_that_is_not_what_it_says_breaks_the_contract(answer: Appended) -> None:
    with pytest.raises(StageContractBroken):
        await appended_by(answer)


async def test_a_call_too_large_for_the_wire_fails_its_unit_alone() -> None:
    at_most = calling(Decision.SPEAK, "x" * MAX_ARGUMENTS_CHARS)
    assert await appended_by(at_most) == at_most
    with pytest.raises(StageFailed, match="function call"):
        await appended_by(calling(Decision.SPEAK, "x" * (MAX_ARGUMENTS_CHARS + 1)))

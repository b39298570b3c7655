"""Records of units from a worker's sender to the service's receiver, over a real socket."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
import torch
import zmq

from session.errors import StageFailed
from stages.minicpmo import tap_sender
from stages.minicpmo.policy import PUBLISHED, Decision
from stages.minicpmo.policy_request import PolicyRequest
from stages.minicpmo.random_numbers import MOST_SEED
from stages.minicpmo.tap import TapReceiver
from stages.minicpmo.tap_sender import CopiedRow, CopiedRows, RowCopier, TapSender
from stages.minicpmo.unit_decoder import NOTHING_SAID, PUBLISHED_RULES, Ended
from stages.minicpmo.unit_record import UnitBroke, UnitEnded

pytestmark = pytest.mark.models

ENDED = Ended(
    speech=NOTHING_SAID,
    terminator=9,
    fed=(5, 6),
    is_listen=False,
    is_end_of_turn=False,
    is_turn_cut=False,
    condition=(6,),
    text="é",
)
DECISIONS = (Decision(5, joins_history=True), Decision(9, joins_history=False))


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[TapReceiver]:
    made = TapReceiver()
    await made.start()
    yield made
    await made.close()


@pytest_asyncio.fixture
async def sender(receiver: TapReceiver) -> AsyncIterator[TapSender]:
    made = TapSender(receiver.address)
    yield made
    await asyncio.to_thread(made.close)


def header(request_id: str, rows: int = 3, hidden: int = 4, dtype: str = "float32") -> UnitEnded:
    return UnitEnded(request_id, ENDED, DECISIONS, rows, hidden, dtype)


def copied(table: torch.Tensor, order: list[int]) -> list[CopiedRow]:
    of = CopiedRows(table, None)
    return [CopiedRow(of, at) for at in order]


async def test_a_record_arrives_whole(receiver: TapReceiver, sender: TapSender) -> None:
    receiver.register("a")
    table = torch.arange(16, dtype=torch.float32).reshape(4, 4)
    sender.send(header("a"), copied(table, [3, 0, 1]))
    record = await receiver.take("a")
    assert (record.ended, record.decisions) == (ENDED, DECISIONS)
    np.testing.assert_array_equal(record.rows, table[[3, 0, 1]].numpy())
    np.testing.assert_array_equal(record.hidden, table[[0, 1]].numpy())


async def test_sixteen_bit_rows_arrive_exactly(receiver: TapReceiver, sender: TapSender) -> None:
    receiver.register("a")
    table = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).bfloat16()
    sender.send(header("a", dtype="bfloat16"), copied(table, [0, 1, 2]))
    record = await receiver.take("a")
    assert record.rows.dtype == np.float32
    np.testing.assert_array_equal(record.rows, table.float().numpy())


async def test_a_broken_unit_is_a_failed_stage(receiver: TapReceiver, sender: TapSender) -> None:
    receiver.register("a")
    sender.send(UnitBroke("a", "no token was left"))
    with pytest.raises(StageFailed, match="no token was left"):
        await receiver.take("a")


async def test_what_nobody_registered_for_is_dropped(
    receiver: TapReceiver, sender: TapSender
) -> None:
    receiver.register("gone")
    receiver.unregister("gone")
    receiver.register("wanted")
    for name in ("gone", "stranger", "wanted", "wanted", "last"):
        sender.send(UnitBroke(name, "first") if name == "gone" else UnitBroke(name, name))
    receiver.register("last")
    with pytest.raises(StageFailed, match="last"):
        await receiver.take("last")
    assert receiver.dropped == 3
    with pytest.raises(StageFailed, match="wanted"):
        await receiver.take("wanted")
    receiver.unregister("wanted")
    receiver.unregister("last")
    receiver.unregister("last")
    assert len(receiver) == 0
    with pytest.raises(KeyError):
        await receiver.take("wanted")


async def test_a_name_is_registered_once(receiver: TapReceiver) -> None:
    receiver.register("a")
    with pytest.raises(ValueError, match="already"):
        receiver.register("a")


async def test_a_take_that_is_given_up_leaves_the_place(
    receiver: TapReceiver, sender: TapSender
) -> None:
    receiver.register("a")
    first = asyncio.create_task(receiver.take("a"))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    sender.send(header("a"), copied(torch.zeros(3, 4), [0, 1, 2]))
    assert (await receiver.take("a")).request_id == "a"


async def test_who_waits_is_told_of_the_end(receiver: TapReceiver) -> None:
    receiver.register("a")
    receiver.register("b")
    tasks = [asyncio.create_task(receiver.take(name)) for name in "ab"]
    await asyncio.sleep(0)
    receiver.unregister("a")
    await receiver.close()
    for task in tasks:
        with pytest.raises(StageFailed):
            await task
    assert len(receiver) == 0


async def test_the_socket_is_private_and_goes_with_the_tap() -> None:
    receiver = TapReceiver()
    await receiver.start()
    folder = Path(receiver.address.removeprefix("ipc://")).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    assert list(folder.iterdir())
    await receiver.close()
    await receiver.close()
    assert not folder.exists()


async def test_foreign_messages_do_no_harm(receiver: TapReceiver, sender: TapSender) -> None:
    receiver.register("a")
    sender.send(header("a", rows=2), copied(torch.zeros(2, 4), [0, 1]))
    sender.send(header("a", hidden=5), copied(torch.zeros(3, 4), [0, 1, 2]))
    sender.send(header("a", dtype="float16"), copied(torch.zeros(3, 4), [0, 1, 2]))
    with zmq.Context() as context, context.socket(zmq.PUSH) as stranger:
        stranger.connect(receiver.address)
        stranger.send_multipart([b"\xc1", b""])
        stranger.send_multipart([b"one"])
    sender.send(header("a"), copied(torch.zeros(3, 4), [0, 1, 2]))
    assert (await receiver.take("a")).request_id == "a"
    while receiver.unreadable < 5:  # noqa: ASYNC110 - the socket's reader has no event for it
        await asyncio.sleep(0.01)


async def test_a_copy_that_fails_drops_its_message_alone(
    receiver: TapReceiver, sender: TapSender
) -> None:
    class Broken:
        def synchronize(self) -> None:
            raise RuntimeError("the device is gone")

    receiver.register("a")
    sender.send(header("a"), [CopiedRow(CopiedRows(torch.zeros(3, 4), Broken()), 0)])
    sender.send(UnitBroke("a", "second"))
    with pytest.raises(StageFailed, match="second"):
        await receiver.take("a")
    assert sender.dropped == 1


async def test_more_than_the_tap_can_hold_is_dropped_and_counted(
    receiver: TapReceiver, sender: TapSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.register("a")
    monkeypatch.setattr(tap_sender, "_MOST_WAITING", 0)
    sender.send(UnitBroke("a", "too much"))
    monkeypatch.undo()
    sender.send(UnitBroke("a", "second"))
    with pytest.raises(StageFailed, match="second"):
        await receiver.take("a")
    assert sender.dropped == 1


def test_rows_are_copied_before_they_are_overwritten() -> None:
    rows = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    kept = RowCopier().copy(rows, [2, 0])
    rows.zero_()
    assert CopiedRow(kept, 0).settled().tolist() == [8, 9, 10, 11]
    assert CopiedRow(kept, 1).settled().tolist() == [0, 1, 2, 3]


def test_a_policy_request_travels_as_plain_values() -> None:
    request = PolicyRequest(
        "a", 7, True, replace(NOTHING_SAID, history=(1, 2)), PUBLISHED, PUBLISHED_RULES
    )
    assert PolicyRequest.from_extra_args(request.to_extra_args()) == request
    assert PolicyRequest.from_extra_args({"other": 1}) is None
    for seed in (-1, MOST_SEED + 1):
        with pytest.raises(ValueError, match="seed"):
            replace(request, seed=seed)
    assert replace(request, seed=MOST_SEED).draws(19) is not None


def test_draws_are_those_of_the_seed_and_the_step() -> None:
    request = PolicyRequest("a", 7, False, NOTHING_SAID, PUBLISHED, PUBLISHED_RULES)
    drawn = [request.draws(step) for step in range(200)]
    assert drawn == [replace(request, request_id="b").draws(step) for step in range(200)]
    numbers = [number for one in drawn if one for number in (one.first, one.second)]
    assert len(set(numbers)) == 400
    assert 0 <= min(numbers) < 0.05
    assert 0.95 < max(numbers) < 1
    assert replace(request, seed=8).draws(0) not in drawn
    assert replace(request, seed=None).draws(0) is None

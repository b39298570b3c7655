"""The one clock, and what the benchmark reads off it."""

import asyncio

from serve_app.clock import MonotonicClock, sleep_until
from serve_app.ids import RandomIds
from serve_app.metrics.timings import KEPT_SAMPLES, GatewayTimings, Reservoir
from tests.fakes.clock import FakeClock


async def test_a_call_is_made_when_its_time_comes_and_not_before() -> None:
    clock, rang = MonotonicClock(), asyncio.Event()
    due = clock.now() + 0.02
    clock.call_at(due, rang.set)
    await rang.wait()
    assert clock.now() >= due - 0.001  # a loop may round its timers


async def test_a_time_that_has_passed_comes_at_once_and_a_cancelled_one_never() -> None:
    clock, called = MonotonicClock(), list[str]()
    done = asyncio.Event()
    clock.call_at(clock.now() - 5, lambda: called.append("late")).cancel()
    clock.call_at(clock.now() - 5, lambda: called.append("past"))
    clock.call_at(clock.now() + 0.01, done.set)
    await done.wait()
    assert called == ["past"]


async def test_whoever_stops_waiting_leaves_no_timer() -> None:
    clock = FakeClock()
    waiting = asyncio.create_task(sleep_until(clock, 10.0))
    await asyncio.sleep(0)
    assert clock.pending == 1
    waiting.cancel()
    await asyncio.wait({waiting})
    assert clock.pending == 0


def test_ids_are_named_and_never_the_same() -> None:
    ids = RandomIds()
    made = {ids.new("sess") for _ in range(1_000)}
    assert len(made) == 1_000
    assert all(one.startswith("sess_") and len(one) == 29 for one in made)


def test_a_reservoir_is_bounded_and_knows_its_quantiles() -> None:
    reservoir = Reservoir()
    assert reservoir.summary() == {"count": 0}
    for milliseconds in range(1, 101):
        reservoir.add(milliseconds / 1000)
    summary = reservoir.summary()
    assert (summary["count"], summary["max_ms"]) == (100, 100.0)
    assert abs(summary["p50_ms"] - 50) <= 1
    assert abs(summary["p99_ms"] - 99) <= 1
    for _ in range(KEPT_SAMPLES):
        reservoir.add(0.001)
    assert reservoir.summary()["max_ms"] == 1.0
    assert reservoir.summary()["count"] == 100 + KEPT_SAMPLES


def test_a_gateways_timings_are_its_own() -> None:
    one, other = GatewayTimings(), GatewayTimings()
    one.frame_to_append.add(0.5)
    assert other.summary()["frame_to_append"] == {"count": 0}

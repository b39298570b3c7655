"""What an engine shows of its slots and its leases."""

from serve_app.leasing.engine import Stage0Engine
from serve_app.metrics.definitions import (
    ENGINE_STARTED,
    ENGINE_UP,
    KV_TOKENS,
    LEASES_ENDED,
    LEASES_REFUSED,
    STAGE_LIMIT,
    STAGE_SLOTS,
)
from session.config import RuntimeConfig, SessionLimits
from session.fence import Fence
from session.ids import SessionId
from stages.contract import TokenMemory
from tests.fakes.clock import FakeClock
from tests.fakes.engine_process import engine_process
from tests.fakes.meter import CountedMeter
from tests.support.models import HandStage0

LIMITS = SessionLimits(max_sessions=2, lease_ttl_s=15.0, reaper_interval_s=5.0)


class Remembering(HandStage0):
    """A model whose sessions hold positions."""

    def token_memory(self) -> TokenMemory:
        return TokenMemory(used=5, reserved=8, capacity=100)


def fence(name: str) -> Fence:
    return Fence(SessionId(name), 0, 0, 0)


async def test_slots_and_leases_by_how_they_ended() -> None:
    meter, clock = CountedMeter(), FakeClock()
    engine = Stage0Engine(Remembering(), LIMITS, engine_process(clock, meter=meter))
    await engine.start()
    assert meter.gauge(ENGINE_STARTED, "stage0") > 0
    streams = {}
    for name in ("closed", "left", "third"):
        streams[name] = engine.hold(SessionId(name), 0)
        await anext(streams[name])
    clock.advance(1.0)
    assert meter.of(LEASES_REFUSED) == {("stage0",): 1}
    assert meter.gauge(STAGE_LIMIT, "stage0") == 2
    assert meter.gauge(STAGE_SLOTS, "stage0", "taken") == 2
    assert meter.gauge(ENGINE_UP, "stage0") == 1
    assert meter.gauge(KV_TOKENS, "stage0", "reserved") == 8
    await engine.open(fence("closed"), RuntimeConfig())
    await engine.close(fence("closed"))
    async for _ in streams["closed"]:
        pass
    await streams["left"].aclose()
    expired = engine.hold(SessionId("expired"), 0)
    await anext(expired)
    clock.advance(21.0)
    async for _ in expired:
        pass
    assert meter.of(LEASES_ENDED) == {
        ("stage0", "closed"): 1,
        ("stage0", "given_back"): 1,
        ("stage0", "expired"): 1,
    }
    clock.advance(1.0)
    assert meter.gauge(STAGE_SLOTS, "stage0", "free") == 2

"""What an engine does to the process that it lives in, when its model is ready and when it died."""

import gc

from serve_app.leasing.engine import Stage0Engine
from serve_app.leasing.engine_actor import settle_process
from session.config import SessionLimits
from tests.fakes.clock import FakeClock
from tests.fakes.engine_process import engine_process
from tests.support.models import HandStage0, settle


async def test_the_death_of_the_model_ends_the_process() -> None:
    model, ends = HandStage0(), list[str]()
    engine = Stage0Engine(model, SessionLimits(), engine_process(FakeClock(), ends=ends))
    await engine.start()
    await settle()
    assert await engine.health() == "ok"
    assert ends == []
    model.dies.set()
    await settle()
    assert ends == ["it was told to"]
    assert await engine.health() != "ok"


async def test_the_process_settles_once_the_model_is_warm() -> None:
    model, settled = HandStage0(), list[str]()
    process = engine_process(FakeClock(), settle=lambda: settled.append(", ".join(model.calls)))
    engine = Stage0Engine(model, SessionLimits(), process)
    assert settled == []
    await engine.start()
    assert settled == ["warm_up"]


def test_what_is_there_when_it_settles_is_never_walked_through_again() -> None:
    there = [[number] for number in range(1000)]
    gc.unfreeze()
    try:
        settle_process()
        assert gc.get_freeze_count() > len(there)
        assert not any(one is there for one in gc.get_objects())
    finally:
        gc.unfreeze()

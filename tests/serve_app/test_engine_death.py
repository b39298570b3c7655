"""A model that has died takes its process along; one that lives does not."""

from serve_app.leasing.engine import Stage0Engine
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

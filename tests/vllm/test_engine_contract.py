"""The engine's contract on vLLM itself."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.engine_contract import EngineContract
from tests.support.vllm_rig import VllmRig

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]


class TestContractOnVllm(EngineContract):
    @pytest.fixture
    def rig(self, vllm_rig: VllmRig) -> VllmRig:
        return vllm_rig

    @pytest_asyncio.fixture(autouse=True, loop_scope="session")
    async def all_closed(self, rig: VllmRig) -> AsyncIterator[None]:  # type: ignore[override]
        yield
        await rig.close_all()
        assert await rig.still_held() == []

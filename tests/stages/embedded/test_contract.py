"""The embedded model keeps the contract that every model keeps."""

import pytest

from stages.binding import Stage0Door, Stage1Door
from stages.contract import Plugin
from stages.embedded.stage0 import EmbeddedStage0
from stages.embedded.stage1 import EmbeddedStage1
from stages.plugins import load_plugin
from tests.support.stage_contract import StageContract


@pytest.mark.models
class TestEmbeddedKeepsTheContract(StageContract):
    @pytest.fixture
    def plugin(self) -> Plugin:
        return load_plugin("embedded")

    @pytest.fixture
    async def doors(
        self, stage0: EmbeddedStage0, stage1: EmbeddedStage1
    ) -> tuple[Stage0Door, Stage1Door]:
        return Stage0Door(stage0, cache_size=8), Stage1Door(stage1)

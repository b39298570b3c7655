"""Every golden transcript against decoder, kernel, outbox and projector, in virtual time.

What carries the values from one to the next is the gateway's own code; no Ray, no sockets.
"""

import pytest

from tests.contract.marks import everywhere
from tests.contract.player import Player
from tests.contract.stages_in_memory import MemoryStage
from tests.contract.transcript import Transcript
from tests.contract.virtual_time import run_in_virtual_time


@pytest.mark.parametrize("transcript", everywhere())
def test_transcript(transcript: Transcript) -> None:
    async def story() -> None:
        stage = MemoryStage(transcript)
        await Player(stage, transcript).play()
        await stage.end()

    run_in_virtual_time(story)

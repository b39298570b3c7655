"""Every golden transcript against decoder, kernel, outbox and projector, in virtual time.

What carries the values from one to the next is the gateway's own code; no Ray, no sockets.
"""

import pytest

from tests.contract.player import Player
from tests.contract.stages_in_memory import MemoryStage
from tests.contract.transcript import Transcript, every_transcript
from tests.contract.virtual_time import run_in_virtual_time


def _marked(transcript: Transcript) -> object:
    reason = transcript.header.get("xfail")
    marks = [] if reason is None else [pytest.mark.xfail(reason=reason, strict=True)]
    return pytest.param(transcript, id=transcript.name, marks=marks)


@pytest.mark.parametrize("transcript", [_marked(each) for each in every_transcript()])
def test_transcript(transcript: Transcript) -> None:
    async def story() -> None:
        stage = MemoryStage(transcript)
        await Player(stage, transcript).play()
        await stage.end()

    run_in_virtual_time(story)

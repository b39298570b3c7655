"""The golden transcripts against the gateway on a local socket, with the stages in this process."""

import pytest

from session.config import SessionLimits
from tests.contract.marks import on_sockets
from tests.contract.player import Player
from tests.contract.scripts import SCRIPT
from tests.contract.stages_on_sockets import SocketStage
from tests.contract.transcript import Transcript
from tests.fakes.server import serving
from tests.fakes.stages import ScriptedDirectory


@pytest.mark.parametrize("transcript", on_sockets())
async def test_transcript(transcript: Transcript) -> None:
    directory = ScriptedDirectory(max_sessions=2, **SCRIPT)
    limits = SessionLimits(**transcript.limits)
    async with serving(directory, limits=limits) as service:
        stage = SocketStage(f"127.0.0.1:{service.port}")
        await Player(stage, transcript).play()
        await stage.end()

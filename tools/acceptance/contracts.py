"""What is done in a run of each contract. What must hold of it afterwards is in `checks`."""

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from clients import commands
from clients.embedded import create_duplex_session_config
from tools.acceptance.client_log import RECEIVED, ClientLog
from tools.acceptance.inputs import MODEL_POLICY, RESPONSE_REQUIRED
from tools.acceptance.talker import Talker

QUIET_S: Final = 5.0
"""How long nothing may begin before the session is closed."""
SETTLED_S: Final = 2.0
MOST_QUIET_INTERVALS: Final = 3
"""A model may speak once more on its own; it may not do so for ever."""
QUIET: Final = "quiet_interval.began"
BEYOND_MS: Final = 3_600_000


async def model_policy(url: str, log: ClientLog) -> None:
    """Speak three different things into one stream; the model decides what it answers."""
    talker = Talker(url, create_duplex_session_config(), log, ack_every_s=0.5)
    await talker.open()
    for spoken in MODEL_POLICY:
        log.note("input.began", name=spoken.name, sha256=spoken.sha256)
        await talker.say(spoken.pcm())
        log.note("input.ended", name=spoken.name)
        log.note("settled", how=await talker.settle(SETTLED_S))
    await _acknowledge_late(talker, log)
    for _ in range(MOST_QUIET_INTERVALS):
        seen = len(log.lines)
        log.note(QUIET, seconds=QUIET_S)
        await talker.wait(QUIET_S)
        if not any(line.kind == "response.created" for line in log.lines[seen:]):
            break
        log.note("settled", how=await talker.settle(SETTLED_S))
    await talker.close()


async def response_required(url: str, log: ClientLog) -> None:
    """Speak one utterance, commit it, and hear the one answer that this must have."""
    settings = {**create_duplex_session_config(), "turn_detection": None}
    # One acknowledgement only: when all of it has been heard.
    talker = Talker(url, settings, log, ack_every_s=math.inf)
    await talker.open()
    spoken = RESPONSE_REQUIRED
    log.note("input.began", name=spoken.name, sha256=spoken.sha256)
    await talker.say(spoken.pcm())
    log.note("input.ended", name=spoken.name)
    await talker.send(commands.commit(create_response=None, is_speech=None))
    talker.is_microphone_on = False
    log.note("settled", how=await talker.settle(SETTLED_S))
    log.note(QUIET, seconds=QUIET_S)
    await talker.wait(QUIET_S)
    await _acknowledge_late(talker, log)
    await talker.close()


async def _acknowledge_late(talker: Talker, log: ClientLog) -> None:
    """Acknowledge the oldest answer again: less than before, then more than there ever was."""
    created = [
        line.response_id
        for line in log.lines
        if line.direction == RECEIVED and line.kind == "response.created"
    ]
    if not created:
        return
    log.note("late_acknowledgements.began", response_id=created[0])
    for played_ms in (1, BEYOND_MS):
        await talker.send(commands.ack_playback(created[0], played_ms))
    await talker.wait(1.0)


CONTRACTS: Final[Mapping[str, Callable[[str, ClientLog], Awaitable[None]]]] = {
    "model-policy": model_policy,
    "response-required": response_required,
}

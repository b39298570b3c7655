"""The embedded model's hearing and answering half with one open session and no networks."""

import asyncio
from datetime import UTC, datetime

from session.ids import SessionId
from session.unit import Decision, Unit
from stages.contract import Appended
from stages.embedded.ports import Networks
from stages.embedded.settings import EmbeddedSettings
from stages.embedded.stage0 import EmbeddedStage0
from tests.support.sound import LevelRecogniser, LoudnessVad, tone
from tests.support.text_model import HandTextModel

SID = SessionId("sess_a")
OTHER = SessionId("sess_b")
NOW = datetime(2025, 3, 3, 15, 5, tzinfo=UTC)
SUM, COUNT, CHAT, AGAIN, NOISE = 4000, 8000, 12_000, 16_000, 20_000
WORDS = {
    SUM: "What is two plus three?",
    COUNT: "Count to fifteen.",
    CHAT: "Tell me something.",
    AGAIN: "Say that again.",
    NOISE: "[noise]",
}
SETTINGS = EmbeddedSettings(silence_ms=400)
SILENCE = Unit(tone(0, 1000))
CONTINUATION = Unit(tone(0, 1000), is_continuation=True)


def spoken(level: int) -> Unit:
    """Return a unit in which something is said, with the silence that ends it."""
    return Unit(tone(level, 500) + tone(0, 500))


class Rig:
    """A stage with one open session, and the networks it hears and writes with."""

    def __init__(self, settings: EmbeddedSettings = SETTINGS) -> None:
        self.whisper = LevelRecogniser(WORDS)
        self.model = HandTextModel("It rains.", " It", " pours.")
        networks = Networks(LoudnessVad(), self.whisper, self.model)
        self.stage = EmbeddedStage0(settings, lambda: NOW, lambda _: networks)

    async def say(self, level: int, session: SessionId = SID) -> Appended:
        """Say what stands for this level."""
        return await self.stage.append(session, spoken(level))

    async def append(self, unit: Unit = SILENCE, session: SessionId = SID) -> Appended:
        """Give one unit to the stage."""
        return await self.stage.append(session, unit)

    async def rest(self, session: SessionId = SID) -> list[str]:
        """Return the texts of silence until the turn ends."""
        texts: list[str] = []
        for _ in range(20):
            appended = await self.append(session=session)
            texts.append(appended.result.text)
            if appended.result.turn_end:
                return texts
        raise AssertionError("the turn did not end")

    async def reach_writer(self, pieces: int = 1) -> None:
        """Wait until the held text model has come to this piece and waits."""
        await asyncio.to_thread(self.model.wait_until_it_waits, pieces)


def is_listen(appended: Appended, *, heard: str = "", turn_end: bool = False) -> bool:
    """Whether nothing is said."""
    result = appended.result
    return (
        result.decision is Decision.LISTEN
        and appended.speech is None
        and (result.text, result.heard, result.turn_end) == ("", heard, turn_end)
    )

"""Conversations through both stages: a unit is committed, Stage0 answers, Stage1 speaks.

They are driven in Stage0's process, which stands for the gateway: a unit's speech goes over the
pipe to Stage1 and each chunk comes back over it, as in the service it would to the gateway.

Each session sends a second each second. Of six, two listen by force and four are free to speak;
the first of these is the commit that somebody waits for. The last of every other turn is cancelled
when its first chunk is there, and the next unit is sent at once, free to speak.
"""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final

from session.errors import DuplexError
from session.ids import RequestId, SessionId
from session.unit import Unit
from stages.contract import Appended
from stages.minicpmo.stage0 import MiniCPMOStage0
from tools.bench.stage0_levels import Crowd, Load, sounds
from tools.bench.stage0_rig import Rig
from tools.bench.stage1_line import Ended, RunTalks, TalksDone
from tools.bench.stage1_player import DEADLINE_S
from tools.bench.stage1_stage0 import Spoken, Voice

_LISTENS: Final = 2
_ROUND: Final = 6
_UNIT_S: Final = 1.0
_CONTEXT: Final = 300


@dataclass(slots=True)
class _Times:
    decided_ms: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)
    later_first_ms: list[float] = field(default_factory=list)
    last_ms: list[float] = field(default_factory=list)
    cancelled_ms: list[float] = field(default_factory=list)
    again_decided_ms: list[float] = field(default_factory=list)
    again_first_ms: list[float] = field(default_factory=list)
    missed: int = 0
    units: int = 0
    failures: list[str] = field(default_factory=list)

    def done(self) -> TalksDone:
        return TalksDone(
            decided_ms=tuple(self.decided_ms),
            first_ms=tuple(self.first_ms),
            later_first_ms=tuple(self.later_first_ms),
            last_ms=tuple(self.last_ms),
            cancelled_ms=tuple(self.cancelled_ms),
            again_decided_ms=tuple(self.again_decided_ms),
            again_first_ms=tuple(self.again_first_ms),
            missed=self.missed,
            units=self.units,
            failures=tuple(self.failures[:3]),
        )


class Talks:
    """The conversations of one level."""

    def __init__(self, rig: Rig, model: MiniCPMOStage0, voice: Voice, request: RunTalks) -> None:
        self._model = model
        self._voice = voice
        self._request = request
        self._sounds = sounds()
        self._times = _Times()
        self._crowd = Crowd(rig, model, Load(request.sessions, _CONTEXT, request.seconds))

    async def run(self) -> TalksDone:
        """Open the sessions at both stages, talk, and close them."""
        names = [SessionId(f"talk-{at}") for at in range(self._request.sessions)]
        gate = asyncio.Semaphore(16)
        try:
            await asyncio.gather(*(self._crowd.open(name, gate) for name in names))
            for name in names:
                await self._voice.open(name)
            start_s = time.monotonic() + 0.2
            await asyncio.gather(*(self._talk(at, one, start_s) for at, one in enumerate(names)))
        finally:
            for name in names:
                await self._model.close(name)
                await self._voice.close(name)
        return self._times.done()

    async def _talk(self, at: int, name: SessionId, start_s: float) -> None:
        speaking: asyncio.Future[None] | None = None
        for number in range(self._request.seconds):
            due_s = start_s + (number + at / self._request.sessions) * _UNIT_S
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            # Each session begins at another place of its round.
            turn, place = divmod(number + at, _ROUND)
            is_free = place >= _LISTENS
            is_cut = is_free and place == _ROUND - 1 and turn % 2 == 0
            try:
                answer = await self._append(name, number, is_free=is_free)
                if speaking is not None:
                    await speaking  # a session's units are spoken one after the other
                    speaking = None
                if answer.speech is None:
                    continue
                if place == _LISTENS:
                    self._times.decided_ms.append(_since_ms(due_s))
                spoken = self._voice.speak(name, answer.speech)
                if is_cut:
                    await self._cut_off(name, number, spoken)
                    continue
                firsts = self._times.first_ms if place == _LISTENS else self._times.later_first_ms
                speaking = asyncio.ensure_future(self._heard(spoken, due_s, firsts))
            except (DuplexError, RuntimeError) as error:
                self._times.failures.append(f"{error!r}")
                self._times.missed += 1
        if speaking is not None:
            await asyncio.wait({speaking})

    async def _append(self, name: SessionId, number: int, *, is_free: bool) -> Appended:
        self._times.units += 1
        unit = Unit(self._sounds[(7 * number) % len(self._sounds)], force_listen=not is_free)
        return await self._model.append(name, unit, request_id=RequestId(f"{name}/{number}"))

    async def _heard(self, spoken: Spoken, since_s: float, firsts: list[float]) -> None:
        """Take a unit's chunks."""
        is_silent, came_s = True, since_s
        while not isinstance(one := await spoken.next(), Ended):
            came_s = time.monotonic()
            if is_silent and one.pcm:
                firsts.append((came_s - since_s) * 1000)
                is_silent = False
        if one.failure is not None:
            self._times.failures.append(one.failure)
            self._times.missed += 1
            return
        self._times.last_ms.append((came_s - since_s) * 1000)
        self._times.missed += came_s - since_s > DEADLINE_S

    async def _cut_off(self, name: SessionId, number: int, spoken: Spoken) -> None:
        """Cancel at both stages in the middle of a unit's speech, and commit the next at once."""
        if isinstance(await spoken.next(), Ended):
            return
        cut_s = time.monotonic()
        await asyncio.gather(
            self._model.interrupt(name, "", undoes_unit=False), self._voice.interrupt(name)
        )
        self._times.cancelled_ms.append(_since_ms(cut_s))
        answer = await self._append(name, 1000 + number, is_free=True)
        if answer.speech is None:
            return
        self._times.again_decided_ms.append(_since_ms(cut_s))
        again = self._voice.speak(name, answer.speech)
        await self._heard(again, cut_s, self._times.again_first_ms)


def _since_ms(then_s: float) -> float:
    return (time.monotonic() - then_s) * 1000

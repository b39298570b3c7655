"""Stage0 in a process of its own beside Stage1, on the same machine, to load it and to feed it.

In the service both are processes too; between them stands the gateway, here a pipe.
"""

import asyncio
import itertools
import multiprocessing
import os
import tempfile
import time
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from session.errors import DuplexError
from session.ids import SessionId
from stages.contract import Speech
from stages.minicpmo.settings import MiniCPMOSettings
from stages.minicpmo.stage0 import MiniCPMOStage0
from tools.bench.stage0_folder import PUBLISHED, SMALL, write_folder
from tools.bench.stage0_levels import Crowd, Load
from tools.bench.stage0_rig import Rig, bench_settings, start_rig
from tools.bench.stage1_line import (
    Close,
    Ended,
    Interrupt,
    LevelDone,
    Line,
    Open,
    Ready,
    RunLevel,
    RunTalks,
    Sound,
    Speak,
    Stop,
    Talking,
    TalksDone,
)

_KV_BYTES: Final = 50 << 30
"""68 sessions x 4608 positions x 147 456 bytes are 46 GB."""
_SESSIONS: Final = 68


class Voice:
    """Stage1 at the other end of the line."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Queue[Sound | Ended]] = {}

    def received(self, value: Sound | Ended) -> None:
        """Take an answer; one that nobody waits for is dropped."""
        queue = self._waiting.get(value.number)
        if queue is not None:
            queue.put_nowait(value)
        if isinstance(value, Ended):
            self._waiting.pop(value.number, None)

    async def open(self, name: SessionId) -> None:
        """Open a session."""
        await self._ended(Open(next(self._numbers), name))

    async def close(self, name: SessionId) -> None:
        """Close a session."""
        await self._ended(Close(next(self._numbers), name))

    async def interrupt(self, name: SessionId) -> None:
        """Cut off what the session speaks."""
        await self._ended(Interrupt(next(self._numbers), name))

    def speak(self, name: SessionId, speech: Speech) -> "Spoken":
        """Have a unit spoken."""
        request = Speak(next(self._numbers), name, speech)
        queue = self._waiting[request.number] = asyncio.Queue[Sound | Ended]()
        self._line.send(request)
        return Spoken(queue)

    async def _ended(self, request: Open | Close | Interrupt) -> None:
        queue = self._waiting[request.number] = asyncio.Queue[Sound | Ended]()
        self._line.send(request)
        answer = await queue.get()
        if isinstance(answer, Ended) and answer.failure:
            raise RuntimeError(answer.failure)


@dataclass(frozen=True, slots=True)
class Spoken:
    """A unit that is spoken."""

    answers: "asyncio.Queue[Sound | Ended]"

    async def next(self) -> Sound | Ended:
        """Return the next chunk, or the end."""
        return await self.answers.get()


@dataclass(slots=True)
class _Stage0:
    rig: Rig
    model: MiniCPMOStage0
    line: Line
    voice: Voice

    async def level(self, request: RunLevel) -> None:
        """Run a level and say how it went."""
        crowd = Crowd(self.rig, self.model, request.load)
        running = asyncio.ensure_future(crowd.measured())
        talking = asyncio.ensure_future(crowd.talking.wait())
        try:
            await asyncio.wait({running, talking}, return_when=asyncio.FIRST_COMPLETED)
            self.line.send(Talking())
            self.line.send(LevelDone(await running))
        except (DuplexError, RuntimeError) as error:
            self.line.send(LevelDone(None, f"{error!r}"))
        finally:
            talking.cancel()

    async def talks(self, request: RunTalks) -> None:
        """Run conversations and say how they went."""
        from tools.bench.stage1_together import Talks  # noqa: PLC0415 - it imports this module

        talks = Talks(self.rig, self.model, self.voice, request)
        try:
            self.line.send(await talks.run())
        except (DuplexError, RuntimeError) as error:
            self.line.send(TalksDone(failures=(f"{error!r}",)))


class Stage0Process:
    """The process, as Stage1's side sees it."""

    def __init__(self, machine: str) -> None:
        self._machine = machine
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self._line: Line
        self._process: Any = None
        self.received: Any = None
        """Called with what is said to Stage1; a level's answers do not come here."""

    def start(self) -> None:
        """Start it; it is not ready yet."""
        context = multiprocessing.get_context("spawn")
        own, other = context.Pipe()
        self._process = context.Process(target=run_stage0, args=(self._machine, other))
        self._process.start()
        other.close()
        self._line = Line(own, self._take)

    async def ready(self, limit_s: float) -> str:
        """Wait until it is ready and return what it says of itself."""
        ready = await asyncio.wait_for(self._answers.get(), limit_s)
        if not isinstance(ready, Ready):
            raise RuntimeError("Stage0's process ended")
        return ready.said

    def send(self, value: object) -> None:
        """Say something."""
        self._line.send(value)

    async def answer(self, limit_s: float) -> Any:
        """Return the next answer to a request for a level or for talks."""
        answer = await asyncio.wait_for(self._answers.get(), limit_s)
        if answer is None:
            raise RuntimeError("Stage0's process ended")
        return answer

    def stop(self) -> None:
        """End it."""
        if self._process is None:
            return
        self._line.send(Stop())
        self._line.close()
        self._process.join(20)
        if self._process.is_alive():
            self._process.terminate()

    def _take(self, value: Any) -> None:
        if isinstance(value, Open | Close | Speak | Interrupt):
            self.received(value)
        else:
            self._answers.put_nowait(value)


def stage0_settings(machine: str, folder: Path) -> MiniCPMOSettings:
    """Return the Stage0 benchmark's settings, but for memory: that is shared here."""
    settings = bench_settings(machine, folder)
    if machine != "h200":
        return settings
    shared = {
        "max_sessions": _SESSIONS,
        "kv_cache_memory_bytes": _KV_BYTES,
        "gpu_memory_utilization": 0.55,
    }
    own = settings.language_model.model_copy(update=shared)
    return settings.model_copy(update={"language_model": own})


def run_stage0(machine: str, connection: Connection) -> None:
    """Be Stage0's process."""
    os.dup2(2, 1)  # what is printed on standard output are figures
    asyncio.run(_serve(machine, connection))
    os._exit(0)


async def _serve(machine: str, connection: Connection) -> None:
    requests: asyncio.Queue[Any] = asyncio.Queue()
    voices: list[Voice] = []

    def received(value: Any) -> None:
        if isinstance(value, Sound | Ended):
            voices[0].received(value)
        else:
            requests.put_nowait(value)

    line = Line(connection, received)
    voices.append(Voice(line))
    with tempfile.TemporaryDirectory(prefix="bench-stage0-") as name:
        folder = Path(name)
        write_folder(folder, PUBLISHED if machine == "h200" else SMALL)
        began_s = time.perf_counter()
        rig = await start_rig(stage0_settings(machine, folder), folder)
        stage0 = _Stage0(rig, await rig.front(), line, voices[0])
        room = rig.engine.capacity()
        said = (
            f"hidden {rig.config.llm.hidden_size}, {rig.config.llm.num_hidden_layers} layers; "
            f"ready after {time.perf_counter() - began_s:.0f} s; room for {room.max_sessions} "
            f"sessions and {room.kv_tokens} positions"
        )
        line.send(Ready(said))
        try:
            while isinstance(request := await requests.get(), RunLevel | RunTalks):
                if isinstance(request, RunLevel):
                    await stage0.level(request)
                else:
                    await stage0.talks(request)
        finally:
            await rig.stop()


def level_load(sessions: int, context: int, seconds: int) -> Load:
    """Return a level of Stage0."""
    return replace(Load(sessions, context, seconds), name="stage0")

"""Stage1 as the process at the other end of a line uses it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from session.config import RuntimeConfig
from session.errors import DuplexError
from session.ids import SessionId
from stages.minicpmo.stage1 import MiniCPMOStage1
from tools.bench.stage1_line import Close, Ended, Interrupt, Open, Sound, Speak

Request = Open | Close | Speak | Interrupt


class Mouth:
    """Does what is asked on the line, and says so."""

    def __init__(self, model: MiniCPMOStage1, send: Callable[[object], None]) -> None:
        self._model = model
        self._send = send
        self._speaking: dict[SessionId, asyncio.Future[None]] = {}
        self._running: set[asyncio.Future[None]] = set()

    def received(self, request: Request) -> None:
        """Begin with what is asked; the answers come by themselves."""
        work = asyncio.ensure_future(self._answer(request))
        self._running.add(work)
        work.add_done_callback(self._running.discard)
        if isinstance(request, Speak):
            self._speaking[request.name] = work

    async def _answer(self, request: Request) -> None:
        try:
            await self._work(request)
        except DuplexError as error:
            self._send(Ended(request.number, f"{error!r}"))
        except asyncio.CancelledError:
            self._send(Ended(request.number, "it was interrupted"))
        else:
            self._send(Ended(request.number))

    def _work(self, request: Request) -> Coroutine[Any, Any, None]:
        match request:
            case Open():
                return self._model.open(request.name, RuntimeConfig())
            case Close():
                return self._model.close(request.name)
            case Interrupt():
                return self._interrupt(request.name)
            case Speak():
                return self._speak(request)

    async def _speak(self, request: Speak) -> None:
        async for chunk in self._model.speak(request.name, request.speech):
            self._send(Sound(request.number, chunk.pcm))

    async def _interrupt(self, name: SessionId) -> None:
        """Do what the stage's door does: leave the iterator, then interrupt."""
        speaking = self._speaking.pop(name, None)
        if speaking is not None:
            speaking.cancel()
            await asyncio.wait({speaking})
        await self._model.interrupt(name)

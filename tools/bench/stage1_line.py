"""A pipe between the event loops of two processes, and what is said on it."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from session.ids import SessionId
from stages.contract import Speech
from tools.bench.stage0_levels import Load, Measured


@dataclass(frozen=True, slots=True)
class Ready:
    """Stage0's process can be told what to do."""

    said: str


@dataclass(frozen=True, slots=True)
class RunLevel:
    """Run a level of Stage0; `Talking` comes when it begins, `LevelDone` at its end."""

    load: Load


@dataclass(frozen=True, slots=True)
class Talking:
    """All contexts are filled."""


@dataclass(frozen=True, slots=True)
class LevelDone:
    """A level's outcome; None if it failed."""

    measured: Measured | None
    said: str = ""


@dataclass(frozen=True, slots=True)
class RunTalks:
    """Run conversations whose speech Stage1 speaks; `TalksDone` comes at their end."""

    sessions: int
    seconds: int


@dataclass(frozen=True, slots=True)
class TalksDone:
    """The conversations' times in milliseconds."""

    decided_ms: tuple[float, ...] = ()
    """From a turn's first unit to Stage0's answer."""
    first_ms: tuple[float, ...] = ()
    """From the same to the first chunk."""
    later_first_ms: tuple[float, ...] = ()
    """From a later unit of a turn to its first chunk."""
    last_ms: tuple[float, ...] = ()
    """From each unit that speaks to its last chunk."""
    cancelled_ms: tuple[float, ...] = ()
    """From a cancel in the middle of speech until both stages have obeyed."""
    again_decided_ms: tuple[float, ...] = ()
    """From such a cancel to Stage0's next answer, whose unit is sent at once."""
    again_first_ms: tuple[float, ...] = ()
    """From such a cancel to the next answer's first chunk."""
    missed: int = 0
    units: int = 0
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Open:
    """Open a session of Stage1's; `Ended` comes with the number."""

    number: int
    name: SessionId


@dataclass(frozen=True, slots=True)
class Close:
    """Close one; `Ended` comes with the number."""

    number: int
    name: SessionId


@dataclass(frozen=True, slots=True)
class Speak:
    """Speak a unit; `Sound` comes with the number for each chunk, and then `Ended`."""

    number: int
    name: SessionId
    speech: Speech


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Leave what the session speaks and interrupt it; `Ended` comes with the number."""

    number: int
    name: SessionId


@dataclass(frozen=True, slots=True)
class Sound:
    """A chunk."""

    number: int
    pcm: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """What bears this number is over."""

    number: int
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """End the process."""


class Line:
    """One end of a pipe. It must be made where its event loop runs."""

    def __init__(self, connection: Connection, received: Callable[[Any], None]) -> None:
        """`received` is called in the loop with each value, and with None at the other's end."""
        self._connection = connection
        self._received = received
        self._loop = asyncio.get_running_loop()
        self._writer = ThreadPoolExecutor(1, "line")
        threading.Thread(target=self._read, name="line-reader", daemon=True).start()

    def send(self, value: object) -> None:
        """Send a value, in the order of the calls; a pipe that is full holds up nobody here."""
        self._writer.submit(self._connection.send, value)

    def close(self) -> None:
        """Send what is to be sent, and nothing more."""
        self._writer.shutdown()

    def _read(self) -> None:
        value: Any = ""
        while value is not None:
            try:
                value = self._connection.recv()
            except (EOFError, OSError):
                value = None
            self._loop.call_soon_threadsafe(self._received, value)

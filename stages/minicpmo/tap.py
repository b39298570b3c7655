"""The service's side of the tap: each unit's record, handed to whoever registered for it.

1. What nobody registered for is dropped and counted: it belongs to a unit that was given up.
2. A record is handed out once. Its place is there from `register` to `unregister`, and closing the
   tap fails all that still wait.
3. The socket lies in a folder of its own that no other user can enter; it goes when the tap does.
"""

import asyncio
import contextlib
import logging
import shutil

import zmq
import zmq.asyncio

from session.errors import StageFailed
from stages.engine.ipc_folder import make_ipc_folder
from stages.minicpmo.unit_record import UnitBroke, UnitRecord, read_message

_log = logging.getLogger(__name__)

_MOST_WAITING = 4096
"""Messages that may wait in the socket."""


class TapReceiver:
    """Reads what the engine's worker sends. All calls come from the loop that started it."""

    def __init__(self) -> None:
        self._folder = make_ipc_folder()
        self.address = f"ipc://{self._folder}/units"
        """For the worker's `tap_open`."""
        self.dropped = 0
        """Messages that nobody had registered for."""
        self.unreadable = 0
        """Messages that were none of ours."""
        self._records: dict[str, asyncio.Future[UnitRecord]] = {}
        self._context: zmq.asyncio.Context | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to read."""
        self._context = zmq.asyncio.Context()
        socket = self._context.socket(zmq.PULL)
        socket.setsockopt(zmq.RCVHWM, _MOST_WAITING)
        socket.bind(self.address)
        self._task = asyncio.create_task(self._run(socket))  # noqa: TID251 - `close` ends it

    async def close(self) -> None:
        """Stop reading, fail what still waits and remove the folder; again changes nothing."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        if self._context is not None:
            self._context.destroy(linger=0)
            self._context = None
        for record in self._records.values():
            if not record.done():
                _fail(record, "the tap was closed")
        self._records.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def register(self, request_id: str) -> None:
        """Make a place for a unit's record, before its segment goes in; ValueError if twice."""
        if request_id in self._records:
            raise ValueError(f"{request_id} is registered already")
        self._records[request_id] = asyncio.get_running_loop().create_future()

    async def take(self, request_id: str) -> UnitRecord:
        """Wait for a registered unit's record; StageFailed if it could not be decoded.

        KeyError if it is not registered. To be given up by cancelling; the place stays.
        """
        return await asyncio.shield(self._records[request_id])

    def unregister(self, request_id: str) -> None:
        """Drop a unit's place; an unknown one is no error. Who waits for it gets StageFailed."""
        record = self._records.pop(request_id, None)
        if record is not None and not record.done():
            _fail(record, "the unit was given up")

    def __len__(self) -> int:
        return len(self._records)

    async def _run(self, socket: zmq.asyncio.Socket) -> None:
        try:
            while True:
                self._accept(await socket.recv_multipart())
        finally:
            socket.close(linger=0)

    def _accept(self, frames: list[bytes]) -> None:
        try:
            message = read_message(frames)
        except ValueError as error:
            self.unreadable += 1
            _log.warning("a message on the tap is none of ours: %s", error)
            return
        record = self._records.get(message.request_id)
        if record is None or record.done():
            self.dropped += 1
        elif isinstance(message, UnitBroke):
            _fail(record, message.reason)
        else:
            record.set_result(message)


def _fail(record: asyncio.Future[UnitRecord], reason: str) -> None:
    record.set_exception(StageFailed(reason))
    # Often nobody waits for it any more, which is no mistake to be logged.
    record.exception()

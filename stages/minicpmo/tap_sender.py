"""The worker's side of the tap: rows of hidden states leave the engine with their unit's record.

1. Nothing here waits for the device in the engine's own thread: rows are gathered on its stream,
   copied on a side stream, and a thread of the tap's own waits for the copy before it sends.
2. A message that can not be sent is dropped and counted; the engine goes on.
"""

import logging
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import torch
import zmq

from stages.minicpmo.unit_record import Header, write_message

_log = logging.getLogger(__name__)

_MOST_WAITING: Final = 4096
"""Messages that may wait for a receiver that does not read."""


class Waitable(Protocol):
    """What says that a copy is complete."""

    def synchronize(self) -> None:
        """Wait for it."""


@dataclass(frozen=True, slots=True, eq=False)
class CopiedRows:
    """Rows [n, hidden] on the host, once `ready` has come."""

    rows: torch.Tensor
    ready: Waitable | None


@dataclass(frozen=True, slots=True, eq=False)
class CopiedRow:
    """One of them."""

    of: CopiedRows
    at: int

    def settled(self) -> torch.Tensor:
        """Wait for the copy and return the row [hidden]."""
        if self.of.ready is not None:
            self.of.ready.synchronize()
        return self.of.rows[self.at]


class RowCopier:
    """Takes rows off the device."""

    def __init__(self) -> None:
        self._side: torch.cuda.Stream | None = None

    def copy(self, rows: torch.Tensor, wanted: Sequence[int]) -> CopiedRows:
        """Copy the wanted rows of [n, hidden]; they may be overwritten as soon as this returns."""
        at = torch.tensor(wanted)
        if not rows.is_cuda:
            return CopiedRows(rows.index_select(0, at), None)
        gathered = rows.index_select(0, at.pin_memory().to(rows.device, non_blocking=True))
        return self._to_host(gathered)

    def _to_host(self, gathered: torch.Tensor) -> CopiedRows:
        if self._side is None:
            self._side = torch.cuda.Stream(gathered.device)  # type: ignore[no-untyped-call]
        self._side.wait_stream(torch.cuda.current_stream(gathered.device))
        with torch.cuda.stream(self._side):
            host = torch.empty(gathered.shape, dtype=gathered.dtype, pin_memory=True)
            host.copy_(gathered, non_blocking=True)
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record(self._side)
        # Else its memory could be given to the next step while the side stream still reads it.
        gathered.record_stream(self._side)
        return CopiedRows(host, ready)


@dataclass(frozen=True, slots=True, eq=False)
class _Outgoing:
    header: Header
    rows: tuple[CopiedRow, ...]


class TapSender:
    """Sends units' records to one receiver from a thread of its own."""

    def __init__(self, address: str) -> None:
        self.address: Final = address
        self.dropped = 0
        self._waiting: queue.SimpleQueue[_Outgoing | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="duplex-tap", daemon=True)
        self._thread.start()

    def send(self, header: Header, rows: Sequence[CopiedRow] = ()) -> None:
        """Send a header and its rows [n, hidden] once they are on the host."""
        if self._waiting.qsize() >= _MOST_WAITING:
            self.dropped += 1
            return
        self._waiting.put(_Outgoing(header, tuple(rows)))

    def close(self) -> None:
        """Send what waits and end the thread."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
            socket.setsockopt(zmq.LINGER, 1000)
            socket.setsockopt(zmq.SNDHWM, _MOST_WAITING)
            socket.connect(self.address)
            while (outgoing := self._waiting.get()) is not None:
                try:
                    frames = write_message(outgoing.header, _bytes_of(outgoing.rows))
                    socket.send_multipart(frames, flags=zmq.NOBLOCK)
                except Exception as error:  # noqa: BLE001 - rule 2
                    self.dropped += 1
                    _log.warning("a unit's record was not sent: %r", error)


def dtype_name(dtype: torch.dtype) -> str:
    """Return what a header calls a dtype."""
    return str(dtype).removeprefix("torch.")


def _bytes_of(rows: Sequence[CopiedRow]) -> bytes:
    if not rows:
        return b""
    whole = torch.stack([row.settled() for row in rows])
    return whole.view(torch.uint8).numpy().tobytes()

"""What the worker reports of a unit, and how it is written between processes.

A message has two frames: a header, read by type, and the bytes of the hidden rows. A worker on a
GPU sends bfloat16 as it computed them; the reader makes float32 of it, which is exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from stages.minicpmo.policy import Decision
from stages.minicpmo.unit_decoder import Ended

Rows = npt.NDArray[np.float32]
_DTYPES: Final[dict[str, np.dtype[Any]]] = {"float32": np.dtype("<f4"), "bfloat16": np.dtype("<u2")}


@dataclass(frozen=True, slots=True, eq=False)
class UnitRecord:
    """How a unit was decoded."""

    request_id: str
    ended: Ended
    decisions: tuple[Decision, ...]
    """What the policy chose where it looked, before the unit's rules acted on it."""
    rows: Rows
    """[len(ended.fed) + 1, hidden], after the final norm: the last input's row, whose logits gave
    the first token, and then the row of each fed token."""

    @property
    def hidden(self) -> Rows:
        """Return the rows [len(fed), hidden] at the fed tokens' positions."""
        return self.rows[1:]


class UnitEnded(msgspec.Struct, frozen=True, tag=True):
    """The header in front of a unit's hidden rows."""

    request_id: str
    ended: Ended
    decisions: tuple[Decision, ...]
    rows: int
    hidden: int
    dtype: str


class UnitBroke(msgspec.Struct, frozen=True, tag=True):
    """The unit could not be decoded; an empty frame follows."""

    request_id: str
    reason: str


Header = UnitEnded | UnitBroke
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Header)


def write_message(header: Header, rows: bytes | memoryview) -> list[bytes | memoryview]:
    """Return the frames of a message."""
    return [_encoder.encode(header), rows]


def read_message(frames: Sequence[bytes]) -> UnitRecord | UnitBroke:
    """Read a message's frames; ValueError if it is none of ours."""
    if len(frames) != 2:
        raise ValueError(f"a message of {len(frames)} frames")
    header = _decoder.decode(frames[0])
    if isinstance(header, UnitBroke):
        return header
    if header.dtype not in _DTYPES or header.rows != len(header.ended.fed) + 1:
        raise ValueError(f"{header.rows} rows of {header.dtype} are not those of the unit")
    flat = np.frombuffer(frames[1], _DTYPES[header.dtype])
    table = flat.reshape(header.rows, header.hidden)
    if header.dtype == "bfloat16":
        table = (table.astype(np.uint32) << 16).view(np.float32)
    return UnitRecord(header.request_id, header.ended, header.decisions, table)

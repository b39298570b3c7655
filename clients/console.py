"""Shows a running conversation: one live line on a terminal, finished lines everywhere."""

import shutil
from typing import Final, TextIO

from clients.conversation import Progress
from clients.levels import SILENCE_DBFS

_BAR_CELLS: Final = 8
_LOUDEST_DBFS: Final = -6.0
_QUIETEST_DBFS: Final = -54.0
_CLEAR_LINE: Final = "\r\x1b[2K"


class Console:
    """Writes to a stream. `width` is asked for anew each time, since windows change."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_live = stream.isatty()

    def show(self, progress: Progress) -> None:
        """Write finished lines and renew the live line."""
        for line in progress.news:
            self.say(f"[{progress.seconds:6.1f} s] {line}")
        if self._is_live:
            width = shutil.get_terminal_size().columns
            self._stream.write(_CLEAR_LINE + live_line(progress, width - 1))
            self._stream.flush()

    def say(self, line: str) -> None:
        """Write one line that stays."""
        self._stream.write((_CLEAR_LINE if self._is_live else "") + line + "\n")
        self._stream.flush()

    def finish(self) -> None:
        """Take the live line away."""
        if self._is_live:
            self._stream.write(_CLEAR_LINE)
            self._stream.flush()


def live_line(progress: Progress, width: int) -> str:
    """Return one line of at most `width` characters; of a long transcript, its end."""
    head = (
        f"{progress.seconds:5.1f} s  you {bar(progress.user_dbfs)}  "
        f"it {bar(progress.assistant_dbfs)}  {progress.state:<9}  "
    )
    room = max(0, width - len(head))
    text = progress.transcript.replace("\n", " ")
    shown = text if len(text) <= room else "…" + text[len(text) - room + 1 :] if room else ""
    return (head + shown)[:width]


def bar(dbfs: float) -> str:
    """Return a level as a bar of fixed length."""
    if dbfs <= max(_QUIETEST_DBFS, SILENCE_DBFS):
        return "·" * _BAR_CELLS
    share = (dbfs - _QUIETEST_DBFS) / (_LOUDEST_DBFS - _QUIETEST_DBFS)
    full = max(1, min(_BAR_CELLS, round(share * _BAR_CELLS)))
    return "▮" * full + "·" * (_BAR_CELLS - full)

"""Where the log lines of one process of ours go, and how they look.

Rule 1: every line of our loggers goes to a file of this process, which is turned over when it is
        full; from WARNING on also to stderr, which Ray shows where the service was started.
Rule 2: as JSON, a line is one object: time, level, logger, message, and the facts it has.
Rule 3: of an exception its class and where it came from are written, never its message: that may
        quote what a client said.
"""

import json
import logging
import logging.handlers
import os
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import ray

from serve_app.logs.log_lines import FIELDS
from serve_app.settings import LogArgs, LogEncoding
from session.errors import LocalProtocolError

PACKAGES: Final = ("serve_app", "stages", "session")
FOLDER: Final = "duplex"
"""Within Ray's own folder of logs."""


class LineFormatter(logging.Formatter):
    """What both forms of a line have in common."""

    def formatException(self, ei: object) -> str:
        """Return class and place of an exception and of those that it came from."""
        error = ei[1] if isinstance(ei, tuple) else None
        return where_from(error) if isinstance(error, BaseException) else ""

    def usesTime(self) -> bool:
        """The time is written here and not by the base class."""
        return False


class TextFormatter(LineFormatter):
    """For reading: time, level, logger, message, then `name=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and below it where an exception came from."""
        head = f"{time_of(record)} {record.levelname} {record.name}: {record.getMessage()}"
        facts = [f"{name}={_text(value)}" for name, value in facts_of(record).items()]
        lines = [" ".join([head, *facts])]
        if record.exc_info:
            lines.append(self.formatException(record.exc_info))
        return "\n".join(lines)


class JsonFormatter(LineFormatter):
    """For programs: one object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "time": time_of(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **facts_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def time_of(record: logging.LogRecord) -> str:
    """Return when a line was written, in UTC and with milliseconds."""
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def facts_of(record: logging.LogRecord) -> dict[str, object]:
    """Return the facts that a line was given."""
    own = record.__dict__
    return {name: own[name] for name in FIELDS if name in own}


def where_from(error: BaseException) -> str:
    """Return class and place of an exception, what it came from first."""
    parts: list[str] = []
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        frames = "".join(traceback.format_tb(each.__traceback__)).rstrip()
        parts.append(f"{frames}\n{type(each).__qualname__}{_own_words(each)}".lstrip("\n"))
        waiting.append(each.__cause__ or each.__context__)
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
    return "\n---\n".join(reversed(parts))


def _own_words(error: BaseException) -> str:
    return f": {error.message}" if isinstance(error, LocalProtocolError) else ""


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    text = str(value)
    return json.dumps(text) if " " in text else text


def ray_log_folder() -> Path | None:
    """Return where this node's Ray keeps its logs; None outside of Ray."""
    # Not in Ray's public interface, which has no way to ask; the version of Ray is pinned.
    node: Any = ray._private.worker._global_node  # noqa: SLF001
    return None if node is None else Path(node.get_logs_dir_path())


def set_up(settings: LogArgs, process: str) -> None:
    """Send the lines of this process where they belong; said twice, the second time holds."""
    folder = settings.folder or ray_log_folder()
    handlers: list[logging.Handler] = []
    if folder is not None:
        handlers.append(_file_handler(settings, folder / FOLDER, process))
    stderr = logging.StreamHandler(sys.stderr)
    stderr.setFormatter(TextFormatter())
    stderr.setLevel(logging.WARNING)
    handlers.append(stderr)
    for package in PACKAGES:
        logger = logging.getLogger(package)
        for old in logger.handlers[:]:
            logger.removeHandler(old)
            old.close()
        for handler in handlers:
            logger.addHandler(handler)
        logger.setLevel(settings.level)
        logger.propagate = False


def _file_handler(settings: LogArgs, folder: Path, process: str) -> logging.Handler:
    folder.mkdir(parents=True, exist_ok=True)
    handler = logging.handlers.RotatingFileHandler(
        folder / f"{process}_{os.getpid()}.log",
        maxBytes=settings.max_bytes,
        backupCount=settings.kept_files,
        encoding="utf-8",
    )
    is_json = settings.encoding is LogEncoding.JSON
    handler.setFormatter(JsonFormatter() if is_json else TextFormatter())
    return handler

"""Reads the small files of a checkpoint's folder, and says which one is at fault."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class CheckpointUnreadable(ValueError):
    """A file of the checkpoint is missing, damaged, or says what this service can not do."""

    def __init__(self, file: Path, problem: str) -> None:
        super().__init__(f"{file}: {problem}")
        self.file = file
        self.problem = problem

    def __reduce__(self) -> tuple[type["CheckpointUnreadable"], tuple[Path, str]]:
        """Keep both parts across a process boundary."""
        return (type(self), (self.file, self.problem))


def read_text(file: Path) -> str:
    """Return the file's text; raise CheckpointUnreadable if it is missing or not UTF-8."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise CheckpointUnreadable(file, f"can not be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CheckpointUnreadable(file, f"not UTF-8: {error.reason}") from error


def read_object(file: Path) -> Mapping[str, Any]:
    """Return the file's JSON object; raise CheckpointUnreadable if it holds none."""
    text = read_text(file)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointUnreadable(file, f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointUnreadable(file, "not a JSON object")
    return value

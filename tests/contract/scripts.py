"""What the scripted model does unless a transcript's own script says something else."""

from typing import Any, Final

SCRIPT: Final[dict[str, Any]] = {
    "sentence": "Answer {answer}, part {part}.",
    "sentences": 1,
    "sentence_ms": 400,
    "chunk_ms": 200,
}

"""What must have happened in a run that claims to have tried everything."""

from typing import Final

INTERESTING: Final = frozenset(
    {
        "open",
    }
)

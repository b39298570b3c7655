"""Ids that count."""

from collections import Counter


class SeqIds:
    """Implements `session.ids.IdFactory`: resp_1, resp_2, item_1, ..."""

    def __init__(self) -> None:
        self._made: Counter[str] = Counter()

    def new(self, prefix: str) -> str:
        """Return the next id of its kind."""
        self._made[prefix] += 1
        return f"{prefix}_{self._made[prefix]}"

    def token(self) -> str:
        """Return the next token."""
        return self.new("token")

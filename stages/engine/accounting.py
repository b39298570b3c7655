"""Slots and memory, reserved when a session opens, so that the engine never has to wait for them.

Rule 1: there are never more sessions than slots.
Rule 2: each session has a fixed number of positions, in whole blocks, and the blocks of all
        sessions never exceed the pool: vLLM would wait for ever, or drop a session's memory.
"""

from stages.engine.errors import EngineFull, NotOpen


class Accounting:
    """What is reserved, and by whom."""

    def __init__(
        self, *, max_sessions: int, session_tokens: int, kv_blocks: int, block_size: int
    ) -> None:
        self._block_size = block_size
        self._kv_blocks = kv_blocks
        self._session_blocks = -(-session_tokens // block_size)
        if self._session_blocks > kv_blocks:
            raise ValueError(
                f"one session needs {self._session_blocks} blocks of {block_size} positions, "
                f"the engine has {kv_blocks}"
            )
        self.max_sessions = min(max_sessions, kv_blocks // self._session_blocks)
        """How many sessions there is room for in both respects."""
        self._holders: set[str] = set()

    @property
    def sessions(self) -> int:
        """How many sessions hold a reservation."""
        return len(self._holders)

    @property
    def kv_tokens(self) -> int:
        """Positions of the whole pool."""
        return self._kv_blocks * self._block_size

    @property
    def kv_tokens_reserved(self) -> int:
        """Positions that are reserved."""
        return len(self._holders) * self._session_blocks * self._block_size

    def reserve(self, key: str) -> None:
        """Take a slot and its memory, or raise EngineFull and take nothing."""
        if key in self._holders:
            raise NotOpen(f"session {key} is open already")
        if len(self._holders) >= self.max_sessions:
            raise EngineFull(
                f"the engine holds {len(self._holders)} sessions and has room for no more"
            )
        self._holders.add(key)

    def release(self, key: str) -> None:
        """Give back what `key` holds, if it holds anything."""
        self._holders.discard(key)

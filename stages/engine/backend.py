"""What the engine asks of the machine that computes.

There are two: vLLM (`stages.engine.vllm_backend`) and the tests' own.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from stages.engine.values import Pieces, Sampling, StopReason, Tokens

if TYPE_CHECKING:  # the engine itself needs no torch
    import torch


@dataclass(frozen=True, slots=True)
class BackendFacts:
    """What is known once the backend runs."""

    kv_blocks: int
    """Blocks that requests can use."""
    block_size: int
    """Positions of one block."""
    vocab_size: int
    """Ids run from 0 to one below this."""
    hidden_size: int
    dtype: "torch.dtype"
    """Type that embeddings must have."""


@dataclass(frozen=True, slots=True)
class Output:
    """Tokens that came at once, and whether the segment has ended with them."""

    token_ids: Tokens
    at_s: float
    """On the engine's clock."""
    stop: StopReason | None


class StreamBroken(Exception):
    """This request is over, and nothing else is: the backend refused it or broke it off."""


class BackendDead(Exception):
    """The backend will never answer again."""


class Stream(Protocol):
    """One resumable request. Of every segment it forgets the token that was sampled last."""

    async def feed(self, pieces: Pieces, sampling: Sampling) -> None:
        """Begin a segment: the last one must have ended. May raise StreamBroken."""
        ...

    async def next(self) -> Output:
        """Return the next output of the segment. Giving up the wait loses nothing.

        Raises StreamBroken or BackendDead.
        """
        ...

    async def abort(self) -> None:
        """Drop the request, whatever it does; return when the backend holds nothing of it."""
        ...


class Backend(Protocol):
    """An engine that can hold many requests."""

    async def start(self) -> BackendFacts:
        """Load everything; raises whatever goes wrong."""
        ...

    def stream(self, request_id: str) -> Stream:
        """Return a new request; nothing is computed before it is fed. Ids must not come twice."""
        ...

    async def dead(self) -> str:
        """Return why the backend is dead, once it is."""
        ...

    async def call_worker(self, method: str, *args: Any) -> list[Any]:
        """Call a method of each worker process and return what each returned."""
        ...

    async def stop(self) -> None:
        """End all processes; a dead backend can be stopped as well."""
        ...

"""A backend for the engine's tests: a model of arithmetic with vLLM's ways of remembering.

The next token is a digest of all that a request has fed and remembers. As in vLLM the token that
a segment sampled last is forgotten, a refused segment costs its request, and a request with too
many positions kills everything.
"""

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

from stages.engine.backend import BackendDead, BackendFacts, Output, StreamBroken
from stages.engine.values import Ids, Pieces, Sampling, StopReason, Tokens

if TYPE_CHECKING:
    import torch

VOCAB = 97
HIDDEN = 8


class FakeBackend:
    """Knobs say what goes wrong; `requests` is what it holds."""

    def __init__(self, *, max_model_len: int, kv_blocks: int = 64, block_size: int = 8) -> None:
        self._facts = (kv_blocks, block_size)
        self.max_model_len = max_model_len
        self.requests: dict[str, list[bytes]] = {}
        self.names: list[str] = []
        """Every request there ever was."""
        self.fed: list[int] = []
        """Positions of each segment that was fed."""
        self.tokens_at_once = 1
        self.now_s = 0.0
        self.seconds_a_token = 0.0
        self.script: list[int] = []
        """Tokens that come in place of the next digests."""
        self.refuse_next: str | None = None
        self.break_after: int | None = None
        """The next segment breaks off after so many tokens."""
        self.start_error: Exception | None = None
        self.is_deaf = False
        """Aborts and worker calls get no answer."""
        self.is_stopped = False
        self.death: str | None = None
        self._dying = asyncio.Event()
        self._flows = asyncio.Event()
        self._flows.set()
        self.reached = asyncio.Event()
        """A segment waits at a held backend."""

    def hold(self) -> None:
        """Bring no output from now on."""
        self._flows.clear()
        self.reached.clear()

    def go_on(self) -> None:
        """Bring output again."""
        self._flows.set()

    def die(self, reason: str) -> None:
        """Be dead from now on."""
        self.death = reason
        self._dying.set()
        self._flows.set()

    async def flow(self) -> None:
        """Wait while the backend is held."""
        if not self._flows.is_set():
            self.reached.set()
            await self._flows.wait()
        await asyncio.sleep(0)
        if self.death is not None:
            raise BackendDead(self.death)

    async def start(self) -> BackendFacts:
        """Return the fake's sizes."""
        if self.start_error is not None:
            raise self.start_error
        import torch  # noqa: PLC0415 - only where it is there

        return BackendFacts(*self._facts, VOCAB, HIDDEN, torch.float32)

    def stream(self, request_id: str) -> "FakeStream":
        """Return a new request."""
        assert request_id not in self.names, "a request's name came twice"
        self.names.append(request_id)
        return FakeStream(self, request_id)

    async def dead(self) -> str:
        """Return once `die` was called."""
        await self._dying.wait()
        return str(self.death)

    async def call_worker(self, method: str, *args: Any) -> list[Any]:
        """Return the call itself, or fail if the method is called `fail`."""
        if self.is_deaf:
            await asyncio.Event().wait()
        if method == "fail":
            raise ValueError("it failed")
        return [(method, *args)]

    async def stop(self) -> None:
        """Hold nothing any more."""
        self.is_stopped = True


class FakeStream:
    """One request of the fake's."""

    def __init__(self, backend: FakeBackend, name: str) -> None:
        self._backend = backend
        self._name = name
        self._sampling: Sampling | None = None
        self._sampled: list[int] = []
        self._error: StreamBroken | None = None
        self._break_after: int | None = None

    async def feed(self, pieces: Pieces, sampling: Sampling) -> None:
        """Take a segment in."""
        backend = self._backend
        assert self._sampling is None, "two segments at once"
        if backend.refuse_next is not None:
            self._error, backend.refuse_next = StreamBroken(backend.refuse_next), None
        self._break_after, backend.break_after = backend.break_after, None
        memory = backend.requests.setdefault(self._name, [])
        before = len(memory)
        for piece in pieces:
            memory.extend(_positions(piece.ids if isinstance(piece, Ids) else piece.rows))
        backend.fed.append(len(memory) - before)
        if len(memory) + sampling.max_tokens > backend.max_model_len:
            backend.die("a request grew too long")
        self._sampling, self._sampled = sampling, []

    async def next(self) -> Output:
        """Sample."""
        backend, sampling = self._backend, self._sampling
        assert sampling is not None, "nothing was fed"
        await backend.flow()
        if self._break_after is not None and len(self._sampled) >= self._break_after:
            self._error = StreamBroken("broken off")
        if self._error is not None:
            raise self._error
        fresh: list[int] = []
        stop = None
        while stop is None and len(fresh) < backend.tokens_at_once:
            fresh.append(self._sample())
            backend.now_s += backend.seconds_a_token
            stop = self._stop(fresh[-1], sampling)
        if stop is not None:
            self._sampling = None
        return Output(tuple(fresh), backend.now_s, stop)

    def _sample(self) -> int:
        memory = self._backend.requests[self._name]
        if self._sampled:
            memory.append(_position(self._sampled[-1]))
        digest = hashlib.blake2b(b"".join(memory), digest_size=4).digest()
        script = self._backend.script
        token = script.pop(0) if script else int.from_bytes(digest) % VOCAB
        self._sampled.append(token)
        return token

    def _stop(self, token: int, sampling: Sampling) -> StopReason | None:
        if token in sampling.stop_token_ids:
            return StopReason.STOP_TOKEN
        return StopReason.LENGTH if len(self._sampled) >= sampling.max_tokens else None

    async def abort(self) -> None:
        """Hold nothing any more."""
        if self._backend.is_deaf:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        self._backend.requests.pop(self._name, None)


def _positions(values: "Tokens | torch.Tensor") -> list[bytes]:
    if isinstance(values, tuple):
        return [_position(token) for token in values]
    return [row.numpy().tobytes() for row in values]


def _position(token: int) -> bytes:
    return token.to_bytes(4)

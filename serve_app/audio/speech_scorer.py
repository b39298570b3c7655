"""Voice activity of a session's audio, window by window.

One model serves the whole process; what a session has is its state and its place in time.

Rule 1: one thread scores at a time, and takes along whatever is waiting: the network costs a
        quarter as much for many sessions at once as for each by itself.
Rule 2: nobody waits for more than a second of another session's audio at a time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from session.stimuli import SpeechScore
from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES
from stages.vad.silero import SileroVad, VadState, WindowScore

MAX_JOB_BYTES: Final = INPUT_RATE_HZ * SAMPLE_BYTES
"""A second of audio; more is scored in several goes."""


class SpeechScorer(Protocol):
    """Scores one session's 16 kHz PCM; calls come one at a time, in the order of the audio."""

    async def score(self, pcm: bytes) -> tuple[SpeechScore, ...]:
        """Return the windows that `pcm` completes."""
        ...

    def skip(self, samples: int) -> None:
        """Let time pass without scoring; what is heard next follows on nothing."""
        ...


OpenScorer = Callable[[], Awaitable[SpeechScorer]]
"""Makes the scorer of a session that needs one."""


class _Job(NamedTuple):
    state: VadState
    pcm: bytes
    scored: asyncio.Future[tuple[WindowScore, ...]]


class _Bench:
    """Where the sessions of a process wait for the one model."""

    def __init__(self, vad: SileroVad) -> None:
        self.vad = vad
        self._waiting: list[_Job] = []
        self._runner: asyncio.Task[None] | None = None

    async def score(self, state: VadState, pcm: bytes) -> tuple[WindowScore, ...]:
        """Score with the next batch. A state has at most one job here."""
        loop = asyncio.get_running_loop()
        job = _Job(state, pcm, loop.create_future())
        self._waiting.append(job)
        if self._runner is None or self._runner.done():
            self._runner = loop.create_task(self._run())
        return await job.scored

    async def _run(self) -> None:
        """Score batch after batch until nobody waits."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting, []
            states, pcms = [job.state for job in batch], [job.pcm for job in batch]
            scoring = loop.run_in_executor(None, self.vad.score_batch, states, pcms)
            await asyncio.wait({scoring})
            for index, job in enumerate(batch):
                if job.scored.done():
                    continue  # its session is over
                error = scoring.exception()
                if error is not None:
                    job.scored.set_exception(error)
                else:
                    job.scored.set_result(scoring.result()[index])


class SileroScorer:
    """A session's ear on the process's Silero model."""

    def __init__(self, bench: _Bench) -> None:
        self._bench = bench
        self._state = bench.vad.new_state()
        self._began_at = 0
        """Session sample at which the state's own count began."""
        self._samples = 0

    async def score(self, pcm: bytes) -> tuple[SpeechScore, ...]:
        """Return the windows that `pcm` completes."""
        self._samples += len(pcm) // SAMPLE_BYTES
        windows: list[WindowScore] = []
        for at in range(0, len(pcm), MAX_JOB_BYTES):
            windows += await self._bench.score(self._state, pcm[at : at + MAX_JOB_BYTES])
        return tuple(
            SpeechScore(window.probability, self._began_at + window.end_sample)
            for window in windows
        )

    def skip(self, samples: int) -> None:
        """Let time pass without scoring."""
        if samples:
            self._samples += samples
            self._state = self._bench.vad.new_state()
            self._began_at = self._samples


class SileroScorers:
    """Makes scorers; loads the model once, when the first session needs it."""

    def __init__(self, load: Callable[[], SileroVad] = SileroVad.load) -> None:
        self._load = load
        self._bench: _Bench | None = None
        self._loading = asyncio.Lock()

    async def open(self) -> SpeechScorer:
        """Return a new session's scorer."""
        async with self._loading:
            if self._bench is None:
                self._bench = _Bench(await asyncio.to_thread(self._load))
        return SileroScorer(self._bench)

"""One session of a load run: speaks in real time, listens, acknowledges, measures."""

import asyncio
import time
from collections.abc import Callable

from clients import commands
from clients.collector import EventCollector
from clients.duplex import ClientLimits, DuplexClient
from clients.errors import DuplexClientError, DuplexRefused, DuplexUnreachable
from clients.events import ResponseCreated, ResponseDone, ServerEvent
from clients.load_plan import LoadPlan, SessionSamples
from clients.playback import PlaybackClock
from clients.resuming import Continuity
from clients.round_trips import RoundTrips
from clients.session_config import with_input
from clients.source import Block, Clock, RecordingSource, Sleep

# Nobody iterates the events of a load session or reads its audio afterwards.
_LIMITS = ClientLimits(event_backlog=1, kept_responses=1)

Tell = Callable[[str], None]


class LoadSession:
    """Runs one session and never raises for what the server does: that is a result."""

    def __init__(
        self,
        index: int,
        plan: LoadPlan,
        *,
        tell: Tell,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._index = index
        self._plan = plan
        self._tell = tell
        self._clock = clock
        self._sleep = sleep
        self._collector = EventCollector()
        self._speaker = PlaybackClock()
        self._heartbeats = RoundTrips()
        self._open_responses: set[str] = set()
        self._lags_ms: list[float] = []
        self._continuity = Continuity()
        self._open_ms: float | None = None
        self._started_s = 0.0

    async def run(self) -> SessionSamples:
        """Wait for this session's place in the ramp, converse, and return what was measured."""
        await self._sleep(self._plan.start_after_s(self._index))
        samples = await self._attempt()
        self._tell(samples.outcome)
        return samples

    async def _attempt(self) -> SessionSamples:
        try:
            await self._converse()
        except DuplexRefused as error:
            return self._samples("refused", error.code, error.message, is_retryable=error.retryable)
        except DuplexUnreachable as error:
            return self._samples("unreachable", "unreachable", str(error))
        except DuplexClientError as error:
            return self._samples("failed", type(error).__name__, str(error))
        return self._samples("completed")

    async def _converse(self) -> None:
        plan = self._plan
        client = DuplexClient(
            plan.url,
            with_input(plan.settings, rate_hz=plan.recording.rate_hz),
            api_key=plan.api_key,
            observers=(self._observe,),
            limits=_LIMITS,
            clock=self._clock,
        )
        begun_s = self._clock()
        try:
            async with client:
                self._started_s = self._clock()
                self._open_ms = (self._started_s - begun_s) * 1000
                self._tell("open")
                await self._speak(client)
        finally:
            self._continuity = client.continuity

    async def _speak(self, client: DuplexClient) -> None:
        source = RecordingSource(
            self._plan.recording,
            self._plan.spans,
            chunk_ms=self._plan.chunk_ms,
            repeats=True,
            clock=self._clock,
            sleep=self._sleep,
        )
        blocks = 0
        while True:
            block = await source.read()
            blocks += 1
            spoken_s = blocks * self._plan.chunk_ms / 1000
            if spoken_s <= self._plan.seconds:
                await self._send(client, block, blocks)
            elif self._is_answered() or spoken_s > self._plan.seconds + self._plan.drain_s:
                await self._acknowledge(client)
                return
            else:
                await self._send(client, Block(bytes(len(block.pcm)), block.due_s), blocks)

    def _is_answered(self) -> bool:
        return not self._open_responses and self._speaker.is_idle(self._clock())

    async def _send(self, client: DuplexClient, block: Block, number: int) -> None:
        for end_s in block.speech_ends_s:
            self._collector.mark_speech_end(end_s)
        await client.append_audio(block.pcm)
        now = self._clock()
        self._lags_ms.append(max(0.0, now - block.due_s) * 1000)
        if self._plan.commits and block.speech_ends_s:
            self._collector.mark_commit(self._clock())
            await client.commit()
        if number % self._plan.heartbeat_every == 0:
            self._heartbeats.sent(now)
            await client.send(commands.heartbeat())
        await self._acknowledge(client)

    async def _acknowledge(self, client: DuplexClient) -> None:
        for ack in self._speaker.due_acks(self._clock()):
            await client.ack_playback(ack.response_id, ack.played_ms)

    def _observe(self, event: ServerEvent) -> None:
        self._collector.observe(event)
        self._heartbeats.observe(event)
        self._speaker.observe(event)
        match event:
            case ResponseCreated():
                self._open_responses.add(event.response_id)
            case ResponseDone():
                self._open_responses.discard(event.response_id)
                self._tell("response")
            case _:
                pass

    def _samples(
        self, outcome: str, code: str = "", detail: str = "", *, is_retryable: bool = False
    ) -> SessionSamples:
        return SessionSamples(
            index=self._index,
            outcome=outcome,
            code=code,
            detail=detail,
            is_retryable=is_retryable,
            open_ms=self._open_ms,
            seconds=round(self._clock() - self._started_s, 3) if self._open_ms else 0.0,
            send_lags_ms=tuple(self._lags_ms),
            heartbeat_ms=tuple(self._heartbeats.taken_ms),
            unanswered_heartbeats=self._heartbeats.unanswered,
            gaps_ms=tuple(self._collector.gaps_ms()),
            stalls_ms=tuple(self._speaker.stall_ms),
            resumes=self._continuity.resumes,
            dropped_audio_ms=self._continuity.dropped_audio_ms,
            figures=self._collector.figures(),
        )

"""Holds one spoken conversation with the service and reports what came of it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace

from clients import events as ev
from clients.collector import EventCollector, ResponseTimings
from clients.conversation_log import ConversationLog, ErrorLine, UserLine
from clients.duplex import DuplexClient, Observer
from clients.errors import DuplexClientError
from clients.events import JsonObject
from clients.levels import SILENCE_DBFS, dbfs
from clients.playback import PlaybackClock
from clients.session_config import OUTPUT_RATE_HZ, with_input
from clients.source import AudioSource, Clock
from clients.stats import TailSummary, summarize_tail
from clients.timeline import Timeline
from clients.wav import Recording


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a running conversation, for a display."""

    seconds: float
    state: str
    """hearing, thinking, speaking or listening."""
    user_dbfs: float
    assistant_dbfs: float
    transcript: str
    """What the assistant is saying, or said last."""
    news: tuple[str, ...]
    """Lines that have become complete."""


@dataclass(frozen=True, slots=True)
class ReplyReport:
    """One response: its text, how it ended, how much was heard, and its timings."""

    response_id: str
    transcript: str
    status: str
    reason: str
    heard_ms: int
    timings: ResponseTimings
    stage_metrics: JsonObject | None
    """The engine's own timings, on the engine's clock."""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a conversation."""

    url: str
    session_id: str
    model: str
    ended: str
    """settled, no_reply, time_limit, stopped, or what broke it off."""
    is_whole: bool
    """Whether it ended by itself and the session was closed properly."""
    seconds: float
    replies: tuple[ReplyReport, ...]
    user_lines: tuple[UserLine, ...]
    errors: tuple[ErrorLine, ...]
    listen_decisions: int
    events: Mapping[str, int]
    send_lag_ms: TailSummary
    """How late audio was sent, against the schedule of a microphone."""
    resumes: int
    """How often the connection was lost and the session taken up again."""
    dropped_audio_ms: float
    """What the user said in a gap that was too long to keep it."""
    reply_audio: Recording
    """All answers one after the other, whether heard or not."""
    heard_audio: Recording
    """The assistant's voice as it was heard, as long as the conversation."""

    @property
    def has_reply(self) -> bool:
        """Whether any answer had audio."""
        return bool(self.reply_audio.pcm)

    def as_json(self) -> dict[str, object]:
        """Return plain values for a JSON file; the audio is left out."""
        silent = Recording(b"", self.reply_audio.rate_hz)
        plain = asdict(replace(self, reply_audio=silent, heard_audio=silent))
        del plain["reply_audio"], plain["heard_audio"]
        return plain


@dataclass(frozen=True, slots=True)
class ConverseOptions:
    """When a conversation ends, how often playback is acknowledged, and who looks on."""

    quiet_s: float = 2.0
    """Nothing happens for this long after the last answer: it is over."""
    reply_timeout_s: float = 30.0
    time_limit_s: float = 600.0
    ack_every_s: float = 0.5
    watch: tuple[Callable[[Progress], None], ...] = ()
    """Called after each block that was sent."""
    observers: tuple[Observer, ...] = ()
    """Called with each event, like those of `DuplexClient`."""


async def converse(
    url: str,
    settings: Mapping[str, object],
    source: AudioSource,
    *,
    api_key: str | None = None,
    options: ConverseOptions | None = None,
    clock: Clock = time.monotonic,
) -> Report:
    """Send audio until it is over and answered, play and acknowledge the answers, and report.

    Raises DuplexUnreachable or DuplexRefused when there was no session. What breaks an open
    session off is in the report.
    """
    chosen = options if options is not None else ConverseOptions()
    talk = _Conversation(source, chosen, clock)
    declared = with_input(settings, rate_hz=source.rate_hz)
    client = DuplexClient(
        url, declared, api_key=api_key, observers=(talk.observe, *chosen.observers), clock=clock
    )
    await client.open()
    started_s = clock()
    is_whole = True
    try:
        async with client:
            ended = await talk.run(client, started_s)
    except DuplexClientError as error:
        ended, is_whole = str(error), False
    return talk.report(client, url, ended, is_whole=is_whole)


class _Conversation:
    """One running conversation: what is sent, heard, measured and written down."""

    def __init__(self, source: AudioSource, options: ConverseOptions, clock: Clock) -> None:
        self._source = source
        self._options = options
        self._clock = clock
        self._log = ConversationLog()
        self._collector = EventCollector()
        self._speaker = PlaybackClock(ack_every_s=options.ack_every_s)
        self._timeline = Timeline()
        self._lags_ms: list[float] = []
        self._all_said = False
        self._started_s = 0.0
        self._ended_s = 0.0

    def observe(self, event: ev.ServerEvent) -> None:
        """Take one event from the client's reader."""
        self._collector.observe(event)
        self._log.observe(event)
        self._timeline.observe(event, self._speaker.observe(event))

    async def run(self, client: DuplexClient, started_s: float) -> str:
        """Converse until it is over and return how it ended."""
        self._started_s = self._ended_s = started_s
        while True:
            block = await self._source.read()
            for end_s in block.speech_ends_s:
                self._collector.mark_speech_end(end_s)
            await client.append_audio(block.pcm)
            now = self._ended_s = self._clock()
            self._lags_ms.append(max(0.0, now - block.due_s) * 1000)
            for ack in self._speaker.due_acks(now):
                await client.ack_playback(ack.response_id, ack.played_ms)
            if self._options.watch:
                self._show(now, block.pcm)
            ended = self._verdict(now)
            if ended is not None:
                return ended

    def report(self, client: DuplexClient, url: str, ended: str, *, is_whole: bool) -> Report:
        """Sum up."""
        figures = self._collector.figures()
        replies = tuple(
            ReplyReport(
                response_id=reply.response_id,
                transcript=reply.transcript,
                status=reply.status,
                reason=reply.reason,
                heard_ms=self._speaker.played_ms(reply.response_id, self._ended_s),
                timings=measured.timings,
                stage_metrics=measured.stage_metrics,
            )
            for reply, measured in zip(self._log.replies.values(), figures.responses, strict=True)
        )
        rates_hz = [reply.rate_hz for reply in self._log.replies.values()]
        return Report(
            url=url,
            session_id=client.session.session_id,
            model=client.session.model,
            ended=ended,
            is_whole=is_whole,
            seconds=round(self._ended_s - self._started_s, 3),
            replies=replies,
            user_lines=tuple(self._log.user_lines),
            errors=tuple(self._log.errors),
            listen_decisions=self._log.listen_decisions,
            events=figures.events,
            send_lag_ms=summarize_tail(self._lags_ms),
            resumes=client.continuity.resumes,
            dropped_audio_ms=round(client.continuity.dropped_audio_ms, 3),
            reply_audio=Recording(
                b"".join(bytes(reply.pcm) for reply in self._log.replies.values()),
                rates_hz[-1] if rates_hz else OUTPUT_RATE_HZ,
            ),
            heard_audio=self._timeline.render(self._started_s, self._ended_s),
        )

    def _verdict(self, now: float) -> str | None:
        options = self._options
        if now - self._started_s >= options.time_limit_s:
            return "time_limit"
        if not self._all_said:
            self._all_said = self._source.is_over
            self._log.touch(now)
            return None
        self._log.touch(self._speaker.busy_until_s)  # perhaps in the future
        return self._log.verdict(
            now, quiet_s=options.quiet_s, reply_timeout_s=options.reply_timeout_s
        )

    def _show(self, now: float, user_pcm: bytes) -> None:
        is_playing = not self._speaker.is_idle(now)
        level = dbfs(self._timeline.render(now - 0.2, now).pcm) if is_playing else SILENCE_DBFS
        replies = list(self._log.replies.values())
        progress = Progress(
            seconds=now - self._started_s,
            state=self._state(is_playing=is_playing),
            user_dbfs=dbfs(user_pcm),
            assistant_dbfs=level,
            transcript=replies[-1].transcript if replies else "",
            news=self._log.take_news(),
        )
        for watch in self._options.watch:
            watch(progress)

    def _state(self, *, is_playing: bool) -> str:
        if self._log.is_user_speaking:
            return "hearing"
        if is_playing:
            return "speaking"
        return "thinking" if self._log.awaits_answer else "listening"

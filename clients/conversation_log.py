"""What was said in a conversation, and whether it seems to be over.

Rule 1: a conversation has settled when the driver's audio has been sent, every response is done,
        everything has been played, the connection is there, and nothing has happened for a quiet
        interval.
Rule 2: while the server has heard speech that no response has followed yet, the longer reply
        timeout stands in for the quiet interval.
Rule 3: `response.listen`, acknowledgements and unknown events are not happenings.
"""

from dataclasses import dataclass, field

from clients import events as ev
from clients.audio_formats import to_pcm16


@dataclass(frozen=True, slots=True)
class UserLine:
    """What the server understood the user to have said."""

    item_id: str
    transcript: str


@dataclass(frozen=True, slots=True)
class ErrorLine:
    """One `error` event."""

    code: str
    message: str


@dataclass(slots=True)
class Reply:
    """One response as it came in."""

    response_id: str
    transcript: str = ""
    status: str = "in_progress"
    reason: str = ""
    pcm: bytearray = field(default_factory=bytearray)
    """All audio that came, heard or not."""
    rate_hz: int = 24_000


class ConversationLog:
    """Collects lines from events. `observe` is an observer for `DuplexClient`."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {}
        self.user_lines: list[UserLine] = []
        self.errors: list[ErrorLine] = []
        self.listen_decisions = 0
        self._last_happening_s = float("-inf")
        self.is_user_speaking = False
        self.awaits_answer = False
        self._lost_s: float | None = None
        self._news: list[str] = []

    def observe(self, event: ev.ServerEvent) -> None:
        """Take one event."""
        match event:
            case ev.ResponseListen():
                self.listen_decisions += 1
            case ev.ResponseEvent():
                self._last_happening_s = event.received_s
                self._observe_response(event)
            case ev.ErrorEvent():
                self.errors.append(ErrorLine(event.code, event.message))
                self._news.append(f"error: {event.code}: {event.message}")
            case ev.ConnectionLost() | ev.Resumed() | ev.EventsLost():
                self._observe_connection(event)
            case _:
                self._observe_user(event)

    def touch(self, at_s: float) -> None:
        """Something the log does not see was going on until then, such as playback."""
        self._last_happening_s = max(self._last_happening_s, at_s)

    def take_news(self) -> tuple[str, ...]:
        """Return the lines that have become complete since the last call."""
        news, self._news = tuple(self._news), []
        return news

    @property
    def has_open_reply(self) -> bool:
        """Whether a response is not done."""
        return any(reply.status == "in_progress" for reply in self.replies.values())

    @property
    def has_spoken(self) -> bool:
        """Whether any audio has come."""
        return any(reply.pcm for reply in self.replies.values())

    def verdict(self, now: float, *, quiet_s: float, reply_timeout_s: float) -> str | None:
        """Say how the conversation ended, once the driver's audio is sent and all is played."""
        if self.has_open_reply or self._lost_s is not None:
            return None
        quiet_for_s = now - self._last_happening_s
        if not self.has_spoken:
            return "no_reply" if quiet_for_s >= reply_timeout_s else None
        wanted_s = reply_timeout_s if self.awaits_answer else quiet_s
        return "settled" if quiet_for_s >= wanted_s else None

    def _observe_connection(self, event: ev.ConnectionLost | ev.Resumed | ev.EventsLost) -> None:
        self._last_happening_s = event.received_s
        if isinstance(event, ev.ConnectionLost):
            self._lost_s = event.received_s
            self._news.append(f"connection lost (close code {event.close_code}); reconnecting")
        elif isinstance(event, ev.EventsLost):
            self.is_user_speaking = False  # the end of it may be gone; a new onset will be told
            count = event.last_seq - event.first_seq + 1
            self._news.append(f"the gap was too long: {count} events are lost")
        elif self._lost_s is not None:
            self._news.append(f"connected again after {event.received_s - self._lost_s:.1f} s")
            self._lost_s = None

    def _observe_user(self, event: ev.ServerEvent) -> None:
        match event:
            case ev.SpeechStarted():
                self.is_user_speaking = self.awaits_answer = True
            case ev.SpeechStopped():
                self.is_user_speaking = False
            case ev.InputCommitted():
                self.awaits_answer = not event.expects_no_response
            case ev.InputTranscribed():
                if event.transcript:
                    self.user_lines.append(UserLine(event.item_id, event.transcript))
                    self._news.append(f"user: {event.transcript}")
            case _:
                return
        self._last_happening_s = event.received_s

    def _observe_response(self, event: ev.ResponseEvent) -> None:
        if isinstance(event, ev.ResponseCreated):
            self.replies[event.response_id] = Reply(event.response_id)
            self.awaits_answer = False
        reply = self.replies.get(event.response_id)
        if reply is None:
            return
        match event:
            case ev.AudioDelta():
                reply.pcm += to_pcm16(event.audio, event.encoding)
                reply.rate_hz = event.rate_hz
            case ev.TranscriptDelta() | ev.TextDelta():
                reply.transcript += event.delta
            case ev.ResponseDone():
                reply.status, reply.reason = event.status or "completed", event.reason
                self._news.append(f"assistant: {reply.transcript} [{_ending(reply)}]")
            case _:
                pass


def _ending(reply: Reply) -> str:
    seconds = len(reply.pcm) / 2 / reply.rate_hz
    why = f", {reply.reason}" if reply.reason and reply.status != "completed" else ""
    return f"{reply.status}{why}, {seconds:.1f} s"

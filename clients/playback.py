"""A simulated speaker: when the audio that came in would be heard, and how much of it was.

Rule 1: a response starts to play with its first chunk; chunks follow one another without a gap
        unless one comes after the earlier ones have been played (a stall).
Rule 2: there is one speaker. A response's audio starts when the earlier response's has ended.
Rule 3: a flush stops a response where it is; audio of it that comes later is not played.
Rule 4: what was played is reported as it grows, at most every `ack_every_s`, and once more at
        the end or at the flush. No response is ever reported beyond the audio that came in.
"""

from dataclasses import dataclass

from clients.events import AudioDelta, OutputAudioCleared, ResponseDone, ServerEvent

_ROUNDING_MS = 1e-6


@dataclass(frozen=True, slots=True)
class PlaybackAck:
    """What a `playback.ack` should say."""

    response_id: str
    played_ms: int


@dataclass(slots=True)
class _Track:
    """One response on the speaker. A run is a stretch without a stall; earlier ones are summed."""

    run_start_s: float
    run_ms: float = 0.0
    before_run_ms: float = 0.0
    is_complete: bool = False
    acked_ms: int = 0
    last_ack_s: float = 0.0

    @property
    def run_end_s(self) -> float:
        return self.run_start_s + self.run_ms / 1000

    def played_ms(self, now: float) -> int:
        in_run = min(max(0.0, (now - self.run_start_s) * 1000), self.run_ms)
        return int(self.before_run_ms + in_run + _ROUNDING_MS)


class PlaybackClock:
    """A speaker without sound. All times are seconds on the caller's clock."""

    def __init__(self, *, ack_every_s: float = 0.5) -> None:
        self._ack_every_s = ack_every_s
        self._tracks: dict[str, _Track] = {}
        self._ended: dict[str, int] = {}
        """Milliseconds heard of responses that have left the speaker."""
        self._free_at_s = float("-inf")
        self.stall_ms: list[float] = []
        """Length of each silence a listener heard within an answer, because audio was late."""

    def observe(self, event: ServerEvent) -> float | None:
        """Take an event; return when the audio in it starts to play, if it has any that is."""
        match event:
            case AudioDelta():
                return self.play(event.response_id, event.duration_ms, event.received_s)
            case OutputAudioCleared():
                self.flush(event.response_id, event.received_s)
            case ResponseDone(is_cut=True):
                self.flush(event.response_id, event.received_s)
            case ResponseDone() if event.response_id in self._tracks:
                self._tracks[event.response_id].is_complete = True
            case _:
                pass
        return None

    def play(self, response_id: str, duration_ms: float, now: float) -> float | None:
        """Queue a chunk; return when it will start, or None when it will not be played."""
        if response_id in self._ended:
            return None
        track = self._tracks.get(response_id)
        if track is None:
            track = _Track(run_start_s=max(now, self._free_at_s))
            track.last_ack_s = track.run_start_s
            self._tracks[response_id] = track
        elif (free_s := max(now, self._free_at_s)) > track.run_end_s:
            if now > self._free_at_s:
                self.stall_ms.append((now - self._free_at_s) * 1000)
            track.before_run_ms += track.run_ms
            track.run_start_s, track.run_ms = free_s, 0.0
        start_s = track.run_end_s
        track.run_ms += duration_ms
        self._free_at_s = track.run_end_s
        return start_s

    def flush(self, response_id: str, now: float) -> None:
        """Stop a response: what has not been played will not be."""
        track = self._tracks.get(response_id)
        if track is None:
            self._ended.setdefault(response_id, 0)
            return
        track.run_ms = min(max(0.0, (now - track.run_start_s) * 1000), track.run_ms)
        track.run_start_s = min(track.run_start_s, now)
        track.is_complete = True
        self._free_at_s = max(now, *(other.run_end_s for other in self._tracks.values()))

    def played_ms(self, response_id: str, now: float) -> int:
        """Milliseconds of a response that have been heard by `now`."""
        track = self._tracks.get(response_id)
        return self._ended.get(response_id, 0) if track is None else track.played_ms(now)

    def due_acks(self, now: float) -> list[PlaybackAck]:
        """Return what should be reported now. Responses that are over leave the speaker."""
        acks = []
        for response_id, track in list(self._tracks.items()):
            played_ms = track.played_ms(now)
            is_over = track.is_complete and now >= track.run_end_s
            is_due = is_over or now - track.last_ack_s >= self._ack_every_s
            if is_due and played_ms > track.acked_ms:
                acks.append(PlaybackAck(response_id, played_ms))
                track.acked_ms, track.last_ack_s = played_ms, now
            if is_over:
                self._ended[response_id] = played_ms
                del self._tracks[response_id]
        return acks

    @property
    def busy_until_s(self) -> float:
        """When everything that has come in so far will have been heard."""
        return self._free_at_s

    def is_idle(self, now: float) -> bool:
        """Whether everything that came in has been heard or flushed."""
        return now >= self._free_at_s

"""What the user gets of a session's answers: how soon, without a break, and how soon they stop.

Rule 1: a place in the user's stream came in when the sound behind it, which has come in by now,
        had not been said yet: a microphone sends as it hears.
Rule 2: a client plays what it is sent at once and without pause. When the next chunk comes later
        than that, playback has run dry.
"""

from dataclasses import dataclass, field
from typing import Final

from serve_app.metrics.definitions import (
    ACK_LAG,
    AUDIO_SECONDS,
    BARGE_IN_STOP,
    FIRST_AUDIO,
    OVERLAPPED,
    RESPONSES,
    SPOKEN,
    UNDERRUN,
)
from serve_app.metrics.meter import Meter
from session.events import (
    OverlapDecided,
    PlaybackAdvanced,
    ResponseFinished,
    SpeechDelta,
    UserSpeechStarted,
    UserSpeechStopped,
)
from session.ids import ResponseId
from session.unit import INPUT_RATE_HZ, OUTPUT_RATE_HZ, SAMPLE_BYTES

KEPT_ANSWERS: Final = 4
"""Answers whose playback may still be acknowledged."""
SHORTEST_UNDERRUN_S: Final = 0.01
"""Less is the clock's and the network's doing, and nobody hears it."""


@dataclass(slots=True)
class _Answer:
    """One answer's sound, as a client that plays it at once hears it."""

    sent_s: float = 0.0
    plays_until_s: float = 0.0
    underrun_s: float = 0.0

    def send(self, seconds: float, *, now: float) -> float:
        """Count a chunk; return for how long playback had run dry before it."""
        dry_s = now - self.plays_until_s if self.sent_s else 0.0
        dry_s = dry_s if dry_s > SHORTEST_UNDERRUN_S else 0.0
        self.plays_until_s = max(self.plays_until_s, now) + seconds
        self.sent_s += seconds
        self.underrun_s += dry_s
        return dry_s

    def played_s(self, at_s: float) -> float:
        """How much of it has been played."""
        return self.sent_s - max(0.0, self.plays_until_s - at_s)


@dataclass(slots=True)
class ObservedAnswers:
    """The answers of one session."""

    meter: Meter
    _heard_ms: float = 0.0
    """Length of the user's stream so far."""
    _uncounted_s: float = 0.0
    _onset_at_s: float | None = None
    _speech_end_at_s: float | None = None
    _asked_at_s: float | None = None
    _answers: dict[ResponseId, _Answer] = field(default_factory=dict)

    def hear(self, pcm: bytes) -> None:
        """The user's stream goes on."""
        samples = len(pcm) // SAMPLE_BYTES
        self._heard_ms += samples * 1000 / INPUT_RATE_HZ
        self._uncounted_s += samples / INPUT_RATE_HZ
        if self._uncounted_s >= 1.0:  # not with every frame, of which there may be fifty a second
            self.count_heard()

    def count_heard(self) -> None:
        """Count what the stream has brought since this was done last."""
        self.meter.count(AUDIO_SECONDS, "in", by=self._uncounted_s)
        self._uncounted_s = 0.0

    def ask(self, at_s: float) -> None:
        """The client wants an answer."""
        self._asked_at_s = at_s

    def begin_speech(self, event: UserSpeechStarted, *, at_s: float, padding_ms: int) -> None:
        """The user speaks, since `padding_ms` after what the event says."""
        place_ms = min(event.audio_start_ms + padding_ms, self._heard_ms)
        self._onset_at_s = self._came_at_s(place_ms, at_s)

    def end_speech(self, event: UserSpeechStopped, *, at_s: float) -> None:
        """The user has stopped."""
        self._speech_end_at_s = self._came_at_s(event.audio_end_ms, at_s)

    def rule(self, event: OverlapDecided, *, at_s: float) -> None:
        """The user speaks during an answer."""
        self.meter.count(OVERLAPPED, event.action, event.reason)
        if event.reason != "server_vad_speech_started":
            # Where nobody looks for its beginning: as much as has been taken for speech.
            self._onset_at_s = at_s - event.overlap_speech_ms / 1000

    def send(self, event: SpeechDelta, *, now: float) -> None:
        """A piece of an answer goes out."""
        seconds = len(event.pcm) / SAMPLE_BYTES / OUTPUT_RATE_HZ
        if not seconds:
            return
        self.meter.count(AUDIO_SECONDS, "out", by=seconds)
        answer = self._answers.get(event.response_id)
        if answer is None:
            answer = self._answers[event.response_id] = _Answer()
            if len(self._answers) > KEPT_ANSWERS:
                del self._answers[next(iter(self._answers))]
            self._first_sound(now)
        self.meter.count(UNDERRUN, by=answer.send(seconds, now=now))

    def finish(self, event: ResponseFinished) -> None:
        """An answer has its end."""
        self.meter.count(RESPONSES, event.status, event.reason)
        answer = self._answers.get(event.response_id)
        if answer is not None:
            self.meter.count(SPOKEN, "underrun" if answer.underrun_s else "smooth")

    def stop(self, *, is_clients: bool, at_s: float, now: float) -> None:
        """What was being said has been stopped, by the client's event or by speech."""
        if is_clients:
            self.meter.observe(BARGE_IN_STOP, now - at_s, "client")
        elif self._onset_at_s is not None:
            self.meter.observe(BARGE_IN_STOP, now - self._onset_at_s, "speech")

    def advance(self, event: PlaybackAdvanced, *, at_s: float) -> None:
        """The client says how much it has played."""
        answer = self._answers.get(event.response_id)
        if answer is not None:
            behind_s = answer.played_s(at_s) - event.playback.played_ms / 1000
            self.meter.observe(ACK_LAG, max(0.0, behind_s))

    def _first_sound(self, now: float) -> None:
        asked, ended = self._asked_at_s, self._speech_end_at_s
        self._asked_at_s = self._speech_end_at_s = None
        if asked is not None and (ended is None or asked >= ended):
            self.meter.observe(FIRST_AUDIO, now - asked, "commit")
        elif ended is not None:
            self.meter.observe(FIRST_AUDIO, now - ended, "speech_end")

    def _came_at_s(self, place_ms: float, at_s: float) -> float:
        return at_s - max(0.0, self._heard_ms - place_ms) / 1000

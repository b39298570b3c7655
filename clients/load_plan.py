"""What a load run does, and what one of its sessions measured: values that cross processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from clients.collector import CollectedFigures
from clients.levels import SpeechSpan
from clients.wav import Recording


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """One run. Every session says the same, shifted by its place in the ramp."""

    url: str
    settings: Mapping[str, object]
    recording: Recording
    spans: tuple[SpeechSpan, ...]
    sessions: int
    seconds: float
    ramp_s: float = 2.0
    chunk_ms: int = 200
    heartbeat_every: int = 5
    """A heartbeat follows every so-manieth append and is timed."""
    drain_s: float = 15.0
    """How long answers may go on, and be played, after the last speech was sent."""
    commits: bool = False
    """An explicit commit follows each end of speech."""
    api_key: str | None = None

    def start_after_s(self, index: int) -> float:
        """Return when a session starts, from the beginning of the run."""
        return self.ramp_s * index / self.sessions


@dataclass(frozen=True, slots=True)
class SessionSamples:
    """Everything one session measured, unsummarised."""

    index: int
    outcome: str
    """completed, refused, unreachable or failed."""
    code: str = ""
    detail: str = ""
    is_retryable: bool = False
    open_ms: float | None = None
    seconds: float = 0.0
    send_lags_ms: tuple[float, ...] = ()
    heartbeat_ms: tuple[float, ...] = ()
    unanswered_heartbeats: int = 0
    gaps_ms: tuple[float, ...] = ()
    stalls_ms: tuple[float, ...] = ()
    resumes: int = 0
    """How often the connection was lost and the session taken up again."""
    dropped_audio_ms: float = 0.0
    """Speech that a gap was too long for: it was never sent."""
    figures: CollectedFigures = field(default_factory=lambda: CollectedFigures((), {}, {}))

"""A conversation of any length in virtual time: a talker, two stages and a loudspeaker.

Rule 1: the same timetable each time: a question every nine seconds, and every fourth answer is
        interrupted by another one.
Rule 2: after FULL_S the ledgers hold as much as they keep; whatever still grows is a leak.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Final

from session.config import (
    ConfigPatch,
    PlaybackCommitPolicy,
    SessionConfig,
    SessionLimits,
    TurnDetection,
)
from session.effects import (
    CancelStages,
    ConfigureStages,
    Effect,
    Emit,
    OpenStages,
    SubmitUnit,
    Synthesize,
    WakeAt,
)
from session.events import (
    Event,
    OutputBufferCleared,
    ResponseFinished,
    ResponseStarted,
    SpeechDelta,
)
from session.fence import Fence
from session.ids import SessionId
from session.machine import DuplexSession
from session.model_profile import ModelProfile
from session.stimuli import (
    AudioAppended,
    HeartbeatReceived,
    OpenRequested,
    PlaybackAcked,
    SessionConfigured,
    SpeechArrived,
    SpeechFinished,
    SpeechScore,
    StagesConfigured,
    StagesOpened,
    Stimulus,
    Ticked,
    UnitFinished,
)
from session.unit import OUTPUT_RATE_HZ, Decision, SpeechChunk, UnitResult

APPEND_MS: Final = 200
APPEND: Final = bytes(APPEND_MS * 16 * 2)
WINDOW: Final = 512
PERIOD: Final = 45
"""Appends from one question to the next: nine seconds."""
QUESTION: Final = range(8)
"""Appends of a period in which the user asks."""
INTERRUPTION: Final = range(24, 29)
"""Appends in which every fourth question is followed by an interruption."""
FULL_S: Final = 2400.0
"""By then the history has its 512 items, at twenty a minute, and its table the size it keeps."""
STAGE0_S: Final = 0.25
STAGE1_S: Final = 0.06
CHUNK: Final = bytes(200 * OUTPUT_RATE_HZ // 1000 * 2)
WORDS: Final = ("This ", "is ", "what ", "I ", "know. ")
SEGMENTS: Final = 3
PROFILE: Final = ModelProfile(
    text_input=True, input_transcription=True, updatable=frozenset({"temperature"})
)

Handle = Callable[[DuplexSession, Stimulus, float], list[Effect]]


class EvenIds:
    """Ids in order and of one length."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def new(self, prefix: str) -> str:
        """Return the next id."""
        return f"{prefix}_{next(self._numbers):08d}"

    def token(self) -> str:
        """Return a token of the same length each time."""
        return self.new("token")


def plain(session: DuplexSession, stimulus: Stimulus, now: float) -> list[Effect]:
    """Handle a stimulus and nothing else."""
    return session.handle(stimulus, now=now)


class SpokenHour:
    """One session and all that happens around it."""

    def __init__(
        self,
        handle: Handle = plain,
        policy: PlaybackCommitPolicy = PlaybackCommitPolicy.ACK_ONLY,
    ) -> None:
        self._handle = handle
        self._acknowledges = policy is not PlaybackCommitPolicy.REAL_TIME
        self.now = 0.0
        self.steps = 0
        self.answers = 0
        self.interrupted = 0
        self._appends = 0
        self._queue: list[tuple[float, int, Stimulus]] = []
        self._order = itertools.count()
        self._wake_at: float | None = None
        self._segments = 0
        """Segments that the model still wants to say."""
        self._heard_speech = False
        self._sent_ms = 0
        self._play_from = 0.0
        self.session = DuplexSession(
            fence=Fence(SessionId("sess_1"), 0, 0, 0),
            config=SessionConfig(
                model="m",
                auto_response=True,
                turn_detection=TurnDetection(),
                playback_commit_policy=policy,
            ),
            # A session of any length: its end is no part of what is measured.
            limits=SessionLimits(max_session_s=None),
            profile=PROFILE,
            ids=EvenIds(),
        )
        self._do(OpenRequested())
        self._drain(1.0)

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        for _ in self.appends(seconds):
            pass

    def appends(self, seconds: float) -> Iterator[None]:
        """Let time pass, append by append."""
        for _ in range(round(seconds * 1000 / APPEND_MS)):
            self._drain(self.now + APPEND_MS / 1000)
            self._user()
            yield

    # --- the user -----------------------------------------------------------------------------

    def _user(self) -> None:
        period, place = divmod(self._appends, PERIOD)
        talks = place in QUESTION or (period % 4 == 3 and place in INTERRUPTION)
        first, last = (
            count * len(APPEND) // 2 // WINDOW for count in (self._appends, self._appends + 1)
        )
        self._appends += 1
        scores = tuple(
            SpeechScore(0.98 if talks else 0.02, (window + 1) * WINDOW)
            for window in range(first, last)
        )
        self._do(AudioAppended(APPEND, wire_bytes=len(APPEND), scores=scores))
        if self._appends % 100 == 0:
            self._do(HeartbeatReceived())
        if self._appends % 300 == 0:
            warmth = 0.5 + self._appends % 7 / 10
            self._do(SessionConfigured(ConfigPatch((("temperature", warmth),))))

    def _acks(self, delta: SpeechDelta) -> None:
        self._play_from = max(self._play_from, self.now)
        self._sent_ms += APPEND_MS
        at_s = self._play_from + APPEND_MS / 1000
        self._play_from = at_s
        self._later(at_s, PlaybackAcked(self._sent_ms, response_id=delta.response_id))

    # --- the stages ---------------------------------------------------------------------------

    def _decided(self, unit: SubmitUnit) -> UnitResult:
        talks = unit.unit.is_speech
        heard = ""
        if self._heard_speech and not talks:
            self._segments, heard = SEGMENTS, "tell me more"
        self._heard_speech = talks
        if talks or not self._segments:
            self._segments = 0
            return UnitResult(Decision.LISTEN)
        self._segments -= 1
        is_last = self._segments == 0
        text = "".join(WORDS)
        return UnitResult(Decision.SPEAK, text, segment_end=True, turn_end=is_last, heard=heard)

    def _voiced(self, job: Synthesize) -> None:
        is_last = self._segments == 0
        at_s = self.now
        for place, word in enumerate(WORDS, 1):
            at_s += STAGE1_S
            ends = place == len(WORDS)
            chunk = SpeechChunk(CHUNK, word, segment_end=ends, turn_end=ends and is_last)
            self._later(at_s, SpeechArrived(job.fence, job.seq, chunk))
        self._later(at_s, SpeechFinished(job.fence, job.seq))

    # --- the world ----------------------------------------------------------------------------

    def _do(self, stimulus: Stimulus) -> None:
        self.steps += 1
        for effect in self._handle(self.session, stimulus, self.now):
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        soon = self.now + 0.02
        match effect:
            case Emit(event=event):
                self._hear(event)
            case SubmitUnit():
                answer = UnitFinished(effect.fence, effect.seq, self._decided(effect))
                self._later(self.now + STAGE0_S, answer)
            case Synthesize():
                self._voiced(effect)
            case WakeAt(at_s=at_s):
                self._wake_at = at_s
            case OpenStages():
                self._later(soon, StagesOpened(effect.fence))
            case ConfigureStages():
                self._later(soon, StagesConfigured(effect.fence, effect.generation))
            case CancelStages():
                self.interrupted += 1
            case _:
                raise NotImplementedError(f"nothing here asks for {effect}")

    def _hear(self, event: Event) -> None:
        match event:
            case SpeechDelta() if self._acknowledges:
                self._acks(event)
            case ResponseStarted():
                self.answers += 1
                self._sent_ms = 0
            case ResponseFinished(status="cancelled") | OutputBufferCleared():
                self._play_from = self.now
            case _:
                pass

    def _later(self, at_s: float, stimulus: Stimulus) -> None:
        heapq.heappush(self._queue, (at_s, next(self._order), stimulus))

    def _drain(self, until_s: float) -> None:
        """Let everything happen that is due by then, in the order of time."""
        while True:
            at_s = self._queue[0][0] if self._queue else until_s
            if self._wake_at is not None and self._wake_at <= min(at_s, until_s):
                self.now, self._wake_at = max(self.now, self._wake_at), None
                self._do(Ticked())
            elif self._queue and at_s <= until_s:
                self.now = at_s
                self._do(heapq.heappop(self._queue)[2])
            else:
                self.now = until_s
                return

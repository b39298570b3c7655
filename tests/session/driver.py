"""A small language for kernel tests: a session, a clock, and stages that answer when told to."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from session.config import SessionConfig, SessionLimits, TurnDetection
from session.effects import (
    CancelStages,
    CloseSocket,
    CloseStages,
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
    SpeechDelta,
)
from session.fence import Fence
from session.ids import ItemId, SessionId
from session.item_events import (
    ItemShown,
)
from session.machine import DuplexSession
from session.model_profile import ModelProfile
from session.stimuli import (
    AudioAppended,
    ItemRetrieved,
    OpenRequested,
    SpeechArrived,
    SpeechFinished,
    SpeechScore,
    StagesConfigured,
    StagesOpened,
    StagesReleased,
    Stimulus,
    UnitFinished,
)
from session.unit import INPUT_RATE_HZ, OUTPUT_RATE_HZ, Decision, SpeechChunk, UnitResult

UNIT_BYTES = INPUT_RATE_HZ * 2
WINDOW = 512
EventT = TypeVar("EventT", bound=Event)
EffectT = TypeVar("EffectT", bound=Effect)

AUTO = SessionConfig(model="m", auto_response=True)
AUTO_VAD = replace(AUTO, turn_detection=TurnDetection(), output_modalities=("audio", "text"))
TURN_MODE = SessionConfig(model="m")
PROFILE = ModelProfile(
    text_input=True,
    input_transcription=True,
    updatable=frozenset({"temperature"}),
    response_options=frozenset({"temperature"}),
)
WORDLESS = replace(PROFILE, input_transcription=False)
"""A model that does not tell what it heard, and so hears what was said in one piece."""


class CountingIds:
    """Ids in order, so that a failing test reads well."""

    def __init__(self) -> None:
        self._next = 0

    def new(self, prefix: str) -> str:
        self._next += 1
        return f"{prefix}_{self._next}"

    def token(self) -> str:
        return self.new("token")


class Driver:
    """Feeds a session and keeps everything it asked for."""

    def __init__(
        self,
        config: SessionConfig = AUTO,
        *,
        profile: ModelProfile = PROFILE,
        limits: SessionLimits | None = None,
        opened: bool = True,
        is_resumable: bool = False,
    ) -> None:
        fence = Fence(SessionId("s1"), 0, 0, 0)
        self.session = DuplexSession(
            fence=fence,
            config=config,
            limits=limits or SessionLimits(),
            profile=profile,
            ids=CountingIds(),
        )
        self.now = 100.0
        self.effects: list[Effect] = []
        self.heard_samples = 0
        self.do(OpenRequested(is_resumable=is_resumable))
        if opened:
            self.do(StagesOpened(self.session.fence))

    def do(self, stimulus: Stimulus) -> list[Effect]:
        """Apply a stimulus now; return its effects. Laws are checked after each."""
        effects = self.session.handle(stimulus, now=self.now)
        self.session.validate()
        self.effects += effects
        return effects

    def events(self, effects: list[Effect] | None = None) -> list[Event]:
        return [
            e.event for e in (self.effects if effects is None else effects) if isinstance(e, Emit)
        ]

    def said(self, kind: type[EventT], effects: list[Effect] | None = None) -> list[EventT]:
        return [event for event in self.events(effects) if isinstance(event, kind)]

    def asked(self, kind: type[EffectT], effects: list[Effect] | None = None) -> list[EffectT]:
        return [e for e in (self.effects if effects is None else effects) if isinstance(e, kind)]

    def remembered(self, item_id: ItemId) -> str:
        """Text of an item as the history holds it: asked of the session as a client would."""
        return self.said(ItemShown, self.do(ItemRetrieved(item_id)))[0].item.text

    def last_unit(self) -> SubmitUnit:
        return self.asked(SubmitUnit)[-1]

    def last_speech(self) -> Synthesize:
        return self.asked(Synthesize)[-1]

    # --- the user -----------------------------------------------------------------------------

    def append(
        self,
        ms: int,
        *,
        speech: bool | None = None,
        probability: float | None = None,
        at_ms: int = 0,
    ) -> list[Effect]:
        """Append `ms` of audio; with a probability, score each of its windows with it."""
        samples = ms * 16
        scores: tuple[SpeechScore, ...] = ()
        if probability is not None:
            scores = tuple(self._windows(samples, probability))
        self.heard_samples += samples
        return self.do(AudioAppended(bytes(samples * 2), scores=scores, is_speech=speech))

    def _windows(self, samples: int, probability: float) -> Iterator[SpeechScore]:
        start = self.heard_samples // WINDOW
        stop = (self.heard_samples + samples) // WINDOW
        for window in range(start, stop):
            yield SpeechScore(probability, (window + 1) * WINDOW)

    # --- the stages ---------------------------------------------------------------------------

    def listen(self, *, turn_end: bool = False, heard: str = "") -> list[Effect]:
        unit = self.last_unit()
        result = UnitResult(Decision.LISTEN, turn_end=turn_end, heard=heard)
        return self.do(UnitFinished(unit.fence, unit.seq, result))

    def speak(self, text: str, *, turn_end: bool = True, heard: str = "") -> list[Effect]:
        unit = self.last_unit()
        result = UnitResult(Decision.SPEAK, text=text, turn_end=turn_end, heard=heard)
        return self.do(UnitFinished(unit.fence, unit.seq, result))

    def voice(self, text: str, ms: int = 1000, *, turn_end: bool = False) -> list[Effect]:
        job = self.last_speech()
        chunk = SpeechChunk(bytes(ms * OUTPUT_RATE_HZ // 1000 * 2), text, turn_end=turn_end)
        return self.do(SpeechArrived(job.fence, job.seq, chunk))

    def voiced(self) -> list[Effect]:
        job = self.last_speech()
        return self.do(SpeechFinished(job.fence, job.seq))

    def configured(self) -> list[Effect]:
        asked = self.asked(ConfigureStages)[-1]
        return self.do(StagesConfigured(asked.fence, asked.generation))

    def released(self) -> list[Effect]:
        return self.do(StagesReleased(self.asked(CloseStages)[-1].fence))


def speaking(driver: Driver, text: str = "one two three four") -> None:
    """Bring an auto session to the middle of a spoken answer of which 1000 ms were sent."""
    driver.append(1000)
    driver.speak(text, turn_end=True)
    driver.voice(text[:9], 1000)


def transcript(events: list[Event]) -> str:
    """Joined transcript deltas."""
    return "".join(event.transcript for event in events if isinstance(event, SpeechDelta))


def names(effects: list[Effect]) -> list[str]:
    """Names of events and effects in order, for whole-sequence assertions; without wake-ups."""
    shown = [effect for effect in effects if not isinstance(effect, WakeAt)]
    return [type(e.event).__name__ if isinstance(e, Emit) else type(e).__name__ for e in shown]


__all__ = [
    "AUTO",
    "AUTO_VAD",
    "PROFILE",
    "TURN_MODE",
    "UNIT_BYTES",
    "CancelStages",
    "CloseSocket",
    "Driver",
    "OpenStages",
    "WakeAt",
    "names",
    "speaking",
    "transcript",
]

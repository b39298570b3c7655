"""What a session's units took, at both stages, as its gateway sees it.

Rule 1: a unit's time begins when the session asks for it and ends when its answer is dealt with.
Rule 2: an answer that an interruption has made worthless took its time all the same.
"""

from dataclasses import dataclass, field
from typing import Final

from serve_app.metrics.definitions import (
    DEADLINE_MISSES,
    SPEECH_FACTOR,
    UNIT_GAP,
    UNIT_LAG,
    UNIT_SECONDS,
    UNITS,
)
from serve_app.metrics.fairness import Fairness
from serve_app.metrics.meter import Meter
from session.effects import SubmitUnit
from session.ids import SessionId
from session.stimuli import SpeechArrived, UnitFailed, UnitFinished
from session.unit import INPUT_RATE_HZ, OUTPUT_RATE_HZ, SAMPLE_BYTES, StageTime, Unit

MOST_OUT: Final = 64
"""Units that are watched at once. What is never answered must not pile up."""


@dataclass(frozen=True, slots=True)
class _Submitted:
    at_s: float
    fed: str
    lasts_s: float


@dataclass(slots=True)
class _Spoken:
    asked_at_s: float
    samples: int = 0
    has_begun: bool = False


@dataclass(slots=True)
class ObservedUnits:
    """The units of one session."""

    meter: Meter
    fairness: Fairness
    session_id: SessionId
    unit_s: float
    """The model's length of a unit."""
    _submitted: dict[int, _Submitted] = field(default_factory=dict)
    _spoken: dict[int, _Spoken] = field(default_factory=dict)
    _last_at_s: float | None = None

    def submit(self, effect: SubmitUnit, *, now: float, lag_s: float, is_continuous: bool) -> None:
        """A unit goes to Stage0, with `lag_s` of sound waiting behind it."""
        unit = effect.unit
        fed = "silence" if unit.is_continuation else "user"
        self._submitted[effect.seq] = _Submitted(now, fed, max(self.unit_s, _length_s(unit)))
        _bound(self._submitted)
        if is_continuous and fed == "user":
            if self._last_at_s is not None:
                self.meter.observe(UNIT_GAP, now - self._last_at_s)
            self.meter.observe(UNIT_LAG, lag_s)
        self._last_at_s = now

    def finish(self, stimulus: UnitFinished | UnitFailed, *, now: float, was_stale: bool) -> None:
        """Stage0 has answered a unit."""
        submitted = self._submitted.pop(stimulus.seq, None)
        if submitted is None:
            return
        if was_stale:
            outcome = "stale"
        elif isinstance(stimulus, UnitFailed):
            outcome = "failed"
        else:
            outcome = stimulus.result.decision.value
        self.meter.count(UNITS, outcome, submitted.fed)
        if isinstance(stimulus, UnitFailed):
            return
        total_s = now - submitted.at_s
        self._took("stage0", total_s, stimulus.result.time)
        self.fairness.add(self.session_id, total_s, now=now)
        if total_s > submitted.lasts_s:
            self.meter.count(DEADLINE_MISSES, "stage0")

    def synthesize(self, seq: int, *, now: float) -> None:
        """A unit's speech is asked for."""
        self._spoken[seq] = _Spoken(now)
        _bound(self._spoken)

    def hear(self, stimulus: SpeechArrived, *, now: float) -> None:
        """Stage1 has made a chunk."""
        spoken, chunk = self._spoken.get(stimulus.seq), stimulus.chunk
        if spoken is None:
            return
        if not spoken.has_begun:
            spoken.has_begun = True
            self._took("stage1", now - spoken.asked_at_s, chunk.time)
        spoken.samples += chunk.samples

    def end_speech(self, seq: int, *, now: float, is_whole: bool) -> None:
        """No more of a unit's speech will come."""
        spoken = self._spoken.pop(seq, None)
        if spoken is None or not is_whole or not spoken.samples:
            return
        factor = (now - spoken.asked_at_s) * OUTPUT_RATE_HZ / spoken.samples
        self.meter.observe(SPEECH_FACTOR, factor)
        if factor > 1:
            self.meter.count(DEADLINE_MISSES, "stage1")

    def cancel(self) -> None:
        """What is being spoken is spoken no more."""
        self._spoken.clear()

    def _took(self, stage: str, total_s: float, told: StageTime | None) -> None:
        self.meter.observe(UNIT_SECONDS, total_s, stage, "total")
        if told is None:
            return
        rest_s = max(0.0, total_s - told.queue_s - told.compute_s)
        self.meter.observe(UNIT_SECONDS, told.queue_s, stage, "queue")
        self.meter.observe(UNIT_SECONDS, told.compute_s, stage, "compute")
        self.meter.observe(UNIT_SECONDS, rest_s, stage, "transfer")


def _length_s(unit: Unit) -> float:
    return len(unit.pcm) / SAMPLE_BYTES / INPUT_RATE_HZ


def _bound(watched: "dict[int, _Submitted] | dict[int, _Spoken]") -> None:
    if len(watched) > MOST_OUT:
        del watched[next(iter(watched))]

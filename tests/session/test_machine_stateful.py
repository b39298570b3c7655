"""Random lives of a session: stages answer late, twice, never, out of order; the laws hold."""

import os
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from session.config import (
    ConfigPatch,
    PlaybackCommitPolicy,
    ResponseOptions,
    SessionLimits,
    TurnDetection,
)
from session.effects import CloseStages, ConfigureStages, Effect, SubmitUnit, Synthesize
from session.errors import StageFailed, StageUnavailable
from session.ids import ItemId
from session.lifecycle import Life
from session.machine import DuplexSession
from session.socket_stimuli import ReaderStalled, SocketLost
from session.stimuli import (
    BargedIn,
    CloseRequested,
    ConfigureFailed,
    HeartbeatReceived,
    InputCancelled,
    InputCleared,
    InputCommitted,
    ItemCreated,
    ItemDeleted,
    ItemTruncated,
    OutputClearRequested,
    PlaybackAcked,
    ReleaseFailed,
    ResponseCancelRequested,
    ResponseRequested,
    SessionConfigured,
    SpeechArrived,
    SpeechFailed,
    SpeechFinished,
    StageLost,
    StagesConfigured,
    StagesOpened,
    StagesReleased,
    Stimulus,
    TextAppended,
    Ticked,
    UnitFailed,
    UnitFinished,
)
from session.tools import FunctionCall, Tool, ToolList
from session.unit import Decision, SpeechChunk, UnitResult
from tests.session.driver import AUTO, AUTO_VAD, PROFILE, TURN_MODE, Driver
from tests.session.observer import Observer

CONFIGS = [
    AUTO,
    AUTO_VAD,
    TURN_MODE,
    replace(TURN_MODE, turn_detection=TurnDetection(idle_timeout_ms=2000)),
    replace(AUTO_VAD, turn_detection=TurnDetection(interrupt_response=False, idle_timeout_ms=2000)),
    replace(TURN_MODE, tools=ToolList((Tool("look_up"),))),
    replace(AUTO, tools=ToolList((Tool("look_up"),))),
    replace(AUTO, output_modalities=("text",)),
    replace(AUTO_VAD, playback_commit_policy=PlaybackCommitPolicy.COMMIT_ALL_ON_DONE),
]
# Sizes around the boundaries of window, unit and acknowledgement, where faults live.
MS = st.sampled_from([1, 31, 32, 33, 200, 699, 700, 701, 999, 1000, 1001, 2000])
ACKS = st.sampled_from([0, 1, 499, 500, 501, 1000, 10**6])
NO_SHRINK = "KERNEL_TESTS_NO_SHRINK" in os.environ
WORDS = st.sampled_from(["", "yes. ", "one two ", "done."])


@dataclass
class Speaking:
    """What Stage1 still has to say of one unit."""

    job: Synthesize
    text: str


class SessionMachine(RuleBasedStateMachine):
    """Drives one session and remembers every call that was made to the stages."""

    profile = PROFILE

    @initialize(
        config=st.sampled_from(CONFIGS),
        short=st.booleans(),
        opened=st.sampled_from([True, True, False]),
    )
    def start(self, config: object, short: bool, opened: bool) -> None:
        options = self.profile.response_options | {"input"}
        profile = replace(
            self.profile,
            accepts_short_units=short,
            tools=True,
            messages=True,
            response_options=options,
        )
        limits = SessionLimits(
            max_pending_input_bytes_per_session=6 * 32_000,
            max_continuations=4,
            max_continuations_turn_mode=2,
        )
        self.driver = Driver(config, profile=profile, limits=limits, opened=opened)  # type: ignore[arg-type]
        self.session: DuplexSession = self.driver.session
        self.observer = Observer(self.session.fence)
        self.units: list[SubmitUnit] = []
        self.texts: dict[tuple[int, int], str] = {}
        self.jobs: list[Synthesize] = []
        self.configures: list[ConfigureStages] = []
        self.closes: list[CloseStages] = []
        self.calls_made = 0
        self._note(self.driver.effects)

    def _do(self, stimulus: Stimulus) -> list[Effect]:
        self.driver.now += 0.05
        effects = self.driver.do(stimulus)
        self._note(effects)
        return effects

    def _note(self, effects: list[Effect]) -> None:
        self.observer.see(effects, self.session.fence)
        for effect in effects:
            match effect:
                case SubmitUnit():
                    self.units.append(effect)
                case Synthesize():
                    self.jobs.append(effect)
                case ConfigureStages():
                    self.configures.append(effect)
                case CloseStages():
                    self.closes.append(effect)
                case _:
                    pass

    # --- the user -------------------------------------------------------------------------------

    @rule(ms=MS, probability=st.sampled_from([None, 0.0, 0.4, 0.98, 0.98]), speech=st.booleans())
    def append(self, ms: int, probability: float | None, speech: bool) -> None:
        scored = probability if self.session.wants_speech_scores else None
        self.driver.now += ms / 1000
        self._note(self.driver.append(ms, speech=speech, probability=scored))

    @rule(
        stimulus=st.sampled_from(
            [
                InputCommitted(),
                InputCommitted(create_response=True),
                InputCommitted(is_speech=False),
                InputCleared(),
                InputCancelled(),
                TextAppended("and"),
                ResponseRequested(ResponseOptions()),
                ResponseRequested(ResponseOptions(is_out_of_band=True)),
                ResponseRequested(ResponseOptions(), is_bare=True),
                ResponseRequested(ResponseOptions(is_out_of_band=True, input=())),
                ResponseCancelRequested(),
                OutputClearRequested(),
                BargedIn(),
                HeartbeatReceived(),
                ItemCreated("user", "hello"),
                ItemCreated("system", "be kind"),
                ItemCreated("user", "", pcm=bytes(6_400)),
                ItemCreated("tool", "24", call_id="call_1"),
                ItemCreated("tool", "25", call_id="call_2"),
                SessionConfigured(ConfigPatch((("temperature", 0.3),))),
                SessionConfigured(ConfigPatch((("turn_detection", None),))),
                SessionConfigured(ConfigPatch((("turn_detection", TurnDetection(0.6)),))),
                SessionConfigured(ConfigPatch((("model", "x"),))),
            ]
        )
    )
    def command(self, stimulus: Stimulus) -> None:
        self._do(stimulus)

    @rule(
        played=ACKS,
        committed=st.one_of(st.none(), ACKS),
        which=st.integers(0, 3),
        cuts=st.sampled_from([False, False, True]),
    )
    def acknowledge(self, played: int, committed: int | None, which: int, cuts: bool) -> None:
        ids = list(self.observer.started)
        target = ids[-1 - which] if which < len(ids) else None
        self._do(PlaybackAcked(played, committed, target, truncates=cuts))

    @precondition(lambda self: self.observer.started)
    @rule(end=ACKS, deletes=st.booleans())
    def touch_item(self, end: int, deletes: bool) -> None:
        item_id = ItemId(f"item_{list(self.observer.started)[-1]}")
        self._do(ItemDeleted(item_id) if deletes else ItemTruncated(item_id, end))

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.5, 30.0]))
    def tick(self, seconds: float) -> None:
        self.driver.now += seconds
        self._do(Ticked())

    # --- the stages: any call that was ever made may be answered, now, late, or again -------------

    @precondition(lambda self: self.units)
    @rule(
        back=st.sampled_from([0, 0, 0, 0, 1, 2]),
        speak=st.booleans(),
        text=WORDS,
        turn_end=st.booleans(),
        heard=st.sampled_from(["", "", "hi there"]),
        has_speech=st.sampled_from([None, None, None, True, False]),
        calls=st.sampled_from([0, 0, 0, 1, 2]),
    )
    def finish_unit(
        self,
        back: int,
        speak: bool,
        text: str,
        turn_end: bool,
        heard: str,
        has_speech: bool | None,
        calls: int,
    ) -> None:
        unit = self.units[max(0, len(self.units) - 1 - back)]
        decision = Decision.SPEAK if speak else Decision.LISTEN
        self.calls_made += calls
        result = UnitResult(
            decision,
            text if speak else "",
            has_speech=has_speech if speak else None,
            turn_end=turn_end,
            heard=heard,
            calls=tuple(
                FunctionCall(f"call_{self.calls_made - n}", "look_up", "{}")
                for n in reversed(range(calls if speak else 0))
            ),
        )
        if self.observer.out == (unit.fence, unit.seq):
            self.observer.answered()
            self.texts.setdefault((unit.fence.epoch, unit.seq), text)
        self._do(UnitFinished(unit.fence, unit.seq, result))

    @precondition(lambda self: self.units)
    @rule(back=st.sampled_from([0, 0, 1]))
    def fail_unit(self, back: int) -> None:
        unit = self.units[max(0, len(self.units) - 1 - back)]
        self._do(UnitFailed(unit.fence, unit.seq, StageFailed("poison")))

    @precondition(lambda self: self.jobs)
    @rule(back=st.sampled_from([0, 0, 0, 1]), ms=st.sampled_from([0, 20, 500, 1000]))
    def speak_chunk(self, back: int, ms: int) -> None:
        job = self.jobs[max(0, len(self.jobs) - 1 - back)]
        text = self.texts.get((job.fence.epoch, job.seq), "") if ms else ""
        self._do(SpeechArrived(job.fence, job.seq, SpeechChunk(bytes(ms * 48), text)))

    @precondition(lambda self: self.jobs)
    @rule(back=st.sampled_from([0, 0, 0, 1]))
    def finish_speech(self, back: int) -> None:
        job = self.jobs[max(0, len(self.jobs) - 1 - back)]
        self._do(SpeechFinished(job.fence, job.seq))

    @precondition(lambda self: self.jobs)
    @rule()
    def fail_speech(self) -> None:
        job = self.jobs[-1]
        self._do(SpeechFailed(job.fence, job.seq, StageFailed("vocoder")))

    @precondition(lambda self: self.configures)
    @rule(refuses=st.booleans(), back=st.sampled_from([0, 0, 1]))
    def answer_configure(self, refuses: bool, back: int) -> None:
        asked = self.configures[max(0, len(self.configures) - 1 - back)]
        if refuses:
            self._do(ConfigureFailed(asked.fence, asked.generation, StageFailed("no")))
        else:
            self._do(StagesConfigured(asked.fence, asked.generation))

    @rule()
    def open_answered_again(self) -> None:
        if self.session.life in (Life.OPENING, Life.ABANDONED):
            self._do(StagesOpened(self.session.fence))

    # --- the end --------------------------------------------------------------------------------

    @rule(
        stimulus=st.sampled_from(
            [
                CloseRequested(),
                SocketLost(),
                ReaderStalled(),
                StageLost("stage0", StageUnavailable("x")),
            ]
        ),
        dice=st.integers(0, 9),
    )
    def end(self, stimulus: Stimulus, dice: int) -> None:
        if dice == 0:
            self._do(stimulus)

    @precondition(lambda self: self.closes and not self.session.is_over)
    @rule()
    def release(self) -> None:
        self._do(StagesReleased(self.closes[-1].fence))

    @precondition(lambda self: self.closes and not self.session.is_over)
    @rule()
    def fail_release(self) -> None:
        self._do(ReleaseFailed(self.closes[-1].fence, StageFailed("it holds on")))

    def teardown(self) -> None:
        if not hasattr(self, "session"):
            return
        if self.session.life is Life.OPENING:
            self._do(StagesOpened(self.session.fence))
        self._do(CloseRequested())
        if self.session.life is Life.ABANDONED:
            self._do(StagesOpened(self.session.fence))
        if not self.session.is_over:
            self._do(StagesReleased(self.closes[-1].fence))
        assert self.session.is_over
        assert self.observer.terminals <= 1
        assert set(self.observer.started) == self.observer.finished


def run_machine(examples: int, steps: int) -> None:
    """Run the machine with a fixed seed. KERNEL_TESTS_NO_SHRINK saves a mutant's last minute."""
    phases = set(Phase) - ({Phase.shrink, Phase.explain} if NO_SHRINK else set())
    run_state_machine_as_test(
        SessionMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            phases=phases,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(120)
def test_laws_hold_on_random_lives() -> None:
    run_machine(examples=100, steps=40)

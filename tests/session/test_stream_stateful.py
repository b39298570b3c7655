"""Random lives of sessions without turns: the laws hold whatever else their clients can say."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from session.stimuli import CloseRequested, Ticked
from session.stream_stimuli import ContextAppended, ContextUse, InputMuteSet
from tests.session.driver import PROFILE
from tests.session.test_machine_stateful import SessionMachine


class StreamMachine(SessionMachine):
    """What every client can do, and what those of a stream can."""

    profile = replace(PROFILE, messages=True, updatable=frozenset({"temperature", "instructions"}))

    @rule(use=st.sampled_from(list(ContextUse)), text=st.sampled_from(["x", "Sold out."]))
    def tell(self, use: ContextUse, text: str) -> None:
        self._do(ContextAppended(use, text, "c"))

    @rule(is_muted=st.booleans())
    def mute(self, is_muted: bool) -> None:
        self._do(InputMuteSet(is_muted))

    @rule(dice=st.integers(0, 30))
    def finish_speaking(self, dice: int) -> None:
        if dice == 0:
            self._do(CloseRequested(drain_s=10.0))

    @rule(seconds=st.sampled_from([0.1, 1.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.driver.now += seconds
        self._do(Ticked())


@pytest.mark.timeout(120)
def test_laws_hold_on_random_lives_of_streams() -> None:
    run_state_machine_as_test(
        StreamMachine,
        settings=settings(
            max_examples=100,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

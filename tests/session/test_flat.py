"""An hour of conversation leaves a session no larger than it was before."""

import pytest

from session.effects import Effect
from session.machine import DuplexSession
from session.stimuli import SpeechFinished, Stimulus
from tests.support.object_count import Size, size_of
from tests.support.spoken_hour import FULL_S, SpokenHour, plain

ROUND_S = 36
"""Four questions, one of them with an interruption: the timetable's whole period."""
ALLOWED = 1.02
"""A period is never exactly like another: an answer more or less may be kept."""


def largest(hour: SpokenHour) -> Size:
    """Return the session's greatest size within one period."""
    sizes = [size_of(hour.session) for index, _ in enumerate(hour.appends(ROUND_S)) if index % 4]
    return Size(max(size.objects for size in sizes), max(size.n_bytes for size in sizes))


@pytest.mark.timeout(120)  # seconds of work, and of a machine that has other work
def test_a_full_session_does_not_grow_in_another_hour() -> None:
    hour = SpokenHour()
    hour.run(FULL_S)
    early = largest(hour)
    later = []
    for _ in range(6):
        hour.run(600 - ROUND_S)
        hour.session.validate()
        later.append(largest(hour))
    assert hour.answers > 800
    assert hour.interrupted > 200
    assert max(size.objects for size in later) <= early.objects * ALLOWED
    assert max(size.n_bytes for size in later) <= early.n_bytes * ALLOWED


def test_an_object_kept_for_each_answer_would_be_seen() -> None:
    kept: list[object] = []

    def leaking(session: DuplexSession, stimulus: Stimulus, now: float) -> list[Effect]:
        if isinstance(stimulus, SpeechFinished):
            session.__dict__["kept"] = kept
            kept.append([now])
        return plain(session, stimulus, now)

    whole, leaky = SpokenHour(), SpokenHour(leaking)
    for hour in (whole, leaky):
        hour.run(5 * ROUND_S)
    assert size_of(leaky.session).objects - size_of(whole.session).objects > leaky.answers


def test_a_conversation_is_the_same_each_time() -> None:
    def life() -> tuple[int, int, int, int]:
        hour = SpokenHour()
        hour.run(5 * ROUND_S)
        return hour.steps, hour.answers, hour.interrupted, size_of(hour.session).objects

    assert life() == life()

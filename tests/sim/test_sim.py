"""A fixed budget of simulated worlds, and the proof that the simulator can find something."""

import os
from collections import Counter

import pytest

from session.effects import Effect
from session.ids import AttachmentId
from session.machine import DuplexSession
from session.outbox import Outbox
from session.stimuli import Received, Stimulus
from tests.sim.author import Author
from tests.sim.simulate import Kernel, live, replay, shortened, world_of
from tests.sim.steps import is_of_session
from tests.sim.story import Step, fewer_sessions, parse, shortest

NO_SHRINK = "KERNEL_TESTS_NO_SHRINK" in os.environ
WORLDS = 320 if NO_SHRINK else 960
PARTS = 8


class Gullible(DuplexSession):
    """A kernel that heeds any socket."""

    def handle(self, stimulus: Stimulus, *, now: float) -> list[Effect]:
        if isinstance(stimulus, Received):
            current = self._state.attachment.current or AttachmentId("nobody")
            stimulus = Received(current, stimulus.command)
        return super().handle(stimulus, now=now)


class Forgetful(Outbox):
    """An outbox that replays nothing."""

    def _attach(self, effect: object, at_s: float) -> None:
        self.journal.acknowledge(self.journal.newest_seq)
        super()._attach(effect, at_s)  # type: ignore[arg-type]  # passed on as it came


@pytest.mark.timeout(120)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_world_breaks_a_law(part: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(part, WORLDS, PARTS):
        counts, failure = live(seed)
        seen += counts
        if failure is not None:
            short = failure if NO_SHRINK else shortened(failure)
            pytest.fail(short.report(), pytrace=False)
    assert seen["resume"] > 0


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("kernel", "law", "cause"),
    [
        (Kernel(make_session=Gullible), "law 2", "ghost"),
        (Kernel(make_outbox=Forgetful), "law 11", "resume"),
    ],
)
def test_a_fault_is_found_and_told_as_a_short_story(kernel: Kernel, law: str, cause: str) -> None:
    found = (live(seed, kernel)[1] for seed in range(200))
    failure = next(failure for failure in found if failure is not None)
    short = shortened(failure, kernel)
    assert law in short.law
    assert len(short.story) <= 15
    assert cause in [step.what for step in short.story]
    report = short.report()
    assert f'make sim ARGS="--seed {short.seed}"' in report
    assert replay(short.seed, parse(report), kernel) == short.law
    assert replay(short.seed, parse(report)) is None, "the true kernel stands it"


def test_the_same_seed_is_the_same_world() -> None:
    stories = []
    for _ in range(2):
        world, rng = world_of(11)
        author = Author(rng, world)
        author.run()
        texts = [frame.text for actor in world.actors for frame in actor.shadow.frames]
        stories.append((author.story, texts))
    assert stories[0] == stories[1]
    replayed, _ = world_of(11)
    replayed.run(stories[0][0])
    texts = [frame.text for actor in replayed.actors for frame in actor.shadow.frames]
    assert texts == stories[0][1]


def test_a_step_is_read_as_it_was_written() -> None:
    step = Step(20, 1, "unit", (0, True, "three, four. ", None, 0.5, "it's"))
    assert parse(step.line()) == [step]


def test_the_shortest_story_has_only_what_is_needed() -> None:
    steps = [Step(i, 0, "beat") for i in range(50)]

    def fails(story: list[Step]) -> bool:
        return {steps[7], steps[31]} <= set(story)

    assert shortest(steps, fails) == [steps[7], steps[31]]


def test_sessions_that_are_not_needed_move_the_others_up() -> None:
    steps = [Step(i, who, "open") for i, who in enumerate((0, 1, 0, 1))]
    steps += [Step(5, 0, "opened", (0, None)), Step(6, 2, "opened", (0, None)), Step(7, 2, "beat")]

    def fails(story: list[Step]) -> bool:
        """A client has opened a session, and that session was answered at 6 ms."""
        opened = [step.at_ms for step in story if step.what == "open"]
        answers = [step.who for step in story if step.what == "opened" and step.at_ms == 6]
        return bool(answers) and opened[answers[0] : answers[0] + 1] == [2]

    assert shortest(steps, fails) == [*steps[:3], steps[5]]
    short = fewer_sessions(steps, is_of_session, fails)
    assert short == [
        steps[2],
        Step(5, 0, "opened", (0, None)),
        Step(6, 0, "opened", (0, None)),
        steps[6],
    ]

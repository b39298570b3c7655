"""Runs seeds: makes the world of a seed, lives through it, and makes a failing story short."""

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from session.errors import DuplexError
from session.machine import DuplexSession
from session.outbox import Outbox
from tests.sim.actor import MakeSession
from tests.sim.author import Author
from tests.sim.setup import make_setup
from tests.sim.steps import is_of_session
from tests.sim.story import Step, fewer_sessions, shortest
from tests.sim.violation import Violation
from tests.sim.world import World

MAX_TRIES = 3_000
"""Replays that the shortening of one story may take."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """What is under test."""

    make_session: MakeSession = DuplexSession
    make_outbox: type[Outbox] = Outbox


KERNEL = Kernel()
FAULTS = (
    *(AssertionError, ArithmeticError, AttributeError, LookupError, RuntimeError),
    *(TypeError, ValueError, DuplexError),
)
"""What a broken kernel may raise; a Violation is an AssertionError."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A law that was broken, and how."""

    seed: int
    law: str
    story: tuple[Step, ...]

    def report(self) -> str:
        """Return the story, one line a step, and how to see it again."""
        lines = [step.line() for step in self.story]
        return "\n".join(
            [
                f"seed {self.seed} breaks a law: {self.law}",
                *lines,
                f'again: make sim ARGS="--seed {self.seed}"',
            ]
        )


def world_of(seed: int, kernel: Kernel = KERNEL) -> tuple[World, random.Random]:
    """Return the world of a seed before anything happened in it."""
    rng = random.Random(seed)
    setup = make_setup(rng)
    world = World(setup, make_session=kernel.make_session, make_outbox=kernel.make_outbox)
    return world, rng


def live(seed: int, kernel: Kernel = KERNEL) -> tuple[Counter[str], Failure | None]:
    """Live through the world of a seed; return what was seen in it, and what went wrong."""
    world, rng = world_of(seed, kernel)
    author = Author(rng, world)
    try:
        author.run()
    except FAULTS as error:
        return world.seen, Failure(seed, _law(error), tuple(author.story))
    return world.seen, None


def replay(seed: int, story: Sequence[Step], kernel: Kernel = KERNEL) -> str | None:
    """Live through a written story in the world of a seed; return the law that it breaks."""
    world, _ = world_of(seed, kernel)
    try:
        world.run(story)
    except FAULTS as error:
        return _law(error)
    return None


def shortened(failure: Failure, kernel: Kernel = KERNEL) -> Failure:
    """Return the same fault with as few steps as can be found."""
    kind = _kind(failure.law)
    tries = itertools.count()

    def fails(story: list[Step]) -> bool:
        law = replay(failure.seed, story, kernel) if next(tries) < MAX_TRIES else None
        return law is not None and _kind(law) == kind

    story = shortest(list(failure.story), fails)
    story = shortest(fewer_sessions(story, is_of_session, fails), fails)
    law = replay(failure.seed, story, kernel)
    if law is None:
        raise Violation("a story does not replay: the world is not the same twice")
    return Failure(failure.seed, law, tuple(story))


def _law(error: Exception) -> str:
    return str(error) if isinstance(error, AssertionError) else repr(error)


def _kind(law: str) -> str:
    """What stays the same of a broken law when ids and numbers change."""
    return "".join(char for char in law if not char.isdigit())[:40]

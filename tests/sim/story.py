"""A story: what happened in one simulated world, as data that can be replayed and made shorter.

A step says when, who and what. It names nothing by identity: "the oldest unit that is out", "the
newest answer that I have seen". So a step still means something, or nothing, when others before it
are taken out. Only sessions are numbered, in the order in which they were opened: where one of them
is taken out, the later ones move up.
"""

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

Arg = int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that the world does: a client, a socket, a stage or the server."""

    at_ms: int
    who: int
    """Number of the client, or of the session for what a stage does."""
    what: str
    args: tuple[Arg, ...] = ()

    def line(self) -> str:
        """Return the step as a line that `parse` reads."""
        shown = " ".join(repr(arg) for arg in self.args)
        return f"{self.at_ms:>7} ms  {self.who}  {self.what:<14} {shown}".rstrip()


def parse(text: str) -> list[Step]:
    """Read the lines of a story; what does not begin with a time is no step."""
    steps = []
    for line in text.splitlines():
        parts = line.split(maxsplit=4)
        if len(parts) >= 4 and parts[0].isdigit() and parts[1] == "ms":
            shown = parts[4] if len(parts) == 5 else ""
            args = tuple(ast.literal_eval(token) for token in _tokens(shown))
            steps.append(Step(int(parts[0]), int(parts[2]), parts[3], args))
    return steps


def _tokens(shown: str) -> Iterable[str]:
    """Split literals at spaces that are not within quotes."""
    token, quote = "", ""
    for char in shown:
        if char in "'\"" and quote in ("", char):
            quote = "" if quote else char
        if char == " " and not quote:
            if token:
                yield token
            token = ""
        else:
            token += char
    if token:
        yield token


def fewer_sessions(
    steps: list[Step], is_of_session: Callable[[Step], bool], fails: Callable[[list[Step]], bool]
) -> list[Step]:
    """Take out as many openings of sessions as possible while it still fails."""
    for index in reversed(range(len(steps))):
        if steps[index].what != "open":
            continue
        number = sum(step.what == "open" for step in steps[:index])
        later = [
            replace(step, who=step.who - 1) if is_of_session(step) and step.who > number else step
            for step in steps[index + 1 :]
        ]
        tried = steps[:index] + later
        if fails(tried):
            steps = tried
    return steps


def shortest(steps: list[Step], fails: Callable[[list[Step]], bool]) -> list[Step]:
    """Take out as many steps as possible while it still fails (delta debugging)."""
    size = max(1, len(steps) // 2)
    while True:
        start, was_shortened = 0, False
        while start < len(steps):
            tried = steps[:start] + steps[start + size :]
            if fails(tried):
                steps, was_shortened = tried, True
            else:
                start += size
        if size == 1 and not was_shortened:
            return steps
        size = size if size == 1 else size // 2

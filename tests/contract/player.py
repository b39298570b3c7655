"""Plays a transcript: says what the client says, and waits for what the server has to answer.

Rule 1: a line of the client is sent when everything before it has happened. Where time is virtual
        it is sent at its time, and nothing that is not written may have come by then.
Rule 2: at the end each open socket asks for a heartbeat, or for something that there is not where
        there are none; the answer is the next that comes, so nothing unwritten was on its way.
"""

import json
from dataclasses import dataclass, field
from typing import Protocol

from tests.contract.transcript import GREETING, STANDARD, Bindings, Json, Step, Transcript
from tests.support.judged_wire import JUDGES, Log


class Line(Protocol):
    """One socket of the client."""

    async def say(self, text: str) -> None:
        """Send a frame."""
        ...

    async def hear(self) -> Json:
        """Wait for the next event; the end of the socket is `{"type": "closed", ...}`."""
        ...

    async def unread(self) -> list[Json]:
        """Return what has come and was not asked for, where that can be known."""
        ...

    async def vanish(self) -> None:
        """Break the connection."""
        ...

    async def stall(self) -> None:
        """Read nothing from now on."""
        ...

    async def read_again(self) -> None:
        """Read what has come, and go on."""
        ...


class Stage(Protocol):
    """Where a transcript is played."""

    async def connect(self, target: str) -> Line:
        """Open a socket at a path with its query."""
        ...

    async def until(self, at_s: float) -> None:
        """Let time pass, where it is virtual."""
        ...

    async def settle(self) -> None:
        """Let everything happen that can happen now, where that can be known."""
        ...

    def now(self) -> float | None:
        """Virtual time; None where it is real."""
        ...

    async def direct(self, directive: Json) -> None:
        """Do something to the stages."""
        ...


class JudgedLine:
    """A socket whose events are judged as one conversation, wherever it is played."""

    def __init__(self, line: Line, log: Log) -> None:
        self._line = line
        self._log = log

    async def say(self, text: str) -> None:
        """Send a frame."""
        await self._line.say(text)

    async def hear(self) -> Json:
        """Wait for the next event, and judge it."""
        event = await self._line.hear()
        if event["type"] != "closed":
            self._log.hear(_text(event))
            assert self._log.faults == [], event
        return event

    async def unread(self) -> list[Json]:
        """Return what has come and was not asked for, where that can be known."""
        return await self._line.unread()

    async def vanish(self) -> None:
        """Break the connection."""
        await self._line.vanish()

    async def stall(self) -> None:
        """Read nothing from now on."""
        await self._line.stall()

    async def read_again(self) -> None:
        """Read what has come, and go on."""
        await self._line.read_again()


@dataclass
class Player:
    """One performance."""

    stage: Stage
    transcript: Transcript
    names: Bindings = field(default_factory=Bindings)
    lines: dict[str, Line] = field(default_factory=dict)

    async def play(self) -> None:
        """Play it to its end."""
        if self.transcript.opening is not None:
            await self._open(self.transcript.opening)
        for step in self.transcript.steps:
            await self._do(step)
        await self._nothing_more()

    async def _open(self, update: Json) -> None:
        line = await self._line("a")
        heard = [await line.hear()] if self.transcript.dialect in GREETING else []
        await line.say(_text(update))
        while len(heard) < len(self.transcript.greeting):
            heard.append(await line.hear())
        assert tuple(event["type"] for event in heard) == self.transcript.greeting, heard
        created = heard[0]
        self.names.ids |= {"session": created["session"]["id"]}
        if "resume_token" in created:
            self.names.ids |= {"token": created["resume_token"]}

    async def _do(self, step: Step) -> None:
        content = step.content
        if "out" in content:
            await self._expect(step)
            return
        await self.stage.settle()
        if step.at_s is not None:
            await self.stage.until(step.at_s)
        await self._check_silence(step)
        if "in" in content or "raw" in content:
            await self._say(step)
        else:
            await self._move(step)

    async def _say(self, step: Step) -> None:
        line = await self._line(step.socket)
        if "raw" in step.content:
            await line.say(step.content["raw"])
            return
        told = step.content["in"]
        for event in told if isinstance(told, list) else [told]:
            await line.say(_text(self.names.fill(event)))
        if step.content.get("then") == "break":
            await self.lines.pop(step.socket).vanish()

    async def _move(self, step: Step) -> None:
        match step.content:
            case {"connect": name}:
                target = self.transcript.target(step.content.get("query"))
                self.lines[name] = await self._connect(target)
            case {"break": name}:
                await self.lines.pop(name).vanish()
            case {"stall": name}:
                await self.lines[name].stall()
            case {"read": name}:
                await self.lines[name].read_again()
            case {"stage": directive}:
                await self.stage.direct(directive)
            case {"at": _}:
                return
            case _:
                raise AssertionError(f"{self._place(step)} is no line of a transcript")

    async def _line(self, name: str) -> Line:
        if name not in self.lines:
            self.lines[name] = await self._connect(self.transcript.target())
        return self.lines[name]

    async def _connect(self, target: str) -> Line:
        line = await self.stage.connect(target)
        judge = JUDGES.get(self.transcript.dialect)
        return line if judge is None else JudgedLine(line, judge[1]())

    async def _expect(self, step: Step) -> None:
        wanted = step.content["out"]
        event = await self.lines[step.socket].hear()
        difference = self.names.difference(wanted, event)
        assert not difference, f"{self._place(step)}: {difference}\nwanted {wanted}\ncame   {event}"
        now_s = self.stage.now()
        if step.at_s is not None and now_s is not None:
            assert abs(now_s - step.at_s) < 0.0015, f"{self._place(step)} came at {now_s} s"
        if event["type"] == "closed":
            del self.lines[step.socket]

    async def _check_silence(self, step: Step) -> None:
        for name, line in self.lines.items():
            unread = await line.unread()
            assert not unread, f"{self._place(step)}: before it came to {name}: {unread}"

    async def _nothing_more(self) -> None:
        await self.stage.settle()
        for name, line in self.lines.items():
            if name in self.transcript.header.get("stalled", []):
                continue
            if self.transcript.dialect in STANDARD:
                await self._nothing_else(name, line)
                continue
            await line.say(_text({"type": "session.heartbeat"}))
            event = await line.hear()
            assert event["type"] == "session.heartbeat_ack", f"after the end of {name}: {event}"
            await line.say(_text({"type": "session.close"}))
            while event["type"] != "closed":
                event = await line.hear()

    async def _nothing_else(self, name: str, line: Line) -> None:
        """Show the same by a question that every wire answers, and hang up."""
        await line.say(_text({"type": "nothing.else", "event_id": "probe"}))
        event = await line.hear()
        assert event["type"] == "error", f"after the end of {name}: {event}"
        assert "probe" in _text(event), f"after the end of {name}: {event}"
        await line.vanish()

    def _place(self, step: Step) -> str:
        return f"{self.transcript.name}.jsonl:{step.number}"


def _text(event: Json) -> str:
    return json.dumps(event)

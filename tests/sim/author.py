"""Writes the story of a world while it happens: clients with intentions, stages with moods.

All randomness of a simulation is here and in `setup`. What is drawn becomes a step, and a step
needs no chance to be done again.
"""

import heapq
import random
from dataclasses import dataclass

from session.effects import (
    CancelStages,
    CloseStages,
    ConfigureStages,
    OpenStages,
    StageCall,
    SubmitUnit,
    Synthesize,
)
from tests.sim.client import Client
from tests.sim.story import Arg, Step
from tests.sim.world import START_S, World

WORDS = ("yes. ", "one two ", "three, four. ", "done", "well ")
MS = (1, 20, 31, 32, 33, 100, 199, 200, 201, 200, 200, 700, 701, 1000)
"""Sizes around the boundaries of window, unit and acknowledgement, where faults live."""
MAX_STEPS = 400
_KINDS_OF_ANSWERS = [
    *("aside", "text", "warm", "refused", "bare", "bare"),
    *("apart", "apart", "apart from nothing", "apart from nobody"),
]


@dataclass(frozen=True, slots=True)
class Intention:
    """What kind of client this is: how often it does what."""

    pace_ms: int
    weights: dict[str, float]
    breaks: float
    """Share of its steps that harm the socket."""


def _intention(rng: random.Random) -> Intention:
    weights = {
        "say": rng.choice([4.0, 8.0, 1.0]),
        "commit": 1.0,
        "clear": 0.15,
        "drop": 0.15,
        "create": 0.8,
        "cancel": 0.3,
        "barge": 0.3,
        "text": 0.3,
        "item": 0.5,
        "voice_item": 0.2,
        "output": 0.3,
        "cut": 0.3,
        "delete": 0.2,
        "show": 0.1,
        "ack": rng.choice([2.0, 0.5, 0.0]),
        "hush": 0.2,
        "update": rng.choice([0.5, 0.1]),
        "beat": 0.2,
        "signal": 0.1,
        "garbage": 0.1,
        "event_ack": rng.choice([0.0, 0.6]),
        "close": 0.04,
    }
    for name in rng.sample(sorted(weights), 3):
        weights[name] *= rng.choice([0.0, 4.0])
    return Intention(rng.choice([20, 100, 200, 600]), weights, rng.choice([0.0, 0.05, 0.2]))


@dataclass(frozen=True, slots=True)
class _Mood:
    """How the stages of a world behave."""

    latency_ms: int
    failure: float
    is_talkative: float


class Author:
    """Plans steps ahead in time, and writes them down as they are done."""

    def __init__(self, rng: random.Random, world: World) -> None:
        self._rng = rng
        self._world = world
        self._plans: list[tuple[int, int, int, str]] = []
        """When, a tie breaker, who, and what: a client, a socket to mend, or a kind of call."""
        self._n_plans = 0
        self._n_calls = 0
        self._mood = _Mood(
            rng.choice([5, 60, 300, 1500]), rng.choice([0.0, 0.02, 0.1]), rng.choice([0.3, 0.7])
        )
        self._intentions = [_intention(rng) for _ in world.clients]
        self._horizon_ms = rng.choice([3_000, 8_000, 20_000, 60_000])
        self.story: list[Step] = []
        for client in world.clients:
            self._plan(rng.randrange(500), client.number, "client")

    def run(self) -> None:
        """Live through a world to its end."""
        while self._plans and len(self.story) < MAX_STEPS:
            at_ms, _, who, what = heapq.heappop(self._plans)
            if at_ms > self._horizon_ms:
                break
            step = self._step(at_ms, who, what)
            if step is not None:
                self.story.append(step)
                self._world.take(step)
            else:
                self._world.pass_to(START_S + at_ms / 1000)
            self._hear(at_ms)
        self._world.finish()

    def _plan(self, at_ms: int, who: int, what: str) -> None:
        self._n_plans += 1
        heapq.heappush(self._plans, (at_ms, self._n_plans, who, what))

    def _hear(self, at_ms: int) -> None:
        """Plan an answer to each call that the stages have got, or none at all."""
        at_ms = max(at_ms, int((self._world.now_s - START_S) * 1000))
        for who, effect in self._world.told:
            if self._rng.random() < self._mood.failure / 4:
                continue  # never: its time will run out
            self._plan(at_ms + self._latency(), who, _KIND[type(effect)])
        self._world.told.clear()

    def _latency(self) -> int:
        mean = self._mood.latency_ms
        return max(0, int(self._rng.expovariate(1 / mean))) if self._rng.random() < 0.9 else 0

    def _step(self, at_ms: int, who: int, what: str) -> Step | None:
        if what == "client":
            return self._client_step(at_ms, self._world.clients[who])
        if what == "notice":
            return Step(at_ms, who, "notice")
        if what == "read_on":
            return Step(at_ms, who, "read_on")
        if what == "snap":
            return Step(at_ms, who, "break", (False,))
        return self._stage_step(at_ms, who, what)

    # --- clients --------------------------------------------------------------------------------

    def _client_step(self, at_ms: int, client: Client) -> Step | None:
        rng, intention = self._rng, self._intentions[client.number]
        pause = intention.pace_ms * rng.choice([0, 1, 1, 1, 1, 2, 5])
        if rng.random() < 0.01:
            pause += rng.choice([2_000, 6_000])
        self._plan(at_ms + max(1, pause), client.number, "client")
        socket = client.current
        if socket is None or client.has_ended or client.actor is None or client.actor.is_over:
            wants = 0.9 if socket is None else 0.2
            return Step(at_ms, client.number, "open") if rng.random() < wants else None
        if not socket.is_open:
            return self._return_step(at_ms, client)
        if rng.random() < intention.breaks:
            return self._harm_step(at_ms, client)
        if rng.random() < 0.02:
            return self._server_step(at_ms)
        names = list(intention.weights)
        what = rng.choices(names, [intention.weights[name] for name in names])[0]
        return Step(at_ms, client.number, what, self._command(what))

    def _return_step(self, at_ms: int, client: Client) -> Step | None:
        if self._rng.random() < 0.5:
            return None
        if self._rng.random() < 0.05 or not client.tokens:
            return Step(at_ms, client.number, "open")
        return self._resume_step(at_ms, client)

    def _resume_step(self, at_ms: int, client: Client) -> Step:
        rng = self._rng
        seq = rng.choice(["last"] * 8 + ["first", "behind", "ahead", "beyond"])
        token = rng.choice(["newest"] * 8 + ["same", "same", "old", "junk"])
        if rng.random() < 0.2:
            self._plan(at_ms + rng.choice([0, 1, 30]), client.number, "snap")
        return Step(at_ms, client.number, "resume", (seq, token))

    def _harm_step(self, at_ms: int, client: Client) -> Step:
        rng, number = self._rng, client.number
        what = rng.choice(["break", "break", "quiet", "stall", "stall", "takeover", "ghost"])
        if what == "takeover":
            return self._resume_step(at_ms, client)
        if what == "ghost":
            said: tuple[Arg, ...] = rng.choice(
                [("beat",), ("say", 100, 0.98, True, None, 0), ("close",), ("barge",), ("clear",)]
            )
            return Step(at_ms, number, "ghost", said)
        if what == "stall":
            self._plan(at_ms + rng.choice([50, 500, 5_000]), number, "read_on")
            return Step(at_ms, number, "stall")
        if what == "quiet":
            self._plan(at_ms + rng.choice([10, 1_000, 8_000]), number, "notice")
        return Step(at_ms, number, "break", (what == "quiet",))

    def _server_step(self, at_ms: int) -> Step | None:
        if not self._world.actors:
            return None
        who = self._rng.randrange(len(self._world.actors))
        what = self._rng.choice(
            ["jam"] * 12 + ["lose", "shut", "again", "again", "again", "drain", "stay"]
        )
        args: dict[str, tuple[Arg, ...]] = {
            "jam": (self._rng.choice([5, 50, 400]),),
            "lose": (self._rng.choice(["stage0", "stage1"]),),
            "again": (self._rng.choice(["unit", "speech", "configure"]),),
            "shut": (),
            "drain": (self._rng.choice([500, 20_000, 60_000]),),
            "stay": (),
        }
        return Step(at_ms, who, what, args[what])

    def _command(self, what: str) -> tuple[Arg, ...]:
        rng = self._rng
        back = rng.choice([0, 0, 0, 1, 2])
        match what:
            case "say":
                return self._say()
            case "commit":
                return (
                    rng.choice([None, None, True, False]),
                    rng.choice([None, None, None, True, False]),
                )
            case "create":
                return (rng.choice(["plain"] * 5 + _KINDS_OF_ANSWERS),)
            case "text":
                return (rng.choice([*WORDS, ""]),)
            case "item":
                return (
                    rng.choice(["user"] * 3 + ["system", "system", "assistant"]),
                    rng.choice([None, None, None, "note_1", "note_1", "the spoken"]),
                    rng.choice([None, None, None, 0, 2, "root", "nowhere"]),
                )
            case "cut":
                return (back, rng.choice([0, 20, 500, 5_000]))
            case "cancel" | "hush":
                return (rng.choice([None, None, back]),)
            case "ack":
                committed = rng.choice([None, None, None, 0, 100, 10_000])
                share = rng.choice([0.0, 0.5, 1.0, 1.0, 1.0, 3.0])
                return (back, share, committed, rng.random() < 0.1)
            case _:
                return self._short_command(what, back)

    def _short_command(self, what: str, back: int) -> tuple[Arg, ...]:
        rng = self._rng
        if what == "voice_item":
            return (rng.choice([1, 20, 200, 1000]),)
        if what in ("output", "delete", "show"):
            return (back,)
        if what == "update":
            names = ["warm", "cold", "warm", "cold", "deaf", "keen", "model", "voice"]
            return (rng.choice([*names, "ulaw in", "wav out", "text only"]),)
        if what == "signal":
            return (rng.choice(["user_started", "assistant_done", "playback_ack", "nonsense"]),)
        if what == "event_ack":
            return (rng.choice([0, 0, 0, -3, 2]),)
        return ()

    def _say(self) -> tuple[Arg, ...]:
        rng = self._rng
        action = rng.choice(
            [None] * 20 + ["barge_in", "listen", "drop", "force_listen", "force_barge_in"]
        )
        loud = rng.random() < 0.6
        return (
            rng.choice(MS),
            rng.choice([0.98, 0.98, 0.7]) if loud else 0.1,
            rng.choice([None, loud]),
            action,
            self._frames(),
        )

    def _frames(self) -> int:
        return self._rng.choice([0] * 9 + [1, 2])

    # --- stages ---------------------------------------------------------------------------------

    def _stage_step(self, at_ms: int, who: int, kind: str) -> Step:
        rng = self._rng
        pick = rng.choice([0, 0, 0, 0, 1])
        fails = rng.random() < self._mood.failure
        error = rng.choice(["failed", "failed", "refused", "timeout", "unavailable"])
        match kind:
            case "opened":
                return Step(at_ms, who, "opened", (0, error if fails else None))
            case "unit":
                return self._unit_step(at_ms, who, pick, error if fails else None)
            case "speech":
                return self._speech_step(at_ms, who, error if fails else None)
            case "cancelled":
                return Step(at_ms, who, "cancelled", (fails,))
            case "configured" if fails or rng.random() < 0.2:
                return Step(at_ms, who, "configure_fail", (0, "failed"))
            case "released" if rng.random() < self._mood.failure * 3:
                return Step(at_ms, who, "release_fail", (0, error))
            case _:
                return Step(at_ms, who, kind, (0,))

    def _unit_step(self, at_ms: int, who: int, pick: int, error: str | None) -> Step:
        rng = self._rng
        if error is not None:
            return Step(at_ms, who, "unit_fail", (pick, error))
        call_id = None
        if rng.random() < 0.1:
            self._n_calls += 1
            call_id = f"call_{self._n_calls}"
        speaks = rng.random() < self._mood.is_talkative
        text = rng.choice([*WORDS, *WORDS, ""])
        heard = rng.choice(["", "", "hi there"])
        return Step(at_ms, who, "unit", (pick, speaks, text, rng.random() < 0.4, heard, call_id))

    def _speech_step(self, at_ms: int, who: int, error: str | None) -> Step:
        """A piece of speech, with another to follow, or the end of it."""
        rng = self._rng
        if error is not None:
            return Step(at_ms, who, "voice_fail", (0, error))
        if rng.random() < 0.35:
            return Step(at_ms, who, "voiced", (0,))
        self._plan(at_ms + self._latency(), who, "speech")
        return Step(
            at_ms, who, "voice", (0, rng.choice([0, 20, 20, 100, 300]), rng.choice([0, 3, 20]))
        )


_KIND: dict[type[StageCall], str] = {
    OpenStages: "opened",
    SubmitUnit: "unit",
    Synthesize: "speech",
    ConfigureStages: "configured",
    CancelStages: "cancelled",
    CloseStages: "released",
}

"""The story of one session: what happened, in order and bounded, without any content.

Rule 1: an entry is made after the kernel has handled a stimulus; one that breaks the kernel has an
        entry too, the last.
Rule 2: what happens all the time is counted in one entry instead of listed, until something else
        happens: an hour of listening is a line, and what mattered is not pushed out by it.
Rule 3: the latest entries are kept, so many and no more. Entries are numbered, so that it shows
        when earlier ones are gone.
"""

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from serve_app.handled import Handled, Told
from serve_app.logs.log_lines import Facts, say
from serve_app.logs.story_entries import Measure, measure, words_of
from serve_app.ports import Replicas
from session.effects import Effect, Emit, SubmitUnit
from session.events import ResponseFinished, ResponseStarted
from session.fence import Fence

log = logging.getLogger(__name__)

BROKE: Final = "broke"
QUIET_STIMULI: Final = frozenset(
    {
        *("AudioAppended", "SpeechArrived", "SpeechFinished", "UnitFinished", "PlaybackAcked"),
        *("EventAcked", "HeartbeatReceived", "Ticked", "EventRefused"),
    }
)
QUIET_EFFECTS: Final = frozenset(
    {
        *("SubmitUnit", "Synthesize", "WakeAt", "TrimJournal", "SpeechDelta", "ListenDecided"),
        *("PlaybackAdvanced", "HeartbeatAnswered", "InputCounted", "OverlapDecided", "ErrorRaised"),
    }
)
"""What happens all the time: such a stimulus with such effects is counted and not listed."""

Kind = tuple[str, tuple[str, ...], tuple[str, ...], bool, str | None]


@dataclass(slots=True)
class StoryEntry:
    """One thing that happened, or several of a kind with nothing else in between."""

    number: int
    stimulus: str
    effects: tuple[str, ...]
    """Names of the effects; of what the client is told, the event's name."""
    words: tuple[str, ...]
    """Decisions, reasons and codes."""
    is_stale: bool
    response_id: str | None
    incarnation: int
    epoch: int
    turn: int
    first_s: float
    """Since the session began."""
    last_s: float
    times: int = 1
    audio_ms: int = 0
    characters: int = 0
    images: int = 0
    unit: int | None = None
    """The latest."""

    def add(self, more: Measure, at_s: float) -> None:
        """Another one of the kind has happened."""
        self.times += 1
        self.last_s = at_s
        self.audio_ms += more.audio_ms
        self.characters += more.characters
        self.images += more.images
        self.unit = more.unit

    def line(self) -> str:
        """Return it in one line."""
        when = f"{self.first_s:9.3f}"
        if self.times > 1:
            when = f"{when}-{self.last_s:.3f}"
        parts = [f"#{self.number} {when} [{self.incarnation}.{self.epoch}.{self.turn}]"]
        parts.append(self.stimulus if self.times == 1 else f"{self.stimulus} x{self.times}")
        parts += ["stale"] if self.is_stale else []
        parts += [f"unit={self.unit}"] if self.unit is not None else []
        parts += [f"{self.audio_ms}ms"] if self.audio_ms else []
        parts += [f"{self.characters}chars"] if self.characters else []
        parts += [f"{self.images}images"] if self.images else []
        parts += [" ".join(self.words)] if self.words else []
        parts += [self.response_id] if self.response_id else []
        parts += [f"-> {', '.join(self.effects)}"] if self.effects else []
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose session it is, and how it is spoken to."""

    dialect: str
    principal: str | None = None
    """Name of the client's key."""


@dataclass(slots=True)
class SessionStory:
    """Keeps the story of one session; told of everything by the session's actor."""

    fence: Fence
    """The present one."""
    caller: Caller
    since_unix_s: int
    began_s: float
    """On the session's clock."""
    most_entries: int
    entries: deque[StoryEntry] = field(default_factory=deque)
    units: int = 0
    answers: int = 0
    replicas: Replicas | None = None
    """Where the session is held, once that is known."""
    _number: int = 0
    _answer: str | None = None
    """The answer that goes on."""
    _counted: dict[Kind, StoryEntry] = field(default_factory=dict)
    """Entries that another one of the kind adds to."""

    @property
    def left_out(self) -> int:
        """Entries that are not kept any more."""
        return self._number - len(self.entries)

    def handled(self, handled: Handled) -> None:
        """The kernel has handled a stimulus."""
        told, effects, fence = handled.told, handled.effects, handled.fence
        name = type(told).__name__
        answer = self._answer
        names = self._names_of(effects) if effects else ()
        read = measure(told)
        words = _joined(read.words, words_of(effects) if effects else ())
        kind = (name, names, words, handled.is_stale, answer or self._answer)
        if fence is not self.fence:
            self.fence = fence
            self._counted.clear()
        known = self._counted.get(kind)
        if known is None:
            known = self._new_entry(kind, read, handled.now)
        else:
            known.add(read, handled.now - self.began_s)
        if log.isEnabledFor(logging.DEBUG):
            self._say(known)

    def broke(self, told: Told, *, now: float) -> None:
        """The kernel, or what it asked for, failed at a stimulus."""
        kind = (type(told).__name__, (), (BROKE,), False, self._answer)
        self._new_entry(kind, measure(told), now)

    def end(self) -> None:
        """Nothing is added any more."""
        self._counted.clear()

    def lines(self) -> tuple[str, ...]:
        """Return the story as text."""
        return tuple(entry.line() for entry in self.entries)

    def _new_entry(self, kind: Kind, read: Measure, now: float) -> StoryEntry:
        name, names, words, is_stale, response_id = kind
        fence = self.fence
        self._number += 1
        at_s = now - self.began_s
        entry = StoryEntry(
            self._number,
            name,
            names,
            words,
            is_stale,
            response_id,
            fence.incarnation,
            fence.epoch,
            fence.turn,
            at_s,
            at_s,
            audio_ms=read.audio_ms,
            characters=read.characters,
            images=read.images,
            unit=read.unit,
        )
        if len(self.entries) >= self.most_entries:
            self.entries.popleft()
        self.entries.append(entry)
        is_quiet = name in QUIET_STIMULI and QUIET_EFFECTS.issuperset(names)
        if is_quiet:
            self._counted[kind] = entry
        else:
            self._counted.clear()
        return entry

    def _names_of(self, effects: Sequence[Effect]) -> tuple[str, ...]:
        """Return the names of effects, each once; count on the way."""
        names: dict[str, None] = {}
        for effect in effects:
            if isinstance(effect, Emit):
                event = effect.event
                names[type(event).__name__] = None
                if isinstance(event, ResponseStarted):
                    self.answers += 1
                    self._answer = event.response_id
                elif isinstance(event, ResponseFinished):
                    self._answer = None
            else:
                names[type(effect).__name__] = None
                if isinstance(effect, SubmitUnit):
                    self.units += 1
        return tuple(names)

    def _say(self, entry: StoryEntry) -> None:
        facts = Facts(
            stimulus=entry.stimulus,
            effects=entry.effects,
            outcomes=entry.words or None,
            response_id=entry.response_id,
        )
        say(log, logging.DEBUG, "stale" if entry.is_stale else "handled", self.fence, facts)


def _joined(came: tuple[str, ...], decided: tuple[str, ...]) -> tuple[str, ...]:
    """Return both, each word once: an error that came is mostly what the client is told."""
    return tuple(dict.fromkeys(came + decided)) if came and decided else came or decided

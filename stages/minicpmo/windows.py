"""What a long conversation keeps: sliding windows as plans, and the guard before the last token.

The rules of the vectors, section 8. A plan is made at a unit's border, with every kept unit closed;
it says what stays, and carrying it out means to feed that again from position 0. Nothing is kept
that was not fed before, and the context is never dropped.

1. Off: everything stays.
2. Basic: above `high` positions whole oldest units go until `low` is not passed.
3. Context: when there are `slack` units more than `max_units`, the oldest of them go, and what
   they said is carried, without special tokens, behind a marker between the context's prefix and
   suffix; only the newest tokens of it stay. Units that listened said nothing.
4. The newest unit always stays: what it ended with is still being spoken.
5. The guard looks before an append at the most that a unit can take. The engine must never be
   asked for a position that it does not have: that would end every session.
"""

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Final
from zlib import crc32

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WindowOff:
    """Keep everything; a conversation that gets too long ends."""


@dataclass(frozen=True, slots=True)
class BasicWindow:
    """Drop whole units by positions."""

    high: int
    low: int

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high:
            raise ValueError(f"a basic window needs 0 < low <= high: {self}")


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """Drop whole units by number and carry what they said."""

    max_units: int
    max_carried: int
    """Tokens, without the marker."""
    marker: Tokens
    """The ids of `MARKER_TEXT`."""
    slack: int = 0
    """How many units more there may be before all above `max_units` go at once. The published code
    turns kept keys to their new places; here what stays is computed again, which must not be every
    second."""

    def __post_init__(self) -> None:
        if self.max_units < 1 or min(self.max_carried, self.slack) < 0:
            raise ValueError(f"a context window keeps at least a unit: {self}")


Window = WindowOff | BasicWindow | ContextWindow

MARKER_TEXT: Final = "\n\nprevious: "
PUBLISHED_HIGH: Final = 8000
PUBLISHED_LOW: Final = 6000
PUBLISHED_UNITS: Final = 24
PUBLISHED_CARRIED: Final = 500


@dataclass(frozen=True, slots=True)
class ClosedUnit:
    """A unit that can be dropped."""

    number: int
    length: int
    """Positions, with terminator and `</unit>`."""
    said: Tokens
    """Its talker's input; empty if it listened."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What the language model holds of a conversation."""

    context_length: int
    """Positions of prefix, reference audio and suffix; not of what is carried."""
    carried: Tokens
    """Between prefix and suffix, marker included; empty if nothing is."""
    units: tuple[ClosedUnit, ...]
    """Oldest first."""

    @property
    def length(self) -> int:
        """Return all positions."""
        units = sum(unit.length for unit in self.units)
        return self.context_length + len(self.carried) + units


@dataclass(frozen=True, slots=True)
class Plan:
    """What a conversation holds from now on."""

    memory: Memory
    dropped: tuple[ClosedUnit, ...]

    @property
    def is_rebuild(self) -> bool:
        """Tell whether the memory must be fed again."""
        return bool(self.dropped)


def with_own_slack(window: Window, name: str) -> Window:
    """Return the window with the slack of the session called `name`: from half of it to all of it.

    Sessions that began in the same second, after a restart say, would else rebuild in the same
    second ever after.
    """
    if not isinstance(window, ContextWindow):
        return window
    least = (window.slack + 1) // 2
    return replace(window, slack=least + crc32(name.encode()) % (window.slack - least + 1))


def closed(memory: Memory, unit: ClosedUnit) -> Memory:
    """Add a unit that has ended."""
    return replace(memory, units=(*memory.units, unit))


def plan_window(memory: Memory, window: Window, special_ids: Set[int]) -> Plan:
    """Plan what stays after a unit. `special_ids` are the tokenizer's special tokens."""
    match window:
        case WindowOff():
            return Plan(memory, dropped=())
        case BasicWindow(high=high, low=low):
            return _shortened(memory, low) if memory.length > high else Plan(memory, dropped=())
        case ContextWindow():
            surplus = len(memory.units) - window.max_units
            surplus = surplus if surplus > window.slack else 0
            return _carrying(memory, surplus, window, special_ids)


@dataclass(frozen=True, slots=True)
class Proceed:
    """The append fits."""


@dataclass(frozen=True, slots=True)
class RollOver:
    """The append fits after this plan has been carried out."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class EndSession:
    """The append does not fit and the window allows no more room; `most` is what it would take."""

    most: int
    limit: int


def guard(
    memory: Memory,
    window: Window,
    special_ids: Set[int],
    *,
    needed: int,
    max_model_len: int,
) -> Proceed | RollOver | EndSession:
    """Decide before an append whether the engine may be asked for it.

    `needed` is the length of the longest unit that the append may become (`unit_length` with
    every step fed). A window that is on gives up units until that fits, whatever its own limits.
    """
    if memory.length + needed <= max_model_len:
        return Proceed()
    plan = _with_room(memory, window, special_ids, max_model_len - needed)
    if plan is not None and plan.memory.length + needed <= max_model_len:
        return RollOver(plan)
    return EndSession(most=memory.length + needed, limit=max_model_len)


def _with_room(memory: Memory, window: Window, special_ids: Set[int], room: int) -> Plan | None:
    """Plan for at most `room` positions to be held; the result may still be above it."""
    match window:
        case WindowOff():
            return None
        case BasicWindow(low=low):
            return _shortened(memory, min(low, room))
        case ContextWindow():
            plans = [
                _carrying(memory, count, window, special_ids)
                for count in range(max(1, len(memory.units)))
            ]
            fitting = (plan for plan in plans if plan.dropped and plan.memory.length <= room)
            return next(fitting, None) or _with_less_carried(plans[-1], window, room)


def _with_less_carried(plan: Plan, window: ContextWindow, room: int) -> Plan:
    """Give up the oldest carried words, too, as far as that is needed."""
    words = plan.memory.carried[len(window.marker) :]
    words = words[min(len(words), max(0, plan.memory.length - room)) :]
    carried = (*window.marker, *words) if words else ()
    return Plan(replace(plan.memory, carried=carried), plan.dropped)


def _shortened(memory: Memory, most: int) -> Plan:
    """Drop oldest units until `most` positions are not passed, or one unit is left."""
    count, length = 0, memory.length
    while length > most and count < len(memory.units) - 1:
        length -= memory.units[count].length
        count += 1
    return Plan(replace(memory, units=memory.units[count:]), dropped=memory.units[:count])


def _carrying(memory: Memory, count: int, window: ContextWindow, special_ids: Set[int]) -> Plan:
    """Drop the `count` oldest units and carry what they said."""
    dropped = memory.units[:count]
    words = memory.carried[len(window.marker) :]
    for unit in dropped:
        words += tuple(token for token in unit.said if token not in special_ids)
    words = words[max(0, len(words) - window.max_carried) :]
    carried = (*window.marker, *words) if words else ()
    kept = replace(memory, carried=carried, units=memory.units[count:])
    return Plan(kept, dropped=dropped)

"""The law that a client's command is answered: once, and with what the wire's page promises."""

from typing import Final

from session.effects import CancelStages, Effect, Emit
from session.events import (
    ErrorRaised,
    Event,
    HeartbeatAnswered,
    InputBufferCleared,
    InputItemCommitted,
    PlaybackAdvanced,
    ResponseStarted,
    SessionCreated,
    SessionUpdated,
    TurnMoved,
)
from session.item_events import (
    ItemAdded,
    ItemCut,
    ItemRemoved,
    ItemShown,
)
from session.stimuli import (
    AttachedCommand,
    BargedIn,
    EventRefused,
    HeartbeatReceived,
    InputCancelled,
    InputCleared,
    InputCommitted,
    ItemCreated,
    ItemDeleted,
    ItemRetrieved,
    ItemTruncated,
    OutputClearRequested,
    PlaybackAcked,
    ResponseCancelRequested,
    ResponseRequested,
    SessionConfigured,
    TurnSignalled,
)
from tests.sim.violation import Violation

ANSWERS: Final[dict[type[AttachedCommand], type[Event]]] = {
    InputCommitted: InputItemCommitted,
    InputCleared: InputBufferCleared,
    InputCancelled: InputBufferCleared,
    ResponseRequested: ResponseStarted,
    ItemCreated: ItemAdded,
    ItemRetrieved: ItemShown,
    ItemDeleted: ItemRemoved,
    ItemTruncated: ItemCut,
    PlaybackAcked: PlaybackAdvanced,
    HeartbeatReceived: HeartbeatAnswered,
    TurnSignalled: TurnMoved,
}
CANCELS: Final = (BargedIn, ResponseCancelRequested)


def check_answered(command: AttachedCommand, effects: list[Effect]) -> None:
    """Check what an open session does about one command."""
    errors = _errors(effects, command.event_id)
    done = 0
    if isinstance(command, CANCELS):
        done = sum(isinstance(effect, CancelStages) for effect in effects)
    elif type(command) in ANSWERS:
        wanted = ANSWERS[type(command)]
        done = sum(isinstance(e, Emit) and isinstance(e.event, wanted) for e in effects)
    elif isinstance(command, EventRefused):
        done = errors
        errors = 0
    else:
        return
    if isinstance(command, ItemCreated | InputCommitted | OutputClearRequested) and done > 1:
        done = 1  # what had waited for this may follow at once
    if done + errors != 1:
        raise Violation(f"{type(command).__name__} is answered {done} times, {errors} errors")


class Updates:
    """Each `session.update` is answered, in the end: by `session.updated` or an error."""

    def __init__(self) -> None:
        self._due: list[str | None] = []

    def asked(self, command: SessionConfigured) -> None:
        """A client wants other settings."""
        self._due.append(command.event_id)

    def see(self, effects: list[Effect], n_waiting: int) -> None:
        """Check a step of an open session in which so many updates wait now."""
        events = [effect.event for effect in effects if isinstance(effect, Emit)]
        n_updated = sum(isinstance(event, SessionUpdated) for event in events)
        n_updated -= sum(isinstance(event, SessionCreated) for event in events)
        for event in events:
            if isinstance(event, ErrorRaised) and event.event_id in self._due:
                self._due.remove(event.event_id)
        if n_updated > len(self._due):
            raise Violation("session.updated, and nobody has asked")
        self._due = self._due[n_updated:]
        if len(self._due) != n_waiting:
            raise Violation(f"{len(self._due)} updates are unanswered, {n_waiting} wait")


def _errors(effects: list[Effect], event_id: str | None) -> int:
    return sum(
        isinstance(effect, Emit)
        and isinstance(effect.event, ErrorRaised)
        and effect.event.event_id == event_id
        for effect in effects
    )

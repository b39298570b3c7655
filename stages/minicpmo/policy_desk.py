"""Where both model runners' adapters meet: units by their request, decoded step by step.

1. An adapter says which row of the batch is which request's and which step it is at; it gets back
   the token to force for each. It asks for no row whose input is still incomplete.
2. A unit's record is sent when the step that ends it is answered. Its hidden rows are dropped then;
   the rest stays until the adapter releases the unit or its owner has it forgotten.
3. No method raises. What goes wrong for one unit fails that unit; what goes wrong for all of a step
   fails the units of that step.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import torch

from session.errors import StageFailed
from stages.minicpmo.policy import Decision, Draws
from stages.minicpmo.policy_request import PolicyRequest
from stages.minicpmo.row_decoder import DecodingTools, RowDecoder
from stages.minicpmo.tap_sender import CopiedRow, RowCopier, dtype_name
from stages.minicpmo.unit_record import Header, UnitBroke, UnitEnded

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ask:
    """A row of the batch that wants its token."""

    row: int
    request_id: str
    step: int


@dataclass(frozen=True, slots=True)
class Look:
    """A row that the policy has to look at."""

    row: int
    decoder: RowDecoder
    draws: Draws | None


LookAtRows = Callable[[Sequence[Look]], Sequence[Decision | StageFailed]]
"""What an adapter's policy says of some rows, in their order."""


class Sender(Protocol):
    """Where records go."""

    def send(self, header: Header, rows: Sequence[CopiedRow] = ()) -> None:
        """Send a record and its hidden rows."""


@dataclass(slots=True, eq=False)
class _Unit:
    decoder: RowDecoder
    rows: list[CopiedRow] = field(default_factory=list)
    is_reported: bool = False


class PolicyDesk:
    """All units that one worker decodes."""

    def __init__(self, tools: DecodingTools, most_units: int) -> None:
        self.tools: Final = tools
        self.errors = 0
        """How often something went wrong that is no single unit's fault."""
        self.sender: Sender | None = None
        self.hidden: torch.Tensor | None = None
        """The hidden rows [rows, hidden] that the logits of the coming call were made of."""
        self._most_units: Final = most_units
        self._units: dict[str, _Unit] = {}
        self._copier: Final = RowCopier()

    def open(self, extra_args: Mapping[str, Any] | None) -> str | None:
        """Take a segment's policy request; return its id, or None if there is none.

        One that is known goes on where it was: the engine had set it aside.
        """
        try:
            request = PolicyRequest.from_extra_args(extra_args)
            if request is None:
                return None
            if request.request_id not in self._units:
                self._make_room()
                self._units[request.request_id] = _Unit(RowDecoder(request, self.tools))
        except Exception:  # noqa: BLE001 - vLLM would end with all sessions
            # The front refuses what can not be read, so this is for what it did not foresee.
            self.errors += 1
            _log.exception("a policy request was not taken")
            return None
        return request.request_id

    def answer(self, asks: Sequence[Ask], look_at_rows: LookAtRows) -> dict[int, int]:
        """Return the token to force for each asked row; rows of unknown units get none."""
        known = [ask for ask in asks if ask.request_id in self._units]
        units = [self._units[ask.request_id] for ask in known]
        open_asks = [
            (ask, unit)
            for ask, unit in zip(known, units, strict=True)
            if unit.decoder.begin(ask.step)
        ]
        try:
            self._keep_hidden(open_asks)
            self._decide(open_asks, look_at_rows)
        except Exception as error:  # noqa: BLE001 - vLLM would end with all sessions
            self.errors += 1
            _log.exception("a step could not be decoded")
            for _, unit in open_asks:
                unit.decoder.fail(f"its step could not be decoded: {error!r}")
        for unit in units:
            self._report(unit)
        return {ask.row: unit.decoder.answer for ask, unit in zip(known, units, strict=True)}

    def is_over(self, request_id: str) -> bool:
        """Tell whether a unit has ended, failed, or is not known."""
        unit = self._units.get(request_id)
        return unit is None or unit.decoder.is_over

    def forget(self, request_ids: Iterable[str]) -> None:
        """Drop all that is known of some units."""
        for one in request_ids:
            self._units.pop(one, None)

    @property
    def request_ids(self) -> frozenset[str]:
        """Return the units that are known."""
        return frozenset(self._units)

    def sizes(self) -> dict[str, int]:
        """Return how many units are known, and how many hidden rows are held for them."""
        rows = sum(len(unit.rows) for unit in self._units.values())
        return {"units": len(self._units), "hidden_rows": rows}

    def _make_room(self) -> None:
        while len(self._units) >= self._most_units:
            oldest = next(iter(self._units))
            _log.warning("unit %s was never forgotten: dropped", oldest)
            del self._units[oldest]

    def _keep_hidden(self, asks: Sequence[tuple[Ask, _Unit]]) -> None:
        if self.sender is None or self.hidden is None or not asks:
            return
        copied = self._copier.copy(self.hidden, [ask.row for ask, _ in asks])
        for at, (ask, unit) in enumerate(asks):
            del unit.rows[ask.step :]
            unit.rows.append(CopiedRow(copied, at))

    def _decide(self, asks: Sequence[tuple[Ask, _Unit]], look_at_rows: LookAtRows) -> None:
        looks = [
            Look(ask.row, unit.decoder, unit.decoder.request.draws(ask.step))
            for ask, unit in asks
            if unit.decoder.looks
        ]
        chosen = dict(
            zip([look.row for look in looks], look_at_rows(looks), strict=True) if looks else ()
        )
        for ask, unit in asks:
            unit.decoder.take(_answering(chosen.get(ask.row)))

    def _report(self, unit: _Unit) -> None:
        decoder = unit.decoder
        if not decoder.is_over or unit.is_reported:
            return
        unit.is_reported = True
        rows, unit.rows = unit.rows, []
        if self.sender is None:
            return
        name, ended = decoder.request.request_id, decoder.ended
        if ended is None or len(rows) != len(ended.fed) + 1:
            reason = decoder.failure or f"{len(rows)} hidden rows came of {ended}"
            self.sender.send(UnitBroke(name, reason))
            return
        shape = rows[0].of.rows
        header = UnitEnded(
            request_id=name,
            ended=ended,
            decisions=decoder.decisions,
            rows=len(rows),
            hidden=shape.shape[1],
            dtype=dtype_name(shape.dtype),
        )
        self.sender.send(header, rows)


def _answering(chosen: Decision | StageFailed | None) -> Callable[[], Decision]:
    def look() -> Decision:
        if isinstance(chosen, Decision):
            return chosen
        raise chosen or StageFailed("no row was there to look at")

    return look

"""What both of vLLM's model runners tell their processors about the batch, in one place.

V1 keeps rows dense: a row's place changes as requests come and go, and vLLM says how. V2 gives a
request a slot while it runs, and orders the rows anew at each step.
"""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from vllm.v1.sample.logits_processor.interface import BatchUpdate, MoveDirectionality

from session.errors import StageFailed

if TYPE_CHECKING:
    from vllm.sampling_params import SamplingParams
    from vllm.v1.worker.gpu.sample.logits_processor.interface import (
        LogitsContext,
        LogitsProcRequestState,
    )

Kept = TypeVar("Kept")


class DenseRows(Generic[Kept]):
    """What is kept for rows of V1's batch, by their place."""

    def __init__(self) -> None:
        self.rows: dict[int, Kept] = {}

    def follow(
        self, update: BatchUpdate, added: Callable[["SamplingParams", list[int]], Kept | None]
    ) -> None:
        """Do what vLLM did to the batch: removed, added, moved, in this order.

        `added` makes of a request, and of the engine's own list of what its segment has sampled,
        what is kept for its row; None if the row is nobody's of ours.
        """
        for at in update.removed:
            self.rows.pop(at, None)
        for at, params, _, sampled in update.added:
            self.rows.pop(at, None)
            one = added(params, sampled)
            if one is not None:
                self.rows[at] = one
        for first, second, direction in update.moved:
            self._move(first, second, direction)

    def keep(self, wanted: Callable[[Kept], bool]) -> None:
        """Drop what is not wanted."""
        self.rows = {at: one for at, one in self.rows.items() if wanted(one)}

    def _move(self, one: int, other: int, direction: MoveDirectionality) -> None:
        first, second = self.rows.pop(one, None), self.rows.pop(other, None)
        if first is not None:
            self.rows[other] = first
        if second is not None and direction is MoveDirectionality.SWAP:
            self.rows[one] = second


@dataclass(frozen=True, slots=True)
class SlotRow:
    """A row of V2's batch whose input is complete."""

    row: int
    slot: int
    step: int
    """Tokens that the segment has sampled before it."""


def slot_rows(
    rows: int, ctx: "LogitsContext", states: "LogitsProcRequestState", slots: Container[int]
) -> Iterator[SlotRow]:
    """Yield the rows of the given slots; StageFailed if rows and requests are not one for one."""
    of_rows = ctx.idx_mapping_np.tolist()
    if rows != len(of_rows):
        raise StageFailed(f"{rows} rows for {len(of_rows)} requests: is speculation on?")
    # The tokens that the row's own token comes after. Without speculation it is exact.
    seen = ctx.seq_lens_upper_bound_np.tolist()
    prompt, prefill = states.prompt_len.np, states.prefill_len.np
    for row, slot in enumerate(of_rows):
        if slot in slots and seen[row] >= int(prefill[slot]):
            yield SlotRow(row, slot, seen[row] - int(prompt[slot]))

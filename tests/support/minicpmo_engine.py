"""MiniCPM-o's language model in vLLM on the CPU, with its policy and its tap."""

from dataclasses import dataclass
from typing import Final

from session.ids import RequestId
from stages.engine.engine import ResumableEngine
from stages.engine.values import Pieces, Sampling, Segment, SegmentDone
from stages.minicpmo.policy_request import PolicyRequest
from stages.minicpmo.tap import TapReceiver
from stages.minicpmo.unit_record import UnitRecord
from tests.stages.minicpmo.vectors import TOKENS

TABLES: Final = ("units", "hidden_rows", "policy_rows")


@dataclass(slots=True, eq=False)
class MiniCPMOEngine:
    """A running engine and its tap."""

    engine: ResumableEngine
    tap: TapReceiver

    async def unit(
        self, key: str, pieces: Pieces, request: PolicyRequest
    ) -> tuple[SegmentDone, UnitRecord]:
        """Append a unit; return what the engine and what the tap say of it."""
        self.tap.register(request.request_id)
        try:
            done = await self.engine.append(key, unit_segment(pieces, request))
            return done, await self.tap.take(request.request_id)
        finally:
            self.tap.unregister(request.request_id)

    async def sizes(self) -> dict[str, int]:
        """Return what the worker's tables hold."""
        (sizes,) = await self.engine.call_worker("tap_sizes")
        return dict(sizes)


def unit_segment(pieces: Pieces, request: PolicyRequest) -> Segment:
    """Return a unit's segment."""
    sampling = Sampling(
        max_tokens=request.rules.max_steps,
        stop_token_ids=tuple(sorted(TOKENS.terminators)),
        extra_args=request.to_extra_args(),
    )
    return Segment(RequestId(request.request_id), pieces, sampling, deadline_s=0.0)

"""One segment's unit as a row of the engine's batch sees it: for each step, the token to force.

1. A step's number is the number of tokens that the segment has sampled before it. The last row that
   is shown for a step counts; what depended on an earlier one is forgotten.
2. After the unit has ended or failed, any further step answers the terminator and changes nothing:
   an engine that runs one step ahead asks once more.
3. Whatever goes wrong fails this unit alone. No method raises.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stages.minicpmo.policy import Decision, DecodeVocabulary
from stages.minicpmo.policy_request import PolicyRequest
from stages.minicpmo.special_tokens import SpecialTokens
from stages.minicpmo.tokenizer import Tokenizer
from stages.minicpmo.unit_decoder import (
    DecodeText,
    Ended,
    Fed,
    OpenUnit,
    Tokens,
    advance,
    start_unit,
)

_log = logging.getLogger(__name__)

Look = Callable[[], Decision]
"""Looks at the step's row; StageFailed if it is of no use."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodingTools:
    """What all units of a checkpoint are decoded with."""

    tokens: SpecialTokens
    vocabulary: DecodeVocabulary
    decode_text: DecodeText


def load_tools(folder: Path) -> DecodingTools:
    """Read the checkpoint's tokenizer; see `stages.minicpmo.tokenizer` for what it raises."""
    tokenizer = Tokenizer(folder)
    return DecodingTools(
        tokens=tokenizer.specials,
        vocabulary=DecodeVocabulary.build(tokenizer.specials, tokenizer.forbidden_ids),
        decode_text=tokenizer.decode,
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """What is known before a step, and what the steps up to it chose."""

    unit: OpenUnit
    decisions: tuple[Decision, ...]


class RowDecoder:
    """Decodes one unit."""

    def __init__(self, request: PolicyRequest, tools: DecodingTools) -> None:
        self.request: Final = request
        self._tools: Final = tools
        unit = start_unit(
            request.speech, tools.tokens, request.rules, must_listen=request.must_listen
        )
        self._steps: list[_Step] = [_Step(unit, ())]
        self._answers: list[int] = []
        self.ended: Ended | None = None
        self.decisions: tuple[Decision, ...] = ()
        self.failure: str | None = None

    @property
    def is_over(self) -> bool:
        """Tell whether the unit has ended or failed."""
        return self.ended is not None or self.failure is not None

    def begin(self, step: int) -> bool:
        """Go to a step; return whether it is still to be answered by `take`."""
        if self.failure is not None or (self.is_over and step >= len(self._answers)):
            return False
        if not 0 <= step < len(self._steps):
            self.fail(f"step {step} came when {len(self._answers)} were answered")
            return False
        del self._steps[step + 1 :], self._answers[step:]
        self.ended, self.decisions = None, ()
        return True

    @property
    def looks(self) -> bool:
        """Tell whether the step that was begun needs its row looked at."""
        return self._steps[-1].unit.looks(self.request.rules)

    @property
    def history(self) -> Tokens:
        """Return what the look at the step's row goes with."""
        return self._steps[-1].unit.speech.history

    def take(self, look: Look) -> None:
        """Answer the step that was begun; `look` is called at most once."""
        try:
            self._take(look)
        except Exception as error:  # noqa: BLE001 - rule 3: vLLM would end with all sessions
            self.fail(str(error) or repr(error))

    @property
    def answer(self) -> int:
        """Return the token for the step that was begun or, once the unit is over, its last."""
        if self.failure is not None or not self._answers:
            return self._tools.tokens.chunk_eos
        return self._answers[-1]

    def fail(self, reason: str) -> None:
        """End the unit without a result. The first reason stands."""
        if self.failure is None:
            _log.warning("unit %s can not be decoded: %s", self.request.request_id, reason)
            self.failure = reason
            self.ended = None

    def _take(self, look: Look) -> None:
        at = self._steps[-1]
        chosen: list[Decision] = []

        def decide(_: Tokens) -> Decision:
            chosen.append(look())
            return chosen[-1]

        result = advance(
            at.unit,
            decide,
            tokens=self._tools.tokens,
            rules=self.request.rules,
            decode_text=self._tools.decode_text,
        )
        decisions = (*at.decisions, *chosen)
        if isinstance(result, Fed):
            self._answers.append(result.token)
            self._steps.append(_Step(result.unit, decisions))
            return
        self._answers.append(result.terminator)
        self.ended, self.decisions = result, decisions

"""One unit's decoding as a machine of values: it is asked step by step which token comes next.

The rules of the vectors, section 5, "One unit". A step is asked for once for each row that the
language model gives: the first after the last audio row, every other after a token that was fed.

1. A forced listen looks at no row. If it was asked for while a turn is open, `turn_eos` is fed
   first and the turn is cut.
2. The last step allowed is `chunk_eos` and looks at no row, so one token less is fed.
3. `listen` while a turn is open becomes `tts_bos`; the history keeps `listen`.
4. A token that would bring the unit's text to the limit of characters is dropped for `chunk_eos`.
   It stays in the history, and the turn is open after it.
5. What is fed from the second step on joins the talker's input, control tokens too; the first
   never does. A unit that ends with `listen` gives the talker nothing.
6. The unit ends a turn if `turn_eos` was the last token fed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from stages.minicpmo.policy import Decision
from stages.minicpmo.special_tokens import SpecialTokens

Tokens = tuple[int, ...]
Decide = Callable[[Tokens], Decision]
"""Looks at the row of this step with the history that it is given."""
DecodeText = Callable[[Tokens], str]
"""The tokenizer's text of some tokens, special tokens left out."""


@dataclass(frozen=True, slots=True)
class UnitRules:
    """What bounds a unit. `PUBLISHED_RULES` holds the published values."""

    max_steps: int
    """One more than the tokens that a unit can feed."""
    max_characters: int
    """A unit's text stays below it."""
    listens_at_first: int
    """How many units of a conversation are forced to listen."""
    history_window: int
    """How many tokens of history are worth keeping."""

    def __post_init__(self) -> None:
        least = min(self.max_steps, self.max_characters)
        if least < 1 or min(self.listens_at_first, self.history_window) < 0:
            raise ValueError(f"unit rules out of range: {self}")


PUBLISHED_RULES: Final = UnitRules(
    max_steps=20, max_characters=28, listens_at_first=3, history_window=512
)


@dataclass(frozen=True, slots=True)
class SpeechState:
    """What one unit of a conversation hands to the next."""

    units: int
    """Units begun."""
    is_turn_open: bool
    history: Tokens
    """What the repetition penalty looks back on, newest last."""


NOTHING_SAID: Final = SpeechState(units=0, is_turn_open=False, history=())


@dataclass(frozen=True, slots=True)
class OpenUnit:
    """A unit that waits for its next row."""

    speech: SpeechState
    fed: Tokens
    forced: Tokens
    """What is still to be answered without a look; empty if nothing is forced."""
    is_turn_cut: bool

    @property
    def step(self) -> int:
        """Return the number of the step to come, from 0."""
        return len(self.fed)

    def looks(self, rules: UnitRules) -> bool:
        """Tell whether the next step needs a row; a caller may spare the forward pass if not."""
        return not self.forced and self.step < rules.max_steps - 1


@dataclass(frozen=True, slots=True)
class Fed:
    """The unit goes on: feed `token` and come back with the row that it gives."""

    unit: OpenUnit
    token: int
    joins_talker: bool
    """Whether the token and the hidden row at its position are talker's input."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The unit is over. The terminator is fed with `</unit>`, before the next unit."""

    speech: SpeechState
    terminator: int
    fed: Tokens
    is_listen: bool
    is_end_of_turn: bool
    is_turn_cut: bool
    """Whether a forced listen cut an open turn: talker and vocoder start anew."""
    condition: Tokens
    """The talker's input; their hidden rows are those at `fed[1:]`."""
    text: str


def start_unit(
    speech: SpeechState, tokens: SpecialTokens, rules: UnitRules, *, must_listen: bool
) -> OpenUnit:
    """Begin a unit; `must_listen` asks for a forced listen."""
    is_turn_cut = must_listen and speech.is_turn_open
    is_forced = must_listen or speech.units < rules.listens_at_first
    first = (tokens.turn_eos,) if is_turn_cut else ()
    return OpenUnit(
        speech=replace(speech, units=speech.units + 1),
        fed=(),
        forced=(*first, tokens.listen) if is_forced else (),
        is_turn_cut=is_turn_cut,
    )


def advance(
    unit: OpenUnit,
    decide: Decide,
    *,
    tokens: SpecialTokens,
    rules: UnitRules,
    decode_text: DecodeText,
) -> Fed | Ended:
    """Take the unit's next step. `decide` is called at most once, and only if the unit looks."""
    if unit.forced:
        return _forced(unit, tokens)
    if not unit.looks(rules):
        return _ended(unit, tokens.chunk_eos, tokens, decode_text)
    decision = decide(unit.speech.history)
    unit = replace(unit, speech=_remembered(unit.speech, decision, rules))
    token = decision.token
    if token == tokens.listen and unit.speech.is_turn_open:
        token = tokens.tts_bos
    if token in tokens.terminators:
        return _ended(unit, token, tokens, decode_text)
    unit = replace(unit, speech=replace(unit.speech, is_turn_open=True))
    words = (*unit.fed[1:], token)
    if unit.step > 0 and len(decode_text(words)) >= rules.max_characters:
        return _ended(unit, tokens.chunk_eos, tokens, decode_text)
    return _fed(unit, token, tokens)


def _forced(unit: OpenUnit, tokens: SpecialTokens) -> Fed | Ended:
    token, *rest = unit.forced
    if token in tokens.terminators:
        return _ended(unit, token, tokens, _no_text)
    return _fed(replace(unit, forced=tuple(rest)), token, tokens)


def _fed(unit: OpenUnit, token: int, tokens: SpecialTokens) -> Fed:
    speech = unit.speech
    if token == tokens.turn_eos:
        speech = replace(speech, is_turn_open=False)
    return Fed(
        unit=replace(unit, speech=speech, fed=(*unit.fed, token)),
        token=token,
        joins_talker=unit.step > 0,
    )


def _ended(
    unit: OpenUnit, terminator: int, tokens: SpecialTokens, decode_text: DecodeText
) -> Ended:
    is_listen = terminator == tokens.listen
    condition = () if is_listen else unit.fed[1:]
    return Ended(
        speech=unit.speech,
        terminator=terminator,
        fed=unit.fed,
        is_listen=is_listen,
        is_end_of_turn=not is_listen and unit.fed[-1:] == (tokens.turn_eos,),
        is_turn_cut=unit.is_turn_cut,
        condition=condition,
        text=decode_text(condition) if condition else "",
    )


def _remembered(speech: SpeechState, decision: Decision, rules: UnitRules) -> SpeechState:
    if not decision.joins_history:
        return speech
    history = (*speech.history, decision.token)
    return replace(speech, history=history[max(0, len(history) - rules.history_window) :])


def _no_text(_: Tokens) -> str:
    return ""

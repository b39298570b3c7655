"""What MiniCPM-o remembers of one conversation, as an immutable value.

Rule 1: a conversation says exactly what the language model holds (`held_pieces`) and what the next
        unit puts behind it (`next_pieces`), so that it can be fed again at any time.
Rule 2: the terminator of the newest unit is not held yet; it goes in front of the next unit.
Rule 3: an answer is remembered as far as the user heard it. What was not heard is cut out of the
        units that said it, and their audio stays: that is what the user said meanwhile.
Rule 4: a failed unit leaves the value before it in force. Nothing here is ever changed in place.
"""

from collections.abc import Set
from dataclasses import dataclass, field, replace
from typing import Final

from stages.engine.values import Embeddings, Ids, Piece, Pieces
from stages.minicpmo.layout import RowCounts, unit_length
from stages.minicpmo.mel import MelState, new_conversation
from stages.minicpmo.ports import EncoderPlace
from stages.minicpmo.shown_text import DecodeText, show
from stages.minicpmo.special_tokens import SpecialTokens
from stages.minicpmo.unit_decoder import NOTHING_SAID, Ended, SpeechState
from stages.minicpmo.windows import ClosedUnit, Memory, Plan, Window, plan_window

Tokens = tuple[int, ...]
NOWHERE: Final = EncoderPlace(None)
"""For a conversation without an ear."""


@dataclass(frozen=True, slots=True)
class Context:
    """What stands in front of all units."""

    prefix: Tokens
    reference: Embeddings | None
    """Rows of the recording of a voice."""
    suffix: Tokens

    def __len__(self) -> int:
        rows = 0 if self.reference is None else len(self.reference)
        return len(self.prefix) + rows + len(self.suffix)


@dataclass(frozen=True, slots=True)
class RememberedUnit:
    """One unit, with what the model made of it."""

    number: int
    frames: tuple[Embeddings, ...]
    audio: Embeddings
    fed: Tokens
    """What was generated and fed."""
    terminator: int
    said: Tokens
    """The talker's input; empty if the unit listened."""
    starts_turn: bool
    """It spoke, and nothing of an answer had been spoken before it."""
    before: Tokens = ()
    """What units before it said and it showed."""
    shown: str = ""
    """What it showed of the answer's text."""


Units = tuple[RememberedUnit, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """All that one session's Stage0 remembers."""

    context: Context
    carried: Tokens = ()
    """What units that have left said, behind the window's marker."""
    units: Units = ()
    """Oldest first."""
    speech: SpeechState = NOTHING_SAID
    is_answering: bool = False
    """Units have spoken, and their turn has not ended: the voice goes on from them. The model may
    speak without a word, which opens no turn."""
    left_said: Tokens = ()
    """What units of the newest answer said that have left; the window may carry it."""
    unshown: Tokens = ()
    """What the answer's last tokens were whose text waits for the next unit."""
    mel: MelState = field(default_factory=new_conversation)
    place: EncoderPlace = NOWHERE
    """Where the audio encoder stands after the newest unit."""


def held_pieces(conversation: Conversation, tokens: SpecialTokens) -> Pieces:
    """Return what the language model holds: everything but the newest unit's end."""
    context = conversation.context
    pieces: list[Piece] = [Ids(context.prefix)]
    if context.reference is not None:
        pieces.append(context.reference)
    pieces.append(Ids(conversation.carried + context.suffix))
    last = len(conversation.units) - 1
    for index, unit in enumerate(conversation.units):
        pieces += unit_pieces(unit, tokens)
        fed = unit.fed if index == last else unit.fed + closing(unit, tokens)
        pieces.append(Ids(fed))
    return tuple(piece for piece in pieces if len(piece))


def unit_pieces(unit: RememberedUnit, tokens: SpecialTokens) -> Pieces:
    """Return a unit's input, up to where its first token is chosen."""
    return input_pieces(unit.frames, unit.audio, tokens)


def input_pieces(
    frames: tuple[Embeddings, ...], audio: Embeddings, tokens: SpecialTokens
) -> Pieces:
    """Return the input of a unit with these rows (vectors, section 3)."""
    pieces: list[Piece] = [Ids((tokens.unit,))]
    for frame in frames:
        pieces += (Ids((tokens.image,)), frame, Ids((tokens.image_end,)))
    return (*pieces, audio)


def closing(unit: RememberedUnit, tokens: SpecialTokens) -> Tokens:
    """Return what is fed behind a unit once it is over."""
    return (unit.terminator, tokens.unit_end)


def next_pieces(
    conversation: Conversation,
    frames: tuple[Embeddings, ...],
    audio: Embeddings,
    tokens: SpecialTokens,
) -> Pieces:
    """Return what the next unit puts behind what is held."""
    unit = input_pieces(frames, audio, tokens)
    if not conversation.units:
        return unit
    return (Ids(closing(conversation.units[-1], tokens)), *unit)


def with_unit(
    conversation: Conversation,
    frames: tuple[Embeddings, ...],
    audio: Embeddings,
    ended: Ended,
    decode_text: DecodeText,
) -> Conversation:
    """Return the conversation after one more unit. Mel and encoder are the caller's to move on."""
    before = conversation.unshown if conversation.is_answering and not ended.is_listen else ()
    shown = show(before, ended.condition, decode_text, is_last=ended.is_end_of_turn)
    unit = RememberedUnit(
        number=ended.speech.units - 1,
        frames=frames,
        audio=audio,
        fed=ended.fed,
        terminator=ended.terminator,
        said=ended.condition,
        starts_turn=not ended.is_listen and not conversation.is_answering,
        before=before,
        shown=shown.text,
    )
    return replace(
        conversation,
        units=(*conversation.units, unit),
        speech=ended.speech,
        is_answering=not (ended.is_listen or ended.is_end_of_turn),
        left_said=() if unit.starts_turn else conversation.left_said,
        unshown=shown.waiting,
    )


def with_silent_unit(
    conversation: Conversation,
    frames: tuple[Embeddings, ...],
    audio: Embeddings,
    tokens: SpecialTokens,
) -> Conversation:
    """Return the conversation after a unit that was only listened to, without a look at it."""
    speech = replace(conversation.speech, units=conversation.speech.units + 1)
    # An open answer goes on behind it: nobody has asked the model whether it would.
    unit = RememberedUnit(
        number=speech.units - 1,
        frames=frames,
        audio=audio,
        fed=(),
        terminator=tokens.listen,
        said=(),
        starts_turn=False,
    )
    return replace(conversation, units=(*conversation.units, unit), speech=speech)


def memory_of(conversation: Conversation, counts: RowCounts) -> Memory:
    """Return what the window rules look at, with every unit closed."""
    units = tuple(
        ClosedUnit(
            number=unit.number,
            length=unit_length(counts, frames=len(unit.frames), fed=len(unit.fed)),
            said=unit.said,
        )
        for unit in conversation.units
    )
    return Memory(
        context_length=len(conversation.context), carried=conversation.carried, units=units
    )


def slid(
    conversation: Conversation, window: Window, counts: RowCounts, special_ids: Set[int]
) -> Conversation:
    """Return what the window leaves of the conversation; the same value if that is all."""
    plan = plan_window(memory_of(conversation, counts), window, special_ids)
    return carried_out(conversation, plan) if plan.is_rebuild else conversation


def carried_out(conversation: Conversation, plan: Plan) -> Conversation:
    """Return what a plan leaves of the conversation."""
    start = newest_answer(conversation)
    first = 0 if start is None else start
    gone = conversation.units[first : len(plan.dropped)]
    said = tuple(token for unit in gone for token in unit.said)
    return replace(
        conversation,
        carried=plan.memory.carried,
        units=conversation.units[len(plan.dropped) :],
        left_said=(*(conversation.left_said if start is None else ()), *said),
    )


def newest_answer(conversation: Conversation) -> int | None:
    """Return the index of the unit that began the newest answer, if that is remembered."""
    starts = [index for index, unit in enumerate(conversation.units) if unit.starts_turn]
    return starts[-1] if starts else None

"""An interrupted answer in the model's memory: cut to what the user heard of it.

Rule 1: units that said what was not heard become units that listened, or lose those words. Their
        audio stays: that is what the user said meanwhile.
Rule 2: what is left of the answer ends with the end of its turn; an answer of which nothing is left
        never was.
Rule 3: the part of an answer that has left the window is cut in what is carried.
Rule 4: words that are not a beginning of the newest answer belong to another one, and so does
        "nothing was heard" when units have come since its end: then nothing is cut.
"""

from dataclasses import replace

from stages.minicpmo.conversation import (
    Conversation,
    RememberedUnit,
    Tokens,
    Units,
    newest_answer,
)
from stages.minicpmo.shown_text import DecodeText, readable
from stages.minicpmo.special_tokens import SpecialTokens


def cut_to_heard(
    conversation: Conversation, heard: str, tokens: SpecialTokens, decode_text: DecodeText
) -> Conversation:
    """Return the conversation with the newest answer cut to `heard`, and its turn over."""
    start = newest_answer(conversation)
    first = 0 if start is None else start
    turn = conversation.units[first:]
    gone = _shown_of_gone(conversation, turn) if start is None else ()
    whole = readable(gone, decode_text) + "".join(unit.shown for unit in turn)
    if not whole.startswith(heard) or (not heard and _is_past(conversation, turn, tokens)):
        return _closed(conversation)
    carried = conversation.carried
    if heard != whole:
        rest, unheard = _split(gone, heard, decode_text)
        carried = _without(carried, unheard)
        turn = _cut_turn(turn, rest, tokens, decode_text)
    if start is not None or gone:
        turn = _with_end(turn, tokens)
    cut = replace(conversation, units=(*conversation.units[:first], *turn), carried=carried)
    return _closed(cut)


def _shown_of_gone(conversation: Conversation, turn: Units) -> Tokens:
    """Return what was said by the answer's units that have left, as far as they showed it."""
    waiting = next((unit.before for unit in turn if unit.said), conversation.unshown)
    return conversation.left_said[: len(conversation.left_said) - len(waiting)]


def _without(carried: Tokens, unheard: Tokens) -> Tokens:
    """Return what is carried without these words at its end, as far as they are still there."""
    count = 0
    while count < min(len(carried), len(unheard)) and carried[-1 - count] == unheard[-1 - count]:
        count += 1
    return carried[: len(carried) - count]


def _split(gone: Tokens, heard: str, decode_text: DecodeText) -> tuple[str, Tokens]:
    """Return what was heard behind the part that has left, and which of its words were not."""
    words = tuple(token for token in gone if decode_text((token,)))
    count = len(words)
    while count and len(readable(words[:count], decode_text)) > len(heard):
        count -= 1
    return heard[len(readable(words, decode_text)) :], words[count:]


def _is_past(conversation: Conversation, turn: Units, tokens: SpecialTokens) -> bool:
    """Whether the answer is over, and units have come since its end."""
    if conversation.is_answering or conversation.speech.is_turn_open:
        return False
    last = [at for at, unit in enumerate(turn) if unit.said or _only_ends(unit, tokens)]
    return not last or last[-1] < len(turn) - 1


def _only_ends(unit: RememberedUnit, tokens: SpecialTokens) -> bool:
    """Whether the unit was forced to listen, and ended an answer by that."""
    return not unit.said and unit.fed == (tokens.turn_eos,)


def _cut_turn(turn: Units, heard: str, tokens: SpecialTokens, decode_text: DecodeText) -> Units:
    """Return the answer's units, those that said what was not heard without it."""
    kept: list[RememberedUnit] = []
    left = heard
    for unit in turn:
        text = unit.shown
        if _only_ends(unit, tokens):
            kept.append(replace(unit, fed=()))  # the end comes behind what was heard
        elif not unit.said or (left and left.startswith(text)):
            kept.append(unit)
            left = left[len(text) :]
        else:
            kept.append(_cut_unit(unit, left, tokens, decode_text))
            left = ""
    return tuple(kept)


def _cut_unit(
    unit: RememberedUnit, heard: str, tokens: SpecialTokens, decode_text: DecodeText
) -> RememberedUnit:
    """Return the unit with only the tokens whose text was heard whole; without any, it listened."""
    fits = [
        count
        for count in range(len(unit.said) + 1)
        if len(decode_text(unit.before + unit.said[:count])) <= len(heard)
    ]
    said = unit.said[: max(fits, default=0)]
    if readable(unit.before + said, decode_text) == readable(unit.before, decode_text):
        return replace(unit, fed=(), said=(), terminator=tokens.listen)
    return replace(unit, fed=(unit.fed[0], *said), said=said, terminator=tokens.chunk_eos)


def _with_end(turn: Units, tokens: SpecialTokens) -> Units:
    """Return the answer's units with the end of its turn behind the last that still speaks."""
    speaking = [at for at, unit in enumerate(turn) if unit.said]
    if not speaking:
        return tuple(replace(unit, starts_turn=False) for unit in turn)
    last = turn[speaking[-1]]
    behind = turn[speaking[-1] + 1 :]
    if last.said[-1] == tokens.turn_eos or any(_only_ends(unit, tokens) for unit in behind):
        return turn
    ended = replace(last, fed=(*last.fed, tokens.turn_eos), said=(*last.said, tokens.turn_eos))
    return (*turn[: speaking[-1]], ended, *behind)


def _closed(conversation: Conversation) -> Conversation:
    speech = replace(conversation.speech, is_turn_open=False)
    return replace(conversation, speech=speech, is_answering=False, unshown=())

"""What is remembered of a conversation: pieces that can be fed again, and answers as heard."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from stages.engine.values import Embeddings, Ids, Pieces
from stages.minicpmo.conversation import (
    Context,
    Conversation,
    carried_out,
    held_pieces,
    memory_of,
    next_pieces,
    slid,
    with_silent_unit,
    with_unit,
)
from stages.minicpmo.heard import cut_to_heard
from stages.minicpmo.layout import RowCounts, positions, unit_pieces
from stages.minicpmo.shown_text import DecodeText
from stages.minicpmo.unit_decoder import Ended, SpeechState, Tokens
from stages.minicpmo.windows import BasicWindow, ContextWindow, WindowOff, plan_window
from tests.stages.minicpmo.vectors import SPECIAL_IDS, TOKENS

COUNTS = RowCounts.from_config(audio_pool_step=5, query_num=64)
TEXTS = {1: "one ", 2: "two ", 3: "three ", 4: "four "}
CONTEXT = Context(prefix=(9, 9, 9), reference=None, suffix=(8,))


def rows(count: int, modality: str = "audio") -> Embeddings:
    return Embeddings(modality, cast(Any, np.zeros((count, 4), np.float32)))


def decode_text(ids: Tokens) -> str:
    return "".join(TEXTS[one] for one in ids if one not in SPECIAL_IDS)


def spoken(
    conversation: Conversation,
    *fed: int,
    terminator: int | None = None,
    decode: DecodeText = decode_text,
) -> Conversation:
    """Let one unit pass that fed these tokens, by the rules that a unit's decoding has."""
    end = TOKENS.chunk_eos if terminator is None else terminator
    is_listen = end == TOKENS.listen
    before = conversation.speech
    is_open = (before.is_turn_open or bool(fed)) and fed[-1:] != (TOKENS.turn_eos,)
    ended = Ended(
        speech=SpeechState(before.units + 1, is_open, ()),
        terminator=end,
        fed=fed,
        is_listen=is_listen,
        is_end_of_turn=not is_listen and fed[-1:] == (TOKENS.turn_eos,),
        is_turn_cut=False,
        condition=() if is_listen else fed[1:],
        text="",
    )
    return with_unit(conversation, (), rows(10), ended, decode)


def listened(conversation: Conversation) -> Conversation:
    return spoken(conversation, terminator=TOKENS.listen)


def answer(*, is_over: bool = False) -> Conversation:
    """Return: listened; "one two "; "three "; and, when over, "four " with the turn's end."""
    conversation = spoken(listened(Conversation(CONTEXT)), TOKENS.speak, 1, 2)
    conversation = spoken(conversation, 3, 3)
    if is_over:
        return spoken(conversation, 4, 4, TOKENS.turn_eos)
    return conversation


def ids(pieces: Pieces) -> list[int | str]:
    flat: list[int | str] = []
    for piece in pieces:
        flat += piece.ids if isinstance(piece, Ids) else [piece.modality] * len(piece)
    return flat


def test_everything_but_the_newest_end_is_held() -> None:
    conversation = spoken(listened(Conversation(CONTEXT)), TOKENS.speak, 1)
    audio = ["audio"] * 10
    assert ids(held_pieces(conversation, TOKENS)) == [
        *(9, 9, 9, 8),
        *(TOKENS.unit, *audio, TOKENS.listen, TOKENS.unit_end),
        *(TOKENS.unit, *audio, TOKENS.speak, 1),
    ]
    assert ids(next_pieces(conversation, (), rows(10), TOKENS)) == [
        *(TOKENS.chunk_eos, TOKENS.unit_end),
        *(TOKENS.unit, *audio),
    ]


def test_the_first_unit_closes_nothing() -> None:
    pieces = next_pieces(Conversation(CONTEXT), (), rows(10), TOKENS)
    assert ids(pieces) == [TOKENS.unit, *["audio"] * 10]


def test_frames_stand_before_the_audio_that_they_belong_to() -> None:
    frame = rows(64, "image")
    pieces = next_pieces(Conversation(CONTEXT), (frame, frame), rows(10), TOKENS)
    image = [TOKENS.image, *["image"] * 64, TOKENS.image_end]
    assert ids(pieces) == [TOKENS.unit, *image, *image, *["audio"] * 10]


def test_a_voice_and_what_was_carried_stand_in_the_context() -> None:
    context = Context(prefix=(9,), reference=rows(20), suffix=(8,))
    conversation = Conversation(context, carried=(7, 7))
    assert ids(held_pieces(conversation, TOKENS)) == [9, *["audio"] * 20, 7, 7, 8]
    assert len(context) == 22


def test_held_positions_are_what_the_windows_count_but_for_the_newest_end() -> None:
    conversation = answer(is_over=True)
    held = positions_of(held_pieces(conversation, TOKENS))
    assert held + 2 == memory_of(conversation, COUNTS).length


def positions_of(pieces: Pieces) -> int:
    return sum(len(piece) for piece in pieces)


def test_a_unit_that_nobody_looked_at_was_listened_to() -> None:
    conversation = with_silent_unit(Conversation(CONTEXT), (), rows(10), TOKENS)
    assert ids(held_pieces(listened(conversation), TOKENS))[15:17] == [
        TOKENS.listen,
        TOKENS.unit_end,
    ]
    assert conversation.speech.units == 1
    assert [unit.number for unit in listened(conversation).units] == [0, 1]


def test_a_window_leaves_the_same_value_while_nothing_has_to_go() -> None:
    conversation = answer()
    assert slid(conversation, WindowOff(), COUNTS, SPECIAL_IDS) is conversation
    assert slid(conversation, BasicWindow(500, 300), COUNTS, SPECIAL_IDS) is conversation


def test_a_window_drops_units_and_carries_what_they_said() -> None:
    window = ContextWindow(max_units=1, max_carried=2, marker=(5, 5))
    conversation = slid(answer(is_over=True), window, COUNTS, SPECIAL_IDS)
    assert [unit.number for unit in conversation.units] == [3]
    assert conversation.carried == (5, 5, 2, 3)
    assert ids(held_pieces(conversation, TOKENS))[:8] == [9, 9, 9, 5, 5, 2, 3, 8]


def test_a_plan_is_carried_out_as_it_was_made() -> None:
    conversation = answer()
    plan = plan_window(memory_of(conversation, COUNTS), BasicWindow(40, 30), SPECIAL_IDS)
    after = carried_out(conversation, plan)
    assert memory_of(after, COUNTS) == plan.memory


@pytest.mark.parametrize("is_over", [False, True])
def test_an_answer_that_was_heard_whole_stays(is_over: bool) -> None:
    conversation = answer(is_over=is_over)
    whole = "one two three four " if is_over else "one two three "
    after = cut_to_heard(conversation, whole, TOKENS, decode_text)
    assert not after.speech.is_turn_open
    if is_over:
        assert after == conversation
    else:
        assert after.units[-1].fed == (3, 3, TOKENS.turn_eos)
        assert after.units[:-1] == conversation.units[:-1]


@pytest.mark.parametrize(
    ("heard", "fed"),
    [
        ("one two ", [(), (TOKENS.speak, 1, 2, TOKENS.turn_eos), (), ()]),
        ("one ", [(), (TOKENS.speak, 1, TOKENS.turn_eos), (), ()]),
        ("on", [(), (), (), ()]),
        ("one two thr", [(), (TOKENS.speak, 1, 2, TOKENS.turn_eos), (), ()]),
        ("one two three ", [(), (TOKENS.speak, 1, 2), (3, 3, TOKENS.turn_eos), ()]),
    ],
)
def test_what_was_not_heard_was_not_said(heard: str, fed: list[Tokens]) -> None:
    conversation = answer(is_over=True)
    after = cut_to_heard(conversation, heard, TOKENS, decode_text)
    assert [unit.fed for unit in after.units] == fed
    assert [bool(unit.said) for unit in after.units] == [bool(one) for one in fed]
    for unit in after.units:
        assert unit.terminator == (TOKENS.chunk_eos if unit.fed else TOKENS.listen)
    assert [unit.audio for unit in after.units] == [unit.audio for unit in conversation.units]
    assert not after.speech.is_turn_open


def test_an_answer_of_which_nothing_was_heard_never_was() -> None:
    after = cut_to_heard(answer(), "", TOKENS, decode_text)
    assert [unit.fed for unit in after.units] == [(), (), ()]
    assert cut_to_heard(after, "", TOKENS, decode_text) == after


@pytest.mark.parametrize("heard", ["", "something else"])
def test_an_older_answer_is_not_cut_for_one_that_has_not_begun(heard: str) -> None:
    conversation = listened(answer(is_over=True))
    assert cut_to_heard(conversation, heard, TOKENS, decode_text) == conversation


def test_only_the_newest_turn_is_cut() -> None:
    conversation = spoken(listened(answer(is_over=True)), TOKENS.speak, 1, 2)
    after = cut_to_heard(conversation, "one ", TOKENS, decode_text)
    assert after.units[:-1] == conversation.units[:-1]
    assert after.units[-1].said == (1, TOKENS.turn_eos)


def test_a_conversation_without_an_answer_has_nothing_to_cut() -> None:
    conversation = listened(Conversation(CONTEXT))
    assert cut_to_heard(conversation, "one ", TOKENS, decode_text) == conversation


def test_a_turn_whose_beginning_has_left_the_window_is_only_closed() -> None:
    conversation = answer()
    gone = replace(conversation, units=conversation.units[2:])
    after = cut_to_heard(gone, "one ", TOKENS, decode_text)
    assert after.units == gone.units
    assert not after.speech.is_turn_open


def test_the_layout_counts_as_the_pieces_do() -> None:
    frame = rows(64, "image")
    mine = next_pieces(Conversation(CONTEXT), (frame,), rows(10), TOKENS)
    assert positions_of(mine) == positions(unit_pieces(TOKENS, COUNTS, frames=1))


def test_an_answer_that_has_left_the_window_in_part_is_cut_where_it_is_carried() -> None:
    window = ContextWindow(max_units=1, max_carried=20, marker=(5, 5))
    conversation = slid(answer(), window, COUNTS, SPECIAL_IDS)
    assert conversation.carried == (5, 5, 1, 2)
    heard = cut_to_heard(conversation, "one two three ", TOKENS, decode_text)
    assert heard.carried == (5, 5, 1, 2)
    assert heard.units[-1].said == (3, TOKENS.turn_eos)
    part = cut_to_heard(conversation, "one two ", TOKENS, decode_text)
    assert part.carried == (5, 5, 1, 2)
    assert part.units[-1].fed == ()
    word = cut_to_heard(conversation, "one ", TOKENS, decode_text)
    assert word.carried == (5, 5, 1)
    nothing = cut_to_heard(conversation, "", TOKENS, decode_text)
    assert nothing.carried == (5, 5)
    assert not nothing.is_answering


def test_what_left_is_that_of_the_newest_answer_alone() -> None:
    window = ContextWindow(max_units=1, max_carried=20, marker=(5, 5))
    conversation = spoken(listened(answer(is_over=True)), TOKENS.speak, 1)
    conversation = slid(spoken(conversation, 2, 2), window, COUNTS, SPECIAL_IDS)
    assert conversation.carried == (5, 5, 1, 2, 3, 4, 1)
    after = cut_to_heard(conversation, "", TOKENS, decode_text)
    assert after.carried == (5, 5, 1, 2, 3, 4)


def forced_end(conversation: Conversation) -> Conversation:
    """Let a unit be forced to listen while an answer is open."""
    return spoken(conversation, TOKENS.turn_eos, terminator=TOKENS.listen)


def test_an_answer_that_was_forced_to_end_is_cut_like_any_other() -> None:
    conversation = forced_end(answer())
    whole = cut_to_heard(conversation, "one two three ", TOKENS, decode_text)
    assert whole == conversation
    part = cut_to_heard(conversation, "one two ", TOKENS, decode_text)
    assert [unit.fed for unit in part.units] == [(), (TOKENS.speak, 1, 2, TOKENS.turn_eos), (), ()]
    nothing = cut_to_heard(conversation, "", TOKENS, decode_text)
    assert [unit.fed for unit in nothing.units] == [(), (), (), ()]
    later = listened(conversation)
    assert cut_to_heard(later, "", TOKENS, decode_text) == later


HALVES = {5: b"a", 6: b"\xe4\xbd", 7: b"\xa0", 8: b"b"}
"""Tokens of which two are one character together."""


def decode_halves(ids: Tokens) -> str:
    return b"".join(HALVES[one] for one in ids if one not in SPECIAL_IDS).decode("utf-8", "replace")


def split_answer() -> Conversation:
    """Let an answer pass whose second character lies in two units."""
    conversation = Conversation(CONTEXT)
    for fed in ((2, 5, 6), (2, 7, 8), (2, 5)):
        conversation = spoken(conversation, *fed, decode=decode_halves)
    return conversation


def test_a_character_that_lies_in_two_units_is_shown_once_and_whole() -> None:
    units = split_answer().units
    assert [unit.shown for unit in units] == ["", "a\u4f60b", "a"]
    assert units[1].before == (5, 6)


@pytest.mark.parametrize(
    ("heard", "said"),
    [
        ("a\u4f60ba", [(5, 6), (7, 8), (5, TOKENS.turn_eos)]),
        ("a\u4f60b", [(5, 6), (7, 8, TOKENS.turn_eos), ()]),
        ("a\u4f60", [(5, 6), (7, TOKENS.turn_eos), ()]),
        ("", [(), (), ()]),
    ],
)
def test_it_is_cut_to_what_was_heard_all_the_same(heard: str, said: list[Tokens]) -> None:
    after = cut_to_heard(split_answer(), heard, TOKENS, decode_halves)
    assert [unit.said for unit in after.units] == said
    assert after.unshown == ()


def test_what_has_left_counts_as_far_as_it_was_shown() -> None:
    conversation = split_answer()
    window = BasicWindow(high=40, low=30)
    plan = plan_window(memory_of(conversation, COUNTS), window, SPECIAL_IDS)
    gone = carried_out(conversation, plan)
    assert (len(gone.units), gone.left_said[:2]) == (1, (5, 6))
    after = cut_to_heard(gone, "a\u4f60b", TOKENS, decode_halves)
    assert [unit.said for unit in after.units] == [()]

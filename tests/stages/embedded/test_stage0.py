"""What the hearing and answering half does with units, without any network."""

import asyncio

import pytest

from session.config import AnswerSettings, RuntimeConfig
from session.errors import StageFailed
from session.unit import Decision, Unit
from stages.embedded.conversation import Entry, Role
from stages.embedded.settings import EmbeddedSettings
from stages.embedded.stage0 import EmbeddedStage0
from stages.embedded.writer import ENOUGH_SENTENCES, NOTHING_TO_SAY
from tests.support.embedded_rig import (
    AGAIN,
    CHAT,
    CONTINUATION,
    COUNT,
    NOISE,
    NOW,
    OTHER,
    SETTINGS,
    SID,
    SILENCE,
    SUM,
    WORDS,
    Rig,
    is_listen,
    spoken,
)
from tests.support.models import settle
from tests.support.sound import tone

# --- turns ----------------------------------------------------------------------------------------


async def test_an_utterance_is_answered_in_the_unit_that_ends_it(rig: Rig) -> None:
    assert is_listen(await rig.append())
    appended = await rig.say(SUM)
    assert appended.result.heard == WORDS[SUM]
    assert appended.result.text == "Two plus three is five."
    assert appended.result.decision is Decision.SPEAK
    assert appended.result.turn_end
    assert appended.result.segment_end
    assert appended.speech is not None
    assert (appended.speech.text, appended.speech.turn_end) == ("Two plus three is five.", True)
    assert is_listen(await rig.append())


async def test_a_unit_speaks_one_sentence_and_sets_it_off_from_the_one_before(rig: Rig) -> None:
    first = await rig.say(COUNT)
    assert first.result.text == "One, two, three, four, five."
    assert not first.result.turn_end
    assert await rig.rest() == [
        " Six, seven, eight, nine, ten.",
        " Eleven, twelve, thirteen, fourteen, fifteen.",
    ]


async def test_speech_over_several_units_is_one_utterance(rig: Rig) -> None:
    assert is_listen(await rig.append(Unit(tone(SUM, 1000))))
    assert is_listen(await rig.append(Unit(tone(SUM, 800) + tone(0, 200))))
    assert rig.whisper.calls == 0
    assert (await rig.append()).result.heard == WORDS[SUM]
    assert rig.whisper.calls == 1


async def test_a_closing_unit_is_answered_without_silence(rig: Rig) -> None:
    appended = await rig.append(Unit(tone(SUM, 400), closes_input=True))
    assert appended.result.heard == WORDS[SUM]
    assert appended.result.decision is Decision.SPEAK


@pytest.mark.parametrize("pcm", [tone(0, 700), tone(SUM, 90), tone(NOISE, 500)])
async def test_a_closing_unit_without_words_ends_the_turn(rig: Rig, pcm: bytes) -> None:
    assert is_listen(await rig.append(Unit(pcm, closes_input=True)), turn_end=True)


async def test_noise_is_listened_to(rig: Rig) -> None:
    assert is_listen(await rig.say(NOISE))
    assert rig.model.prompts == []


async def test_a_continuation_with_nothing_to_go_on_ends_the_turn(rig: Rig) -> None:
    assert is_listen(await rig.append(CONTINUATION), turn_end=True)


# --- text -----------------------------------------------------------------------------------------


async def test_typed_words_are_answered_as_if_heard(rig: Rig) -> None:
    appended = await rig.append(Unit(b"", text="What is 2 + 3?", closes_input=True))
    assert appended.result.heard == ""
    assert appended.result.text == "Two plus three is five."


async def test_typed_and_spoken_words_are_one_question(rig: Rig) -> None:
    unit = Unit(tone(CHAT, 500), text="Be brief.", closes_input=True)
    assert (await rig.append(unit)).result.heard == WORDS[CHAT]
    (_, conversation) = rig.model.prompts[0]
    assert conversation.unanswered == f"{WORDS[CHAT]} Be brief."


async def test_a_bare_close_answers_what_nothing_was_said_to(rig: Rig) -> None:
    await rig.say(COUNT)
    await rig.stage.interrupt(SID, "", undoes_unit=False)
    appended = await rig.append(Unit(b"", closes_input=True))
    assert appended.result.text == "One, two, three, four, five."
    await rig.stage.interrupt(SID, "One,", undoes_unit=False)
    assert is_listen(await rig.append(Unit(b"", closes_input=True)), turn_end=True)


# --- the language model ---------------------------------------------------------------------------


async def test_the_first_sentence_is_said_before_the_second_is_written(rig: Rig) -> None:
    rig.model.hold()
    first = asyncio.ensure_future(rig.say(CHAT))
    await rig.reach_writer()
    rig.model.let(1)  # "It rains." could still be the last
    await rig.reach_writer(2)
    assert not first.done()
    rig.model.let(1)
    assert (await first).result.text == "It rains."
    assert not (await first).result.turn_end
    rig.model.let(2)
    last = await rig.append()
    assert (last.result.text, last.result.turn_end) == (" It pours.", True)


async def test_the_timing_of_tokens_is_told(rig: Rig) -> None:
    metrics = (await rig.say(CHAT)).result.metrics
    assert metrics is not None
    assert metrics.generated_tokens == 2
    assert metrics.ttft_ms >= 0
    assert len(metrics.itls_ms) == 1


async def test_what_the_model_read_is_told_once_an_answer(rig: Rig) -> None:
    rig.model.pieces = ["It rains.", " It", " pours."]
    first = (await rig.say(CHAT)).result.metrics
    last = (await rig.append()).result.metrics
    assert first is not None
    assert last is not None
    [(instructions, _)] = rig.model.prompts
    assert (first.read_tokens, last.read_tokens) == (1 + len(instructions.split()), 0)


async def test_screen_signs_are_not_said(rig: Rig) -> None:
    rig.model.pieces = ["1. **Hi**\n", "- `x` \U0001f600 y\n", "\U0001f600"]
    assert (await rig.say(CHAT)).result.text == "Hi"
    assert await rig.rest() == [" x y"]


async def test_a_model_without_words_says_so(rig: Rig) -> None:
    rig.model.pieces = ["\n", "!"]
    appended = await rig.say(CHAT)
    assert (appended.result.text, appended.result.turn_end) == (NOTHING_TO_SAY, True)


async def test_a_model_that_does_not_stop_is_stopped(rig: Rig) -> None:
    rig.model.pieces = ["Word. "] * 50
    texts = [(await rig.say(CHAT)).result.text, *await rig.rest()]
    assert len(texts) == ENOUGH_SENTENCES
    assert await asyncio.to_thread(rig.model.is_stopped.wait, 5)
    assert len(rig.model.written) == ENOUGH_SENTENCES + 1


async def test_a_failing_model_fails_the_unit_and_the_session_lives(rig: Rig) -> None:
    rig.model.fault = RuntimeError("out of memory")
    with pytest.raises(RuntimeError, match="out of memory"):
        await rig.say(CHAT)
    rig.model.fault = None
    # The same unit may be tried again: the failed one left no trace.
    assert (await rig.say(CHAT)).result.text == "It rains."
    assert rig.model.prompts[-1][1].entries == (Entry(Role.USER, WORDS[CHAT]),)


async def test_a_model_that_fails_later_fails_one_unit(rig: Rig) -> None:
    rig.model.hold()
    rig.model.let(2)
    await rig.say(CHAT)
    rig.model.fault = RuntimeError("gone")
    rig.model.let(1)
    with pytest.raises(RuntimeError, match="gone"):
        await rig.append()
    assert is_listen(await rig.append())


async def test_settings_reach_the_model(rig: Rig) -> None:
    runtime = RuntimeConfig(instructions="Be a pirate.", temperature=0.7, max_output_tokens=9)
    await rig.stage.configure(SID, runtime)
    await rig.say(CHAT)
    assert rig.model.prompts[0][0] == "Be a pirate."
    assert (rig.model.writings[0].max_tokens, rig.model.writings[0].temperature) == (9, 0.7)


OWN = AnswerSettings(instructions="Be a pirate.", temperature=0.7, max_output_tokens=9, speed=1.5)


async def test_an_answer_s_own_settings_reach_the_model_and_end_with_it(rig: Rig) -> None:
    for options in (OWN, None):
        unit = Unit(b"", text=WORDS[CHAT], closes_input=True, options=options)
        appended = [await rig.append(unit)]
        while not appended[-1].result.turn_end:
            appended.append(await rig.append(CONTINUATION))
        assert {each.speech.speed for each in appended if each.speech} == {
            options.speed if options else None
        }
    assert [instructions for instructions, _ in rig.model.prompts] == ["Be a pirate.", ""]
    own, after = rig.model.writings
    assert (own.max_tokens, own.temperature) == (9, 0.7)
    assert (after.max_tokens, after.temperature) == (SETTINGS.answer_tokens, None)


async def test_nothing_of_them_is_left_where_there_was_no_answer(rig: Rig) -> None:
    assert is_listen(await rig.append(Unit(b"", closes_input=True, options=OWN)), turn_end=True)
    await rig.append(Unit(b"", text=WORDS[CHAT], closes_input=True))
    assert rig.model.prompts[0][0] == ""


async def test_nothing_of_them_is_left_after_an_interrupt(rig: Rig) -> None:
    await rig.append(Unit(b"", text=WORDS[COUNT], closes_input=True, options=OWN))
    await rig.stage.interrupt(SID, "", undoes_unit=False)
    await rig.append(Unit(b"", text=WORDS[CHAT], closes_input=True))
    assert rig.model.prompts[0][0] == ""


async def test_an_answer_outside_the_conversation_is_not_remembered(rig: Rig) -> None:
    apart = AnswerSettings(is_out_of_band=True)
    await rig.append(Unit(b"", text=WORDS[SUM], closes_input=True, options=apart))
    await rig.append(Unit(b"", text=WORDS[CHAT], closes_input=True))
    assert [entry.text for entry in rig.model.prompts[0][1].entries] == [WORDS[SUM], WORDS[CHAT]]


async def test_nor_is_one_that_was_interrupted(rig: Rig) -> None:
    apart = AnswerSettings(is_out_of_band=True)
    await rig.append(Unit(b"", text=WORDS[COUNT], closes_input=True, options=apart))
    await rig.stage.interrupt(SID, "One, two,", undoes_unit=False)
    await rig.append(Unit(b"", text=WORDS[CHAT], closes_input=True))
    assert [entry.text for entry in rig.model.prompts[0][1].entries] == [WORDS[COUNT], WORDS[CHAT]]


async def test_a_rule_s_answer_keeps_to_the_limit_too(rig: Rig) -> None:
    await rig.stage.configure(SID, RuntimeConfig(max_output_tokens=7))
    assert (await rig.say(COUNT)).result.text == "One, two, three, four, five."
    last = await rig.append()
    assert (last.result.text, last.result.turn_end, last.result.is_cut) == (
        " Six, seven,",
        True,
        True,
    )
    await rig.stage.configure(SID, RuntimeConfig(max_output_tokens=99))
    whole = await rig.say(COUNT)
    while not whole.result.turn_end:
        whole = await rig.append()
    assert not whole.result.is_cut


@pytest.mark.parametrize(("limit", "is_cut"), [(None, False), (2, True), (3, False)])
async def test_what_the_model_writes_tells_where_the_limit_cut_it(
    rig: Rig, limit: int | None, is_cut: bool
) -> None:
    rig.model.pieces = ["I ", "am"]
    await rig.stage.configure(SID, RuntimeConfig(max_output_tokens=limit))
    result = (await rig.say(CHAT)).result
    assert (result.text, result.turn_end, result.is_cut) == ("I am", True, is_cut)


async def test_what_was_said_is_remembered(rig: Rig) -> None:
    await rig.say(SUM)
    await rig.say(CHAT)
    assert rig.model.prompts[0][1].entries == (
        Entry(Role.USER, WORDS[SUM]),
        Entry(Role.ASSISTANT, "Two plus three is five."),
        Entry(Role.USER, WORDS[CHAT]),
    )


# --- speech over an answer ------------------------------------------------------------------------


async def test_what_is_said_during_an_answer_is_answered_after_it(rig: Rig) -> None:
    await rig.say(COUNT)
    during = await rig.say(SUM)
    assert during.result.heard == WORDS[SUM]
    assert during.result.text == " Six, seven, eight, nine, ten."
    last = await rig.append()
    assert last.result.turn_end
    after = await rig.append()
    assert after.result.text == "Two plus three is five."


async def test_a_close_during_an_answer_just_goes_on(rig: Rig) -> None:
    await rig.say(COUNT)
    appended = await rig.append(Unit(tone(0, 80), closes_input=True))
    assert appended.result.text == " Six, seven, eight, nine, ten."


# --- modes ----------------------------------------------------------------------------------------


async def test_without_auto_response_only_a_close_is_answered(rig: Rig) -> None:
    await rig.stage.configure(SID, RuntimeConfig(auto_response=False))
    assert is_listen(await rig.say(SUM), heard=WORDS[SUM])
    assert is_listen(await rig.append())
    appended = await rig.append(Unit(tone(0, 100), closes_input=True))
    assert appended.result.text == "Two plus three is five."


async def test_a_forced_unit_listens_and_the_answer_comes_after(rig: Rig) -> None:
    forced = Unit(spoken(SUM).pcm, force_listen=True)
    assert is_listen(await rig.append(forced), heard=WORDS[SUM])
    assert (await rig.append()).result.text == "Two plus three is five."


async def test_forced_listening_on_silence_ends_the_answer(rig: Rig) -> None:
    await rig.say(COUNT)
    last = Unit(tone(0, 1000), is_continuation=True, force_listen=True)
    assert is_listen(await rig.append(last), turn_end=True)
    assert is_listen(await rig.append())


async def test_the_first_units_of_each_turn_may_have_to_listen(rig: Rig) -> None:
    await rig.stage.configure(SID, RuntimeConfig(force_listen_count=2))
    for _ in range(2):
        assert is_listen(await rig.say(SUM), heard=WORDS[SUM])
        await rig.append()
        assert (await rig.append()).result.turn_end


# --- interrupts -----------------------------------------------------------------------------------


async def test_an_interrupt_between_units_drops_the_rest(rig: Rig) -> None:
    await rig.say(COUNT)
    await rig.append()
    await rig.stage.interrupt(SID, "One, two, three,", undoes_unit=False)
    assert is_listen(await rig.append())
    assert (await rig.say(AGAIN)).result.text == "One, two, three,"


async def test_an_answer_of_which_nothing_was_heard_is_forgotten(rig: Rig) -> None:
    await rig.say(SUM)
    await rig.say(COUNT)
    await rig.stage.interrupt(SID, "", undoes_unit=False)
    assert (await rig.say(AGAIN)).result.text == "Two plus three is five."


async def test_an_interrupt_stops_the_writer(rig: Rig) -> None:
    rig.model.hold()
    rig.model.let(2)
    await rig.say(CHAT)
    await rig.stage.interrupt(SID, "It", undoes_unit=False)
    rig.model.let(1)
    assert await asyncio.to_thread(rig.model.is_stopped.wait, 5)
    assert len(rig.model.written) == 3


async def test_an_interrupted_unit_was_not_consumed(rig: Rig) -> None:
    """The caller sends its audio again: it is heard once, and remembered once."""
    await rig.append(Unit(tone(CHAT, 1000)))
    rig.model.hold()
    unit = asyncio.ensure_future(rig.append())
    await rig.reach_writer()
    await rig.stage.interrupt(SID, "", undoes_unit=False)
    assert is_listen(await unit)
    rig.model.let(9)
    again = await rig.append()
    assert again.result.heard == WORDS[CHAT]
    assert again.result.text == "It rains."
    assert rig.model.prompts[-1][1].entries == (Entry(Role.USER, WORDS[CHAT]),)


async def test_an_interrupt_while_a_new_question_is_looked_at_spares_the_old_answer(
    rig: Rig,
) -> None:
    await rig.say(SUM)
    rig.model.hold()
    unit = asyncio.ensure_future(rig.say(CHAT))
    await rig.reach_writer()
    await rig.stage.interrupt(SID, "", undoes_unit=False)
    assert is_listen(await unit)
    rig.model.let(9)
    assert (await rig.say(AGAIN)).result.text == "Two plus three is five."


async def test_an_interrupt_while_words_are_recognised_begins_no_answer(rig: Rig) -> None:
    rig.whisper.may_go_on.clear()
    unit = asyncio.ensure_future(rig.say(CHAT))
    await asyncio.to_thread(rig.whisper.is_listening.wait, 10)
    await rig.stage.interrupt(SID, "", undoes_unit=False)
    rig.whisper.may_go_on.set()
    assert is_listen(await unit)
    assert rig.model.prompts == []


async def test_an_answer_interrupted_before_its_turn_is_never_begun() -> None:
    rig = Rig(EmbeddedSettings(silence_ms=400, answering_workers=1))
    await rig.stage.warm_up()
    for session in (SID, OTHER):
        await rig.stage.open(session, RuntimeConfig())
    rig.model.hold()
    first = asyncio.ensure_future(rig.say(CHAT))
    await rig.reach_writer()
    second = asyncio.ensure_future(rig.say(CHAT, OTHER))
    while len(rig.model.prompts) < 2:
        await settle()
    await rig.stage.interrupt(OTHER, "", undoes_unit=False)
    assert is_listen(await second)
    rig.model.let(9)
    assert (await first).result.text == "It rains."
    for session in (SID, OTHER):
        await rig.stage.close(session)
    assert len(rig.model.writings) == 1


async def test_an_interrupt_drops_what_waited_for_an_answer(rig: Rig) -> None:
    await rig.say(COUNT)
    assert (await rig.say(SUM)).result.heard == WORDS[SUM]
    await rig.stage.interrupt(SID, "One,", undoes_unit=False)
    assert is_listen(await rig.append())


async def test_a_unit_that_did_not_count_is_heard_once_when_it_comes_again(rig: Rig) -> None:
    """The session had interrupted before it learnt of the answer; the audio comes back."""
    await rig.say(COUNT)
    await rig.rest()
    assert (await rig.say(CHAT)).result.heard == WORDS[CHAT]
    await rig.stage.interrupt(SID, "", undoes_unit=True)
    assert (await rig.say(CHAT)).result.heard == WORDS[CHAT]
    (_, conversation) = rig.model.prompts[-1]
    assert [entry.text for entry in conversation.entries if entry.role is Role.USER] == [
        WORDS[COUNT],
        WORDS[CHAT],
    ]


async def test_an_unknown_session_is_not_interrupted(rig: Rig) -> None:
    await rig.stage.interrupt(OTHER, "what", undoes_unit=False)


# --- life -----------------------------------------------------------------------------------------


async def test_two_sessions_never_mix(rig: Rig) -> None:
    await rig.stage.open(OTHER, RuntimeConfig())
    mine, theirs = await asyncio.gather(rig.say(COUNT), rig.say(SUM, OTHER))
    assert mine.result.text == "One, two, three, four, five."
    assert theirs.result.text == "Two plus three is five."
    mine, theirs = await asyncio.gather(rig.append(), rig.say(AGAIN, OTHER))
    assert mine.result.text == " Six, seven, eight, nine, ten."
    assert theirs.result.text == "Two plus three is five."
    await rig.stage.close(OTHER)


async def test_a_close_waits_until_the_writer_has_let_go(rig: Rig) -> None:
    rig.model.hold()
    rig.model.let(2)
    await rig.say(CHAT)
    closing = asyncio.ensure_future(rig.stage.close(SID))
    await settle()
    assert not closing.done()
    rig.model.let(1)
    await closing
    assert rig.model.is_stopped.is_set()
    with pytest.raises(StageFailed, match="not open"):
        await rig.append()


async def test_a_close_ends_a_unit_that_waits(rig: Rig) -> None:
    rig.model.hold()
    unit = asyncio.ensure_future(rig.say(CHAT))
    await rig.reach_writer()
    closing = asyncio.ensure_future(rig.stage.close(SID))
    assert is_listen(await unit)
    rig.model.let(1)
    await closing


async def test_a_cancelled_unit_leaves_no_answer_behind(rig: Rig) -> None:
    rig.model.hold()
    unit = asyncio.ensure_future(rig.say(CHAT))
    await rig.reach_writer()
    unit.cancel()
    with pytest.raises(asyncio.CancelledError):
        await unit
    rig.model.let(9)
    assert is_listen(await rig.append())


async def test_reopening_forgets(rig: Rig) -> None:
    await rig.say(COUNT)
    await rig.stage.open(SID, RuntimeConfig())
    assert is_listen(await rig.append())
    assert (await rig.say(AGAIN)).result.text == "I have not said anything yet."


async def test_before_the_warm_up_nothing_opens() -> None:
    stage = EmbeddedStage0(EmbeddedSettings(), lambda: NOW)
    with pytest.raises(StageFailed, match="warm_up"):
        await stage.open(SID, RuntimeConfig())
    with pytest.raises(StageFailed, match="not open"):
        await stage.append(SID, SILENCE)
    with pytest.raises(StageFailed, match="not open"):
        await stage.configure(SID, RuntimeConfig())
    await stage.close(SID)


async def test_what_the_model_keeps_of_a_session_is_forgotten_when_it_closes(rig: Rig) -> None:
    await rig.say(CHAT)
    assert [writing.memory for writing in rig.model.writings] == [SID]
    rig.model.forgotten.clear()
    await rig.stage.close(SID)
    await rig.stage.close(OTHER)
    assert rig.model.forgotten == [SID]


async def test_a_session_is_forgotten_after_the_answer_that_nobody_wanted(rig: Rig) -> None:
    rig.model.hold()
    unit = asyncio.create_task(rig.say(CHAT))
    await rig.reach_writer()
    await rig.stage.interrupt(SID, "", undoes_unit=False)
    rig.model.forgotten.clear()
    closing = asyncio.create_task(rig.stage.close(SID))
    await settle()
    assert rig.model.forgotten == []
    rig.model.let(1)
    await closing
    assert rig.model.forgotten == [SID]
    await unit


async def test_the_stage_dies_with_its_model() -> None:
    rig = Rig()
    dying = asyncio.create_task(rig.stage.died())
    await rig.stage.warm_up()
    await settle()
    assert not dying.done()
    rig.model.dies.set()
    assert await dying == "it was told to"

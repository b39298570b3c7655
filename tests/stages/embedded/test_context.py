"""What the embedded model is told, asked about nothing, asked apart, and what it calls."""

import asyncio
import json
from dataclasses import replace

import pytest

from session.config import AnswerSettings, RuntimeConfig
from session.context import ContextMessage
from session.tools import FunctionCall, Tool, ToolChoice, ToolOutput, ToolUse
from session.unit import Decision, Unit
from stages.embedded.conversation import Entry, Role
from tests.support.embedded_rig import CHAT, COUNT, SID, SUM, WORDS, Rig, is_listen

KIND = ContextMessage("system", "Be kind.")
FIVE = "Two plus three is five."
TURN_MODE = RuntimeConfig(auto_response=False)
WEATHER = Tool(
    "get_weather",
    "The weather of a city.",
    json.dumps(
        {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    ),
)
OFFERING = replace(TURN_MODE, tools=(WEATHER,))
IN_PARIS = "What is the weather in Paris?"


def ask(text: str = "", *messages: ContextMessage, is_bare: bool = False) -> Unit:
    return Unit(b"", text=text, closes_input=True, messages=messages, is_bare=is_bare)


def apart(text: str, *messages: ContextMessage) -> Unit:
    options = AnswerSettings(is_out_of_band=True)
    return replace(ask(text, *messages), is_fresh=True, is_bare=not text, options=options)


def user(text: str) -> ContextMessage:
    return ContextMessage("user", text)


async def heard_by_model(rig: Rig) -> list[tuple[str, str]]:
    """Ask the model something, and return the conversation that it then sees."""
    rig.model.prompts.clear()
    await rig.append(ask(WORDS[CHAT]))
    await rig.rest()
    (_, conversation) = rig.model.prompts[-1]
    assert conversation.entries[-1] == Entry(Role.USER, WORDS[CHAT])
    return [(entry.role.value, entry.text) for entry in conversation.entries[:-1]]


@pytest.fixture
async def rig(rig: Rig) -> Rig:
    await rig.stage.configure(SID, TURN_MODE)
    return rig


# --- messages ---------------------------------------------------------------------------------


async def test_messages_are_remembered_in_order_and_ask_for_nothing(rig: Rig) -> None:
    await rig.stage.configure(SID, RuntimeConfig())
    told = Unit(bytes(32_000), messages=(KIND, user("Hi."), ContextMessage("assistant", "Hello.")))
    assert is_listen(await rig.append(told))
    assert await heard_by_model(rig) == [
        ("system", "Be kind."),
        ("user", "Hi."),
        ("assistant", "Hello."),
    ]


async def test_a_message_during_an_answer_comes_after_it(rig: Rig) -> None:
    await rig.append(ask(WORDS[COUNT]))
    await rig.append(replace(ask(), closes_input=False, messages=(KIND,), pcm=bytes(32_000)))
    await rig.rest()
    counted = "One, two, three, four, five. Six, seven, eight, nine, ten. "
    counted += "Eleven, twelve, thirteen, fourteen, fifteen."
    assert await heard_by_model(rig) == [
        ("user", WORDS[COUNT]),
        ("assistant", counted),
        ("system", "Be kind."),
    ]


async def test_a_question_that_is_told_is_answered_when_an_answer_is_wanted(rig: Rig) -> None:
    assert (await rig.append(ask("", user(WORDS[SUM]), KIND))).result.text == FIVE


async def test_silence_does_not_take_a_question_away(rig: Rig) -> None:
    unit = replace(ask("", user(WORDS[SUM])), pcm=bytes(16_000))
    assert (await rig.append(unit)).result.text == FIVE


@pytest.mark.parametrize("undoes", [True, False])
async def test_an_interrupted_unit_tells_once(rig: Rig, undoes: bool) -> None:
    rig.model.hold()
    unit = asyncio.ensure_future(rig.append(ask(WORDS[CHAT], KIND)))
    await rig.reach_writer()
    if undoes:
        rig.model.let(9)
        await unit
    await rig.stage.interrupt(SID, "", undoes_unit=undoes)
    await unit
    rig.model.let(99)
    await rig.append(ask(WORDS[SUM], KIND))
    assert await heard_by_model(rig) == [
        ("system", "Be kind."),
        ("user", WORDS[SUM]),
        ("assistant", FIVE),
    ]


async def test_an_interruption_of_nothing_keeps_what_was_told(rig: Rig) -> None:
    await rig.append(Unit(bytes(32_000), messages=(KIND,)))
    await rig.stage.interrupt(SID, "", undoes_unit=False)
    assert await heard_by_model(rig) == [("system", "Be kind.")]


# --- bare -------------------------------------------------------------------------------------


async def test_a_bare_response_is_written_from_what_there_is(rig: Rig) -> None:
    await rig.stage.configure(SID, replace(TURN_MODE, instructions="Greet the user."))
    assert (await rig.append(ask("", KIND, is_bare=True))).result.text == "It rains."
    await rig.rest()
    instructions, conversation = rig.model.prompts[-1]
    assert instructions == "Greet the user."
    assert conversation.entries == (Entry(Role.SYSTEM, "Be kind."),)
    assert await heard_by_model(rig) == [
        ("system", "Be kind."),
        ("assistant", "It rains. It pours."),
    ]


async def test_a_bare_response_after_an_answer_is_a_turn_of_its_own(rig: Rig) -> None:
    await rig.append(ask(WORDS[SUM]))
    assert (await rig.append(ask(is_bare=True))).result.text == "It rains."
    await rig.stage.interrupt(SID, "It", undoes_unit=False)
    said = [("user", WORDS[SUM]), ("assistant", FIVE), ("assistant", "It")]
    assert await heard_by_model(rig) == said


async def test_a_bare_response_that_is_interrupted_at_once_spares_the_answer_before(
    rig: Rig,
) -> None:
    await rig.append(ask(WORDS[SUM]))
    rig.model.hold()
    unit = asyncio.ensure_future(rig.append(ask(is_bare=True)))
    await rig.reach_writer()
    await rig.stage.interrupt(SID, "", undoes_unit=False)
    assert is_listen(await unit)
    rig.model.let(99)
    assert await heard_by_model(rig) == [("user", WORDS[SUM]), ("assistant", FIVE)]


async def test_a_bare_response_answers_what_was_not_answered(rig: Rig) -> None:
    await rig.append(ask(WORDS[SUM]))
    await rig.stage.interrupt(SID, "", undoes_unit=False)
    assert (await rig.append(ask(is_bare=True))).result.text == FIVE


# --- apart ------------------------------------------------------------------------------------


async def test_an_answer_apart_sees_what_it_is_given_and_is_forgotten(rig: Rig) -> None:
    await rig.append(ask(WORDS[SUM]))
    assert (await rig.append(apart(WORDS[CHAT], KIND))).result.text == "It rains."
    await rig.rest()
    (_, conversation) = rig.model.prompts[-1]
    assert conversation.entries == (Entry(Role.SYSTEM, "Be kind."), Entry(Role.USER, WORDS[CHAT]))
    assert await heard_by_model(rig) == [("user", WORDS[SUM]), ("assistant", FIVE)]


async def test_an_answer_apart_to_nothing_sees_the_instructions_alone(rig: Rig) -> None:
    await rig.append(ask(WORDS[SUM]))
    await rig.append(apart(""))
    assert rig.model.prompts[-1][1].entries == ()


async def test_a_rule_answers_apart_too(rig: Rig) -> None:
    assert (await rig.append(apart(WORDS[SUM]))).result.text == FIVE
    assert await heard_by_model(rig) == []


async def test_an_interrupted_answer_apart_leaves_the_conversation(rig: Rig) -> None:
    await rig.append(ask(WORDS[SUM]))
    await rig.append(apart(WORDS[COUNT]))
    await rig.stage.interrupt(SID, "One, two", undoes_unit=False)
    assert await heard_by_model(rig) == [("user", WORDS[SUM]), ("assistant", FIVE)]


async def test_an_answer_apart_leaves_what_was_said_and_told_meanwhile(rig: Rig) -> None:
    await rig.append(Unit(bytes(32_000), text=WORDS[SUM], messages=(KIND,)))
    assert (await rig.append(apart(WORDS[CHAT]))).result.text == "It rains."
    await rig.rest()
    assert (await rig.append(ask())).result.text == FIVE
    said = [("system", "Be kind."), ("user", WORDS[SUM]), ("assistant", FIVE)]
    assert await heard_by_model(rig) == said


async def test_an_answer_apart_waits_for_the_one_that_is_being_given(rig: Rig) -> None:
    await rig.stage.configure(SID, RuntimeConfig())
    await rig.append(ask(WORDS[COUNT]))
    assert (await rig.append(apart(WORDS[CHAT]))).result.text == " Six, seven, eight, nine, ten."
    assert (await rig.append()).result.turn_end
    assert (await rig.append()).result.text == "It rains."


async def test_the_end_of_silence_ends_an_answer_apart(rig: Rig) -> None:
    await rig.append(apart(WORDS[COUNT]))
    last = Unit(bytes(32_000), is_continuation=True, force_listen=True)
    assert is_listen(await rig.append(last), turn_end=True)
    assert await heard_by_model(rig) == []


# --- tools ------------------------------------------------------------------------------------


async def calls(rig: Rig, unit: Unit) -> tuple[FunctionCall, ...]:
    appended = await rig.append(unit)
    if appended.result.calls:
        assert appended.speech is None
        assert appended.result.decision is Decision.SPEAK
        assert (appended.result.text, appended.result.turn_end) == ("", True)
    elif not appended.result.turn_end:
        await rig.rest()
    return appended.result.calls


async def test_a_question_that_a_function_is_for_calls_it(rig: Rig) -> None:
    await rig.stage.configure(SID, OFFERING)
    (first,) = await calls(rig, ask(IN_PARIS))
    assert (first.name, json.loads(first.arguments)) == ("get_weather", {"city": "Paris"})
    output = ToolOutput(first.call_id, '{"temperature": 21, "condition": "sunny"}')
    told = await rig.append(replace(ask(), tool_outputs=(output,)))
    assert told.result.text == "Temperature 21, condition sunny."
    assert told.result.turn_end
    (second,) = await calls(rig, ask(IN_PARIS))
    assert second.call_id != first.call_id
    assert await heard_by_model(rig) == [
        ("user", IN_PARIS),
        ("assistant", "Temperature 21, condition sunny."),
        ("user", IN_PARIS),
    ]


async def test_nothing_is_called_where_nothing_fits(rig: Rig) -> None:
    assert not await calls(rig, ask(IN_PARIS))
    await rig.stage.configure(SID, OFFERING)
    assert not await calls(rig, ask("What is the weather?"))
    assert not await calls(rig, ask("Repeat after me: what is the weather in Paris?"))
    assert not await calls(rig, ask("Repeat after me."))
    assert not await calls(rig, ask(IN_PARIS))  # the words to repeat
    assert await calls(rig, ask(IN_PARIS))


@pytest.mark.parametrize("use", ToolUse)
async def test_the_tool_choice_of_an_answer_holds_for_it(rig: Rig, use: ToolUse) -> None:
    await rig.stage.configure(SID, OFFERING)
    options = AnswerSettings(tool_choice=ToolChoice(use))
    unit = replace(ask("Repeat after me: Paris is in Texas."), options=options)
    assert bool(await calls(rig, unit)) is (use is ToolUse.REQUIRED)
    unit = replace(ask(IN_PARIS), options=options)
    assert bool(await calls(rig, unit)) is (use is not ToolUse.NONE)
    assert await calls(rig, ask(IN_PARIS))


async def test_the_same_words_are_not_called_about_twice(rig: Rig) -> None:
    await rig.stage.configure(SID, OFFERING)
    assert await calls(rig, ask(IN_PARIS))
    assert not await calls(rig, ask(is_bare=True))


async def test_an_output_that_comes_with_words_is_told_and_the_words_are_answered(
    rig: Rig,
) -> None:
    output = ToolOutput("call_1", "It is sunny.")
    unit = replace(ask(WORDS[SUM]), tool_outputs=(output,))
    assert (await rig.append(unit)).result.text == FIVE
    assert await heard_by_model(rig) == [
        ("system", "A function returned: It is sunny."),
        ("user", WORDS[SUM]),
        ("assistant", FIVE),
    ]


async def test_an_output_during_an_answer_is_said_after_it(rig: Rig) -> None:
    await rig.stage.configure(SID, RuntimeConfig())
    await rig.append(ask(WORDS[COUNT]))
    await rig.append(replace(ask(), tool_outputs=(ToolOutput("call_1", "sunny"),)))
    assert (await rig.append()).result.turn_end
    assert (await rig.append()).result.text == "Sunny."


async def test_an_output_that_is_interrupted_unsaid_is_remembered(rig: Rig) -> None:
    await rig.stage.configure(SID, RuntimeConfig())
    await rig.append(ask(WORDS[COUNT]))
    await rig.append(replace(ask(), tool_outputs=(ToolOutput("call_1", "sunny"),)))
    await rig.stage.interrupt(SID, "One,", undoes_unit=False)
    told = await heard_by_model(rig)
    assert told[-1] == ("system", "A function returned: Sunny.")


async def test_a_call_apart_leaves_the_conversation(rig: Rig) -> None:
    await rig.stage.configure(SID, OFFERING)
    await rig.append(ask(WORDS[SUM]))
    assert await calls(rig, apart(IN_PARIS))
    assert await heard_by_model(rig) == [("user", WORDS[SUM]), ("assistant", FIVE)]


async def test_a_call_in_a_unit_that_did_not_count_has_an_id_of_its_own(rig: Rig) -> None:
    await rig.stage.configure(SID, OFFERING)
    (first,) = await calls(rig, ask(IN_PARIS))
    await rig.stage.interrupt(SID, "", undoes_unit=True)
    (again,) = await calls(rig, ask(IN_PARIS))
    assert first.call_id != again.call_id

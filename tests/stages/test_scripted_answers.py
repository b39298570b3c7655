"""The scripted model: settings of one answer, and the tools that it calls."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from session.config import AnswerSettings, RuntimeConfig
from session.context import ContextMessage
from session.errors import StageFailed, UnsupportedOption
from session.ids import SessionId
from session.tools import FunctionCall, Tool, ToolChoice, ToolOutput, ToolUse
from session.unit import OUTPUT_RATE_HZ, Decision, Unit
from stages.contract import Appended, Speech
from stages.scripted.hearing import ScriptedStage0
from stages.scripted.plugin import PLUGIN
from stages.scripted.settings import read_settings
from stages.scripted.speaking import ScriptedStage1

SID = SessionId("sess_a")
SILENCE = Unit(bytes(32_000), is_continuation=True)
TOOLS = (Tool("look_up"), Tool("sing"))
OFFERING = RuntimeConfig(tools=TOOLS, auto_response=False)


def ask(text: str = "hi", options: AnswerSettings | None = None) -> Unit:
    return Unit(b"", text=text, closes_input=True, options=options)


async def opened(runtime: RuntimeConfig, **knobs: Any) -> ScriptedStage0:
    stage = ScriptedStage0(read_settings({"sentence": "{instructions} {said} {part}", **knobs}))
    await stage.open(SID, runtime)
    return stage


async def answer(stage: ScriptedStage0, unit: Unit) -> list[Appended]:
    """Return the units of one answer."""
    appended = [await stage.append(SID, unit)]
    while not appended[-1].result.turn_end:
        appended.append(await stage.append(SID, SILENCE))
    return appended


def text(appended: list[Appended]) -> str:
    return "".join(each.result.text for each in appended)


def calls(appended: list[Appended]) -> list[FunctionCall]:
    return [call for each in appended for call in each.result.calls]


# --- settings of one answer -------------------------------------------------------------------


async def test_an_answer_has_its_own_settings_and_the_next_the_session_s() -> None:
    stage = await opened(RuntimeConfig(instructions="kind", voice="low", auto_response=False))
    options = AnswerSettings(instructions="brief", voice="high", speed=1.5)
    own = await answer(stage, ask(options=options))
    assert text(own) == "brief hi 1 brief hi 2"
    assert [(each.speech.voice, each.speech.speed) for each in own if each.speech] == [
        ("high", 1.5)
    ] * 2
    after = await answer(stage, ask())
    assert text(after) == "kind hi 1 kind hi 2"
    assert [(each.speech.voice, each.speech.speed) for each in after if each.speech] == [
        (None, None)
    ] * 2


async def test_an_interrupted_answer_leaves_nothing() -> None:
    stage = await opened(RuntimeConfig(instructions="kind", auto_response=False))
    await stage.append(SID, ask(options=AnswerSettings(instructions="brief")))
    await stage.interrupt(SID, "", undoes_unit=False)
    assert text(await answer(stage, ask())) == "kind hi 1 kind hi 2"


async def test_a_failed_unit_leaves_nothing() -> None:
    stage = await opened(RuntimeConfig(instructions="kind", auto_response=False), fail_at_units=[1])
    with pytest.raises(StageFailed):
        await stage.append(SID, ask(options=AnswerSettings(instructions="brief")))
    assert text(await answer(stage, ask())) == "kind hi 1 kind hi 2"


async def test_an_unknown_voice_fails_its_answer_alone() -> None:
    stage = await opened(RuntimeConfig(instructions="kind", auto_response=False))
    with pytest.raises(UnsupportedOption, match="soprano"):
        await stage.append(SID, ask(options=AnswerSettings(voice="soprano")))
    await stage.interrupt(SID, "", undoes_unit=False)
    assert text(await answer(stage, ask())) == "kind hi 1 kind hi 2"


@pytest.mark.parametrize(
    ("limit", "said", "is_cut"),
    [
        (1, "a", True),
        (3, "a b 1", True),
        (4, "a b 1 a", True),
        (6, "a b 1 a b 2", False),
        (9, "a b 1 a b 2", False),
    ],
)
async def test_the_token_limit_counts_words(limit: int, said: str, is_cut: bool) -> None:
    stage = await opened(RuntimeConfig(instructions="a", auto_response=False))
    units = await answer(stage, ask("b", AnswerSettings(max_output_tokens=limit)))
    assert text(units) == said
    assert units[-1].result.is_cut is is_cut
    assert not any(unit.result.is_cut for unit in units[:-1])
    assert text(await answer(stage, ask("b"))) == "a b 1 a b 2"


async def test_speed_and_voice_of_one_speech() -> None:
    stage = ScriptedStage1(read_settings({"sentence_ms": 600}))
    await stage.open(SID, RuntimeConfig(speed=0.5))

    async def samples(speech: Speech) -> int:
        return sum([chunk.samples async for chunk in stage.speak(SID, speech)])

    assert await samples(Speech("x", True, False, speed=1.5)) == 400 * OUTPUT_RATE_HZ // 1000
    assert await samples(Speech("x", True, False)) == 1200 * OUTPUT_RATE_HZ // 1000


async def test_the_voice_of_one_speech_changes_its_pitch_alone() -> None:
    stage = ScriptedStage1(read_settings({}))
    await stage.open(SID, RuntimeConfig(voice="low"))

    async def pcm(voice: str | None) -> bytes:
        speech = Speech("x", segment_end=True, turn_end=True, voice=voice)
        return b"".join([chunk.pcm async for chunk in stage.speak(SID, speech)])

    low, high, again = await pcm(None), await pcm("high"), await pcm(None)
    assert low == again
    assert high != low


def test_the_descriptor_names_what_an_answer_may_have() -> None:
    profile = PLUGIN.descriptor.profile
    assert profile.tools
    assert "temperature" not in profile.response_options


# --- tools ------------------------------------------------------------------------------------


async def test_text_can_ask_for_a_call() -> None:
    stage = await opened(OFFERING)
    (unit,) = await answer(stage, ask('call look_up {"city": "Oslo"}'))
    assert unit.speech is None
    assert unit.result.calls == (FunctionCall("call_1", "look_up", '{"city": "Oslo"}'),)


async def test_text_can_ask_for_words_and_then_a_call() -> None:
    stage = await opened(OFFERING)
    units = await answer(stage, ask("speak and call sing"))
    assert [len(each.result.calls) for each in units] == [0, 1]
    assert all(each.speech for each in units)
    assert calls(units)[0].arguments == "{}"


async def test_each_call_has_an_id_of_its_own() -> None:
    stage = await opened(OFFERING)
    ids = [calls(await answer(stage, ask("call sing")))[0].call_id for _ in range(3)]
    assert len(set(ids)) == 3


@pytest.mark.parametrize(
    ("runtime", "asked", "name"),
    [
        (OFFERING, "call dance", None),
        (RuntimeConfig(auto_response=False), "call sing", None),
        (OFFERING, "hello", None),
        (RuntimeConfig(tools=TOOLS, tool_choice=ToolChoice(ToolUse.NONE)), "call sing", None),
        (RuntimeConfig(tools=TOOLS, tool_choice=ToolChoice(ToolUse.REQUIRED)), "hi", "look_up"),
        (RuntimeConfig(tools=TOOLS, tool_choice=ToolChoice(ToolUse.REQUIRED, "sing")), "", "sing"),
    ],
)
async def test_what_is_called(runtime: RuntimeConfig, asked: str, name: str | None) -> None:
    stage = await opened(runtime)
    made = calls(await answer(stage, ask(asked)))
    assert [call.name for call in made] == ([] if name is None else [name])


async def test_tools_of_one_answer_are_gone_after_it() -> None:
    stage = await opened(RuntimeConfig(auto_response=False))
    options = AnswerSettings(tools=TOOLS)
    assert calls(await answer(stage, ask("call sing", options)))
    assert not calls(await answer(stage, ask("call sing")))


async def test_what_a_function_returned_is_answered() -> None:
    stage = await opened(OFFERING)
    await answer(stage, ask("call look_up"))
    outputs = (ToolOutput("call_1", "24"), ToolOutput("call_2", "degrees"))
    units = await answer(stage, Unit(b"", closes_input=True, tool_outputs=outputs))
    assert text(units) == " 24 degrees 1  24 degrees 2"


# --- what it is told --------------------------------------------------------------------------

KIND, HI = ContextMessage("system", "be kind"), ContextMessage("user", "hi")
TOLD: dict[str, Any] = {"sentence": "<{told}> {said}", "sentences": 1}
QUIET = RuntimeConfig(auto_response=False)


async def test_messages_are_remembered_and_start_nothing() -> None:
    stage = await opened(RuntimeConfig(), **TOLD)
    told = Unit(bytes(32_000), messages=(KIND, HI))
    assert (await stage.append(SID, told)).result.decision is Decision.LISTEN
    assert text(await answer(stage, ask("yes"))) == "<system: be kind, user: hi> yes"


async def test_a_text_that_was_told_last_is_answered_when_an_answer_is_wanted() -> None:
    stage = await opened(QUIET, **TOLD)
    unit = Unit(b"", closes_input=True, messages=(HI, KIND))
    assert text(await answer(stage, unit)) == "<user: hi, system: be kind> hi"


async def test_nothing_is_answered_when_that_is_wanted() -> None:
    stage = await opened(QUIET, **TOLD)
    assert text(await answer(stage, Unit(b"", closes_input=True, is_bare=True))) == "<> "


@pytest.mark.parametrize("options", [None, AnswerSettings(voice="none such")])
async def test_a_unit_that_does_not_count_tells_nothing(options: AnswerSettings | None) -> None:
    stage = await opened(QUIET, **TOLD)
    unit = Unit(b"", "x", closes_input=True, messages=(KIND,), options=options)
    if options is None:
        await stage.append(SID, unit)
        await stage.interrupt(SID, "", undoes_unit=True)
    else:
        with pytest.raises(UnsupportedOption):
            await stage.append(SID, unit)
        await stage.interrupt(SID, "", undoes_unit=False)
    assert text(await answer(stage, ask())) == "<> hi"


async def test_an_interrupted_unit_tells_nothing() -> None:
    stage = await opened(QUIET, **TOLD, hang_at_units=[1])
    hangs = asyncio.ensure_future(stage.append(SID, Unit(b"", "x", messages=(KIND,))))
    await asyncio.sleep(0.01)
    await stage.interrupt(SID, "", undoes_unit=False)
    assert (await hangs).result.decision is Decision.LISTEN
    assert text(await answer(stage, ask())) == "<> hi"


async def test_an_answer_apart_sees_nothing_else_and_is_forgotten() -> None:
    stage = await opened(QUIET, **TOLD)
    await answer(stage, Unit(b"", "first", closes_input=True, messages=(KIND,)))
    apart = Unit(b"", "now", closes_input=True, is_fresh=True, messages=(HI,))
    assert text(await answer(stage, apart)) == "<user: hi> now"
    assert text(await answer(stage, ask())) == "<system: be kind> hi"


async def test_an_answer_apart_waits_for_the_one_that_is_being_given() -> None:
    stage = await opened(RuntimeConfig(), **{**TOLD, "sentences": 2})
    first = [await stage.append(SID, ask("long"))]
    first.append(await stage.append(SID, replace(ask("now"), is_fresh=True)))
    assert text(first) == "<> long <> long"
    assert text(await answer(stage, SILENCE)) == "<> now <> now"

"""Functions that the model calls: offered, called, answered; and speech that brings no text."""

from dataclasses import replace
from typing import Final

import pytest

from session.config import AnswerSettings, ConfigPatch, ResponseOptions, SessionConfig
from session.effects import (
    CancelStages,
    ConfigureStages,
    Effect,
    OpenStages,
    SubmitUnit,
    Synthesize,
)
from session.errors import StageFailed
from session.events import (
    AnswerItemOpened,
    ErrorRaised,
    FunctionCalled,
    ResponseFinished,
    ResponseStarted,
    SpeechDelta,
)
from session.ids import ItemId
from session.item_events import (
    ItemAdded,
    ItemShown,
)
from session.ledger.calls import KEPT_CALLS, CallLedger
from session.stimuli import (
    InputCancelled,
    ItemCreated,
    ItemDeleted,
    ItemRetrieved,
    PlaybackAcked,
    ResponseCancelRequested,
    ResponseRequested,
    SessionConfigured,
    UnitFailed,
    UnitFinished,
)
from session.tools import (
    FREE_CHOICE,
    FunctionCall,
    Tool,
    ToolChoice,
    ToolFault,
    ToolList,
    ToolOutput,
    ToolUse,
)
from session.unit import Decision, UnitResult
from tests.session.driver import AUTO, PROFILE, TURN_MODE, Driver, names, transcript

CREATE: Final = ResponseRequested(ResponseOptions())
CALLS: Final = replace(PROFILE, tools=True)
FAULT: Final = ToolFault("session.tools must be a list", "bad_event", "session.tools")
LOOK_UP: Final = Tool("look_up", "The weather.", '{"type":"object"}')
OFFERING: Final = replace(TURN_MODE, tools=ToolList((LOOK_UP,)))
CALL: Final = FunctionCall("call_1", "look_up", '{"city":"Oslo"}')
SECOND: Final = FunctionCall("call_2", "look_up", "{}")


def result_of(driver: Driver, result: UnitResult) -> list[Effect]:
    unit = driver.last_unit()
    return driver.do(UnitFinished(unit.fence, unit.seq, result))


def calling(
    driver: Driver, *calls: FunctionCall, text: str = "", turn_end: bool = True
) -> list[Effect]:
    return result_of(
        driver, UnitResult(Decision.SPEAK, text, turn_end=turn_end, calls=calls or (CALL,))
    )


def asked(config: SessionConfig = OFFERING) -> Driver:
    d = Driver(config, profile=CALLS)
    d.do(ItemCreated("user", "how warm is it"))
    d.do(CREATE)
    return d


def output(call_id: str = "call_1", item_id: str | None = None) -> ItemCreated:
    return ItemCreated(
        "tool", "24 degrees", item_id=ItemId(item_id) if item_id else None, call_id=call_id
    )


def codes(driver: Driver) -> list[str]:
    return [each.error.wire_code for each in driver.said(ErrorRaised)]


# --- offered ----------------------------------------------------------------------------------


def test_tools_reach_a_model_that_calls_them() -> None:
    choice = ToolChoice(ToolUse.REQUIRED)
    d = Driver(replace(OFFERING, tool_choice=choice), profile=CALLS)
    runtime = d.asked(OpenStages)[0].runtime
    assert (runtime.tools, runtime.tool_choice) == ((LOOK_UP,), choice)


def test_a_model_without_tools_never_hears_of_them() -> None:
    d = Driver(replace(OFFERING, tool_choice=ToolChoice(ToolUse.REQUIRED)))
    runtime = d.asked(OpenStages)[0].runtime
    assert (runtime.tools, runtime.tool_choice) == ((), FREE_CHOICE)
    d.do(SessionConfigured(ConfigPatch((("tools", ToolList(fault=FAULT)),))))
    assert d.asked(ConfigureStages) == []
    assert codes(d) == []


def test_new_tools_are_told_to_the_stages() -> None:
    d = Driver(TURN_MODE, profile=CALLS)
    d.do(SessionConfigured(ConfigPatch((("tools", ToolList((LOOK_UP,))),))))
    assert d.asked(ConfigureStages)[0].runtime.tools == (LOOK_UP,)


@pytest.mark.parametrize(
    "change",
    [
        ("tools", ToolList(fault=FAULT)),
        ("tool_choice", ToolChoice(fault=FAULT)),
        ("tool_choice", ToolChoice(ToolUse.REQUIRED, "sing")),
    ],
)
def test_tools_that_can_not_be_read_are_refused_where_there_are_tools(
    change: tuple[str, object],
) -> None:
    d = Driver(OFFERING, profile=CALLS)
    d.do(SessionConfigured(ConfigPatch((change,))))
    assert codes(d) == ["bad_event"]
    assert d.asked(ConfigureStages) == []
    assert d.session.config == OFFERING


# --- called -----------------------------------------------------------------------------------


def test_a_call_stands_alone() -> None:
    d = asked()
    assert d.said(ResponseStarted)[0].has_message is False
    effects = calling(d)
    assert names(effects) == ["FunctionCalled", "ResponseFinished"]
    (called,) = d.said(FunctionCalled)
    assert (called.item.call_id, called.item.call_name) == ("call_1", "look_up")
    assert (called.item.text, called.output_index) == ('{"city":"Oslo"}', 0)
    (done,) = d.said(ResponseFinished)
    assert (done.status, done.message_index, done.calls) == ("completed", None, (called.item,))
    assert not done.is_committed


def test_a_call_follows_what_is_said_before_it() -> None:
    d = asked()
    calling(d, text="Let me see.")
    assert d.said(FunctionCalled) == []
    effects = d.voice("Let me see.", turn_end=True)
    assert names(effects) == ["AnswerItemOpened", "SpeakDecided", "SpeechDelta"]
    effects = d.voiced()
    assert names(effects) == ["FunctionCalled", "ResponseFinished"]
    assert d.said(FunctionCalled)[0].output_index == 1
    (done,) = d.said(ResponseFinished)
    assert (done.message_index, done.item.text, len(done.calls)) == (0, "Let me see.", 1)


def test_two_calls_of_one_unit_come_in_order() -> None:
    d = asked()
    calling(d, CALL, SECOND)
    assert [each.output_index for each in d.said(FunctionCalled)] == [0, 1]
    assert [each.call_id for each in d.said(ResponseFinished)[0].calls] == ["call_1", "call_2"]


def test_a_model_may_call_in_an_answer_of_its_own() -> None:
    d = Driver(replace(AUTO, tools=ToolList((LOOK_UP,))), profile=CALLS)
    d.append(1000)
    assert names(calling(d))[:3] == ["ResponseStarted", "FunctionCalled", "ResponseFinished"]


def test_a_call_after_words_of_its_own_has_the_next_place() -> None:
    """Without tools in the session the message is there from the beginning, and comes first."""
    d = asked(TURN_MODE)
    assert d.said(ResponseStarted)[0].has_message is True
    calling(d)
    assert d.said(FunctionCalled)[0].output_index == 1
    assert d.said(ResponseFinished)[0].message_index == 0


def test_options_can_bring_tools_for_one_answer() -> None:
    d = Driver(TURN_MODE, profile=replace(CALLS, response_options=frozenset({"tools"})))
    d.do(ItemCreated("user", "how warm is it"))
    settings = AnswerSettings(tools=(LOOK_UP,))
    d.do(ResponseRequested(ResponseOptions(settings=settings)))
    assert d.said(ResponseStarted)[0].has_message is False
    assert d.last_unit().unit.options == settings


def test_a_cancelled_answer_makes_no_call_that_had_not_come() -> None:
    d = asked()
    calling(d, text="Let me see.")
    d.voice("Let ")
    d.do(ResponseCancelRequested())
    assert d.said(FunctionCalled) == []
    assert d.said(ResponseFinished)[0].calls == ()
    d.do(output())
    assert codes(d) == ["invalid_function_call_output"]
    assert d.asked(CancelStages)


def test_a_call_is_an_item_of_the_conversation() -> None:
    d = asked()
    calling(d)
    item_id = d.said(FunctionCalled)[0].item.item_id
    shown = d.said(ItemShown, d.do(ItemRetrieved(item_id)))[0].item
    assert (shown.call_id, shown.call_name, shown.text) == (
        "call_1",
        "look_up",
        '{"city":"Oslo"}',
    )
    d.do(output())
    assert d.said(ItemAdded)[-1].previous_item_id == item_id


def test_a_call_outside_the_conversation_is_not() -> None:
    d = Driver(OFFERING, profile=CALLS)
    d.do(ItemCreated("user", "how warm is it"))
    d.do(ResponseRequested(ResponseOptions(is_out_of_band=True)))
    calling(d)
    (called,) = d.said(FunctionCalled)
    assert (called.is_out_of_band, called.previous_item_id) == (True, None)
    d.do(ItemRetrieved(called.item.item_id))
    assert codes(d) == ["item_not_found"]
    d.do(output())
    assert codes(d) == ["item_not_found"]


def test_an_answer_that_is_only_a_call_plays_nothing() -> None:
    d = asked()
    calling(d)
    d.do(PlaybackAcked(100))
    assert codes(d) == []
    playback = d.session._state.snapshot().playback  # noqa: SLF001  # no event shows it
    assert not playback.sent_ms


# --- answered ---------------------------------------------------------------------------------


def test_an_output_is_the_next_answer_s_input() -> None:
    d = asked()
    calling(d)
    submitted = len(d.asked(SubmitUnit))
    effects = d.do(output())
    assert names(effects) == ["ItemAdded", "ItemDone"]
    assert len(d.asked(SubmitUnit)) == submitted
    d.do(CREATE)
    unit = d.last_unit().unit
    assert unit.tool_outputs == (ToolOutput("call_1", "24 degrees"),)
    assert (unit.pcm, unit.text, unit.closes_input) == (b"", "", True)


def test_all_outputs_go_together_with_what_was_written() -> None:
    d = asked()
    calling(d, CALL, SECOND)
    d.do(output("call_2"))
    d.do(ItemCreated("user", "in celsius"))
    d.do(output("call_1"))
    d.do(CREATE)
    unit = d.last_unit().unit
    assert [each.call_id for each in unit.tool_outputs] == ["call_2", "call_1"]
    assert unit.text == "in celsius"


def test_a_call_takes_one_output_and_a_stranger_none() -> None:
    d = asked()
    d.do(output())
    calling(d)
    d.do(output("call_9"))
    d.do(output())
    d.do(output())
    assert codes(d) == ["invalid_function_call_output"] * 3
    assert len(d.said(ItemAdded)) == 2


def test_an_output_that_was_deleted_in_time_can_be_given_again() -> None:
    d = asked()
    calling(d)
    d.do(output(item_id="out_1"))
    d.do(ItemDeleted(ItemId("out_1")))
    d.do(output(item_id="out_2"))
    assert codes(d) == []
    d.do(CREATE)
    d.do(ItemDeleted(ItemId("out_2")))
    d.do(output())
    assert codes(d) == ["invalid_function_call_output"]


def test_a_deleted_call_takes_no_output() -> None:
    d = asked()
    calling(d)
    d.do(ItemDeleted(d.said(FunctionCalled)[0].item.item_id))
    d.do(output())
    assert codes(d) == ["invalid_function_call_output"]


def test_a_cancelled_answer_gives_its_outputs_back_to_the_next() -> None:
    d = asked()
    calling(d)
    d.do(output())
    d.do(CREATE)
    d.do(ResponseCancelRequested())
    d.do(CREATE)
    assert d.last_unit().unit.tool_outputs == (ToolOutput("call_1", "24 degrees"),)


def test_outputs_that_come_back_are_still_items_of_their_own() -> None:
    d = asked()
    calling(d, CALL, SECOND)
    d.do(output("call_1", item_id="out_1"))
    d.do(output("call_2", item_id="out_2"))
    d.do(CREATE)
    d.do(ResponseCancelRequested())
    d.do(ItemDeleted(ItemId("out_2")))
    d.do(CREATE)
    assert [each.call_id for each in d.last_unit().unit.tool_outputs] == ["call_1"]
    d.listen(turn_end=True)
    d.do(output("call_2"))
    assert codes(d) == []


def test_a_call_whose_output_failed_with_its_unit_waits_again() -> None:
    d = asked()
    calling(d)
    d.do(output())
    d.do(CREATE)
    unit = d.last_unit()
    d.do(UnitFailed(unit.fence, unit.seq, StageFailed("poison")))
    d.do(output())
    d.do(CREATE)
    assert d.last_unit().unit.tool_outputs == (ToolOutput("call_1", "24 degrees"),)


def test_cancelled_input_keeps_what_functions_returned() -> None:
    d = asked()
    calling(d)
    d.do(output())
    d.do(ItemCreated("user", "never mind"))
    d.do(InputCancelled())
    d.do(CREATE)
    unit = d.last_unit().unit
    assert (unit.text, len(unit.tool_outputs)) == ("", 1)


def test_the_memory_of_calls_is_bounded() -> None:
    ledger = CallLedger()
    for n in range(KEPT_CALLS + 1):
        ledger.make(f"c{n}")
    assert not ledger.awaits("c0")
    assert ledger.awaits("c1")
    ledger.withdraw("c0")
    assert not ledger.awaits("c0")


# --- speech without text, text without speech -------------------------------------------------


def test_a_unit_may_be_spoken_without_text() -> None:
    d = asked(TURN_MODE)
    result_of(d, UnitResult(Decision.SPEAK, has_speech=True, turn_end=True))
    assert len(d.asked(Synthesize)) == 1
    d.voice("", 500)
    d.voice("", 500, turn_end=True)
    d.voiced()
    deltas = d.said(SpeechDelta)
    assert [(each.audio_ms, each.transcript) for each in deltas] == [(500, ""), (1000, "")]
    done = d.said(ResponseFinished)[0]
    assert (done.item.text, done.playback.sent_ms) == ("", 1000)


def test_a_unit_may_be_text_alone_in_its_place() -> None:
    d = asked(replace(TURN_MODE, auto_response=True))
    result_of(d, UnitResult(Decision.SPEAK, "one ", turn_end=False))
    d.voice("one ", 500)
    d.append(1000)
    result_of(d, UnitResult(Decision.SPEAK, "two", has_speech=False, turn_end=True))
    assert transcript(d.events()) == "one "
    effects = d.voiced()
    assert names(effects)[:2] == ["SpeechDelta", "ResponseFinished"]
    last = d.said(SpeechDelta)[-1]
    assert (last.pcm, last.transcript, last.is_text_only) == (b"", "two", False)
    assert d.said(ResponseFinished)[0].item.text == "one two"
    assert len(d.asked(Synthesize)) == 1


def test_words_after_a_call_open_the_message_behind_it() -> None:
    d = asked(replace(OFFERING, auto_response=True))
    calling(d, turn_end=False)
    d.append(1000)
    d.speak("It is warm.", turn_end=True)
    d.voice("It is warm.", turn_end=True)
    d.voiced()
    (opened,) = d.said(AnswerItemOpened)
    assert opened.output_index == 1
    assert d.said(FunctionCalled)[0].output_index == 0
    assert d.said(ResponseFinished)[0].message_index == 1

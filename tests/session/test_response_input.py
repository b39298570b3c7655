"""`response.input`: an answer that sees nothing but what comes with it."""

from dataclasses import replace

import pytest

from session.config import ResponseOptions, SessionLimits
from session.context import ContextMessage, ItemReference
from session.effects import SubmitUnit
from session.events import ErrorRaised, FunctionCalled, ResponseFinished, ResponseStarted
from session.ids import ItemId
from session.stimuli import (
    InputCommitted,
    ItemCreated,
    ResponseCancelRequested,
    ResponseRequested,
    UnitFinished,
)
from session.tools import FunctionCall, Tool, ToolList
from session.unit import Decision, Unit, UnitResult
from tests.session.driver import AUTO, PROFILE, TURN_MODE, UNIT_BYTES, Driver

TAKES_INPUT = replace(PROFILE, messages=True, response_options=frozenset({"input"}))
APART = ResponseOptions(is_out_of_band=True)
A = ItemId("a")


def user(text: str) -> ContextMessage:
    return ContextMessage("user", text)


SYSTEM = ContextMessage("system", "be kind")


def ask(*given: ContextMessage | ItemReference) -> ResponseRequested:
    return ResponseRequested(replace(APART, input=given), event_id="e1")


def error(d: Driver) -> tuple[str, str | None]:
    (raised,) = d.said(ErrorRaised)
    assert raised.event_id == "e1"
    assert not d.said(ResponseStarted)
    return raised.error.wire_code, raised.error.param


def unit(d: Driver) -> Unit:
    return d.last_unit().unit


@pytest.mark.parametrize(
    ("given", "told", "text"),
    [
        ((user("hi"),), (), "hi"),
        ((SYSTEM, user("hi")), (SYSTEM,), "hi"),
        ((user("one"), user("two")), (user("one"),), "two"),
        ((user("hi"), SYSTEM), (user("hi"), SYSTEM), ""),
        ((), (), ""),
    ],
)
def test_the_answer_sees_what_it_is_given(
    given: tuple[ContextMessage, ...], told: tuple[ContextMessage, ...], text: str
) -> None:
    d = Driver(TURN_MODE, profile=TAKES_INPUT)
    d.do(ask(*given))
    pcm = b"" if text else bytes(UNIT_BYTES)
    assert (unit(d).messages, unit(d).text, unit(d).pcm) == (told, text, pcm)
    assert (unit(d).is_fresh, unit(d).is_bare, unit(d).closes_input) == (True, not text, True)
    options = unit(d).options
    assert options is not None
    assert options.is_out_of_band


def test_what_waits_goes_on_waiting() -> None:
    d = Driver(TURN_MODE, profile=TAKES_INPUT)
    d.do(ItemCreated("system", "be calm"))
    d.do(ItemCreated("user", "later"))
    d.do(ask(user("now")))
    assert (unit(d).messages, unit(d).text) == ((), "now")
    d.speak("yes")
    d.voice("yes")
    d.voiced()
    assert [each.status for each in d.said(ResponseFinished)] == ["completed"]
    assert len(d.asked(SubmitUnit)) == 1
    d.do(ResponseRequested(ResponseOptions()))
    assert (unit(d).messages, unit(d).text) == ((ContextMessage("system", "be calm"),), "later")


def test_a_cancelled_one_does_not_come_back() -> None:
    d = Driver(TURN_MODE, profile=TAKES_INPUT)
    d.do(ask(user("now")))
    d.do(ResponseCancelRequested())
    d.append(500, speech=True)
    d.do(InputCommitted(create_response=True))
    assert (unit(d).text, unit(d).is_fresh) == ("", False)


def test_one_that_waits_for_a_unit_goes_with_its_answer() -> None:
    d = Driver(AUTO, profile=TAKES_INPUT)
    d.append(1000)
    d.do(ask(user("now")))
    d.do(ResponseCancelRequested())
    d.append(1000)
    assert not any(each.unit.is_fresh for each in d.asked(SubmitUnit))


def test_references_are_resolved() -> None:
    d = Driver(TURN_MODE, profile=TAKES_INPUT)
    d.do(ItemCreated("system", "be kind", item_id=A))
    d.do(ask(ItemReference(A), user("hi")))
    assert unit(d).messages == (SYSTEM,)


@pytest.mark.parametrize(
    ("item", "code"),
    [
        (None, "item_not_found"),
        (ItemCreated("user", "", item_id=A), "unsupported_response_input"),
    ],
)
def test_a_reference_to_no_words_is_refused(item: ItemCreated | None, code: str) -> None:
    d = Driver(TURN_MODE, profile=TAKES_INPUT)
    if item is not None:
        d.do(item)
    d.do(ask(user("hi"), ItemReference(A)))
    assert error(d) == (code, "response.input.1.id")


def test_a_model_without_it_refuses() -> None:
    d = Driver(TURN_MODE)
    d.do(ask(user("hi")))
    assert error(d) == ("unsupported_response_input", "response.input")


def test_it_is_not_for_the_conversation() -> None:
    d = Driver(TURN_MODE, profile=TAKES_INPUT)
    d.do(ResponseRequested(ResponseOptions(input=(user("hi"),)), event_id="e1"))
    assert error(d) == ("unsupported_response_input", "response.input")
    assert "none" in d.said(ErrorRaised)[0].error.message


def test_a_reference_to_a_function_call_is_refused() -> None:
    tools = ToolList((Tool("look_up"),))
    d = Driver(replace(TURN_MODE, tools=tools), profile=replace(TAKES_INPUT, tools=True))
    d.do(ItemCreated("user", "call it"))
    d.do(ResponseRequested(ResponseOptions()))
    asked = d.last_unit()
    calls = (FunctionCall("call_1", "look_up", "{}"),)
    d.do(
        UnitFinished(asked.fence, asked.seq, UnitResult(Decision.SPEAK, turn_end=True, calls=calls))
    )
    (called,) = d.said(FunctionCalled)
    effects = d.do(ask(ItemReference(called.item.item_id)))
    (raised,) = d.said(ErrorRaised, effects)
    assert raised.error.wire_code == "unsupported_response_input"
    assert "is no message" in raised.error.message


def test_input_is_bounded_like_everything_that_waits() -> None:
    limits = SessionLimits(max_pending_input_bytes_per_session=10)
    d = Driver(TURN_MODE, profile=TAKES_INPUT, limits=limits)
    d.do(ask(user("x" * 6), user("y" * 6)))
    assert error(d) == ("input_backpressure", None)

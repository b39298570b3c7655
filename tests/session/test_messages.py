"""Messages that nobody has to answer, and answers to nothing that was said."""

from dataclasses import replace

import pytest

from session.config import ResponseOptions, SessionConfig, SessionLimits
from session.context import ContextMessage
from session.effects import SubmitUnit
from session.errors import StageFailed
from session.events import (
    ErrorRaised,
    ResponseFinished,
    ResponseStarted,
)
from session.ids import ItemId
from session.item_events import (
    ItemAdded,
)
from session.stimuli import (
    InputCancelled,
    InputCommitted,
    ItemCreated,
    ItemDeleted,
    ResponseCancelRequested,
    ResponseRequested,
    UnitFailed,
)
from session.unit import Unit
from tests.session.driver import AUTO, PROFILE, TURN_MODE, UNIT_BYTES, Driver

TOLD = replace(PROFILE, messages=True)
CREATE = ResponseRequested(ResponseOptions())
BARE = ResponseRequested(ResponseOptions(), is_bare=True)
A, B, C = ItemId("a"), ItemId("b"), ItemId("c")
KIND, CALM = ContextMessage("system", "be kind"), ContextMessage("system", "be calm")


def driver(config: SessionConfig = TURN_MODE, *, accepts_short_units: bool = False) -> Driver:
    return Driver(config, profile=replace(TOLD, accepts_short_units=accepts_short_units))


def tell(d: Driver, message: ContextMessage, item_id: ItemId | None = None) -> None:
    d.do(ItemCreated(message.role, message.text, item_id=item_id))


def codes(d: Driver) -> list[str]:
    return [each.error.wire_code for each in d.said(ErrorRaised)]


def unit(d: Driver) -> Unit:
    return d.last_unit().unit


# --- messages ---------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_a_message_is_an_item_and_asks_for_nothing(role: str) -> None:
    d = driver()
    d.do(ItemCreated(role, "be kind", item_id=A))
    (added,) = d.said(ItemAdded)
    assert (added.item.role, added.item.text, added.item.item_id) == (role, "be kind", A)
    d.do(ItemCreated("user", "hi"))
    assert not d.asked(SubmitUnit)
    d.do(CREATE)
    assert unit(d) == Unit(
        b"", "hi", closes_input=True, messages=(ContextMessage(role, "be kind"),)
    )


def test_a_response_to_a_message_alone_is_refused_where_bare_ones_are() -> None:
    d = driver()
    tell(d, KIND)
    d.do(CREATE)
    assert codes(d) == ["response_create_without_input"]


def test_texts_and_messages_stay_in_order() -> None:
    d = driver()
    tell(d, KIND)
    d.do(ItemCreated("user", "my name is Zork"))
    d.do(ItemCreated("assistant", "hello Zork"))
    tell(d, CALM)
    d.do(ItemCreated("user", "what is"))
    d.do(ItemCreated("user", "my name?"))
    d.do(CREATE)
    assert unit(d).messages == (
        KIND,
        ContextMessage("user", "my name is Zork"),
        ContextMessage("assistant", "hello Zork"),
        CALM,
    )
    assert (unit(d).text, unit(d).is_bare) == ("what is my name?", False)


def test_a_text_before_the_last_message_is_told_before_it() -> None:
    d = driver()
    d.do(ItemCreated("user", "what is my name?"))
    tell(d, KIND)
    d.do(CREATE)
    assert unit(d).messages == (ContextMessage("user", "what is my name?"), KIND)
    assert (unit(d).text, unit(d).closes_input, unit(d).is_bare) == ("", True, False)


def test_an_item_in_between_is_told_in_between() -> None:
    d = driver()
    tell(d, KIND, A)
    tell(d, CALM, B)
    d.do(ItemCreated("assistant", "so?", previous_item_id=A))
    d.do(ItemCreated("system", "first of all", previous_item_id=ItemId("root")))
    d.do(ItemCreated("user", "hi"))
    d.do(CREATE)
    assert [each.text for each in unit(d).messages] == ["first of all", "be kind", "so?", "be calm"]


def test_a_message_goes_with_what_is_said_next() -> None:
    d = driver(AUTO)
    tell(d, KIND)
    d.append(1000)
    assert (unit(d).messages, len(unit(d).pcm)) == ((KIND,), UNIT_BYTES)
    d.listen()
    d.append(1000)
    assert unit(d).messages == ()


def test_a_message_waits_behind_a_text_that_waits() -> None:
    d = driver(AUTO)
    d.do(ItemCreated("user", "hi"))
    tell(d, KIND)
    d.append(1000)
    assert unit(d).messages == ()
    d.listen()
    d.do(CREATE)
    assert unit(d).messages == (ContextMessage("user", "hi"), KIND)


def test_a_message_goes_with_a_spoken_turn() -> None:
    d = driver()
    tell(d, KIND)
    d.append(300, speech=True)
    d.do(InputCommitted(create_response=True))
    assert unit(d).messages == (KIND,)
    assert len(unit(d).pcm) == UNIT_BYTES  # whole units


def test_a_deleted_message_is_not_told() -> None:
    d = driver()
    tell(d, KIND, A)
    tell(d, CALM, B)
    d.do(ItemCreated("user", "hi"))
    d.do(ItemDeleted(A))
    d.do(CREATE)
    assert unit(d).messages == (CALM,)


def test_a_cancelled_answer_gives_its_messages_back() -> None:
    d = driver()
    tell(d, KIND)
    d.do(ItemCreated("user", "hi"))
    d.do(CREATE)
    first = unit(d)
    d.do(ResponseCancelRequested())
    assert len(d.asked(SubmitUnit)) == 1  # nothing goes out by itself
    d.do(CREATE)
    assert unit(d) == first


def test_an_interrupted_unit_of_the_stream_gives_its_messages_back() -> None:
    d = driver(AUTO)
    tell(d, KIND)
    tell(d, CALM)
    d.append(1000)
    d.do(InputCancelled())  # what was said is gone, what was told is not
    d.append(1000)
    assert unit(d).messages == (KIND, CALM)


def fail(d: Driver) -> None:
    failed = d.last_unit()
    d.do(UnitFailed(failed.fence, failed.seq, StageFailed("no")))


def test_a_failed_turn_leaves_its_messages() -> None:
    d = driver()
    d.do(ItemCreated("user", "lost with its turn"))
    tell(d, KIND)
    d.append(1000, speech=True)
    d.do(InputCommitted(create_response=True))
    fail(d)
    d.do(ItemCreated("user", "hi"))
    d.do(CREATE)
    assert (unit(d).messages, unit(d).text) == ((KIND,), "hi")


def test_a_failed_unit_of_the_stream_leaves_its_messages() -> None:
    d = driver(AUTO)
    tell(d, KIND)
    d.append(1000)
    fail(d)
    d.append(1000)
    assert unit(d).messages == (KIND,)


def test_input_that_is_cancelled_leaves_messages() -> None:
    d = driver()
    tell(d, KIND)
    d.do(ItemCreated("user", "never mind"))
    d.do(InputCancelled())
    d.do(BARE)
    assert (unit(d).messages, unit(d).text) == ((KIND,), "")


def test_messages_count_among_what_waits() -> None:
    limits = SessionLimits(max_pending_input_bytes_per_session=10)
    d = Driver(TURN_MODE, profile=TOLD, limits=limits)
    tell(d, KIND)
    tell(d, CALM)
    assert codes(d) == ["input_backpressure"]


# --- bare responses ---------------------------------------------------------------------------


def test_a_bare_response_asks_over_silence_where_nothing_less_is_taken() -> None:
    d = driver()
    d.do(BARE)
    assert unit(d) == Unit(bytes(UNIT_BYTES), closes_input=True, is_bare=True)
    d.speak("Hello.")
    assert d.said(ResponseStarted)
    assert not codes(d)


def test_a_bare_response_asks_over_nothing_where_that_is_taken() -> None:
    d = driver(accepts_short_units=True)
    tell(d, KIND)
    d.do(BARE)
    assert unit(d) == Unit(b"", closes_input=True, is_bare=True, messages=(KIND,))


def test_a_response_that_may_be_bare_answers_what_there_is() -> None:
    d = driver()
    d.do(ItemCreated("user", "hi"))
    d.do(BARE)
    assert (unit(d).text, unit(d).is_bare) == ("hi", False)


def test_a_cancelled_bare_response_does_not_come_back() -> None:
    d = driver()
    d.do(BARE)
    d.do(ResponseCancelRequested())
    assert [each.status for each in d.said(ResponseFinished)] == ["cancelled"]
    assert len(d.asked(SubmitUnit)) == 1
    d.do(CREATE)
    assert codes(d) == ["response_create_without_input"]


def test_a_bare_response_that_has_not_gone_out_does_not_either() -> None:
    d = driver(AUTO)
    d.append(1000)
    d.do(BARE)
    d.do(ResponseCancelRequested())
    d.append(1000)
    assert not any(each.unit.is_bare for each in d.asked(SubmitUnit))


def test_messages_of_a_cancelled_bare_response_wait_for_what_is_said() -> None:
    d = driver(AUTO)
    tell(d, KIND)
    d.do(BARE)
    d.do(ResponseCancelRequested())
    assert len(d.asked(SubmitUnit)) == 1
    d.append(1000)
    assert (unit(d).messages, unit(d).is_bare) == ((KIND,), False)

"""Items of the conversation: created, found, deleted, and refused."""

from dataclasses import replace

import pytest

from session.config import ResponseOptions, SessionLimits
from session.events import (
    ErrorRaised,
    ResponseStarted,
)
from session.ids import ItemId
from session.item_events import (
    InputTranscribed,
    ItemAdded,
    ItemRemoved,
    ItemShown,
)
from session.ledger.history import KEPT_ITEMS
from session.stimuli import (
    InputCommitted,
    ItemCreated,
    ItemDeleted,
    ItemRetrieved,
    ResponseRequested,
)
from tests.session.driver import AUTO_VAD, PROFILE, TURN_MODE, Driver, names, speaking

CREATE = ResponseRequested(ResponseOptions())
A, B = ItemId("a"), ItemId("b")


def codes(driver: Driver) -> list[str]:
    return [each.error.wire_code for each in driver.said(ErrorRaised)]


def test_an_item_is_found_until_it_is_deleted() -> None:
    d = Driver()
    d.do(ItemCreated("user", "hello", item_id=A))
    assert d.said(ItemShown, d.do(ItemRetrieved(A)))[0].item.text == "hello"
    assert names(d.do(ItemDeleted(A))) == ["ItemRemoved"]
    d.do(ItemRetrieved(A, "r1"))
    d.do(ItemDeleted(A, "d1"))
    assert codes(d) == ["item_not_found"] * 2
    assert [each.event_id for each in d.said(ErrorRaised)] == ["r1", "d1"]
    assert d.said(ItemRemoved) == [ItemRemoved(A)]


def test_a_deleted_text_is_not_answered() -> None:
    d = Driver(TURN_MODE)
    d.do(ItemCreated("user", "hello", item_id=A))
    d.do(ItemDeleted(A))
    d.do(CREATE)
    assert codes(d) == ["response_create_without_input"]


def test_an_id_is_taken_once() -> None:
    d = Driver()
    d.do(ItemCreated("user", "hello", item_id=A))
    d.do(ItemCreated("user", "again", item_id=A))
    assert codes(d) == ["item_create_duplicate_item_id"]
    assert d.remembered(A) == "hello"


@pytest.mark.parametrize(
    ("created", "code", "param"),
    [
        (ItemCreated("user", "x", item_id=ItemId("root")), "unsupported_option", "item.id"),
        (ItemCreated("user", "x", previous_item_id=B), "item_not_found", "previous_item_id"),
        (ItemCreated("system", "x"), "unsupported_item_role", "item.role"),
        (ItemCreated("assistant", "x"), "unsupported_item_role", "item.role"),
        (
            ItemCreated("tool", "x", call_id="call_1"),
            "invalid_function_call_output",
            "item.call_id",
        ),
    ],
)
def test_what_can_not_be_an_item_changes_nothing(
    created: ItemCreated, code: str, param: str
) -> None:
    d = Driver()
    d.do(created)
    (refusal,) = d.said(ErrorRaised)
    assert (refusal.error.wire_code, refusal.error.param) == (code, param)
    assert d.said(ItemAdded) == []


def test_a_model_without_tools_takes_no_output_and_says_so() -> None:
    d = Driver(profile=replace(PROFILE, tools=False))
    d.do(ItemCreated("tool", "x", call_id="call_1"))
    assert "calls no tools" in d.said(ErrorRaised)[0].error.message


def test_a_conversation_may_be_brought_along() -> None:
    """Items of text wait for response.create; the bound on spoken turns is not theirs."""
    d = Driver(TURN_MODE, limits=SessionLimits(max_pending_turns_per_session=2))
    for _ in range(KEPT_ITEMS + 1):
        d.do(ItemCreated("user", "x"))
    assert codes(d) == ["input_backpressure"]
    assert len(d.said(ItemAdded)) == KEPT_ITEMS


def test_text_that_waits_is_bounded_in_bytes() -> None:
    d = Driver(TURN_MODE, limits=SessionLimits(max_pending_input_bytes_per_session=10))
    d.do(ItemCreated("user", "0123456789"))
    d.do(ItemCreated("user", "x"))
    assert codes(d) == ["input_backpressure"]


def test_an_item_takes_the_place_it_names() -> None:
    d = Driver()
    d.do(ItemCreated("user", "2", item_id=B))
    d.do(ItemCreated("user", "1", item_id=A, previous_item_id=ItemId("root")))
    d.do(ItemCreated("user", "3", previous_item_id=B))
    assert [each.previous_item_id for each in d.said(ItemAdded)] == [None, None, B]


def test_an_answer_in_progress_can_not_be_deleted() -> None:
    d = Driver()
    speaking(d)
    d.do(ItemDeleted(d.said(ResponseStarted)[0].item_id))
    assert codes(d) == ["item_in_progress"]


# --- words that come late -------------------------------------------------------------------------


def test_the_words_of_a_deleted_item_are_nobodys() -> None:
    d = Driver(TURN_MODE)
    d.append(1000, speech=True)
    d.do(InputCommitted(create_response=True))
    item_id = d.said(ItemAdded)[0].item.item_id
    d.do(ItemDeleted(item_id))
    d.listen(heard="hello", turn_end=True)
    assert d.said(InputTranscribed) == []
    assert [added.item.item_id for added in d.said(ItemAdded)].count(item_id) == 1


def test_what_is_committed_after_the_words_were_told_is_an_item_of_its_own() -> None:
    d = Driver(AUTO_VAD)
    d.append(1000, probability=0.98)
    d.listen(heard="hello")
    [told] = d.said(InputTranscribed)
    d.do(ItemDeleted(told.item_id))
    d.append(500, probability=0.98)
    d.do(InputCommitted())
    assert d.said(ItemAdded)[-1].item.item_id != told.item_id

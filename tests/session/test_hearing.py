"""Each item of the user is heard for its words, also where no answer is wanted."""

from dataclasses import replace

import pytest

from session.config import ResponseOptions, SessionConfig
from session.effects import SubmitUnit
from session.events import (
    InputItemCommitted,
    ResponseFinished,
)
from session.ids import ItemId
from session.item_events import (
    InputTranscribed,
)
from session.stimuli import (
    InputCommitted,
    ItemCreated,
    ResponseCancelRequested,
    ResponseRequested,
)
from tests.session.driver import PROFILE, TURN_MODE, UNIT_BYTES, Driver

WANTS_WORDS = replace(TURN_MODE, wants_transcription=True)
HEARS = replace(PROFILE, input_transcription=True, accepts_short_units=True)
COMMIT = InputCommitted(create_response=False, is_speech=True)
CREATE = ResponseRequested(ResponseOptions(), is_bare=True)


def committed() -> Driver:
    """Say something for a second and commit it."""
    d = Driver(WANTS_WORDS, profile=HEARS)
    d.append(1000)
    d.do(COMMIT)
    return d


def words(d: Driver) -> list[tuple[str, str]]:
    """Return what was told of each item, in order."""
    return [(event.item_id, event.transcript) for event in d.said(InputTranscribed)]


def items(d: Driver) -> list[str]:
    """Return the committed items, in order."""
    return [event.item_id for event in d.said(InputItemCommitted)]


def test_what_is_committed_is_heard_and_answered_later() -> None:
    d = committed()
    unit = d.last_unit().unit
    assert (unit.is_heard_only, unit.closes_input, unit.force_listen) == (True, False, True)
    assert len(unit.pcm) == UNIT_BYTES
    d.listen(heard="hello")
    assert words(d) == [(items(d)[0], "hello")]
    d.do(CREATE)
    asked = d.last_unit().unit
    assert (asked.is_bare, asked.pcm, asked.is_heard_only) == (True, b"", False)
    d.speak("hi")
    d.voice("hi", turn_end=True)
    d.voiced()
    assert d.said(ResponseFinished)[0].status == "completed"


def test_each_item_has_its_own_words() -> None:
    d = committed()
    d.append(1000)
    d.do(COMMIT)
    assert len(d.asked(SubmitUnit)) == 1, "one at a time"
    d.listen(heard="one")
    d.listen(heard="two")
    assert words(d) == list(zip(items(d), ("one", "two"), strict=True))


def test_an_item_without_words_says_so() -> None:
    d = committed()
    d.listen()
    assert words(d) == [(items(d)[0], "")]


def test_an_answer_asked_for_while_the_model_listens_comes_after_that() -> None:
    d = committed()
    d.do(CREATE)
    assert len(d.asked(SubmitUnit)) == 1
    d.listen(heard="hello")
    assert d.last_unit().unit.is_bare
    assert words(d) == [(items(d)[0], "hello")]


@pytest.mark.parametrize("config", [WANTS_WORDS, TURN_MODE], ids=["asked for", "told anyway"])
def test_of_several_items_that_one_answer_is_to_each_has_its_own_words(
    config: SessionConfig,
) -> None:
    d = Driver(config, profile=HEARS)
    names = [ItemId(name) for name in ("a", "b", "c")]
    for place, name in enumerate(names):
        d.do(ItemCreated("user", "", item_id=name, pcm=bytes([place + 1]) * UNIT_BYTES))
    d.do(CREATE)
    for word in ("one", "two"):
        assert d.last_unit().unit.is_heard_only
        d.listen(heard=word)
    unit = d.last_unit().unit
    assert (unit.closes_input, unit.is_heard_only) == (True, False)
    d.speak("hi", heard="three")
    assert words(d) == list(zip(names, ("one", "two", "three"), strict=True))
    assert b"".join(out.unit.pcm for out in d.asked(SubmitUnit)) == b"".join(
        bytes([place]) * UNIT_BYTES for place in (1, 2, 3)
    )


def test_what_was_said_over_an_interrupted_answer_has_its_own_words() -> None:
    d = Driver(TURN_MODE, profile=HEARS)
    d.append(1000)
    d.do(replace(COMMIT, create_response=True))
    d.do(ResponseCancelRequested())  # the first has not been heard by then
    d.append(1000)
    d.do(replace(COMMIT, create_response=True))
    assert d.last_unit().unit.is_heard_only
    d.listen(heard="first")
    assert d.last_unit().unit.closes_input
    d.speak("hi", heard="second")
    assert words(d) == list(zip(items(d), ("first", "second"), strict=True))


def test_a_cancelled_answer_to_several_items_is_asked_for_again() -> None:
    d = Driver(WANTS_WORDS, profile=HEARS)
    for name in ("a", "b"):
        d.do(ItemCreated("user", "", item_id=ItemId(name), pcm=bytes(UNIT_BYTES)))
    d.do(CREATE)
    d.do(ResponseCancelRequested())
    d.listen(heard="one")
    d.listen(heard="two")
    assert words(d) == [("a", "one"), ("b", "two")]
    d.do(CREATE)
    assert d.last_unit().unit.is_bare


def test_what_an_answer_does_not_see_is_not_heard_for_it() -> None:
    profile = replace(HEARS, messages=True, response_options=frozenset({"input"}))
    d = Driver(WANTS_WORDS, profile=profile)
    d.do(ItemCreated("user", "first"))
    for name in ("a", "b"):
        d.do(ItemCreated("user", "", item_id=ItemId(name), pcm=bytes(UNIT_BYTES)))
    d.do(ResponseRequested(ResponseOptions(is_out_of_band=True, input=())))
    assert (d.last_unit().unit.is_fresh, d.last_unit().unit.is_heard_only) == (True, False)


def test_what_was_written_before_is_told_with_all_that_was_said() -> None:
    d = Driver(WANTS_WORDS, profile=HEARS)
    d.do(ItemCreated("user", "first"))
    for name in ("a", "b"):
        d.do(ItemCreated("user", "", item_id=ItemId(name), pcm=bytes(UNIT_BYTES)))
    d.do(CREATE)
    unit = d.last_unit().unit
    assert (unit.text, len(unit.pcm), unit.is_heard_only) == ("first", 2 * UNIT_BYTES, False)


def test_what_a_cancelled_answer_was_to_is_heard_all_the_same() -> None:
    d = Driver(WANTS_WORDS, profile=HEARS)
    d.append(1000)
    d.do(replace(COMMIT, create_response=True))
    assert d.last_unit().unit.closes_input
    d.do(ResponseCancelRequested())
    assert d.last_unit().unit.is_heard_only
    d.listen(heard="hello")
    assert words(d) == [(items(d)[0], "hello")]


def test_written_items_keep_their_place_and_wait() -> None:
    d = Driver(WANTS_WORDS, profile=HEARS)
    d.do(ItemCreated("user", "first"))
    d.append(1000)
    d.do(COMMIT)
    assert d.asked(SubmitUnit) == []
    d.do(CREATE)
    unit = d.last_unit().unit
    assert (unit.text, len(unit.pcm), unit.closes_input) == ("first", UNIT_BYTES, True)


def test_a_model_that_takes_whole_units_gets_them() -> None:
    d = Driver(WANTS_WORDS, profile=replace(HEARS, accepts_short_units=False))
    d.append(700)
    d.do(COMMIT)
    assert len(d.last_unit().unit.pcm) == UNIT_BYTES


@pytest.mark.parametrize(
    ("config", "profile"),
    [
        (TURN_MODE, HEARS),
        (WANTS_WORDS, replace(HEARS, input_transcription=False)),
    ],
)
def test_otherwise_it_waits_to_be_asked_about(config: object, profile: object) -> None:
    d = Driver(config, profile=profile)  # type: ignore[arg-type]  # as above
    d.append(1000)
    d.do(COMMIT)
    assert d.asked(SubmitUnit) == []

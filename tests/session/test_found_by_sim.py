"""Faults that the simulator found, each as the shortest story that shows it."""

from dataclasses import replace

from session.config import ResponseOptions, SessionLimits, TurnDetection
from session.events import (
    ErrorRaised,
    InputItemCommitted,
    ResponseFinished,
    UserSpeechStarted,
)
from session.item_events import (
    ItemAdded,
)
from session.stimuli import (
    AudioAppended,
    BargedIn,
    InputCommitted,
    ItemCreated,
    ItemDeleted,
    ResponseCancelRequested,
    ResponseRequested,
    SpeechScore,
    Ticked,
)
from tests.session.driver import AUTO, AUTO_VAD, TURN_MODE, UNIT_BYTES, WORDLESS, Driver


def test_an_answer_ends_when_its_last_continuation_still_speaks_without_sound() -> None:
    # Nothing is spoken, so no end of a speech comes; and no further unit was ever due.
    driver = Driver(
        replace(AUTO, output_modalities=("text",)), limits=SessionLimits(max_continuations=1)
    )
    driver.append(1000)
    driver.speak("one ", turn_end=False)
    driver.now += 3
    driver.do(Ticked())
    assert driver.last_unit().unit.is_continuation
    driver.speak("two ", turn_end=False)
    assert [done.status for done in driver.said(ResponseFinished)] == ["completed"]


def test_a_commit_after_the_words_were_told_makes_another_item() -> None:
    driver = Driver(AUTO_VAD)
    driver.append(1000, probability=0.9)
    driver.listen(heard="hi there")
    driver.do(InputCommitted(create_response=True))
    told, committed = driver.said(ItemAdded)
    assert told.item.item_id != committed.item.item_id
    assert committed.previous_item_id == told.item.item_id
    assert driver.remembered(told.item.item_id) == "hi there"


def test_an_item_that_was_told_and_deleted_does_not_come_back_with_the_commit() -> None:
    driver = Driver(AUTO_VAD)
    driver.append(1000, probability=0.9)
    driver.listen(heard="hi there")
    told = driver.said(ItemAdded)[0].item.item_id
    driver.do(ItemDeleted(told))
    driver.do(InputCommitted(create_response=True))
    assert driver.said(ItemAdded)[-1].item.item_id != told


def test_an_id_that_was_promised_to_speech_is_taken() -> None:
    driver = Driver(AUTO_VAD)
    driver.append(1000, probability=0.98)
    spoken = driver.said(UserSpeechStarted)[0].item_id
    driver.do(ItemCreated("user", "hello", item_id=spoken))
    assert [e.error.wire_code for e in driver.said(ErrorRaised)] == [
        "item_create_duplicate_item_id"
    ]


def test_an_id_that_was_promised_to_deferred_speech_is_taken() -> None:
    driver = Driver(TURN_MODE)
    driver.append(1000, speech=True)
    driver.do(InputCommitted(create_response=True))
    driver.append(1000, speech=True)
    driver.do(InputCommitted())
    deferred = driver.said(InputItemCommitted)[-1]
    assert deferred.is_deferred
    driver.do(ItemCreated("user", "hello", item_id=deferred.item_id))
    assert driver.said(ErrorRaised)[-1].error.wire_code == "item_create_duplicate_item_id"


def test_the_model_hears_turns_in_the_order_they_came() -> None:
    driver = Driver(TURN_MODE, profile=WORDLESS)
    earlier, later = bytes(UNIT_BYTES), b"\x01" * UNIT_BYTES
    driver.do(AudioAppended(earlier, is_speech=True))
    driver.do(InputCommitted(create_response=True))
    driver.do(AudioAppended(later, is_speech=True))
    driver.do(InputCommitted())
    # What was out comes back and is asked for no more; the deferred turn wants an answer.
    driver.do(ResponseCancelRequested())
    assert driver.last_unit().unit.pcm == earlier + later
    driver.do(BargedIn())
    driver.do(ResponseRequested(ResponseOptions()))
    assert driver.last_unit().unit.pcm == earlier + later


def test_deferred_speech_becomes_a_turn_before_what_is_committed_after_it() -> None:
    driver = Driver(replace(TURN_MODE, turn_detection=TurnDetection(interrupt_response=False)))
    driver.append(1000, probability=0.98)
    driver.do(InputCommitted(create_response=True))
    driver.append(1000, probability=0.98)
    driver.do(InputCommitted())
    deferred = driver.said(InputItemCommitted)[-1]
    assert deferred.is_deferred
    driver.append(1000, probability=0.98)
    # One append ends the answer and the utterance that is spoken over it.
    samples = driver.heard_samples
    scores = tuple(SpeechScore(0.0, samples + 512 * n) for n in range(1, 32))
    driver.do(AudioAppended(bytes(UNIT_BYTES), scores=scores, overlap_action="barge_in"))
    added = [event.item.item_id for event in driver.said(ItemAdded)]
    committed = driver.said(InputItemCommitted)[-1].item_id
    assert added.index(deferred.item_id) < added.index(committed)

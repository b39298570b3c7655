"""Items of the user that come with their audio."""

from dataclasses import replace

from session.config import ResponseOptions, SessionLimits
from session.effects import SubmitUnit
from session.events import (
    ErrorRaised,
)
from session.ids import ItemId
from session.item_events import (
    InputTranscribed,
    ItemAdded,
)
from session.ledger.input import InputLedger
from session.stimuli import (
    InputCancelled,
    InputCommitted,
    ItemCreated,
    ItemDeleted,
    ResponseCancelRequested,
    ResponseRequested,
)
from session.unit import Unit
from tests.session.driver import AUTO, PROFILE, TURN_MODE, UNIT_BYTES, WORDLESS, Driver

CREATE = ResponseRequested(ResponseOptions())
A, B = ItemId("a"), ItemId("b")
PCM = bytes(range(1, 251)) * 128  # one second


def spoken(item_id: ItemId | None = None, text: str = "", pcm: bytes = PCM) -> ItemCreated:
    return ItemCreated("user", text, item_id=item_id, pcm=pcm)


def unit(d: Driver) -> Unit:
    return d.last_unit().unit


def ledger(d: Driver) -> InputLedger:
    return d.session._state.input  # noqa: SLF001


def codes(d: Driver) -> list[str]:
    return [each.error.wire_code for each in d.said(ErrorRaised)]


def test_an_audio_item_is_answered_when_that_is_asked_for() -> None:
    d = Driver(TURN_MODE)
    d.do(spoken(A))
    (added,) = d.said(ItemAdded)
    assert (added.item.is_audio, added.item.audio_ms, added.item.role) == (True, 1000, "user")
    assert not d.asked(SubmitUnit)
    d.do(CREATE)
    assert (unit(d).pcm, unit(d).is_speech, unit(d).closes_input) == (PCM, True, True)
    d.speak("hi", heard="what I said")
    assert d.said(InputTranscribed) == [InputTranscribed(A, "what I said", 1000)]
    assert d.remembered(A) == "what I said"


def test_a_model_that_takes_no_text_takes_audio() -> None:
    d = Driver(TURN_MODE, profile=replace(PROFILE, text_input=False))
    d.do(spoken(A, "and text"))
    assert codes(d) == ["text_only_turn_unsupported"]
    d.do(spoken(A))
    d.do(CREATE)
    assert unit(d).pcm == PCM


def test_audio_and_text_of_an_item_go_out_together() -> None:
    d = Driver(TURN_MODE)
    d.do(spoken(A, "look"))
    d.do(CREATE)
    assert (unit(d).pcm, unit(d).text) == (PCM, "look")


def test_every_byte_is_somewhere() -> None:
    d = Driver(TURN_MODE, profile=WORDLESS)
    d.append(500, speech=True)
    d.do(spoken(A))
    d.do(spoken(B))
    d.do(ItemDeleted(A))
    assert ledger(d).discarded["deleted"] == len(PCM)
    d.do(InputCommitted(create_response=True))
    # Items in their order, then what was said into the buffer.
    assert unit(d).pcm.startswith(PCM + bytes(16_000))
    d.do(ResponseCancelRequested())
    assert ledger(d).pending_bytes == len(PCM) + 16_000
    d.do(InputCancelled())
    assert ledger(d).pending_bytes == 0
    assert (ledger(d).total_bytes, ledger(d).item_bytes) == (16_000, 2 * len(PCM))


def test_an_audio_item_does_not_move_the_place_of_speech() -> None:
    d = Driver(AUTO)
    d.append(1000)
    d.listen()
    d.do(spoken(A))
    d.append(1000)
    assert len(unit(d).pcm) == UNIT_BYTES
    assert ledger(d).total_bytes == 2 * UNIT_BYTES


def test_the_words_of_an_item_wait_until_the_model_has_heard_it() -> None:
    d = Driver(AUTO)
    d.append(1000)
    d.do(spoken(A))
    d.listen()  # the unit before knew nothing of the item
    d.append(1000)
    d.listen()
    d.do(CREATE)
    d.speak("hi", heard="what I said")
    assert d.remembered(A) == "what I said"


def test_spoken_items_that_wait_are_bounded() -> None:
    d = Driver(TURN_MODE, limits=SessionLimits(max_pending_turns_per_session=2))
    d.do(spoken(A))
    d.do(spoken(B))
    d.do(spoken())
    d.do(ItemCreated("user", "text may still come"))
    assert codes(d) == ["input_backpressure"]


def test_the_size_of_what_waits_is_bounded() -> None:
    limits = SessionLimits(max_pending_input_bytes_per_session=len(PCM))
    d = Driver(TURN_MODE, limits=limits)
    d.do(spoken(A))
    d.do(spoken(B, pcm=b"\x01\x02"))
    assert codes(d) == ["input_backpressure"]


def test_audio_items_of_an_opening_session_count() -> None:
    limits = SessionLimits(max_pending_input_bytes_per_session=len(PCM) + 2048)
    d = Driver(TURN_MODE, limits=limits, opened=False)
    d.do(spoken(A))
    d.do(spoken(B))
    held = d.session._held  # noqa: SLF001
    assert [type(each).__name__ for each in held] == ["ItemCreated", "EventRefused"]

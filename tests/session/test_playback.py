"""What the client says it has played: cursors, whose they are, and what the history keeps."""

from dataclasses import replace

import pytest

from session.config import PlaybackCommitPolicy, ResponseOptions
from session.errors import StageFailed
from session.events import (
    ErrorRaised,
    PlaybackAdvanced,
    ResponseFinished,
    ResponseStarted,
    SpeechDelta,
)
from session.ids import ItemId, ResponseId
from session.item_events import (
    TextMark,
)
from session.ledger.playback import KEPT_ANSWERS, KEPT_IDS, PlaybackLedger
from session.snapshot import Playback
from session.stimuli import (
    BargedIn,
    ItemCreated,
    ItemDeleted,
    PlaybackAcked,
    ResponseRequested,
    SpeechFailed,
)
from tests.session.driver import AUTO, TURN_MODE, Driver, speaking

COMMIT_ALL = replace(AUTO, playback_commit_policy=PlaybackCommitPolicy.COMMIT_ALL_ON_DONE)
CREATE = ResponseRequested(ResponseOptions())


def codes(driver: Driver) -> list[str]:
    return [each.error.wire_code for each in driver.said(ErrorRaised)]


def answered(driver: Driver, text: str = "one two") -> ResponseStarted:
    """Give one whole answer of 1000 ms."""
    driver.do(ItemCreated("user", "and?"))
    driver.do(CREATE)
    driver.speak(text)
    driver.voice(text, 1000, turn_end=True)
    driver.voiced()
    return driver.said(ResponseStarted)[-1]


def at(driver: Driver) -> tuple[int, int]:
    """Cursors that the newest acknowledgement was answered with."""
    playback = driver.said(PlaybackAdvanced)[-1].playback
    return playback.played_ms, playback.committed_ms


# --- cursors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("acks", "cursors"),
    [
        ([(400, None)], (400, 400)),
        ([(400, 100)], (400, 100)),
        ([(400, 100), (400, None)], (400, 400)),
        ([(700, None), (300, None)], (700, 700)),
        ([(700, 200), (300, None)], (700, 300)),
        ([(700, 200), (300, 100)], (700, 200)),
        ([(500, None), (500, None)], (500, 500)),
        ([(9000, None)], (1000, 1000)),
        ([(0, 0)], (0, 0)),
    ],
)
def test_cursors_only_go_forward(
    acks: list[tuple[int, int | None]], cursors: tuple[int, int]
) -> None:
    d = Driver()
    speaking(d)
    for played_ms, committed_ms in acks:
        d.do(PlaybackAcked(played_ms, committed_ms))
    assert at(d) == cursors
    assert codes(d) == []


def test_an_acknowledgement_before_the_rest_was_sent_counts_as_far_as_that() -> None:
    d = Driver()
    speaking(d)
    d.do(PlaybackAcked(1500))
    assert at(d) == (1000, 1000)
    d.voice(" three", 1000)
    d.do(PlaybackAcked(1500))
    assert at(d) == (1500, 1500)


def test_text_marks_tell_what_was_heard_when() -> None:
    d = Driver()
    d.append(1000)
    d.speak("one two three four")
    d.voice("one two ", 1000)
    d.voice("three four", 2000)
    assert [each.marks for each in d.said(SpeechDelta)] == [
        (TextMark(8, 1000),),
        (TextMark(18, 3000),),
    ]
    item_id = d.said(ResponseStarted)[0].item_id
    heard = []
    for played_ms in (0, 400, 1000, 1900, 2300, 3000):
        d.do(PlaybackAcked(played_ms))
        heard.append(d.remembered(item_id))
    assert heard == ["", "one", "one two", "one two", "one two three", "one two three four"]


# --- whose it is ------------------------------------------------------------------------------


def test_nothing_and_a_stranger_are_not_found() -> None:
    d = Driver()
    d.do(PlaybackAcked(played_ms=10))
    d.do(PlaybackAcked(played_ms=10, response_id=ResponseId("resp_x")))
    d.do(PlaybackAcked(played_ms=10, item_id=ItemId("item_resp_x")))
    assert codes(d) == ["playback_item_not_found"] * 3


def test_an_item_whose_name_says_nothing_is_not_the_newest_answer() -> None:
    d = Driver()
    speaking(d)
    d.voice("one two ", 1000)
    d.do(PlaybackAcked(played_ms=10, item_id=ItemId("item_")))
    assert codes(d) == ["playback_item_not_found"]


def test_an_item_of_another_response_is_a_mismatch() -> None:
    d = Driver()
    speaking(d)
    response_id = d.said(ResponseStarted)[0].response_id
    d.do(PlaybackAcked(5, response_id=response_id, item_id=ItemId("item_other")))
    assert codes(d) == ["playback_item_mismatch"]
    assert d.said(PlaybackAdvanced) == []


def test_either_id_will_do() -> None:
    d = Driver(TURN_MODE)
    first = answered(d)
    answered(d)
    d.do(PlaybackAcked(300, response_id=first.response_id))
    d.do(PlaybackAcked(400, item_id=first.item_id))
    advanced = d.said(PlaybackAdvanced)
    assert {each.response_id for each in advanced} == {first.response_id}
    assert at(d) == (400, 400)


def test_without_an_id_the_one_that_waits_is_meant() -> None:
    d = Driver(TURN_MODE)
    first = answered(d)
    second = answered(d)
    d.do(PlaybackAcked(1000, response_id=second.response_id))
    d.do(PlaybackAcked(700))
    assert d.said(PlaybackAdvanced)[-1].response_id == first.response_id


def test_of_several_that_wait_the_one_in_progress_is_meant() -> None:
    d = Driver(TURN_MODE)
    answered(d)
    d.do(ItemCreated("user", "and?"))
    d.do(CREATE)
    d.speak("three")
    d.voice("three", 500)
    d.do(PlaybackAcked(100))
    active = d.said(ResponseStarted)[-1]
    assert d.said(PlaybackAdvanced)[-1].response_id == active.response_id


def test_before_its_first_sound_an_answer_in_progress_is_not_meant() -> None:
    d = Driver(TURN_MODE)
    first = answered(d)
    d.do(ItemCreated("user", "and?"))
    d.do(CREATE)
    d.do(PlaybackAcked(600))
    assert d.said(PlaybackAdvanced)[-1].response_id == first.response_id


def test_of_several_that_wait_and_are_over_the_newest_is_meant() -> None:
    d = Driver(TURN_MODE)
    answered(d)
    newest = answered(d)
    d.do(PlaybackAcked(600))
    assert d.said(PlaybackAdvanced)[-1].response_id == newest.response_id


def test_a_cancelled_answer_does_not_catch_what_is_said_of_a_later_one() -> None:
    d = Driver(TURN_MODE)
    d.do(ItemCreated("user", "and?"))
    d.do(CREATE)
    d.speak("one")
    d.voice("one", 1000)
    d.do(BargedIn())
    second = answered(d)
    d.do(PlaybackAcked(1000))
    d.do(PlaybackAcked(1000))
    assert [each.response_id for each in d.said(PlaybackAdvanced)] == [second.response_id] * 2


# --- late -------------------------------------------------------------------------------------


def test_a_cancelled_answer_still_learns_how_far_it_got() -> None:
    d = Driver()
    speaking(d, "one two three four")
    d.do(BargedIn())
    started = d.said(ResponseStarted)[0]
    assert d.remembered(started.item_id) == ""
    d.do(PlaybackAcked(600, response_id=started.response_id))
    assert d.remembered(started.item_id) == "one"


def test_a_superseded_answer_keeps_its_place_and_its_text_grows_there() -> None:
    d = Driver(TURN_MODE)
    first = answered(d)
    second = answered(d)
    d.do(PlaybackAcked(1000, response_id=first.response_id))
    assert d.remembered(first.item_id) == "one two"
    assert d.remembered(second.item_id) == ""


def test_a_deleted_answer_is_too_late_to_acknowledge() -> None:
    d = Driver(TURN_MODE)
    gone = answered(d)
    d.do(ItemDeleted(gone.item_id))
    d.do(PlaybackAcked(500, response_id=gone.response_id))
    d.do(PlaybackAcked(500, item_id=gone.item_id))
    assert codes(d) == ["playback_ack_too_late"] * 2
    assert d.said(PlaybackAdvanced) == []


def test_an_answer_too_many_ago_is_too_late_to_acknowledge() -> None:
    d = Driver(TURN_MODE)
    first = answered(d)
    for _ in range(KEPT_ANSWERS - 1):
        answered(d)
    d.do(PlaybackAcked(500, response_id=first.response_id))
    assert codes(d) == []
    answered(d)
    d.do(PlaybackAcked(600, response_id=first.response_id))
    assert codes(d) == ["playback_ack_too_late"]


def test_an_answer_that_is_forgotten_waits_no_more() -> None:
    ledger = PlaybackLedger()
    for n in range(KEPT_ANSWERS + 1):
        ledger.open(ResponseId(f"r{n}"))
        ledger.send(ResponseId(f"r{n}"), samples=2_400, text_chars=3, now=0.0)
    assert ledger.pending == [ResponseId(f"r{n}") for n in range(1, KEPT_ANSWERS + 1)]
    ledger.validate()


def test_the_memory_of_answers_is_bounded() -> None:
    ledger = PlaybackLedger()
    ids = [ResponseId(f"r{n}") for n in range(KEPT_ANSWERS + KEPT_IDS + 1)]
    for each in ids:
        ledger.open(each)
    assert [ledger.knows(each) for each in ids].count(True) == KEPT_ANSWERS
    assert not ledger.is_past(ids[0])
    assert ledger.is_past(ids[1])
    assert [ledger.is_past(each) for each in ids].count(True) == KEPT_IDS


# --- what the history keeps -------------------------------------------------------------------


def test_nothing_is_kept_until_it_is_acknowledged() -> None:
    d = Driver(TURN_MODE)
    answer = answered(d)
    done = d.said(ResponseFinished)[0]
    assert (done.is_committed, done.item.text) == (False, "one two")
    assert done.playback == Playback(1000, 1000, 0, 0)
    assert d.remembered(answer.item_id) == ""
    d.do(PlaybackAcked(1000))
    assert d.said(PlaybackAdvanced)[0].is_history_committed
    assert d.remembered(answer.item_id) == "one two"


def test_commit_all_on_done_counts_everything_as_heard() -> None:
    d = Driver(replace(COMMIT_ALL, auto_response=False))
    answer = answered(d)
    done = d.said(ResponseFinished)[0]
    assert done.is_committed
    assert done.playback == Playback(1000, 1000, 1000, 1000)
    assert d.remembered(answer.item_id) == "one two"


def test_commit_all_on_done_is_for_answers_that_are_done() -> None:
    d = Driver(COMMIT_ALL)
    speaking(d, "one two three four")
    d.do(PlaybackAcked(600))
    d.do(BargedIn())
    assert d.remembered(d.said(ResponseStarted)[0].item_id) == "one"


def test_of_a_failed_answer_only_what_was_heard_is_kept() -> None:
    d = Driver()
    speaking(d, "one two three four")
    d.do(PlaybackAcked(600))
    job = d.last_speech()
    d.do(SpeechFailed(job.fence, job.seq, StageFailed("vocoder")))
    done = d.said(ResponseFinished)[0]
    assert (done.status, done.item.status, done.item.text) == ("failed", "incomplete", "one")
    assert d.remembered(done.item.item_id) == "one"

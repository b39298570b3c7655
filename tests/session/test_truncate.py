"""Cutting an answer: nothing after the cut was heard, whatever is acknowledged later."""

from dataclasses import replace

import pytest

from session.config import PlaybackCommitPolicy, ResponseOptions
from session.events import (
    ErrorRaised,
    PlaybackAdvanced,
    ResponseStarted,
)
from session.ids import ItemId, ResponseId
from session.item_events import (
    ItemCut,
    ItemShown,
)
from session.ledger.playback import PlaybackLedger
from session.stimuli import (
    ItemCreated,
    ItemRetrieved,
    ItemTruncated,
    PlaybackAcked,
    ResponseCancelRequested,
    ResponseRequested,
    SpeechArrived,
)
from session.unit import SpeechChunk
from tests.session.driver import AUTO, TURN_MODE, Driver, speaking


def told(committed_ms: int | None = None) -> tuple[Driver, ItemId]:
    """Bring a session to the end of an answer of 1000 ms, so much of which was heard."""
    d = Driver()
    speaking(d, "one two three four five")
    d.voiced()
    if committed_ms is not None:
        d.do(PlaybackAcked(committed_ms))
    return d, d.said(ResponseStarted)[0].item_id


def codes(driver: Driver) -> list[str]:
    return [each.error.wire_code for each in driver.said(ErrorRaised)]


def test_a_cut_is_what_was_heard_and_caps_what_comes_later() -> None:
    d, item_id = told()
    d.do(ItemTruncated(item_id, 500))
    assert d.said(ItemCut)[0].audio_end_ms == 500
    assert d.remembered(item_id) == "one"
    d.do(PlaybackAcked(played_ms=1000))
    advanced = d.said(PlaybackAdvanced)[0]
    assert (advanced.playback.committed_ms, advanced.is_truncated) == (500, True)
    assert d.remembered(item_id) == "one"


def test_a_cut_before_what_was_acknowledged_takes_it_back() -> None:
    d, item_id = told(committed_ms=1000)
    assert d.remembered(item_id) == "one two t"
    d.do(ItemTruncated(item_id, 500))
    assert d.remembered(item_id) == "one"
    d.do(PlaybackAcked(played_ms=1000))
    assert d.remembered(item_id) == "one"
    # Cursors never go back, not even for a cut.
    assert d.said(PlaybackAdvanced)[-1].playback.committed_ms == 1000


def test_of_two_cuts_the_earlier_holds() -> None:
    d, item_id = told()
    d.do(ItemTruncated(item_id, 900))
    d.do(ItemTruncated(item_id, 400))
    d.do(ItemTruncated(item_id, 900))
    assert [each.audio_end_ms for each in d.said(ItemCut)] == [900, 400]
    assert codes(d) == ["invalid_value"]
    assert d.remembered(item_id) == "one"


def test_a_cut_at_the_end_and_at_the_beginning() -> None:
    d, item_id = told()
    d.do(ItemTruncated(item_id, 1000))
    assert d.remembered(item_id) == "one two t"
    d.do(ItemTruncated(item_id, 0))
    assert d.remembered(item_id) == ""


@pytest.mark.parametrize(("more_samples", "furthest_ms"), [(0, 1000), (1, 1001), (23, 1001)])
def test_a_client_that_rounds_up_may_name_a_millisecond_that_is_not_full(
    more_samples: int, furthest_ms: int
) -> None:
    d = Driver()
    speaking(d, "one two three four")
    item_id = d.said(ResponseStarted)[0].item_id
    job = d.last_speech()
    d.do(SpeechArrived(job.fence, job.seq, SpeechChunk(bytes(2 * more_samples), "")))
    d.voiced()
    d.do(ItemTruncated(item_id, furthest_ms + 1))
    assert codes(d) == ["invalid_value"]
    d.do(ItemTruncated(item_id, furthest_ms))
    d.do(ItemTruncated(item_id, furthest_ms))
    assert [each.audio_end_ms for each in d.said(ItemCut)] == [furthest_ms] * 2
    d.do(ItemTruncated(item_id, 400))
    d.do(ItemTruncated(item_id, 401))
    assert codes(d) == ["invalid_value"] * 2


def test_an_answer_that_was_cancelled_before_its_sound_has_0_ms() -> None:
    d = Driver(TURN_MODE)
    d.do(ItemCreated("user", "x"))
    d.do(ResponseRequested(ResponseOptions()))
    d.speak("one two")
    item_id = d.said(ResponseStarted)[0].item_id
    d.do(ResponseCancelRequested())
    d.do(ItemTruncated(item_id, 1))
    assert codes(d) == ["invalid_value"]
    d.do(ItemTruncated(item_id, 0))
    assert [each.audio_end_ms for each in d.said(ItemCut)] == [0]
    assert d.remembered(item_id) == ""


def test_what_is_not_there_can_not_be_cut() -> None:
    d, item_id = told()
    d.do(ItemTruncated(item_id, 1001))
    d.do(ItemCreated("user", "x", item_id=ItemId("item_u")))
    d.do(ItemTruncated(ItemId("item_u"), 0))
    d.do(ItemTruncated(ItemId("item_none"), 0))
    d.do(ItemTruncated(item_id, 0, content_index=1))
    assert codes(d) == [
        "invalid_value",
        "unsupported_content_type",
        "item_not_found",
        "invalid_value",
    ]
    assert d.said(ItemCut) == []


def test_a_written_answer_can_not_be_cut() -> None:
    d = Driver(TURN_MODE)
    d.do(ItemCreated("user", "x"))
    d.do(ResponseRequested(ResponseOptions(output_modalities=("text",))))
    d.speak("written")
    d.do(ItemTruncated(d.said(ResponseStarted)[0].item_id, 0))
    assert codes(d) == ["unsupported_content_type"]


@pytest.mark.parametrize("commits_all", [False, True])
def test_an_answer_in_progress_goes_on_and_stays_cut(commits_all: bool) -> None:
    policy = PlaybackCommitPolicy.COMMIT_ALL_ON_DONE if commits_all else AUTO.playback_commit_policy
    d = Driver(replace(AUTO, playback_commit_policy=policy))
    speaking(d, "one two three four")
    item_id = d.said(ResponseStarted)[0].item_id
    d.do(ItemTruncated(item_id, 500))
    d.voice("hree four", 1000, turn_end=True)
    d.voiced()
    d.do(PlaybackAcked(2000))
    assert d.remembered(item_id) == "one"
    shown = d.said(ItemShown, d.do(ItemRetrieved(item_id)))[0].item
    assert shown.status == "incomplete"


def test_the_ledger_keeps_the_smallest_cut() -> None:
    ledger = PlaybackLedger()
    answer = ResponseId("r")
    ledger.open(answer)
    ledger.send(answer, samples=24_000, text_chars=5, now=0.0)
    for cut_ms in (500, 900):
        ledger.cap(answer, cut_ms)
    assert ledger.cursor(answer).end_ms == 500


# --- the same by acknowledgement --------------------------------------------------------------


def test_an_acknowledgement_can_cut() -> None:
    d, item_id = told()
    d.do(PlaybackAcked(500, truncates=True))
    advanced = d.said(PlaybackAdvanced)[-1]
    assert (advanced.playback.committed_ms, advanced.is_truncated) == (500, True)
    assert d.said(ItemCut) == []
    d.do(PlaybackAcked(1000))
    assert d.said(PlaybackAdvanced)[-1].playback.committed_ms == 500
    assert d.remembered(item_id) == "one"
    shown = d.said(ItemShown, d.do(ItemRetrieved(item_id)))[0].item
    assert shown.status == "incomplete"


def test_it_cuts_where_hearing_ended_not_where_playing_did() -> None:
    d, item_id = told()
    d.do(PlaybackAcked(900, committed_ms=500, truncates=True))
    assert d.remembered(item_id) == "one"
    d.do(PlaybackAcked(1000))
    assert d.remembered(item_id) == "one"


def test_it_cuts_at_most_what_was_sent() -> None:
    d = Driver()
    speaking(d, "one two three four")
    d.do(PlaybackAcked(5000, truncates=True))
    d.voice("hree four", 1000)
    d.do(PlaybackAcked(2000))
    assert d.said(PlaybackAdvanced)[-1].playback.committed_ms == 1000


def test_an_answer_outside_the_conversation_can_be_cut_so_too() -> None:
    d = Driver(TURN_MODE)
    d.do(ItemCreated("user", "x"))
    d.do(ResponseRequested(ResponseOptions(is_out_of_band=True)))
    d.speak("one two")
    d.voice("one two", 1000)
    d.do(PlaybackAcked(300, truncates=True))
    assert d.said(PlaybackAdvanced)[-1].is_truncated
    d.do(PlaybackAcked(1000))
    assert d.said(PlaybackAdvanced)[-1].playback.committed_ms == 300

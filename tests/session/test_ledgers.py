import pytest

from session.errors import LocalProtocolError
from session.ids import ItemId, OperationId, ResponseId
from session.ledger.append import AppendLedger
from session.ledger.history import FRONT, KEPT_ITEMS, HistoryLedger, Item
from session.ledger.input import InputLedger
from session.ledger.playback import PlaybackLedger, whole_words
from session.ledger.spans import Span
from session.on_input import MAX_PIECES, has_room

A = ResponseId("a")


def test_input_bytes_keep_their_order_through_a_roll_back() -> None:
    ledger = InputLedger()
    for byte in b"abcdef":
        ledger.add(Span(bytes([byte, byte])))
    assert ledger.reserve_open(5).pcm == b"aabbc"
    ledger.roll_back()
    ledger.validate()
    assert ledger.reserve_open(12).pcm == b"aabbccddeeff"


def test_appends_are_counted_however_small_and_wherever_they_wait() -> None:
    ledger = InputLedger()
    for _ in range(MAX_PIECES // 2):
        ledger.add(Span(b"ab"))
    ledger.commit_open(ItemId("first"), is_wanted=False)
    for _ in range(MAX_PIECES // 2 - 1):
        ledger.add(Span(b"ab"))
    limit_bytes = 2 * MAX_PIECES
    assert has_room(ledger, 2, limit_bytes=limit_bytes)
    assert not has_room(ledger, 3, limit_bytes=limit_bytes)
    ledger.add_text("")
    assert not has_room(ledger, 2, limit_bytes=limit_bytes)
    ledger.discard_waiting("cancelled")
    assert has_room(ledger, limit_bytes, limit_bytes=limit_bytes)


def test_a_reservation_can_not_be_made_twice() -> None:
    ledger = InputLedger()
    ledger.add(Span(b"abcd"))
    ledger.reserve_open(2)
    with pytest.raises(LocalProtocolError):
        ledger.reserve_open(2)


def test_lost_bytes_are_noticed() -> None:
    ledger = InputLedger()
    ledger.add(Span(b"abcd"))
    ledger.reserve_open(2)
    ledger._reservation = None  # noqa: SLF001  # what a forgotten roll back would look like
    with pytest.raises(LocalProtocolError):
        ledger.validate()


def test_trimming_keeps_the_newest_bytes_and_counts_the_rest() -> None:
    ledger = InputLedger()
    for byte in b"abcdef":
        ledger.add(Span(bytes([byte]) * 2))
    ledger.discard_open("silence", keep_bytes=4)
    ledger.validate()
    assert ledger.open_bytes == 4
    assert ledger.discarded["silence"] == 8
    assert ledger.reserve_open(4).pcm == b"eeff"


def test_append_numbers_have_no_gap_after_a_roll_back() -> None:
    ledger = AppendLedger()
    first = ledger.begin(OperationId("o1"), 0, is_continuation=False, now=0.0)
    ledger.roll_back()
    again = ledger.begin(OperationId("o2"), 0, is_continuation=False, now=0.0)
    assert (first.seq, again.seq) == (1, 1)
    assert ledger.commit(7) is None
    assert ledger.commit(1) is again
    ledger.enter_epoch()
    assert ledger.begin(OperationId("o3"), 0, is_continuation=False, now=0.0).seq == 1


def make_playback(*chunks: tuple[str, int]) -> PlaybackLedger:
    ledger = PlaybackLedger()
    ledger.open(A)
    for text, ms in chunks:
        ledger.send(A, samples=ms * 24, text_chars=len(text), now=0.0)
    return ledger


def test_acknowledgements_are_monotonic_and_never_beyond_what_was_sent() -> None:
    ledger = make_playback(("hello", 1000))
    assert ledger.acknowledge(A, played_ms=600, committed_ms=None).committed_ms == 600
    assert ledger.acknowledge(A, played_ms=300, committed_ms=100).played_ms == 600
    view = ledger.acknowledge(A, played_ms=9999, committed_ms=9999)
    assert (view.played_ms, view.committed_ms) == (1000, 1000)
    ledger.validate()


def test_committed_never_passes_played() -> None:
    ledger = make_playback(("hello", 1000))
    view = ledger.acknowledge(A, played_ms=200, committed_ms=900)
    assert (view.played_ms, view.committed_ms) == (200, 200)


def test_a_truncation_caps_later_acknowledgements() -> None:
    ledger = make_playback(("hello", 1000))
    ledger.cap(A, 400)
    assert ledger.acknowledge(A, played_ms=900, committed_ms=None).played_ms == 400


def test_heard_text_follows_the_marks() -> None:
    ledger = make_playback(("one two ", 1000), ("three four", 1000))
    assert ledger.cursor(A).chars_by(0) == 0
    assert ledger.cursor(A).chars_by(500) == 4
    assert ledger.cursor(A).chars_by(1000) == 8
    assert ledger.cursor(A).chars_by(1500) == 13
    assert ledger.cursor(A).chars_by(5000) == 18


def test_a_client_that_never_acknowledges_does_not_play_for_ever() -> None:
    ledger = make_playback(("hello", 1000))
    assert ledger.outstanding(A, now=1.0)
    assert not ledger.outstanding(A, now=4.0)


def test_durations_do_not_drift_over_odd_chunks() -> None:
    ledger = PlaybackLedger()
    ledger.open(A)
    for _ in range(10_000):
        ledger.send(A, samples=241, text_chars=0, now=0.0)
    assert ledger.view(A).sent_ms == 10_000 * 241 // 24


@pytest.mark.parametrize(
    ("chars", "heard"),
    [(0, ""), (2, ""), (3, "one"), (4, "one"), (6, "one"), (7, "one two"), (99, "one two.")],
)
def test_half_heard_words_are_not_heard(chars: int, heard: str) -> None:
    assert whole_words("one two.", chars) == heard


def test_history_inserts_behind_and_forgets_the_oldest() -> None:
    ledger = HistoryLedger()
    for n in range(3):
        ledger.add(Item(ItemId(f"i{n}"), "user", str(n)))
    ledger.add(Item(ItemId("x"), "user", "x"), after=ItemId("i0"))
    assert [item.item_id for item in ledger.items] == ["i0", "x", "i1", "i2"]
    for n in range(KEPT_ITEMS):
        ledger.add(Item(ItemId(f"j{n}"), "user", ""))
    assert len(ledger) == KEPT_ITEMS
    assert ledger.get(ItemId("i0")) is None


def test_of_too_many_items_the_one_that_came_first_is_forgotten_wherever_it_is() -> None:
    ledger = HistoryLedger()
    names = [ItemId(f"item_{n}") for n in range(KEPT_ITEMS)]
    for name in names:
        ledger.add(Item(name, "user", "x"))
    ledger.add(Item(ItemId("front"), "system", "be calm"), after=FRONT)
    ledger.remove(names[2])
    ledger.add(Item(ItemId("second"), "user", "x"), after=ItemId("front"))
    ledger.add(Item(ItemId("last"), "user", "x"))
    kept = [ItemId("front"), ItemId("second"), *names[3:], ItemId("last")]
    assert [item.item_id for item in ledger.items] == kept
    assert len(kept) == KEPT_ITEMS


def test_an_item_that_is_gone_stays_gone() -> None:
    history = HistoryLedger()
    history.change(ItemId("a"), text="late")
    assert len(history) == 0


def test_a_chunk_of_nothing_leaves_no_mark() -> None:
    playback = PlaybackLedger()
    playback.open(A)
    playback.send(A, samples=0, text_chars=0, now=0.0)
    assert playback.marks(A) == ()


def test_what_nobody_asked_about_yet_stays_behind_what_is_asked_about() -> None:
    ledger = InputLedger()
    for text, is_wanted in (("one", True), ("two", False)):
        ledger.add_text(text)
        ledger.commit_open(ItemId(text), is_wanted=is_wanted)
    assert [turn.text for turn in ledger.reserve_turns().parts] == ["one"]
    assert ledger.turns == 1

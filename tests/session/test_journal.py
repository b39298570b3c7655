"""The replay journal: numbers without gaps, and three ways to forget."""

import pytest

from session.ledger.journal import Replay, ReplayJournal


def journal(*texts: str, max_bytes: int = 1_000, ttl_s: float = 60.0) -> ReplayJournal:
    kept = ReplayJournal(max_bytes, ttl_s)
    for second, text in enumerate(texts):
        kept.record(text, now=float(second))
    return kept


def test_everything_after_a_number_comes_back_as_it_was() -> None:
    kept = journal("a", "b", "c")
    assert kept.newest_seq == 3
    assert kept.after(0) == ("a", "b", "c")
    assert kept.after(2) == ("c",)
    assert kept.after(3) == ()


def test_an_acknowledgement_forgets_up_to_its_number_and_no_further() -> None:
    kept = journal("a", "bb", "ccc")
    kept.acknowledge(2)
    assert (kept.after(0), kept.n_bytes, kept.oldest_seq) == (("ccc",), 3, 3)
    kept.acknowledge(1)
    assert kept.after(0) == ("ccc",)
    kept.acknowledge(3)
    assert (len(kept), kept.n_bytes, kept.oldest_seq) == (0, 0, 4)


def test_what_is_too_old_is_forgotten() -> None:
    kept = journal("a", "b", "c", ttl_s=1.5)
    assert kept.after(0) == ("b", "c")
    kept.expire(now=2.5)
    assert kept.after(0) == ("b", "c")
    kept.expire(now=2.6)
    assert (kept.after(0), kept.n_bytes) == (("c",), 1)


def test_bytes_are_those_of_the_wire() -> None:
    assert journal("\u00e9\u00e9").n_bytes == 4


def test_too_much_at_once_ends_all_replay() -> None:
    kept = journal("x" * 6, "y" * 4, max_bytes=10)
    assert not kept.is_overflowed
    kept.record("z", now=2.0)
    assert kept.is_overflowed
    assert (len(kept), kept.n_bytes) == (0, 0)
    assert kept.offer(3, now=2.0).replay is Replay.JOURNAL_OVERFLOW


@pytest.mark.parametrize(
    ("after_seq", "replay"),
    [
        (0, Replay.JOURNAL_GAP),
        (1, Replay.POSSIBLE),
        (3, Replay.POSSIBLE),
        (4, Replay.CONFLICT),
    ],
)
def test_what_can_be_offered(after_seq: int, replay: Replay) -> None:
    kept = journal("a", "b", "c")
    kept.acknowledge(1)
    offer = kept.offer(after_seq, now=2.0)
    assert (offer.replay, offer.oldest_seq, offer.newest_seq) == (replay, 2, 3)


def test_an_offer_counts_what_is_too_old_by_now_as_gone() -> None:
    kept = journal("a", "b", "c")
    assert kept.offer(2, now=61.5).replay is Replay.POSSIBLE
    assert kept.offer(1, now=61.5).replay is Replay.JOURNAL_GAP


def test_nothing_sent_yet_is_nothing_missed() -> None:
    assert journal().offer(0, now=0.0).replay is Replay.POSSIBLE
    assert journal().offer(1, now=0.0).replay is Replay.CONFLICT

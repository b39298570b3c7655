from collections.abc import Iterable

from session.config import TurnDetection
from session.stimuli import SpeechScore
from session.vad import Offset, Onset, SpeechDetector

WINDOW = 512  # 32 ms


def run(probabilities: Iterable[float], settings: TurnDetection | None = None) -> list[object]:
    detector = SpeechDetector(settings or TurnDetection(prefix_padding_ms=0))
    detector.feed(SpeechScore(0.0, 0))
    edges: list[object] = []
    for index, probability in enumerate(probabilities):
        edge = detector.feed(SpeechScore(probability, (index + 1) * WINDOW))
        if edge is not None:
            edges.append(edge)
    last = detector.end_now()
    return edges if last is None else [*edges, last]


def test_silence_makes_no_edge() -> None:
    assert run([0.1] * 100) == []


def test_a_click_is_too_short() -> None:
    assert run([0.1, 0.9, 0.9, 0.1, 0.1, 0.1] * 5) == []


def test_speech_begins_at_its_first_window_and_ends_at_its_last() -> None:
    onset, offset = run([0.0] * 10 + [0.9] * 10 + [0.0] * 20)
    assert isinstance(onset, Onset)
    assert isinstance(offset, Offset)
    assert (onset.audio_start_ms, offset.audio_end_ms) == (320, 640)
    assert offset.speech_samples == 10 * WINDOW


def test_an_utterance_ends_where_its_end_was_found() -> None:
    settings = TurnDetection(prefix_padding_ms=300, silence_duration_ms=100)
    edges = run([0.9] * 10 + [0.0] * 4 + [0.9] * 10, settings)
    first, offset, second, _ = edges
    assert isinstance(offset, Offset)
    assert offset.found_at_sample == 14 * WINDOW
    # The padding of the next one does not take it twice.
    assert (first, second) == (Onset(0), Onset(14 * WINDOW))


def test_what_was_not_taken_breaks_a_beginning_and_no_speech() -> None:
    detector = SpeechDetector(TurnDetection(prefix_padding_ms=0))
    detector.feed(SpeechScore(0.9, WINDOW))
    detector.feed(SpeechScore(0.9, 2 * WINDOW))
    detector.skip(20 * WINDOW)
    edges = [detector.feed(SpeechScore(0.9, (20 + n) * WINDOW)) for n in range(1, 4)]
    assert edges == [None, None, Onset(20 * WINDOW)]
    detector.skip(30 * WINDOW)
    assert detector.is_speaking


def test_the_next_utterance_can_begin_before_its_onset_is_found() -> None:
    detector = SpeechDetector(TurnDetection(prefix_padding_ms=300))
    for n in range(1, 31):
        detector.feed(SpeechScore(0.0, n * WINDOW))
    assert detector.needed_from_sample == 30 * WINDOW - 4800
    detector.feed(SpeechScore(0.9, 31 * WINDOW))
    detector.feed(SpeechScore(0.4, 32 * WINDOW))
    needed = detector.needed_from_sample
    detector.feed(SpeechScore(0.9, 33 * WINDOW))
    onset = detector.feed(SpeechScore(0.9, 34 * WINDOW))
    assert onset == Onset(needed)


def test_prefix_padding_moves_the_onset_back_but_not_before_the_start() -> None:
    settings = TurnDetection(prefix_padding_ms=300)
    assert run([0.9] * 10 + [0.0] * 20, settings)[0] == Onset(0)
    assert run([0.0] * 20 + [0.9] * 10 + [0.0] * 20, settings)[0] == Onset(340 * 16)


def test_a_pause_shorter_than_the_silence_duration_does_not_end_speech() -> None:
    edges = run([0.9] * 10 + [0.0] * 10 + [0.9] * 10 + [0.0] * 20)
    assert len(edges) == 2


def test_soft_windows_keep_speech_alive_once_it_has_begun() -> None:
    assert len(run([0.9] * 5 + [0.4] * 60 + [0.0] * 20)) == 2
    assert run([0.4] * 60) == []


def test_edges_always_come_in_pairs() -> None:
    edges = run([0.9] * 10)
    assert [type(edge) for edge in edges] == [Onset, Offset]


def test_a_detector_that_begins_late_does_not_count_the_past() -> None:
    detector = SpeechDetector(TurnDetection())
    assert detector.feed(SpeechScore(0.9, 160_512)) is None
    edges = [detector.feed(SpeechScore(0.9, 160_512 + n * WINDOW)) for n in range(1, 5)]
    assert [edge for edge in edges if edge] == [Onset(160_512 - 300 * 16)]


# --- over an answer -----------------------------------------------------------------------------


def over_answer(probabilities: list[float], settings: TurnDetection) -> list[Onset | Offset]:
    detector = SpeechDetector(settings)
    scores = [SpeechScore(p, (n + 1) * WINDOW) for n, p in enumerate(probabilities)]
    found = [detector.feed(score, over_answer=True) for score in scores]
    return [edge for edge in found if edge is not None]


def test_over_an_answer_speech_begins_where_one_window_is_certain() -> None:
    assert over_answer([0.9] * 30, TurnDetection()) == []
    assert over_answer([0.9, 0.9, 0.95, 0.9], TurnDetection()) == [Onset(0)]
    assert over_answer([0.95] * 3, TurnDetection()) == [], "and it is long enough"


def test_the_certain_window_belongs_to_what_begins() -> None:
    assert over_answer([0.99] + [0.0] * 3 + [0.9] * 20, TurnDetection()) == []


def test_where_speech_does_not_interrupt_it_begins_as_ever() -> None:
    assert len(over_answer([0.9] * 4, TurnDetection(interrupt_response=False))) == 1


def test_a_client_may_ask_for_less_certainty() -> None:
    assert len(over_answer([0.9] * 4, TurnDetection(interrupt_confidence=0.0))) == 1

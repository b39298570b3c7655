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
    edges = run([0.0] * 10 + [0.9] * 10 + [0.0] * 20)
    assert edges == [Onset(320), Offset(640)]


def test_prefix_padding_moves_the_onset_back_but_not_before_the_start() -> None:
    settings = TurnDetection(prefix_padding_ms=300)
    assert run([0.9] * 10 + [0.0] * 20, settings)[0] == Onset(0)
    assert run([0.0] * 20 + [0.9] * 10 + [0.0] * 20, settings)[0] == Onset(340)


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
    assert [edge for edge in edges if edge] == [Onset(160_512 * 1000 // 16_000 - 300)]

"""Audio whose windows have scores, and can be told apart in what reaches the model."""

from session.effects import Effect, SubmitUnit
from session.stimuli import AudioAppended, SpeechScore
from tests.session.driver import WINDOW, Driver


def scored(d: Driver, *runs: tuple[int, float]) -> list[Effect]:
    """Append, at once, runs of windows with one probability each; their PCM counts windows."""
    scores: list[SpeechScore] = []
    pcm = b""
    first = d.heard_samples // WINDOW
    for count, probability in runs:
        for _ in range(count):
            at = first + len(scores)
            pcm += at.to_bytes(2, "little") * WINDOW
            scores.append(SpeechScore(probability, (at + 1) * WINDOW))
    d.heard_samples += len(scores) * WINDOW
    return d.do(AudioAppended(pcm, scores=tuple(scores)))


def windows(unit: SubmitUnit) -> list[int]:
    """Which windows a unit's PCM is made of, without the silence at its tail."""
    pcm = unit.unit.pcm
    found = [int.from_bytes(pcm[at : at + 2], "little") for at in range(0, len(pcm), 2 * WINDOW)]
    while found and found[-1] == 0:
        found.pop()
    return found

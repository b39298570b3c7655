"""Voice detection: what it costs, how soon it tells, what it takes for speech and what it misses.

The sounds are those of tests/support/noises.py; the network is the service's, the rules are the
kernel's (`session/vad.py`), and nothing of it waits for a clock.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Final

import numpy as np

from session.config import TurnDetection
from session.unit import INPUT_RATE_HZ
from session.vad import Onset
from stages.vad.silero import SileroVad, VadState
from tests.support.listening import Heard, edges, heard
from tests.support.noises import Spoken, noise_set, speech_set

SESSIONS: Final = (1, 8, 32, 64)
AUDIO_S: Final = 10
CHUNKS_MS: Final = (20, 40, 100, 200)
SEEDS: Final = range(1, 16)
LISTENING: Final = "default, nobody speaks"
OVER_ANSWER: Final = "default, over an answer"
SETTINGS: Final[Mapping[str, TurnDetection]] = {
    LISTENING: TurnDetection(),
    OVER_ANSWER: TurnDetection(),
    "0.8, 128 ms, nobody speaks": TurnDetection(threshold=0.8, min_speech_duration_ms=128),
}
SHIFT_SAMPLES: Final = 137
"""Utterances begin at changing places within a window and a chunk."""


def bench_vad() -> None:
    """Print all figures."""
    vad = SileroVad.load()
    speech = [_shifted(spoken, index) for index, spoken in enumerate(speech_set())]
    _print_cost(vad, speech)
    _print_delay(vad, speech)
    _print_mistakes(vad, speech)


def _shifted(spoken: Spoken, index: int) -> Spoken:
    late = index * SHIFT_SAMPLES
    return Spoken(
        spoken.kind,
        spoken.detail,
        bytes(2 * late) + spoken.pcm,
        spoken.heard_from + late,
        spoken.onset + late,
        spoken.end + late,
    )


# --- cost -----------------------------------------------------------------------------------------


def _print_cost(vad: SileroVad, speech: Sequence[Spoken]) -> None:
    """CPU seconds of this process for a second of one session's audio."""
    print("| sessions | batched, % of a core per session | one by one | ratio |")
    print("| --- | --- | --- | --- |")
    whole = b"".join(spoken.pcm for spoken in speech)
    for sessions in SESSIONS:
        batched, alone = (
            _share(vad, whole, sessions, score) for score in (_score_batched, _score_alone)
        )
        print(f"| {sessions} | {batched:.2%} | {alone:.2%} | {alone / batched:.1f} |", flush=True)
    print()


Score = Callable[[SileroVad, Sequence[VadState], Sequence[bytes]], object]


def _score_batched(vad: SileroVad, states: Sequence[VadState], pcms: Sequence[bytes]) -> object:
    return vad.score_batch(states, pcms)


def _score_alone(vad: SileroVad, states: Sequence[VadState], pcms: Sequence[bytes]) -> object:
    return [vad.score(state, pcm) for state, pcm in zip(states, pcms, strict=True)]


def _share(vad: SileroVad, whole: bytes, sessions: int, score: Score) -> float:
    """Return the share of a core for each session; clients send 200 ms at a time."""
    states = [vad.new_state() for _ in range(sessions)]
    step = INPUT_RATE_HZ // 5 * 2
    begins = [session * INPUT_RATE_HZ * 2 for session in range(sessions)]
    score(vad, [vad.new_state() for _ in range(sessions)], [whole[:step]] * sessions)
    began = time.process_time()
    for block in range(AUDIO_S * 5):
        at = block * step
        score(vad, states, [whole[begin + at : begin + at + step] for begin in begins])
    return (time.process_time() - began) / (AUDIO_S * sessions)


# --- delay ----------------------------------------------------------------------------------------


def _print_delay(vad: SileroVad, speech: Sequence[Spoken]) -> None:
    """Audio time from the voice's onset to the end of the chunk that made the event."""
    print("| over an answer | client chunk | from the first word p50 / p95 / max ms |", end="")
    print(
        " target p95 | from the first sound, a breath included |\n| --- | --- | --- | --- | --- |"
    )
    for over_answer, chunk_ms in product((True, False), CHUNKS_MS):
        from_word: list[float] = []
        from_sound: list[float] = []
        for spoken in speech:
            pieces = list(heard(vad, spoken.pcm, chunk_ms))
            found = edges(pieces, TurnDetection(), over_answer=over_answer)
            told_ms = next(edge.found_at_ms for edge in found if isinstance(edge.edge, Onset))
            from_word.append(told_ms - spoken.onset * 1000 / INPUT_RATE_HZ)
            from_sound.append(told_ms - spoken.heard_from * 1000 / INPUT_RATE_HZ)
        target = 250 + chunk_ms
        mode = "yes" if over_answer else "no"
        delays = f"{_spread(from_word)} | {target} | {_spread(from_sound)}"
        print(f"| {mode} | {chunk_ms} ms | {delays} |")
    print()


def _spread(values: Sequence[float]) -> str:
    p50, p95 = np.percentile(values, [50, 95])
    return f"{p50:.0f} / {p95:.0f} / {max(values):.0f}"


# --- mistakes -------------------------------------------------------------------------------------


def _print_mistakes(vad: SileroVad, speech: Sequence[Spoken]) -> None:
    """Onsets in sounds without a voice, by kind, and voices without exactly one onset."""
    print(f"| sound | minutes | false onsets: {' | '.join(SETTINGS)} |")
    print("| --- | --- |" + " --- |" * len(SETTINGS))
    seconds: defaultdict[str, float] = defaultdict(float)
    onsets: defaultdict[tuple[str, str], int] = defaultdict(int)
    for sound in (sound for seed in SEEDS for sound in noise_set(seed)):
        pieces = list(heard(vad, sound.pcm, 200))
        seconds[sound.kind] += sound.seconds
        for name in SETTINGS:
            onsets[sound.kind, name] += _onsets(pieces, name)
    for kind, length_s in seconds.items():
        counts = " | ".join(str(onsets[kind, name]) for name in SETTINGS)
        print(f"| {kind} | {length_s / 60:.0f} | {counts} |")
    hours = sum(seconds.values()) / 3600
    rates = [sum(onsets[kind, name] for kind in seconds) / hours for name in SETTINGS]
    print(f"| all, per hour | {hours * 60:.0f} | {' | '.join(f'{rate:.1f}' for rate in rates)} |")
    heard_speech = [list(heard(vad, spoken.pcm, 200)) for spoken in speech]
    wrong = [sum(_onsets(pieces, name) != 1 for pieces in heard_speech) for name in SETTINGS]
    cells = " | ".join(str(count) for count in wrong)
    print(f"| utterances missed or split, of {len(speech)} | - | {cells} |")


def _onsets(pieces: Sequence[Heard], name: str) -> int:
    found = edges(pieces, SETTINGS[name], over_answer=name == OVER_ANSWER)
    return sum(isinstance(edge.edge, Onset) for edge in found)

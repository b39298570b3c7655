"""The scripted Stage1: a tone for each session, cut into chunks that share out the text.

Rule 1: the pitch depends on the session's id and its voice alone, so that a recording tells whose
        speech it is.
Rule 2: within a turn the tone goes on without a click from chunk to chunk; each turn starts anew.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import numpy as np

from session.config import RuntimeConfig
from session.errors import StageFailed
from session.ids import SessionId
from session.unit import OUTPUT_RATE_HZ, SpeechChunk
from stages.contract import Speech, lives_with_its_process
from stages.scripted.hearing import FULL_SCALE, Sleep, check_voice, own_settings
from stages.scripted.settings import ScriptedSettings

LOUDNESS = 0.2
LOWEST_HZ = 300
STEP_HZ = 25
PITCHES = 64
VOICE_FACTORS = {"low": 0.5, "high": 2.0}


@dataclass(slots=True)
class _Mouth:
    """What Stage1 knows of one session."""

    settings: ScriptedSettings
    runtime: RuntimeConfig
    sentences: int = 0
    chunks: int = 0
    samples: int = 0
    """Samples of the current turn so far."""
    failed_closes: int = 0


class ScriptedStage1:
    """Speaks every sentence as a tone of the session's own pitch."""

    def __init__(self, settings: ScriptedSettings, sleep: Sleep = asyncio.sleep) -> None:
        self._settings = settings
        self._sleep = sleep
        self._mouths: dict[SessionId, _Mouth] = {}

    async def open(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Reserve a voice."""
        settings = own_settings(self._settings, runtime)
        check_voice(settings, runtime)
        self._mouths[session_id] = _Mouth(settings, runtime)

    async def speak(self, session_id: SessionId, speech: Speech) -> AsyncIterator[SpeechChunk]:
        """Yield the sentence's chunks."""
        mouth = self._mouths[session_id]
        mouth.sentences += 1
        if mouth.sentences in mouth.settings.fail_at_sentences:
            raise StageFailed(f"the script fails at sentence {mouth.sentences}")
        voice = mouth.runtime.voice if speech.voice is None else speech.voice
        pitch_hz = tone_hz(session_id, voice)
        speed = mouth.runtime.speed if speech.speed is None else speech.speed
        lengths = _chunk_lengths(mouth.settings, speed)
        for index, samples in enumerate(lengths):
            await self._sleep(mouth.settings.chunk_delay_ms / 1000)
            mouth.chunks += 1
            if mouth.chunks in mouth.settings.hang_at_chunks:
                await asyncio.Event().wait()  # whoever interrupts cancels this
            begin, end = (len(speech.text) * part // len(lengths) for part in (index, index + 1))
            pcm = _tone(pitch_hz, mouth.samples, samples)
            mouth.samples += samples
            is_last = index == len(lengths) - 1
            if is_last and speech.turn_end:
                mouth.samples = 0
            yield SpeechChunk(
                pcm,
                speech.text[begin:end],
                segment_end=is_last and speech.segment_end,
                turn_end=is_last and speech.turn_end,
            )

    async def configure(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Take new settings, if the voice is one of ours."""
        mouth = self._mouths[session_id]
        check_voice(mouth.settings, runtime)
        mouth.runtime = runtime

    async def interrupt(self, session_id: SessionId) -> None:
        """Start the next turn's tone anew."""
        self._mouths[session_id].samples = 0

    async def close(self, session_id: SessionId) -> None:
        """Give the voice back."""
        mouth = self._mouths.get(session_id)
        if mouth is None:
            return
        if mouth.failed_closes < mouth.settings.failing_closes:
            mouth.failed_closes += 1
            raise StageFailed(f"the script fails close {mouth.failed_closes}")
        del self._mouths[session_id]

    async def warm_up(self) -> None:
        """Nothing needs warming."""

    async def died(self) -> str:
        """Never return: all of it is in this process."""
        return await lives_with_its_process()


def _chunk_lengths(settings: ScriptedSettings, speed: float) -> list[int]:
    """Return the samples of each chunk of a sentence."""
    total = int(settings.sentence_ms * OUTPUT_RATE_HZ / speed) // 1000
    step = settings.chunk_ms * OUTPUT_RATE_HZ // 1000
    return [min(step, total - start) for start in range(0, total, step)]


def tone_hz(session_id: SessionId, voice: str = "") -> float:
    """Return the pitch of a session's speech."""
    base = LOWEST_HZ + STEP_HZ * (zlib.crc32(session_id.encode()) % PITCHES)
    return base * VOICE_FACTORS.get(voice, 1.0)


def _tone(pitch_hz: float, first_sample: int, samples: int) -> bytes:
    at_s = (first_sample + np.arange(samples)) / OUTPUT_RATE_HZ
    wave = LOUDNESS * (FULL_SCALE - 1) * np.sin(2 * np.pi * pitch_hz * at_s)
    return wave.astype("<i2").tobytes()

"""Stands where MiniCPM-o's talker and vocoder belong: a second of silence for each unit's words.

It takes what they will take, refuses what they could not use, and keeps the stage contract, so
that text, timing and playback are those of the real model. There is no sound.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import numpy as np

from session.config import RuntimeConfig
from session.errors import StageFailed, StageRefused
from session.ids import SessionId
from session.unit import OUTPUT_RATE_HZ, SAMPLE_BYTES, SpeechChunk
from stages.contract import Speech, lives_with_its_process

SILENCE: Final = bytes(OUTPUT_RATE_HZ * SAMPLE_BYTES)


class SilentStage1:
    """Implements `stages.contract.Stage1Model`."""

    def __init__(self) -> None:
        self._sessions: set[SessionId] = set()

    async def open(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Take a session."""
        del runtime
        if session_id in self._sessions:
            raise StageRefused("the session is open already")
        self._sessions.add(session_id)

    async def speak(self, session_id: SessionId, speech: Speech) -> AsyncIterator[SpeechChunk]:
        """Yield one second of silence with the unit's words."""
        if session_id not in self._sessions:
            raise StageRefused("the session is not open at this model")
        _check_rows(speech)
        await asyncio.sleep(0)
        yield SpeechChunk(
            SILENCE, speech.text, segment_end=speech.segment_end, turn_end=speech.turn_end
        )

    async def configure(self, session_id: SessionId, runtime: RuntimeConfig) -> None:
        """Take settings, of which none changes silence."""
        del runtime
        if session_id not in self._sessions:
            raise StageRefused("the session is not open at this model")

    async def interrupt(self, session_id: SessionId) -> None:
        """Nothing goes on that could be stopped."""

    async def close(self, session_id: SessionId) -> None:
        """Give the session back."""
        self._sessions.discard(session_id)

    async def warm_up(self) -> None:
        """Nothing needs warming."""

    async def died(self) -> str:
        """Never return: all of it is in this process."""
        return await lives_with_its_process()


def _check_rows(speech: Speech) -> None:
    """Refuse speech whose hidden rows do not belong to its tokens."""
    rows = np.asarray(speech.hidden)
    if rows.ndim != 2 or len(rows) != len(speech.token_ids) or not np.isfinite(rows).all():
        raise StageFailed(
            f"{len(speech.token_ids)} tokens came with hidden rows of shape {rows.shape}, or with "
            "numbers that are not finite"
        )

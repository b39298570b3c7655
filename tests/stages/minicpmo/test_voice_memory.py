"""Memory for sound: who has how much, and what a voice costs."""

import pytest

from session.errors import AdmissionRefused, StageRefused
from session.ids import SessionId
from stages.minicpmo.voice_memory import VoiceMemory, VoiceSizes, shared_bytes
from tests.fakes.minicpmo_voice import named_prompt

pytestmark = pytest.mark.models

ONE, TWO, THREE = SessionId("one"), SessionId("two"), SessionId("three")
SIZES = VoiceSizes(turn_bytes=lambda frames: 10 * frames, voice_bytes=lambda frames: 4 * frames)
SHORT, LONG = named_prompt("short", codes=5), named_prompt("long", codes=20)


def test_a_voice_counts_once_and_as_long_as_somebody_speaks_with_it() -> None:
    memory = VoiceMemory(1000, SIZES)
    memory.reserve(ONE, SHORT)
    assert memory.reserved_bytes == 100 + 40
    memory.reserve(TWO, SHORT)
    assert memory.reserved_bytes == 200 + 40
    memory.release(ONE)
    assert memory.reserved_bytes == 100 + 40
    memory.release(TWO)
    memory.release(TWO)
    assert memory.reserved_bytes == 0


def test_what_does_not_fit_is_refused_and_takes_nothing() -> None:
    memory = VoiceMemory(279, SIZES)
    memory.reserve(ONE, SHORT)
    with pytest.raises(AdmissionRefused, match="needs 560 bytes of memory, 139 are left"):
        memory.reserve(TWO, LONG)
    assert memory.reserved_bytes == 140
    memory.reserve(TWO, SHORT)
    with pytest.raises(AdmissionRefused):
        memory.reserve(THREE, SHORT)
    memory.release(ONE)
    memory.reserve(THREE, SHORT)
    assert (memory.reserved_bytes, memory.total_bytes) == (240, 279)


def test_a_session_has_one_share() -> None:
    memory = VoiceMemory(1000, SIZES)
    memory.reserve(ONE, SHORT)
    with pytest.raises(StageRefused):
        memory.reserve(ONE, LONG)
    assert memory.reserved_bytes == 140
    memory.release(ONE)
    assert memory.reserved_bytes == 0


def test_sessions_share_a_batch_and_the_kept_voices() -> None:
    shared = shared_bytes(SIZES, max_batch=2, max_voices=3, frames=10)
    assert shared == 2 * 100 + 4 * 40

"""The recording of a voice: as the client sent it in, as the stages take it out."""

import numpy as np
import pytest

from serve_app.audio.voice_sample import with_voice
from session.config import RuntimeConfig
from session.errors import BadAudio
from session.unit import VOICE_RATE_HZ
from stages.wav import build_wav


def tone(rate_hz: int, seconds: float) -> bytes:
    times = np.arange(int(rate_hz * seconds)) / rate_hz
    return (8_000 * np.sin(2 * np.pi * 440 * times)).astype("<i2").tobytes()


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 24_000, 44_100])
async def test_a_recording_of_any_rate_becomes_the_stages_own(rate_hz: int) -> None:
    runtime = RuntimeConfig(voice_sample=build_wav(tone(rate_hz, 0.5), rate_hz))
    pcm = np.frombuffer((await with_voice(runtime)).voice_sample, "<i2").astype(float)
    assert abs(len(pcm) - 12_000) <= 2
    spectrum = np.abs(np.fft.rfft(pcm))
    assert np.argmax(spectrum) * VOICE_RATE_HZ / len(pcm) == pytest.approx(440, abs=3)


async def test_without_a_recording_nothing_changes() -> None:
    runtime = RuntimeConfig(voice="low")
    assert await with_voice(runtime) is runtime


@pytest.mark.parametrize(
    "wav",
    [
        b"RIFF",
        build_wav(tone(4_000, 0.1), 4_000),
        build_wav(b"", 16_000),
        build_wav(b"\x00\x10", 192_000),
    ],
)
async def test_what_can_not_be_read_is_named(wav: bytes) -> None:
    with pytest.raises(BadAudio, match="recording of the voice") as caught:
        await with_voice(RuntimeConfig(voice_sample=wav))
    assert caught.value.param == "session.ref_audio"

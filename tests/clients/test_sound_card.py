"""Microphone and speaker over a stand-in for the optional package `sounddevice`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from clients import events as ev
from clients.sound_card import Microphone, SoundDeviceMissing, SpeakerOutput, load_sounddevice


@dataclass
class RawStream:
    """A device stream that the test drives."""

    samplerate: int
    channels: int
    dtype: str
    callback: Callable[..., None]
    blocksize: int = 0
    calls: list[str] = field(default_factory=list)

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def close(self) -> None:
        self.calls.append("close")


class SoundDevice:
    """The part of the package that is used."""

    def __init__(self) -> None:
        self.streams: list[RawStream] = []

    def RawInputStream(self, **options: Any) -> RawStream:  # the package's name
        self.streams.append(RawStream(**options))
        return self.streams[-1]

    RawOutputStream = RawInputStream


def delta(audio: bytes) -> ev.AudioDelta:
    return ev.AudioDelta(
        type="response.audio.delta",
        response_id="A",
        audio=audio,
        encoding="pcm16",
        rate_hz=24_000,
        duration_ms=0.0,
    )


def filled(stream: RawStream, size: int) -> bytes:
    buffer = bytearray(b"x" * size)
    stream.callback(memoryview(buffer), size // 2, None, None)
    return bytes(buffer)


async def test_the_microphone_gives_blocks_and_silence_after_its_stop() -> None:
    device = SoundDevice()
    microphone = Microphone(device, clock=lambda: 7.0)
    (stream,) = device.streams
    assert (stream.samplerate, stream.blocksize, stream.dtype) == (16_000, 3200, "int16")
    stream.callback(b"\1\2" * 3200, 3200, None, None)
    block = await microphone.read()
    assert (block.pcm, block.due_s, block.speech_ends_s) == (b"\1\2" * 3200, 7.0, ())
    assert not microphone.is_over
    microphone.stop()
    stream.callback(b"\1\2" * 3200, 3200, None, None)
    assert (await microphone.read()).pcm == bytes(6400)
    assert microphone.is_over
    microphone.close()
    assert stream.calls == ["start", "stop", "close"]


async def test_a_microphone_that_nobody_reads_keeps_the_latest() -> None:
    device = SoundDevice()
    microphone = Microphone(device, chunk_ms=1)
    for n in range(80):
        device.streams[0].callback(bytes([n]) * 32, 16, None, None)
    last = [await microphone.read() for _ in range(50)][-1]
    assert last.pcm == bytes([79]) * 32


def test_the_speaker_plays_what_came_and_silence_after_it() -> None:
    device = SoundDevice()
    speaker = SpeakerOutput(device)
    speaker.observe(delta(b"\1\2\3\4"))
    speaker.observe(delta(b"\5\6"))
    assert filled(device.streams[0], 4) == b"\1\2\3\4"
    assert filled(device.streams[0], 4) == b"\5\6\0\0"
    speaker.close()
    assert device.streams[0].calls == ["start", "stop", "close"]


@pytest.mark.parametrize(
    "event",
    [
        ev.OutputAudioCleared(type="output_audio_buffer.cleared", response_id="A"),
        ev.ResponseDone(type="response.done", response_id="A", status="cancelled"),
    ],
)
def test_the_speaker_is_silent_at_once_after_an_interruption(event: ev.ServerEvent) -> None:
    device = SoundDevice()
    speaker = SpeakerOutput(device)
    speaker.observe(delta(b"\1\2\3\4"))
    speaker.observe(event)
    assert filled(device.streams[0], 4) == bytes(4)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", import_module)
    with pytest.raises(SoundDeviceMissing, match="pip install sounddevice"):
        load_sounddevice()

"""A real microphone and a real speaker, through the optional package `sounddevice`."""

import asyncio
import importlib
import threading
import time
from typing import Any

from clients import events as ev
from clients.audio_formats import to_pcm16
from clients.session_config import OUTPUT_RATE_HZ
from clients.source import Block, Clock

_MISSING = (
    "--mic needs the package sounddevice and the PortAudio library "
    "(pip install sounddevice; on Debian also apt-get install libportaudio2)"
)
_KEPT_BLOCKS = 50


class SoundDeviceMissing(Exception):
    """There is no microphone without the optional package."""


def load_sounddevice() -> Any:  # the package is optional and has no types
    """Return the module. Raises SoundDeviceMissing that says what to install."""
    try:
        return importlib.import_module("sounddevice")
    except (ImportError, OSError) as error:  # OSError: PortAudio itself is missing
        raise SoundDeviceMissing(_MISSING) from error


class Microphone:
    """An audio source that records until it is stopped."""

    def __init__(
        self,
        sounddevice: Any,  # as above
        *,
        rate_hz: int = 16_000,
        chunk_ms: int = 200,
        clock: Clock = time.monotonic,
    ) -> None:
        self._rate_hz = rate_hz
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._blocks: asyncio.Queue[bytes] = asyncio.Queue()
        self._silence = bytes(rate_hz * chunk_ms // 1000 * 2)
        self._is_over = False
        self._stream = sounddevice.RawInputStream(
            samplerate=rate_hz,
            blocksize=rate_hz * chunk_ms // 1000,
            channels=1,
            dtype="int16",
            callback=self._recorded,
        )
        self._stream.start()

    @property
    def rate_hz(self) -> int:
        """Sample rate of every block."""
        return self._rate_hz

    @property
    def is_over(self) -> bool:
        """Whether the microphone has been stopped."""
        return self._is_over

    async def read(self) -> Block:
        """Wait for the next block. After the stop, the device's clock still sets the pace."""
        pcm = await self._blocks.get()
        return Block(self._silence if self._is_over else pcm, self._clock())

    def stop(self) -> None:
        """Send silence from now on."""
        self._is_over = True

    def close(self) -> None:
        """Release the device."""
        self._stream.stop()
        self._stream.close()

    def _recorded(self, frames: Any, *_: object) -> None:  # a C buffer
        self._loop.call_soon_threadsafe(self._keep, bytes(frames))

    def _keep(self, pcm: bytes) -> None:
        if self._blocks.qsize() >= _KEPT_BLOCKS:
            self._blocks.get_nowait()  # nobody reads: the oldest is worth least
        self._blocks.put_nowait(pcm)


class SpeakerOutput:
    """Plays audio deltas and drops what a cancelled response has left."""

    def __init__(self, sounddevice: Any) -> None:  # as above
        self._lock = threading.Lock()
        self._waiting = bytearray()
        self._stream = sounddevice.RawOutputStream(
            samplerate=OUTPUT_RATE_HZ, channels=1, dtype="int16", callback=self._fill
        )
        self._stream.start()

    def observe(self, event: ev.ServerEvent) -> None:
        """Take one event."""
        match event:
            case ev.AudioDelta():
                with self._lock:
                    self._waiting += to_pcm16(event.audio, event.encoding)
            case ev.OutputAudioCleared():
                self._drop()
            case ev.ResponseDone(is_cut=True):
                self._drop()
            case _:
                pass

    def close(self) -> None:
        """Release the device."""
        self._stream.stop()
        self._stream.close()

    def _drop(self) -> None:
        with self._lock:
            self._waiting.clear()

    def _fill(self, buffer: Any, *_: object) -> None:  # a C buffer
        with self._lock:
            part = bytes(self._waiting[: len(buffer)])
            del self._waiting[: len(part)]
        buffer[:] = part.ljust(len(buffer), b"\0")

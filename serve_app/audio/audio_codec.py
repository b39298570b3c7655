"""Audio at the edge: any wire format in, 16 kHz PCM16 inside, any wire format out.

Rule 1: an append that can not be decoded changes nothing; the next one goes on as if it had never
        come.
Rule 2: resampling neither drifts nor clicks: chunks of a stream are filtered as one, and after a
        flush exactly ``round(samples_in * to_hz / from_hz)`` samples have come out.
Rule 3: a sample cut in two by an append's end is completed by the next append of that encoding.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import soxr
from numpy.typing import NDArray

from serve_app.audio import g711
from session.config import AudioEncoding, AudioFormat
from session.errors import BadAudio
from session.events import Event, ResponseFinished, SpeechDelta
from session.ids import ResponseId
from session.unit import INPUT_RATE_HZ, OUTPUT_RATE_HZ, VOICE_RATE_HZ
from stages.wav import build_wav, parse_wav

MIN_RATE_HZ: Final = 8_000
MAX_RATE_HZ: Final = 48_000
LONG_AUDIO_BYTES: Final = 100_000
"""Audio longer than this is worth a thread: converting it would hold the event loop for long."""

# soxr's steeper recipes hold back twice the audio for no audible gain in speech.
_RESAMPLER_QUALITY: Final = "MQ"
_FULL_SCALE: Final = np.float32(32_768)
_SILENCE: Final = np.zeros(0, np.float32)
_SAMPLE_BYTES_OF: Final = {AudioEncoding.PCM16: 2, AudioEncoding.PCM_F32LE: 4}


class StreamResampler:
    """Resamples one stream of mono audio, chunk by chunk."""

    def __init__(self, from_hz: int, to_hz: int) -> None:
        self.from_hz = from_hz
        self.to_hz = to_hz
        self._stream = soxr.ResampleStream(
            from_hz, to_hz, 1, dtype="float32", quality=_RESAMPLER_QUALITY
        )
        self._samples_in = 0
        self._samples_out = 0

    def push(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Add a chunk; return what has become final."""
        self._samples_in += len(samples)
        out: NDArray[np.float32] = self._stream.resample_chunk(samples)
        self._samples_out += len(out)
        return out

    def flush(self) -> NDArray[np.float32]:
        """End the stream; return its rest. The next chunk begins a new one."""
        rest: NDArray[np.float32] = self._stream.resample_chunk(_SILENCE, last=True)
        wanted = (2 * self._samples_in * self.to_hz + self.from_hz) // (2 * self.from_hz)
        missing = max(0, wanted - self._samples_out)
        self._stream.clear()
        self._samples_in = self._samples_out = 0
        return np.pad(rest[:missing], (0, max(0, missing - len(rest))))


@dataclass(frozen=True, slots=True)
class _Decoded:
    """What one append holds. `pcm` when its samples need no work, else `samples`."""

    rate_hz: int
    carry: bytes = b""
    pcm: bytes | None = None
    samples: NDArray[np.float32] | None = None


class InputConverter:
    """Turns one session's wire audio into 16 kHz PCM16."""

    def __init__(self) -> None:
        self._carry = b""
        self._carry_encoding: AudioEncoding | None = None
        self._resampler: StreamResampler | None = None

    def convert(self, audio: bytes, audio_format: AudioFormat) -> bytes:
        """Return the PCM that `audio` has made final; raise BadAudio and change nothing."""
        encoding = audio_format.encoding
        carry = self._carry if encoding is self._carry_encoding else b""
        decoded = _decode(carry + audio, audio_format)
        self._carry, self._carry_encoding = decoded.carry, encoding
        if decoded.rate_hz == INPUT_RATE_HZ:
            return self._end_stream() + _pcm_of(decoded)
        return self._resample(_samples_of(decoded), decoded.rate_hz)

    def flush(self) -> bytes:
        """End the stream: return what the resampler still holds, forget a cut sample."""
        self._carry = b""
        return self._end_stream()

    def reset(self) -> None:
        """Forget everything that is not final yet."""
        self._carry = b""
        self._resampler = None

    def _resample(self, samples: NDArray[np.float32], rate_hz: int) -> bytes:
        ended = b""
        if self._resampler is None or self._resampler.from_hz != rate_hz:
            ended = self._end_stream()
            self._resampler = StreamResampler(rate_hz, INPUT_RATE_HZ)
        return ended + _to_pcm(self._resampler.push(samples))

    def _end_stream(self) -> bytes:
        if self._resampler is None:
            return b""
        rest, self._resampler = _to_pcm(self._resampler.flush()), None
        return rest


class OutputEncoder:
    """Encodes one attachment's 24 kHz speech; what it keeps belongs to a response and ends with it.

    `attend` sees each event before it is projected, so that `encode`, which the projector calls,
    knows whose speech it is given and whether more will follow.
    """

    def __init__(self) -> None:
        self._response_id: ResponseId | None = None
        self._is_last = False
        self._resampler: StreamResampler | None = None

    def attend(self, event: Event) -> None:
        """Note whose speech comes next; drop a finished response's state."""
        match event:
            case SpeechDelta():
                if event.response_id != self._response_id:
                    self._response_id, self._resampler = event.response_id, None
                self._is_last = event.is_turn_end
            case ResponseFinished():
                self._response_id, self._resampler = None, None
            case _:
                pass

    def encode(self, pcm: bytes, audio_format: AudioFormat) -> bytes:
        """Return a chunk of speech in the client's format."""
        if audio_format.rate_hz != OUTPUT_RATE_HZ:
            pcm = self._resample(pcm, audio_format.rate_hz)
        match audio_format.encoding:
            case AudioEncoding.PCM16:
                return pcm
            case AudioEncoding.WAV:
                return build_wav(pcm, audio_format.rate_hz)
            case AudioEncoding.G711_ULAW:
                return g711.ulaw_encode(np.frombuffer(pcm, "<i2"))
            case AudioEncoding.G711_ALAW:
                return g711.alaw_encode(np.frombuffer(pcm, "<i2"))
            case AudioEncoding.PCM_F32LE:
                return _from_pcm(pcm).tobytes()

    def _resample(self, pcm: bytes, rate_hz: int) -> bytes:
        if self._resampler is None or self._resampler.to_hz != rate_hz:
            self._resampler = StreamResampler(OUTPUT_RATE_HZ, rate_hz)
        final = self._resampler.push(_from_pcm(pcm))
        if self._is_last:
            final = np.concatenate((final, self._resampler.flush()))
        return _to_pcm(final)


def level(pcm: bytes) -> float:
    """Root mean square of 16-bit PCM; full scale is 1.0, silence and nothing are 0.0."""
    if not pcm:
        return 0.0
    samples = _from_pcm(pcm)
    return float(np.sqrt(np.mean(np.square(samples))))


def _decode(audio: bytes, audio_format: AudioFormat) -> _Decoded:
    match audio_format.encoding:
        case AudioEncoding.WAV:
            wav = parse_wav(audio)
            return _Decoded(_checked_rate(wav.rate_hz), samples=_finite(wav.samples))
        case AudioEncoding.G711_ULAW:
            pcm = g711.ulaw_decode(audio).tobytes()
            return _Decoded(_checked_rate(audio_format.rate_hz), pcm=pcm)
        case AudioEncoding.G711_ALAW:
            pcm = g711.alaw_decode(audio).tobytes()
            return _Decoded(_checked_rate(audio_format.rate_hz), pcm=pcm)
        case AudioEncoding.PCM16 | AudioEncoding.PCM_F32LE:
            return _decode_linear(audio, audio_format)


def _decode_linear(audio: bytes, audio_format: AudioFormat) -> _Decoded:
    rate_hz = _checked_rate(audio_format.rate_hz)
    whole = len(audio) - len(audio) % _SAMPLE_BYTES_OF[audio_format.encoding]
    audio, carry = audio[:whole], audio[whole:]
    if audio_format.encoding is AudioEncoding.PCM16:
        return _Decoded(rate_hz, carry, pcm=audio)
    return _Decoded(rate_hz, carry, samples=_finite(np.frombuffer(audio, "<f4")))


def recording_pcm(wav: bytes) -> bytes:
    """Return the recording of a voice, a whole WAV, as PCM at VOICE_RATE_HZ; raises BadAudio."""
    recorded = parse_wav(wav)
    rate_hz = _checked_rate(recorded.rate_hz)
    return _to_pcm(soxr.resample(_finite(recorded.samples), rate_hz, VOICE_RATE_HZ))


def _checked_rate(rate_hz: int) -> int:
    if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
        raise BadAudio(
            f"a sample rate of {rate_hz} Hz: send {MIN_RATE_HZ} to {MAX_RATE_HZ} Hz",
            code="unsupported_audio_format",
        )
    return rate_hz


def _finite(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    if not np.isfinite(samples).all():
        raise BadAudio("the audio has samples that are not numbers (NaN or infinity)")
    return np.clip(samples, -1.0, 1.0)


def _pcm_of(decoded: _Decoded) -> bytes:
    return decoded.pcm if decoded.pcm is not None else _to_pcm(_samples_of(decoded))


def _samples_of(decoded: _Decoded) -> NDArray[np.float32]:
    if decoded.samples is not None:
        return decoded.samples
    return _from_pcm(decoded.pcm or b"")


def _from_pcm(pcm: bytes) -> NDArray[np.float32]:
    return np.frombuffer(pcm, "<i2").astype(np.float32) / _FULL_SCALE


def _to_pcm(samples: NDArray[np.float32]) -> bytes:
    scaled = np.rint(samples * _FULL_SCALE)
    pcm: NDArray[np.int16] = np.clip(scaled, -_FULL_SCALE, _FULL_SCALE - 1).astype("<i2")
    return pcm.tobytes()

"""WAV files of many kinds become 16-bit mono, and speech in them is found."""

import struct
from pathlib import Path

import numpy as np
import pytest

from clients.audio_formats import duration_ms, to_pcm16
from clients.g711 import ALAW, ULAW, expand
from clients.levels import SILENCE_DBFS, SpeechSpan, dbfs, speech_spans
from clients.synthetic import bursts, speech_like
from clients.wav import Recording, decode_wav, encode_wav, from_pcm16, read_wav, write_wav
from clients.wav import to_pcm16 as quantize

TONE = 0.5 * np.sin(2 * np.pi * 440 * np.arange(800) / 8000)


def wav(tag: int, bits: int, channels: int, samples: bytes, *, rate_hz: int = 8000) -> bytes:
    frame = channels * bits // 8
    form = struct.pack("<HHIIHH", tag, channels, rate_hz, rate_hz * frame, frame, bits)
    body = b"fmt " + struct.pack("<I", len(form)) + form
    body += b"LIST" + struct.pack("<I", 3) + b"odd\0"  # chunks are padded to even lengths
    body += b"data" + struct.pack("<I", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WAVE" + body


def as_24_bit(samples: np.ndarray) -> bytes:
    return b"".join(int(value * 2**23).to_bytes(3, "little", signed=True) for value in samples)


@pytest.mark.parametrize(
    ("tag", "bits", "samples", "tolerance"),
    [
        (1, 8, (TONE * 127 + 128).astype(np.uint8).tobytes(), 0.02),
        (1, 16, (TONE * 32767).astype("<i2").tobytes(), 1e-4),
        (1, 24, as_24_bit(TONE), 1e-4),
        (1, 32, (TONE * (2**31 - 1)).astype("<i4").tobytes(), 1e-4),
        (3, 32, TONE.astype("<f4").tobytes(), 1e-4),
        (3, 64, TONE.astype("<f8").tobytes(), 1e-4),
    ],
)
def test_every_common_sample_format_is_read(
    tag: int, bits: int, samples: bytes, tolerance: float
) -> None:
    recording = decode_wav(wav(tag, bits, 1, samples))
    assert recording.rate_hz == 8000
    assert np.abs(from_pcm16(recording.pcm) - TONE).max() < tolerance


def test_stereo_is_mixed_down() -> None:
    both = np.stack([TONE, -TONE / 2], axis=1)
    recording = decode_wav(wav(1, 16, 2, quantize(both.reshape(-1))))
    assert np.abs(from_pcm16(recording.pcm) - TONE / 4).max() < 1e-4


def test_the_extensible_header_is_read() -> None:
    plain = wav(1, 16, 1, quantize(TONE))
    form = struct.pack("<HHIIHH", 0xFFFE, 1, 8000, 16_000, 2, 16)
    form += struct.pack("<HHIH", 22, 16, 4, 1) + bytes(14)
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + plain[plain.index(b"data") :]
    extensible = b"RIFF" + struct.pack("<I", len(body)) + body
    assert decode_wav(extensible) == decode_wav(plain)


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF])
def test_a_streamed_file_goes_on_to_its_end(size: int) -> None:
    plain = wav(1, 16, 1, quantize(TONE))
    at = plain.index(b"data") + 4
    streamed = plain[:at] + struct.pack("<I", size) + plain[at + 4 :]
    assert decode_wav(streamed) == decode_wav(plain)


def test_telephone_codes_have_the_values_of_the_standard() -> None:
    codes = bytes([0x00, 0x80, 0x7F, 0xFF])
    assert np.frombuffer(expand(codes, ULAW), "<i2").tolist() == [-32124, 32124, 0, 0]
    codes = bytes([0x55, 0xD5, 0x2A, 0xAA])
    assert np.frombuffer(expand(codes, ALAW), "<i2").tolist() == [-8, 8, -32256, 32256]
    assert decode_wav(wav(7, 8, 1, b"\x00\x80")).pcm == expand(b"\x00\x80", ULAW)
    assert decode_wav(wav(6, 8, 1, b"\x2a\xaa")).pcm == expand(b"\x2a\xaa", ALAW)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a WAV file"),
        (b"ID3" + bytes(40), "not a WAV file"),
        (b"RIFF\0\0\0\0WAVEdata\0\0\0\0", "samples come before"),
        (b"RIFF\0\0\0\0WAVEfmt \x02\0\0\0\1\0", "fmt chunk is too short"),
        (wav(1, 16, 0, b""), "0 channels"),
        (wav(0x55, 16, 1, b"\0\0"), "convert it to 16-bit PCM"),
        (wav(1, 16, 1, b"\0\0")[:-10], "no data chunk"),
    ],
)
def test_what_is_wrong_is_said_with_the_file_s_name(
    content: bytes, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "broken.wav"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"broken\.wav: .*{message}"):
        read_wav(file)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    recording = Recording(quantize(TONE), 24_000)
    write_wav(tmp_path / "a.wav", recording)
    assert read_wav(tmp_path / "a.wav") == recording


def test_loud_and_broken_samples_are_clipped() -> None:
    samples = np.array([2.0, -2.0, np.nan, np.inf, 1.0])
    assert from_pcm16(quantize(samples)).round(3).tolist() == [1.0, -1.0, 0.0, 1.0, 1.0]


def test_wav_chunks_of_the_service_are_measured_and_opened() -> None:
    chunk = encode_wav(Recording(bytes(960), 24_000))
    assert duration_ms(chunk, "wav", 24_000) == 20.0
    assert to_pcm16(chunk, "wav") == bytes(960)
    with pytest.raises(ValueError, match="16-bit mono"):
        to_pcm16(wav(1, 8, 1, b"\0"), "wav")
    with pytest.raises(ValueError, match="opus"):
        to_pcm16(b"", "opus")


def test_levels_are_in_decibels_of_full_scale() -> None:
    assert dbfs(quantize(TONE)) == pytest.approx(-9.03, abs=0.05)
    assert dbfs(bytes(320)) == SILENCE_DBFS
    assert dbfs(b"") == SILENCE_DBFS


def test_speech_is_found_between_silences() -> None:
    quiet = np.zeros(8000)
    samples = np.concatenate([quiet, TONE, TONE, quiet, TONE, np.zeros(1600), TONE, quiet])
    spans = speech_spans(Recording(quantize(samples), 8000))
    assert spans == (SpeechSpan(1000, 1200), SpeechSpan(2200, 2600))


@pytest.mark.parametrize("samples", [np.zeros(0), np.zeros(40), np.zeros(8000), TONE * 0.001])
def test_silence_holds_no_speech(samples: np.ndarray) -> None:
    assert speech_spans(Recording(quantize(samples), 8000)) == ()


def test_synthetic_bursts_are_speech_where_they_say_so() -> None:
    recording, (span,) = bursts()
    (found,) = speech_spans(recording)
    assert (span.start_ms, span.end_ms) == (600, 2600)
    assert abs(found.start_ms - span.start_ms) <= 20
    assert abs(found.end_ms - span.end_ms) <= 60
    assert np.array_equal(speech_like(0.5), speech_like(0.5))
    assert not np.array_equal(speech_like(0.5), speech_like(0.5, seed=8))

"""Audio at the edge: no drift, no clicks, nothing lost, and bad audio changes nothing."""

import struct
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from serve_app.audio import g711
from serve_app.audio.audio_codec import InputConverter, OutputEncoder, StreamResampler, level
from session.config import AudioEncoding, AudioFormat
from session.errors import BadAudio
from session.events import (
    ResponseFinished,
    SpeechDelta,
)
from session.fence import Fence
from session.ids import ItemId, ResponseId, SessionId
from session.item_events import (
    ItemView,
)
from session.snapshot import Playback
from stages.wav import build_wav, parse_wav

PCM16_16K = AudioFormat(AudioEncoding.PCM16, 16_000)
PCM16_24K = AudioFormat(AudioEncoding.PCM16, 24_000)
F32_16K = AudioFormat(AudioEncoding.PCM_F32LE, 16_000)
WAV = AudioFormat(AudioEncoding.WAV, 0)
ULAW_8K = AudioFormat(AudioEncoding.G711_ULAW, 8_000)
ALAW_8K = AudioFormat(AudioEncoding.G711_ALAW, 8_000)


def sine(rate_hz: int, seconds: float, hz: float = 440.0) -> NDArray[np.float32]:
    time = np.arange(round(rate_hz * seconds)) / rate_hz
    return (0.5 * np.sin(2 * np.pi * hz * time)).astype(np.float32)


def pcm16(samples: NDArray[np.float32]) -> bytes:
    return np.rint(samples * 32_767).astype("<i2").tobytes()


def samples_of(pcm: bytes) -> NDArray[np.float64]:
    return np.frombuffer(pcm, "<i2").astype(np.float64) / 32_768


def in_pieces(
    converter: InputConverter, audio: bytes, sizes: list[int], form: AudioFormat
) -> bytes:
    """Convert `audio` in pieces of the given sizes, over and over, and flush."""
    out, at, turn = [], 0, 0
    while at < len(audio):
        size = sizes[turn % len(sizes)]
        out.append(converter.convert(audio[at : at + size], form))
        at, turn = at + size, turn + 1
    return b"".join(out) + converter.flush()


def wav_of(kind: int, channels: int, rate_hz: int, bits: int, body: bytes) -> bytes:
    width = channels * bits // 8
    fmt = struct.pack("<HHIIHH", kind, channels, rate_hz, rate_hz * width, width, bits)
    data = (
        b"fmt " + struct.pack("<I", len(fmt)) + fmt + b"data" + struct.pack("<I", len(body)) + body
    )
    return b"RIFF" + struct.pack("<I", 4 + len(data)) + b"WAVE" + data


# --- no drift, no clicks ------------------------------------------------------------------------


@pytest.mark.parametrize("rate_hz", [48_000, 44_100, 24_000, 22_050, 8_000])
def test_an_hour_of_odd_sized_chunks_does_not_drift(rate_hz: int) -> None:
    converter = InputConverter()
    form = AudioFormat(AudioEncoding.PCM16, rate_hz)
    second = pcm16(sine(rate_hz, 1.0))
    # 317 bytes more than a second: every second append ends in the middle of a sample.
    piece = second + second[:317]
    appends = 3600 * rate_hz * 2 // len(piece)
    came_out = sum(len(converter.convert(piece, form)) // 2 for _ in range(appends))
    came_out += len(converter.flush()) // 2
    went_in = appends * len(piece) // 2
    assert came_out == (2 * went_in * 16_000 + rate_hz) // (2 * rate_hz)


@pytest.mark.parametrize("rate_hz", [48_000, 44_100, 24_000, 11_025, 8_000])
def test_chunk_borders_can_not_be_heard(rate_hz: int) -> None:
    audio = pcm16(sine(rate_hz, 3.0))
    form = AudioFormat(AudioEncoding.PCM16, rate_hz)
    whole = in_pieces(InputConverter(), audio, [len(audio)], form)
    pieces = in_pieces(InputConverter(), audio, [641, 3, 1, 1999, 20], form)
    assert len(pieces) == len(whole)
    assert np.abs(samples_of(pieces) - samples_of(whole)).max() <= 2 / 32_768


@pytest.mark.parametrize("rate_hz", [48_000, 24_000, 8_000])
def test_a_resampled_sine_is_that_sine(rate_hz: int) -> None:
    form = AudioFormat(AudioEncoding.PCM16, rate_hz)
    out = in_pieces(InputConverter(), pcm16(sine(rate_hz, 2.0)), [rate_hz // 25], form)
    heard, meant = samples_of(out)[800:-800], sine(16_000, 2.0)[800:-800]
    assert np.abs(heard - meant).max() < 1e-3


def test_16_khz_pcm_passes_untouched() -> None:
    audio = pcm16(sine(16_000, 0.5))
    assert in_pieces(InputConverter(), audio, [640], PCM16_16K) == audio


def test_a_change_of_rate_flushes_the_old_stream_first() -> None:
    converter = InputConverter()
    first = converter.convert(pcm16(sine(24_000, 1.0)), PCM16_24K)
    second = converter.convert(pcm16(sine(16_000, 1.0)), PCM16_16K)
    assert (len(first) + len(second)) // 2 == 32_000
    assert converter.flush() == b""


def test_reset_forgets_what_was_not_final() -> None:
    converter = InputConverter()
    converter.convert(pcm16(sine(24_000, 1.0)) + b"\x01", PCM16_24K)
    converter.reset()
    assert converter.flush() == b""
    fresh = InputConverter().convert(pcm16(sine(24_000, 1.0)), PCM16_24K)
    assert converter.convert(pcm16(sine(24_000, 1.0)), PCM16_24K) == fresh


def test_a_flushed_stream_can_be_used_again() -> None:
    resampler = StreamResampler(24_000, 16_000)
    for seconds in (1.0, 0.5):
        out = resampler.push(sine(24_000, seconds))
        assert len(out) + len(resampler.flush()) == round(16_000 * seconds)


# --- samples cut in two -------------------------------------------------------------------------


def test_an_odd_byte_waits_for_its_other_half() -> None:
    converter = InputConverter()
    assert converter.convert(b"\x01\x02\x03", PCM16_16K) == b"\x01\x02"
    assert converter.convert(b"\x04", PCM16_16K) == b"\x03\x04"
    assert converter.convert(b"", PCM16_16K) == b""


def test_a_float_sample_may_come_in_four_pieces() -> None:
    converter = InputConverter()
    sample = np.array([0.5], "<f4").tobytes()
    out = [converter.convert(sample[at : at + 1], F32_16K) for at in range(4)]
    assert out == [b"", b"", b"", struct.pack("<h", 16_384)]


def test_a_cut_sample_does_not_leak_into_another_encoding() -> None:
    converter = InputConverter()
    converter.convert(b"\x01", PCM16_16K)
    assert len(converter.convert(b"\xff" * 8, AudioFormat(AudioEncoding.G711_ULAW, 16_000))) == 16


# --- bad audio changes nothing ------------------------------------------------------------------


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_poison_is_refused_and_changes_nothing(poison: float) -> None:
    form = AudioFormat(AudioEncoding.PCM_F32LE, 24_000)
    good = sine(24_000, 1.0).tobytes()
    converter, untouched = InputConverter(), InputConverter()
    for one in (converter, untouched):
        one.convert(good + b"\x00", form)
    with pytest.raises(BadAudio):
        converter.convert(b"\x00" * 3 + np.array([0.1, poison], "<f4").tobytes(), form)
    rest = b"\x00" * 3 + good
    assert converter.convert(rest, form) == untouched.convert(rest, form)
    assert converter.flush() == untouched.flush()


def test_huge_floats_are_clipped() -> None:
    out = InputConverter().convert(np.array([1e38, -1e38, 2.0], "<f4").tobytes(), F32_16K)
    assert np.frombuffer(out, "<i2").tolist() == [32_767, -32_768, 32_767]


@pytest.mark.parametrize("rate_hz", [0, -1, 7_999, 48_001, 192_000])
def test_a_rate_out_of_range_is_refused(rate_hz: int) -> None:
    with pytest.raises(BadAudio) as refused:
        InputConverter().convert(b"\x00\x00", AudioFormat(AudioEncoding.PCM16, rate_hz))
    assert refused.value.wire_code == "unsupported_audio_format"


# --- WAV ----------------------------------------------------------------------------------------


def test_each_append_may_be_a_wav_of_its_own() -> None:
    audio = pcm16(sine(16_000, 1.0))
    converter = InputConverter()
    out = converter.convert(build_wav(audio[:9_000], 16_000), WAV)
    out += converter.convert(build_wav(audio[9_000:], 16_000), WAV)
    assert out == audio


def test_wavs_of_one_rate_are_one_stream() -> None:
    audio = pcm16(sine(24_000, 1.0))
    pieces = InputConverter()
    out = b"".join(
        pieces.convert(build_wav(audio[at : at + 4_800], 24_000), WAV)
        for at in range(0, len(audio), 4_800)
    )
    assert len(out + pieces.flush()) == 32_000


def test_stereo_is_averaged_and_float_is_read() -> None:
    left, right = sine(16_000, 0.1), np.zeros(1_600, np.float32)
    stereo = np.stack((left, right), axis=1).astype("<f4").tobytes()
    wav = parse_wav(wav_of(3, 2, 16_000, 32, stereo))
    assert wav.rate_hz == 16_000
    assert np.allclose(wav.samples, left / 2)


def test_the_size_that_a_streaming_writer_leaves_is_understood() -> None:
    audio = pcm16(sine(16_000, 0.1))
    streamed = bytearray(build_wav(audio, 16_000))
    streamed[40:44] = b"\xff" * 4
    assert InputConverter().convert(bytes(streamed), WAV) == audio


def test_an_extensible_header_and_other_chunks_are_understood() -> None:
    audio = pcm16(sine(16_000, 0.1))
    guid = struct.pack("<H", 1) + bytes.fromhex("000000001000800000aa00389b71")
    fmt = struct.pack("<HHIIHHHHI", 0xFFFE, 1, 16_000, 32_000, 2, 16, 22, 16, 4) + guid
    chunks = b"LIST" + struct.pack("<I", 3) + b"abc\x00"
    chunks += b"fmt " + struct.pack("<I", len(fmt)) + fmt
    chunks += b"data" + struct.pack("<I", len(audio)) + audio
    wav = b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks
    assert InputConverter().convert(wav, WAV) == audio


GOOD_WAV = build_wav(pcm16(sine(16_000, 0.1)), 16_000)


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"RIFF",
        b"JUNK" + GOOD_WAV[4:],
        GOOD_WAV[:20],
        GOOD_WAV[:36],
        GOOD_WAV[:-5],
        b"RIFF\x24\x00\x00\x00WAVEdata\x04\x00\x00\x00abcd",
        wav_of(1, 1, 16_000, 24, b"\x00" * 6),
        wav_of(1, 3, 16_000, 16, b"\x00" * 6),
        wav_of(1, 2, 16_000, 16, b"\x00" * 6),
        wav_of(1, 1, 96_000, 16, b"\x00" * 6),
        wav_of(2, 1, 16_000, 4, b"\x00" * 6),
        wav_of(3, 1, 16_000, 32, np.array([np.nan], "<f4").tobytes()),
    ],
)
def test_a_broken_wav_is_refused(broken: bytes) -> None:
    converter = InputConverter()
    with pytest.raises(BadAudio):
        converter.convert(broken, WAV)
    assert converter.convert(GOOD_WAV, WAV) == GOOD_WAV[44:]


# --- G.711 --------------------------------------------------------------------------------------

ULAW_VECTORS = {0x00: -32_124, 0x0F: -16_764, 0x40: -1_884, 0x7F: 0, 0x80: 32_124, 0xFE: 8, 0xFF: 0}
ALAW_VECTORS = {
    0x2A: -32_256,
    0xAA: 32_256,
    0x55: -8,
    0xD5: 8,
    0x54: -24,
    0x80: 5_504,
    0x00: -5_504,
}


def test_codes_expand_to_the_published_samples() -> None:
    assert g711.ulaw_decode(bytes(ULAW_VECTORS)).tolist() == list(ULAW_VECTORS.values())
    assert g711.alaw_decode(bytes(ALAW_VECTORS)).tolist() == list(ALAW_VECTORS.values())


def test_every_code_survives_a_round_trip() -> None:
    codes = bytes(range(256))
    assert g711.alaw_encode(g711.alaw_decode(codes)) == codes
    # µ-law has two zeros; both come back as the positive one.
    assert g711.ulaw_encode(g711.ulaw_decode(codes)) == codes.replace(b"\x7f", b"\xff")


def test_every_sample_meets_its_nearest_code_but_for_ties() -> None:
    samples = np.arange(-32_768, 32_768, dtype=np.int32)
    for encode, decode, clip in (
        (g711.ulaw_encode, g711.ulaw_decode, 32_124),
        (g711.alaw_encode, g711.alaw_decode, 32_256),
    ):
        heard = decode(encode(samples.astype(np.int16))).astype(np.int32)
        meant = np.clip(samples, -clip, clip)
        # Half a step of the segment that the sample lies in.
        assert (np.abs(heard - meant) <= np.maximum(np.abs(meant) + 132, 256) / 32 + 1).all()


def test_telephone_audio_comes_in_at_16_khz() -> None:
    spoken = g711.ulaw_encode(np.frombuffer(pcm16(sine(8_000, 1.0)), "<i2"))
    out = in_pieces(InputConverter(), spoken, [160], ULAW_8K)
    assert len(out) == 32_000
    assert abs(level(out) - 0.5 / np.sqrt(2)) < 0.01


# --- out ----------------------------------------------------------------------------------------

FENCE = Fence(SessionId("sess_1"), 0, 0, 0)


def delta(response: str, form: AudioFormat, *, is_turn_end: bool = False) -> SpeechDelta:
    return SpeechDelta(
        fence=FENCE,
        response_id=ResponseId(response),
        item_id=ItemId("item_1"),
        pcm=b"",
        transcript="",
        audio_ms=0,
        marks=(),
        playback=Playback(),
        output_format=form,
        is_turn_end=is_turn_end,
    )


def spoken(encoder: OutputEncoder, response: str, audio: bytes, form: AudioFormat) -> list[bytes]:
    """Encode a response in chunks of 100 ms; the last one ends the turn."""
    chunks = [audio[at : at + 4_800] for at in range(0, len(audio), 4_800)]
    out = []
    for index, chunk in enumerate(chunks):
        encoder.attend(delta(response, form, is_turn_end=index == len(chunks) - 1))
        out.append(encoder.encode(chunk, form))
    return out


def test_24_khz_pcm_goes_out_untouched() -> None:
    audio = pcm16(sine(24_000, 1.0))
    assert b"".join(spoken(OutputEncoder(), "resp_1", audio, PCM16_24K)) == audio


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 44_100, 48_000])
def test_other_rates_come_out_whole(rate_hz: int) -> None:
    form = AudioFormat(AudioEncoding.PCM16, rate_hz)
    out = b"".join(spoken(OutputEncoder(), "resp_1", pcm16(sine(24_000, 1.0)), form))
    assert len(out) == 2 * rate_hz
    heard, meant = samples_of(out)[rate_hz // 10 : -rate_hz // 10], sine(rate_hz, 1.0)
    assert np.abs(heard - meant[rate_hz // 10 : -rate_hz // 10]).max() < 1e-3


@pytest.mark.parametrize(
    ("form", "decode"), [(ULAW_8K, g711.ulaw_decode), (ALAW_8K, g711.alaw_decode)]
)
def test_telephone_audio_goes_out_at_8_khz(
    form: AudioFormat, decode: Callable[[bytes], NDArray[np.int16]]
) -> None:
    out = b"".join(spoken(OutputEncoder(), "resp_1", pcm16(sine(24_000, 1.0)), form))
    assert len(out) == 8_000
    assert abs(level(decode(out).tobytes()) - 0.5 / np.sqrt(2)) < 0.01


def test_each_wav_chunk_stands_alone() -> None:
    audio = pcm16(sine(24_000, 1.0))
    form = AudioFormat(AudioEncoding.WAV, 24_000)
    chunks = [parse_wav(chunk) for chunk in spoken(OutputEncoder(), "resp_1", audio, form)]
    assert len(chunks) == 10
    assert all(chunk.rate_hz == 24_000 for chunk in chunks)
    assert sum(len(chunk.samples) for chunk in chunks) == 24_000


def test_one_response_leaves_nothing_for_the_next() -> None:
    form = AudioFormat(AudioEncoding.PCM16, 16_000)
    audio = pcm16(sine(24_000, 1.0))
    alone = spoken(OutputEncoder(), "resp_2", audio, form)
    encoder = OutputEncoder()
    encoder.attend(delta("resp_1", form))
    encoder.encode(pcm16(sine(24_000, 0.3, hz=3_000.0)), form)
    assert spoken(encoder, "resp_2", audio, form) == alone


def test_a_finished_response_is_forgotten() -> None:
    form = AudioFormat(AudioEncoding.PCM16, 16_000)
    audio = pcm16(sine(24_000, 0.1))
    encoder = OutputEncoder()
    encoder.attend(delta("resp_1", form))
    first = encoder.encode(audio, form)
    encoder.attend(finished("resp_1"))
    encoder.attend(delta("resp_1", form))
    assert encoder.encode(audio, form) == first


def finished(response: str) -> ResponseFinished:
    return ResponseFinished(
        fence=FENCE,
        current=FENCE,
        response_id=ResponseId(response),
        item=ItemView(ItemId("item_1"), "assistant", "completed", "", is_audio=True),
        previous_item_id=None,
        status="completed",
        reason="stop",
        playback=Playback(),
        is_committed=True,
        output_modalities=("audio",),
    )


# --- level --------------------------------------------------------------------------------------


def test_level_is_the_root_mean_square() -> None:
    assert level(b"") == 0.0
    assert level(b"\x00" * 640) == 0.0
    assert abs(level(pcm16(sine(16_000, 1.0))) - 0.5 / np.sqrt(2)) < 1e-3

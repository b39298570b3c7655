"""Whether the replies are valid sound, and say what their transcripts say: Whisper listens."""

import io
import wave
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from clients.wav import Recording, encode_wav
from tests.support.speech import normalise, recognise, wer

OUTPUT_RATE_HZ: Final = 24_000
MOST_WORD_ERRORS: Final = 0.34
"""Sanity, not quality: one word of three may be heard otherwise."""
FAINTEST_DBFS: Final = -50.0
MOST_CLIPPED: Final = 0.01


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply's sound and text, and what a recogniser made of the sound."""

    file: str
    seconds: float
    transcript: str
    recognised: str
    faults: tuple[str, ...]


def write_replies(
    folder: Path, sounds: Mapping[str, bytes], transcripts: Mapping[str, str]
) -> list[Reply]:
    """Write each reply as a WAV, read it back and listen to it."""
    found = []
    for index, (response_id, pcm) in enumerate(sounds.items(), 1):
        file = folder / f"reply_{index}.wav"
        file.write_bytes(encode_wav(Recording(pcm, OUTPUT_RATE_HZ)))
        said = transcripts.get(response_id, "")
        heard = recognise(pcm)
        faults = wav_faults(file.read_bytes(), pcm) + _word_faults(said, heard)
        found.append(Reply(file.name, len(pcm) / 2 / OUTPUT_RATE_HZ, said, heard, tuple(faults)))
    return found


def wav_faults(content: bytes, pcm: bytes) -> list[str]:
    """Say what is wrong with a WAV of these samples."""
    with wave.open(io.BytesIO(content)) as file:
        shape = (file.getframerate(), file.getnchannels(), file.getsampwidth())
        frames = file.readframes(file.getnframes())
    faults = [] if shape == (OUTPUT_RATE_HZ, 1, 2) else [f"rate, channels, width are {shape}"]
    if frames != pcm:
        faults.append(f"{len(frames)} bytes of audio were written, {len(pcm)} came")
    samples = np.frombuffer(pcm, "<i2").astype(np.float64) / 32768
    if not len(samples):
        return [*faults, "no sample"]
    level = 10 * np.log10(np.mean(np.square(samples)) + 1e-12)
    if level < FAINTEST_DBFS:
        faults.append(f"silent: {level:.0f} dBFS")
    clipped = float(np.mean(np.abs(samples) > 0.999))
    if clipped > MOST_CLIPPED:
        faults.append(f"{clipped:.1%} of its samples are clipped")
    return faults


def _word_faults(said: str, heard: str) -> list[str]:
    words, sound = normalise(said), normalise(heard)
    if not words:
        return ["there is sound and no transcript"]
    rate = wer([words], [sound])
    return [] if rate <= MOST_WORD_ERRORS else [f"{words!r} was heard as {sound!r}"]

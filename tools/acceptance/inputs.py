"""The recordings that the contracts speak, pinned by their SHA-256."""

import hashlib
import io
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.running_service import ROOT

DATA: Final = ROOT / "tests" / "data"
RATE_HZ: Final = 16_000


class WrongRecording(ValueError):
    """A file is not the recording that the contract was made with."""


@dataclass(frozen=True, slots=True)
class Input:
    """One utterance."""

    name: str
    path: str
    """Under tests/data."""
    sha256: str
    words: str

    @property
    def file(self) -> Path:
        """Where it is."""
        return DATA / self.path

    def pcm(self) -> bytes:
        """Return its 16 kHz PCM16. Raises WrongRecording when the file is another one."""
        content = self.file.read_bytes()
        found = hashlib.sha256(content).hexdigest()
        if found != self.sha256:
            raise WrongRecording(f"{self.file} has SHA-256 {found}, not {self.sha256}")
        if self.file.suffix == ".raw":
            return content
        with wave.open(io.BytesIO(content)) as recording:
            if (recording.getframerate(), recording.getnchannels()) != (RATE_HZ, 1):
                raise WrongRecording(f"{self.file} is not 16 kHz mono")
            pcm: bytes = recording.readframes(recording.getnframes())
            return pcm


MODEL_POLICY: Final = (
    Input(
        "times",
        "acceptance/times.wav",
        "0a41881fad2518de8f0eb9101275bf21bf65469a487c32efa44227f6509af4c7",
        "How much is seven times six?",
    ),
    Input(
        "repeat",
        "acceptance/repeat.wav",
        "3db5c6c9e367729cc65bac12f840ee59f7aeffea73e471820e557b8550ab19df",
        "Repeat after me, the river is deep.",
    ),
    Input(
        "count",
        "acceptance/count.wav",
        "908f4bd512aeb1b865514803366e0af65f208fa5e01f13d8001d25d0f59a28cd",
        "Please count from one to five.",
    ),
)
"""Three things to say that no one answer fits."""

RESPONSE_REQUIRED: Final = Input(
    "goforward",
    "goforward.raw",
    "f15c60ec54059d8b66e410d0064945a0b0a04ea56e1ddca1958e493c0cf70e71",
    "go forward ten meters",
)
"""A human voice."""

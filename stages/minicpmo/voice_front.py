"""From the recording of a voice to a prompt: codes, mel and a row for who speaks.

Rule 1: only the first seconds of a recording count, so many and no more: what a voice takes of
        every conversation's memory grows with them.
Rule 2: nothing but those samples decides the prompt, so equal recordings give equal prompts.
Rule 3: the codes say how long the mel is: two frames each. A network that rounds up leaves a frame
        too few, and the last one stands for it.

The calls block for about a second; whoever has an event loop calls from a thread.
"""

import hashlib
from pathlib import Path
from typing import Final

import numpy as np

from session.errors import StageFailed, UnsupportedOption
from session.unit import VOICE_RATE_HZ
from stages.log_mel import Floats
from stages.minicpmo.checkpoint_files import CheckpointUnreadable
from stages.minicpmo.voice_features import speaker_fbank, tokenizer_mel, voice_mel
from stages.minicpmo.voice_networks import (
    SPEAKER_FILE,
    TOKENIZER_FILE,
    SpeakerNetwork,
    SpeechTokenizer,
)
from stages.minicpmo.voice_pcm import used_of_recording, voice_at_16k, voice_floats
from stages.minicpmo.voice_prompt import NamedPrompt, VoicePrompt

LEAST_S: Final = 1.0
"""A shorter recording tells too little of a voice."""
CODES_PER_SECOND: Final = 25
FRAMES_PER_CODE: Final = 2

_SILENCE: Final = 1e-3
"""Root mean square, where full scale is 1: -60 dB. Speech that quiet is mostly noise."""


class VoiceFront:
    """Both networks, and the spectrograms in front of them. It remembers nothing."""

    def __init__(self, tokenizer: SpeechTokenizer, speaker: SpeakerNetwork, seconds: float) -> None:
        """`seconds` is how much of a recording is used at most."""
        self._tokenizer = tokenizer
        self._speaker = speaker
        self._seconds = seconds

    @classmethod
    def from_folder(cls, folder: Path, seconds: float) -> "VoiceFront":
        """Load both networks and try them.

        Raises CheckpointUnreadable, which names the file that is missing, damaged, or another
        network than the published one.
        """
        tokenizer, speaker = SpeechTokenizer(folder), SpeakerNetwork(folder)
        _try(tokenizer, speaker)
        return cls(tokenizer, speaker, seconds)

    def used(self, pcm: bytes) -> bytes:
        """Return what of a recording at VOICE_RATE_HZ counts."""
        return used_of_recording(pcm, self._seconds)

    def prompt(self, pcm: bytes) -> VoicePrompt:
        """Return the prompt of a recording, 16-bit mono PCM at VOICE_RATE_HZ.

        Raises UnsupportedOption for one that is too short or silent, and StageFailed if a network
        fails.
        """
        audio = voice_floats(self.used(pcm))
        _refuse_unusable(audio)
        audio_16k = voice_at_16k(audio)
        codes = self._tokenizer.codes(tokenizer_mel(audio_16k))
        speaker = self._speaker.row(speaker_fbank(audio_16k))
        if not np.isfinite(speaker).all():
            raise UnsupportedOption(
                "the recording of the voice can not be used: no speaker can be made out in it",
                param="session.ref_audio",
            )
        return VoicePrompt(codes, fitted(voice_mel(audio), FRAMES_PER_CODE * len(codes)), speaker)

    def named(self, pcm: bytes) -> NamedPrompt:
        """Return the prompt under the recording's name. Raises as `prompt` does."""
        return NamedPrompt(recording_key(self.used(pcm)), self.prompt(pcm))


def find_front(folder: Path, seconds: float) -> VoiceFront | None:
    """Return the front of a voice's folder; None where neither network is there.

    Raises CheckpointUnreadable if only one is there, or one can not be used.
    """
    if not any((folder / name).exists() for name in (TOKENIZER_FILE, SPEAKER_FILE)):
        return None
    return VoiceFront.from_folder(folder, seconds)


def recording_key(used: bytes) -> str:
    """Return the name of a recording, of which only what counts is given."""
    return f"recording/{hashlib.sha256(used).hexdigest()}"


def fitted(mel: Floats, frames: int) -> Floats:
    """Return float32 [frames, bands]: what is too much is cut, the last frame fills up."""
    missing = max(0, frames - len(mel))
    return np.concatenate([mel[:frames], np.repeat(mel[-1:], missing, axis=0)])


def _refuse_unusable(audio: Floats) -> None:
    lasts_s = len(audio) / VOICE_RATE_HZ
    if lasts_s < LEAST_S:
        raise UnsupportedOption(
            f"the recording of the voice lasts {lasts_s:.2f} s: send {LEAST_S:g} s at least",
            param="session.ref_audio",
        )
    # The steady part of a signal is no sound.
    if float(np.std(audio, dtype=np.float64)) < _SILENCE:
        raise UnsupportedOption(
            f"the recording of the voice is silent in its first {lasts_s:g} s, which are all that "
            "is used of it",
            param="session.ref_audio",
        )


def _try(tokenizer: SpeechTokenizer, speaker: SpeakerNetwork) -> None:
    """Have both hear a second of noise; raise CheckpointUnreadable if one gives what it must not.

    A network that can not be run is found before a session brings a recording, and the first
    session does not wait for what onnxruntime sets up in its first run.
    """
    noise = np.random.default_rng(0).uniform(-0.1, 0.1, VOICE_RATE_HZ).astype(np.float32)
    audio = voice_at_16k(noise)
    try:
        codes = tokenizer.codes(tokenizer_mel(audio))
    except StageFailed as error:
        raise CheckpointUnreadable(tokenizer.file, f"another network: {error}") from error
    if len(codes) != CODES_PER_SECOND:
        raise CheckpointUnreadable(
            tokenizer.file,
            f"another network: it gives {len(codes)} codes for a second, not {CODES_PER_SECOND}",
        )
    try:
        speaker.row(speaker_fbank(audio))
    except StageFailed as error:
        raise CheckpointUnreadable(speaker.file, f"another network: {error}") from error

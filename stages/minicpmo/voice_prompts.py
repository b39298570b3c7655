"""Where voices come from: the operator's own, and those that sessions bring a recording of.

Rule 1: a recording is learned once for all sessions that bring it, also when they come at the same
        moment. Whoever gives up while waiting takes nothing away from the others.
Rule 2: the prompts used last are kept, so many and no more. They are small: 100 kB for 6 s.
Rule 3: a recording that can not be used is nobody's fault but its own, and is not remembered.
"""

import asyncio
import hashlib
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import soxr

from session.errors import BadAudio, UnsupportedOption
from session.unit import VOICE_RATE_HZ
from stages.log_mel import Floats
from stages.minicpmo.checkpoint_files import CheckpointUnreadable
from stages.minicpmo.voice_files import VOICE_FILE, read_prompt
from stages.minicpmo.voice_front import find_front, recording_key
from stages.minicpmo.voice_networks import SPEAKER_FILE, TOKENIZER_FILE
from stages.minicpmo.voice_pcm import voice_pcm
from stages.minicpmo.voice_prompt import NamedPrompt, VoicePrompt
from stages.wav import parse_wav

SETTING: Final = "model_settings.voice.prompt"


class Front(Protocol):
    """What learns a voice (`stages.minicpmo.voice_front.VoiceFront`)."""

    def used(self, pcm: bytes) -> bytes:
        """Return what of a recording counts."""
        ...

    def prompt(self, pcm: bytes) -> VoicePrompt:
        """Return the prompt of a recording; blocks."""
        ...


class VoicePrompts:
    """Implements `stages.minicpmo.voice_prompt.Prompts`."""

    def __init__(self, own: NamedPrompt, front: Front | None, *, kept: int) -> None:
        """`front` is None where recordings can not be learned; `kept` prompts are remembered."""
        self._own = own
        self._front = front
        self._kept = kept
        self._thread = ThreadPoolExecutor(1, "voice-front")
        self._known: OrderedDict[str, NamedPrompt] = OrderedDict()
        self._underway: dict[str, asyncio.Future[NamedPrompt]] = {}

    def close(self) -> None:
        """End the thread once it has done what it does."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    @property
    def own(self) -> NamedPrompt:
        """The voice of sessions that bring none."""
        return self._own

    async def learned(self, sample: bytes) -> NamedPrompt:
        """Return the voice of a recording, PCM at VOICE_RATE_HZ.

        Raises UnsupportedOption for one that can not be used, and where nothing can be learned;
        StageFailed if a network fails.
        """
        front = self._front
        if front is None:
            raise UnsupportedOption(
                f"this service can not learn a voice from a recording: {TOKENIZER_FILE} and "
                f"{SPEAKER_FILE} are not in its voice's folder. Leave ref_audio out",
                param="session.ref_audio",
            )
        used = front.used(sample)
        key = recording_key(used)
        if key == self._own.key:
            return self._own
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        underway = self._underway.get(key)
        if underway is None:
            loop = asyncio.get_running_loop()
            underway = loop.run_in_executor(self._thread, _learn, front, key, used)
            self._underway[key] = underway
            underway.add_done_callback(partial(self._settle, key))
        # Shielded: one who goes away must not take it from those who wait too.
        return await asyncio.shield(underway)

    def _settle(self, key: str, underway: asyncio.Future[NamedPrompt]) -> None:
        del self._underway[key]
        if underway.cancelled() or underway.exception() is not None:
            return
        self._known[key] = underway.result()
        while len(self._known) > self._kept:
            self._known.popitem(last=False)


def prompts_of(setting: str | None, folder: Path, *, seconds: float, kept: int) -> VoicePrompts:
    """Return the voices of a folder: `setting` is `model_settings.voice.prompt`.

    Raises CheckpointUnreadable, which names the file at fault.
    """
    front = find_front(folder, seconds)
    return VoicePrompts(own_prompt(setting, folder, front), front, kept=kept)


def own_prompt(setting: str | None, folder: Path, front: Front | None) -> NamedPrompt:
    """Return the operator's voice: a recording, a prompt, or `voice.npz` of the voice's folder.

    Raises CheckpointUnreadable, which names the file and the setting.
    """
    if setting is None:
        file = folder / VOICE_FILE
        if not file.exists():
            raise CheckpointUnreadable(
                file,
                f"there is no voice to speak with: let {SETTING} name a recording (.wav), or a "
                "prompt made of one (.npz)",
            )
        return _of_prompt(read_prompt(file))
    file = Path(setting).expanduser()
    match file.suffix.lower():
        case ".npz":
            return _of_prompt(read_prompt(file))
        case ".wav":
            return _of_recording(file, folder, front)
        case _:
            raise CheckpointUnreadable(
                file, f"{SETTING} must name a recording (.wav), or a prompt made of one (.npz)"
            )


def read_recording(file: Path) -> bytes:
    """Return a WAV as PCM at VOICE_RATE_HZ; raise CheckpointUnreadable, which names the setting."""
    try:
        wav = parse_wav(file.read_bytes())
    except OSError as error:
        raise CheckpointUnreadable(file, f"{SETTING} can not be read: {error.strerror}") from error
    except BadAudio as error:
        raise CheckpointUnreadable(file, f"{SETTING}: {error.message}") from error
    if not np.isfinite(wav.samples).all():
        raise CheckpointUnreadable(file, f"{SETTING}: samples that are not numbers")
    if not 8_000 <= wav.rate_hz <= 192_000:
        raise CheckpointUnreadable(file, f"{SETTING}: a sample rate of {wav.rate_hz} Hz")
    audio: Floats = soxr.resample(wav.samples, wav.rate_hz, VOICE_RATE_HZ)
    return voice_pcm(audio)


def _learn(front: Front, key: str, used: bytes) -> NamedPrompt:
    return NamedPrompt(key, front.prompt(used))


def _of_prompt(prompt: VoicePrompt) -> NamedPrompt:
    digest = hashlib.sha256(np.array(prompt.codes, np.int64).tobytes())
    digest.update(prompt.mel.tobytes())
    digest.update(prompt.speaker.tobytes())
    return NamedPrompt(f"prompt/{digest.hexdigest()}", prompt)


def _of_recording(file: Path, folder: Path, front: Front | None) -> NamedPrompt:
    if front is None:
        raise CheckpointUnreadable(
            folder / TOKENIZER_FILE,
            f"is missing, and so is {SPEAKER_FILE}: without them no voice can be learned from the "
            f"recording that {SETTING} names. Put them there, or name a prompt (.npz)",
        )
    used = front.used(read_recording(file))
    try:
        return _learn(front, recording_key(used), used)
    except UnsupportedOption as error:
        raise CheckpointUnreadable(file, f"{SETTING}: {error.message}") from error

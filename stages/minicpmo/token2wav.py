"""Token2Wav: codes to sound, a call at a time, for all turns that are due together.

Rule 1: it holds no turn. A turn is a value that its owner keeps: a call returns the next one, and
        who lets go of a turn gives its memory back. So cancelling is forgetting.
Rule 2: a voice is prepared once, and every turn of it begins with the same memory. The voices
        used last are kept, so many and no more.
Rule 3: calls that are due together become batches of one length each, of `max_batch` at most. What
        is wrong with one turn fails that turn alone.
Rule 4: what a turn sounds like is decided by its voice, its codes and its seed, whoever else is in
        the batch, up to the last digits of the arithmetic.

The calls block; whoever has an event loop calls from a thread, one at a time.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from session.errors import StageFailed, UnsupportedOption
from stages.minicpmo.flow import Flow, FlowCall, FlowMel, draw_noise
from stages.minicpmo.flow_graphs import CudaRecorder, Recorder, graph_bytes
from stages.minicpmo.flow_sizes import KEPT_FRAMES, FlowSizes, flow_state_bytes
from stages.minicpmo.flow_state import FlowState
from stages.minicpmo.schedule import (
    LOOK_AHEAD,
    MAX_CALL_CODES,
    MIN_CALL_CODES,
    SILENCE_CODE,
    VocoderCall,
)
from stages.minicpmo.vocoder_stream import (
    VocoderCallMel,
    VocoderState,
    VocoderStream,
    batches_on,
    drawn_noise,
    vocoder_state_bytes,
)
from stages.minicpmo.voice_files import load_flow, load_hift
from stages.minicpmo.voice_prompt import VoicePrompt

Float32 = npt.NDArray[np.float32]

BANDS: Final = 80
_LONGEST_VOICE_FRAMES: Final = 1500
"""30 s."""
NOISE_COLUMNS: Final = _LONGEST_VOICE_FRAMES + KEPT_FRAMES + 2 * MAX_CALL_CODES
"""Frames that a turn with the longest voice ever walks over."""


@dataclass(frozen=True, slots=True)
class Token2WavSettings:
    """How it runs."""

    steps: int = 5
    """Steps from noise to mel: 10 as in the published package, 5 as in its authors' service."""
    dtype: torch.dtype = torch.float32
    """Of the flow; the vocoder is always float32."""
    max_batch: int = 16
    max_voices: int = 8
    seed: int = 0
    """Of the flow's table of noise."""
    graph_frames: int = 0
    """Frames of mel of the longest voice that CUDA graphs have room for; 0: there are none."""


@dataclass(frozen=True, slots=True, eq=False)
class Voice:
    """A prepared voice."""

    speaker: torch.Tensor
    start: FlowState


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """What one turn remembers."""

    voice: Voice
    flow: FlowState
    vocoder: VocoderState


@dataclass(frozen=True, slots=True, eq=False)
class Due:
    """A call that is due."""

    turn: Turn
    call: VocoderCall


@dataclass(frozen=True, slots=True, eq=False)
class Spoken:
    """What a call yields."""

    wave: Float32
    """[call.samples] within ±1"""
    turn: Turn
    """For the next call; the turn that the call came with can still be used again."""
    flow_s: float
    vocoder_s: float
    """How long its batches took."""
    batch: int
    """How many calls the flow's batch had."""


class Token2Wav:
    """Both networks on one device."""

    def __init__(
        self,
        flow: Flow,
        vocoder: VocoderStream,
        settings: Token2WavSettings,
        now_s: Callable[[], float],
        record: Recorder | None = None,
    ) -> None:
        """`record` records the graphs, of which there are none without it."""
        self._flow = flow
        self._vocoder = vocoder
        self._settings = settings
        self._now_s = now_s
        self._record = record
        self._voices: OrderedDict[str, Voice] = OrderedDict()

    @classmethod
    def from_folder(
        cls,
        folder: Path,
        settings: Token2WavSettings,
        device: torch.device,
        now_s: Callable[[], float],
    ) -> "Token2Wav":
        """Load both networks; raise CheckpointUnreadable, which names the file at fault."""
        noise = draw_noise(BANDS, NOISE_COLUMNS, settings.seed)
        flow = load_flow(folder, noise, settings.steps, device, settings.dtype)
        batches = batches_on(device, settings.max_batch)
        hift, drawn = load_hift(folder, device), drawn_noise(device)
        vocoder = VocoderStream(hift, BANDS, drawn, device, batches)
        return cls(flow, vocoder, settings, now_s, recorder(settings, device))

    def turn_bytes(self, voice_frames: int) -> int:
        """Return what one turn's memory grows to with a voice of so many frames of mel."""
        settings = self._settings
        return turn_bytes(self._flow.sizes, settings.steps, settings.dtype, voice_frames)

    def voice_bytes(self, voice_frames: int) -> int:
        """Return what one prepared voice of so many frames of mel takes; `max_voices` are kept."""
        own = self._settings
        sizes = self._flow.sizes
        return flow_state_bytes(sizes, own.steps, own.dtype, voice_frames, is_full=False)

    def graph_bytes(self, voice_frames: int) -> int:
        """Return what graphs take that a warm-up records for voices of so many frames of mel."""
        own = self._settings
        if self._record is None:
            return 0
        frames = max(voice_frames, own.graph_frames)
        return graph_bytes(self._flow.sizes, own.steps, own.dtype, frames, own.max_batch)

    def prepare(self, key: str, prompt: VoicePrompt) -> Voice:
        """Return the voice of this key; it is computed only if it is not among the last ones.

        Raises UnsupportedOption for a prompt that can not be used.
        """
        voice = self._voices.pop(key, None)
        if voice is None:
            self._check_prompt(prompt)
            speaker = self._flow.speaker(torch.from_numpy(prompt.speaker))
            codes = (*prompt.codes, *(SILENCE_CODE,) * LOOK_AHEAD)
            mel = torch.from_numpy(prompt.mel.T.copy())
            voice = Voice(speaker, self._flow.begin(codes, mel, speaker))
        self._voices[key] = voice
        while len(self._voices) > self._settings.max_voices:
            self._voices.popitem(last=False)
        return voice

    def begin(self, voice: Voice, seed: int) -> Turn:
        """Return a turn that has not spoken; `seed` decides its noise."""
        return Turn(voice, voice.start, self._vocoder.begin(seed))

    def speak(self, due: Sequence[Due]) -> list[Spoken | StageFailed]:
        """Return each call's sound and next turn, or why there is none."""
        results: list[Spoken | StageFailed | None] = [self._refusal(one) for one in due]
        open_places = [place for place, one in enumerate(results) if one is None]
        for places in self._batches(due, open_places):
            made = self._speak_batch([due[place] for place in places])
            for place, one in zip(places, made, strict=True):
                results[place] = one
        return [one or StageFailed("the call was lost") for one in results]

    def warm_up(self, voice_frames: int, batch_sizes: Sequence[int]) -> None:
        """Run batches of these sizes from a turn's beginning until its memory is full.

        A single turn then has calls of every other length that the schedule can make, which come
        where speech ends.

        Where there are graphs, they are recorded first, by the thread that calls this; so it must
        be the one that calls `speak`.
        """
        if self._record is not None:
            frames = max(voice_frames, self._settings.graph_frames)
            self._flow.capture(self._record, frames, self._settings.max_batch)
        codes, sizes = voice_frames // 2, self._flow.sizes
        mel = np.zeros((2 * codes, sizes.bands), np.float32)
        speaker = np.ones(sizes.speaker, np.float32)
        prompt = VoicePrompt((SILENCE_CODE,) * codes, mel, speaker)
        self._check_prompt(prompt)
        row = self._flow.speaker(torch.from_numpy(speaker))
        start = (SILENCE_CODE,) * (codes + LOOK_AHEAD)
        voice = Voice(row, self._flow.begin(start, torch.from_numpy(mel.T.copy()), row))
        spoken = (SILENCE_CODE,) * MAX_CALL_CODES
        for size in batch_sizes:
            turns = [self.begin(voice, number) for number in range(size)]
            for number in range(4):
                call = VocoderCall(spoken, is_first=number == 0, is_last=False)
                made = self.speak([Due(turn, call) for turn in turns])
                turns = [one.turn for one in made if isinstance(one, Spoken)]
            if size == 1:
                for call in _calls_at_ends():
                    self.speak([Due(turn, call) for turn in turns])

    def _refusal(self, due: Due) -> StageFailed | None:
        call = due.call
        if call.is_first != (due.turn.vocoder.calls == 0):
            return StageFailed("the call does not follow what its turn remembers")
        # On a GPU a code that is out of the table ends the whole process.
        if not all(0 <= code < self._flow.sizes.vocabulary for code in call.codes):
            return StageFailed("the talker chose a code that the vocoder does not know")
        if call.samples < 1:
            return StageFailed("the call has too few codes to make a sound")
        return None

    def _batches(self, due: Sequence[Due], places: Sequence[int]) -> Iterator[list[int]]:
        """Yield places of calls that can be computed together, the longest waiting first."""
        groups: dict[tuple[int, bool], list[int]] = {}
        for place in places:
            call = due[place].call
            groups.setdefault((len(call.codes), call.is_last), []).append(place)
        for group in groups.values():
            for start in range(0, len(group), self._settings.max_batch):
                yield group[start : start + self._settings.max_batch]

    def _speak_batch(self, due: Sequence[Due]) -> list[Spoken | StageFailed]:
        try:
            return self._compute(due)
        except torch.OutOfMemoryError:
            return [StageFailed("the device has no memory for the voice") for _ in due]

    def _compute(self, due: Sequence[Due]) -> list[Spoken | StageFailed]:
        is_last = due[0].call.is_last
        began_s = self._now_s()
        calls = [FlowCall(one.call.codes, one.turn.voice.speaker, one.turn.flow) for one in due]
        mels = self._flow.run(calls, is_last=is_last)
        flow_s = self._now_s() - began_s
        results: list[Spoken | StageFailed] = [
            StageFailed("the codes became numbers that are not finite") for _ in due
        ]
        for group in _by_length(due, mels):
            began_s = self._now_s()
            sounds = self._vocoder.run([call for _, _, call in group])
            waves = torch.stack([sound.wave for sound in sounds]).cpu().numpy()
            vocoder_s = self._now_s() - began_s
            for (place, mel, _), sound, wave in zip(group, sounds, waves, strict=True):
                if np.isfinite(wave).all():
                    turn = Turn(due[place].turn.voice, mel.state, sound.state)
                    results[place] = Spoken(wave, turn, flow_s, vocoder_s, len(due))
        return results

    def _check_prompt(self, prompt: VoicePrompt) -> None:
        sizes = self._flow.sizes
        frames = sizes.stride * len(prompt.codes)
        if not 0 < frames <= _LONGEST_VOICE_FRAMES:
            raise UnsupportedOption("the voice's recording is too short or too long", param="voice")
        if prompt.mel.shape != (frames, sizes.bands) or prompt.speaker.shape != (sizes.speaker,):
            raise UnsupportedOption("the voice's parts do not fit each other", param="voice")
        finite = np.isfinite(prompt.mel).all() and np.isfinite(prompt.speaker).all()
        known = all(0 <= code < sizes.vocabulary for code in prompt.codes)
        if not (finite and known and prompt.mel.dtype == prompt.speaker.dtype == np.float32):
            raise UnsupportedOption("the voice's recording can not be used", param="voice")


def recorder(settings: Token2WavSettings, device: torch.device) -> Recorder | None:
    """Return what records graphs on this device; None where there are none to be."""
    if settings.graph_frames and device.type == "cuda":
        return CudaRecorder(device)
    return None


def _calls_at_ends() -> Iterator[VocoderCall]:
    """Yield a call of each length but the longest, none of them a turn's first."""
    for length in range(LOOK_AHEAD, MAX_CALL_CODES):
        is_last = length < MIN_CALL_CODES
        yield VocoderCall((SILENCE_CODE,) * length, is_first=False, is_last=is_last)


def turn_bytes(sizes: FlowSizes, steps: int, dtype: torch.dtype, voice_frames: int) -> int:
    """Return what one turn's memory grows to, flow and vocoder.

    While a batch runs, each of its turns has its next memory beside the present one, and one step's
    keys and values are laid side by side: for a batch, count its turns once more and a bit.
    """
    flow = flow_state_bytes(sizes, steps, dtype, voice_frames)
    return flow + vocoder_state_bytes(sizes.bands)


def _by_length(
    due: Sequence[Due], mels: Sequence[FlowMel | None]
) -> list[list[tuple[int, FlowMel, VocoderCallMel]]]:
    """Return the calls with a mel, as batches for the vocoder, with their places."""
    groups: dict[int, list[tuple[int, FlowMel, VocoderCallMel]]] = {}
    for place, (one, mel) in enumerate(zip(due, mels, strict=True)):
        if mel is not None:
            call = VocoderCallMel(one.turn.vocoder, mel.mel, one.call.is_last)
            groups.setdefault(call.length, []).append((place, mel, call))
    return list(groups.values())

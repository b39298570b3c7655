"""Flow and vocoder on a device: recorded mel and waves, batches as alone, and 16 bits."""

import math
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from stages.minicpmo.flow import Flow, FlowCall
from stages.minicpmo.hift import Hift, take_hift
from stages.minicpmo.schedule import LOOK_AHEAD, SILENCE_CODE, VocoderCall
from stages.minicpmo.token2wav import (
    BANDS,
    Due,
    Spoken,
    Token2Wav,
    Token2WavSettings,
    Turn,
    recorder,
)
from stages.minicpmo.vocoder_stream import VocoderCallMel, VocoderStream, drawn_noise, no_noise
from stages.minicpmo.voice_prompt import VoicePrompt
from stages.minicpmo.weight_rule import make_tensor, rules
from tools.bench.stage1_outcomes import Outcomes
from tools.bench.stage1_recorded import STREAMS, arrays, prompt, turn_calls

MEL_ALIKE: Final = {"cpu": 1e-4, "cuda": 2e-3}
WAVE_ALIKE: Final = {"cpu": 1e-3, "cuda": 2e-2}
"""A last digit in a pitch moves a phase 480 times as far."""
BATCH_ALIKE: Final = {"cpu": 1e-3, "cuda": 2e-2}
_NOISE: Final = "flow.rand_noise"
_SILENT: Final = 1e-3
_VOICE_FRAMES: Final = 80
"""Of the recorded voices."""


@cache
def _tensors(group: str) -> Mapping[str, torch.Tensor]:
    return {name: torch.from_numpy(make_tensor(group, name)) for name in rules(group)}


@cache
def _flow(device: torch.device, steps: int, dtype: torch.dtype) -> Flow:
    noise = _tensors("noise")[_NOISE][0]
    return Flow.from_tensors(_tensors("flow"), noise, steps, device, dtype)


@cache
def _hift(device: torch.device) -> Hift:
    return take_hift(_tensors("hift"), device)


def check_sound(name: str, say: Outcomes) -> None:
    """Run all checks."""
    device = torch.device(name)
    for stream in STREAMS:
        recorded_mel(device, stream, say)
    for stream in STREAMS:
        recorded_wave(device, stream, say)
    batches(device, say)
    half(device, say)


def recorded_mel(device: torch.device, stream: str, say: Outcomes) -> None:
    """Compare a turn's mel with the recorded one."""
    voice, steps = STREAMS[stream]
    made = mels(device, torch.float32, steps, voice)
    apart = max(
        float(np.abs(one - arrays("token2wav")[f"{stream}_mel_{number}"]).max())
        for number, one in enumerate(made)
    )
    limit = MEL_ALIKE[device.type]
    detail = f"at most {apart:.1e} apart, allowed {limit:.0e}"
    say.say(f"recorded mel {stream}", apart < limit, detail)


def mels(
    device: torch.device, dtype: torch.dtype, steps: int, voice: int
) -> list[npt.NDArray[np.float32]]:
    """Return the mel [bands, frames] of each call of the recorded turn."""
    flow, asked = _flow(device, steps, dtype), prompt(voice)
    speaker = flow.speaker(torch.from_numpy(asked.speaker))
    codes = (*asked.codes, *(SILENCE_CODE,) * LOOK_AHEAD)
    state = flow.begin(codes, torch.from_numpy(asked.mel.T.copy()), speaker)
    made = []
    for call in turn_calls(voice):
        (one,) = flow.run([FlowCall(call.codes, speaker, state)], is_last=call.is_last)
        if one is None:
            raise RuntimeError("the flow made numbers that are not finite")
        state = one.state
        made.append(one.mel.float().cpu().numpy())
    return made


def recorded_wave(device: torch.device, stream: str, say: Outcomes) -> None:
    """Compare what a recorded mel sounds like with the recorded sound."""
    recorded = arrays("token2wav")
    vocoder = VocoderStream(_hift(device), BANDS, no_noise, device)
    state, apart = vocoder.begin(7), 0.0
    for number in range(5):
        mel = torch.from_numpy(recorded[f"{stream}_mel_{number}"]).to(device)
        (sound,) = vocoder.run([VocoderCallMel(state, mel, is_last=number == 4)])
        state = sound.state
        wave = sound.wave.cpu().numpy()
        whole = recorded.get(f"{stream}_wave_{number}")
        wanted = whole if whole is not None else recorded[f"{stream}_wave_{number}_every_5th"]
        found = wave if whole is not None else wave[::5]
        apart = max(apart, float(np.abs(found - wanted).max()))
    limit = WAVE_ALIKE[device.type]
    detail = f"at most {apart:.1e} apart, allowed {limit:.0e}"
    say.say(f"recorded sound {stream}", apart < limit, detail)


def batches(device: torch.device, say: Outcomes) -> None:
    """Compare turns that are due together with each of them alone, voices of three lengths.

    On a GPU they are also compared where graphs are played, which are for other numbers of turns.
    """
    prompts = [prompt(31), prompt(32), prompt(31, codes=12), prompt(32), prompt(31)]
    calls = [turn_calls(31 + at % 2) for at in range(len(prompts))]
    plain = _voices(device, has_graphs=False)
    alone = [_turn(plain, at, *one) for at, one in enumerate(zip(prompts, calls, strict=True))]
    ways = {"": plain}
    if device.type == "cuda":
        ways[" by graphs"] = _voices(device, has_graphs=True)
    for way, voices in ways.items():
        for together in (3, 5):
            turns = [_begin(voices, at, prompts[at]) for at in range(together)]
            apart, loud, sizes = 0.0, 1.0, set[int]()
            for number in range(5):
                due = [Due(turn, calls[at][number]) for at, turn in enumerate(turns)]
                made = [_spoken(one) for one in voices.speak(due)]
                turns = [one.turn for one in made]
                sizes.update(one.batch for one in made)
                waves = [alone[at][number] for at in range(together)]
                apart = max(apart, *(_far(one.wave, w) for one, w in zip(made, waves, strict=True)))
                loud = min(loud, *(float(np.abs(one.wave).max()) for one in made))
            limit = BATCH_ALIKE[device.type]
            detail = f"at most {apart:.1e} apart, allowed {limit:.0e}; batches of {sorted(sizes)}"
            is_so = apart < limit and loud > _SILENT and sizes == {together}
            say.say(f"{together} turns in a batch{way} sound as alone", is_so, detail)


def _voices(device: torch.device, *, has_graphs: bool) -> Token2Wav:
    settings = Token2WavSettings(max_batch=8, graph_frames=_VOICE_FRAMES if has_graphs else 0)
    noise = _tensors("noise")[_NOISE][0]
    flow = Flow.from_tensors(_tensors("flow"), noise, settings.steps, device, settings.dtype)
    vocoder = VocoderStream(_hift(device), BANDS, drawn_noise(device), device)
    record = recorder(settings, device)
    voices = Token2Wav(flow, vocoder, settings, time.monotonic, record)
    if has_graphs:
        voices.warm_up(_VOICE_FRAMES, [1])
    return voices


def half(device: torch.device, say: Outcomes) -> None:
    """Say how far 16 bits are from 32."""
    full = mels(device, torch.float32, 5, 31)
    span = float(np.concatenate(full, 1).std())
    for dtype in (torch.float16, torch.bfloat16):
        made = mels(device, dtype, 5, 31)
        apart = np.concatenate(
            [np.abs(one - other).ravel() for one, other in zip(full, made, strict=True)]
        )
        mean = math.sqrt(float((apart**2).mean()))
        detail = (
            f"mel at most {apart.max():.1e} apart, {mean:.1e} in the root of the mean square, "
            f"where the mel's deviation is {span:.2f}"
        )
        say.note(f"flow in {str(dtype).removeprefix('torch.')}", detail)


def _begin(voices: Token2Wav, at: int, asked: VoicePrompt) -> Turn:
    return voices.begin(voices.prepare(f"{at % 2}-{len(asked.codes)}", asked), seed=at)


def _turn(
    voices: Token2Wav, at: int, asked: VoicePrompt, calls: Sequence[VocoderCall]
) -> list[npt.NDArray[np.float32]]:
    turn = _begin(voices, at, asked)
    waves = []
    for call in calls:
        spoken = _spoken(voices.speak([Due(turn, call)])[0])
        turn = spoken.turn
        waves.append(spoken.wave)
    return waves


def _spoken(one: object) -> Spoken:
    if not isinstance(one, Spoken):
        raise RuntimeError(f"a call failed: {one}")
    return one


def _far(one: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> float:
    return float(np.abs(one - other).max())

"""Builds Token2Wav's networks, whose weights follow from their names, and reads its recordings."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from stages.minicpmo.flow import Flow, FlowCall, FlowMel
from stages.minicpmo.flow_state import FlowState
from stages.minicpmo.hift import Hift, take_hift
from stages.minicpmo.schedule import (
    LOOK_AHEAD,
    MAX_CALL_CODES,
    SILENCE_CODE,
    VocoderCall,
)
from stages.minicpmo.voice_prompt import VoicePrompt
from stages.minicpmo.weight_rule import make_tensor, rules
from tests.stages.minicpmo.vectors import arrays

CPU: Final = torch.device("cpu")
STREAMS: Final = {"a_steps10": (31, 10), "a_steps5": (31, 5), "b_steps5": (32, 5)}
"""Name of a recorded stream: its voice, and steps."""
BANDS: Final = 80


@cache
def recorded() -> Mapping[str, npt.NDArray[Any]]:
    return arrays("token2wav")


@cache
def tensors(group: str) -> Mapping[str, torch.Tensor]:
    return {name: torch.from_numpy(make_tensor(group, name)) for name in rules(group)}


@cache
def flow(steps: int = 5, dtype: torch.dtype = torch.float32) -> Flow:
    return new_flow(steps, dtype)


def new_flow(steps: int = 5, dtype: torch.dtype = torch.float32) -> Flow:
    noise = tensors("noise")["flow.rand_noise"][0]
    return Flow.from_tensors(tensors("flow"), noise, steps, CPU, dtype)


@cache
def hift() -> Hift:
    return take_hift(tensors("hift"), CPU)


def prompt(number: int, codes: int = 40) -> VoicePrompt:
    """Return a recorded voice, or only its first codes."""
    data = recorded()
    return VoicePrompt(
        tuple(data[f"prompt{number}_tokens"][:codes].tolist()),
        data[f"prompt{number}_mel"][: 2 * codes],
        data[f"prompt{number}_speaker"],
    )


def begin(network: Flow, voice: VoicePrompt) -> tuple[torch.Tensor, FlowState]:
    """Return a voice's row and the state that its turns begin with."""
    speaker = network.speaker(torch.from_numpy(voice.speaker))
    codes = (*voice.codes, *(SILENCE_CODE,) * LOOK_AHEAD)
    return speaker, network.begin(codes, torch.from_numpy(voice.mel).T, speaker)


def turn_calls(number: int) -> Sequence[VocoderCall]:
    """Return the calls of the recorded turn: four of 28 codes, and the last 15 in one call.

    (The schedule would make two of the last one.)
    """
    codes = (*(SILENCE_CODE,) * LOOK_AHEAD, *recorded()[f"tokens{number}"].tolist())
    looking = [
        VocoderCall(codes[start : start + MAX_CALL_CODES], is_first=start == 0, is_last=False)
        for start in (0, 25, 50, 75)
    ]
    return [*looking, VocoderCall(codes[100:], is_first=False, is_last=True)]


def flow_turn(network: Flow, voice: VoicePrompt, calls: Sequence[VocoderCall]) -> list[FlowMel]:
    """Run a whole turn alone."""
    speaker, state = begin(network, voice)
    made = []
    for call in calls:
        (one,) = network.run([FlowCall(call.codes, speaker, state)], is_last=call.is_last)
        assert one is not None
        made.append(one)
        state = one.state
    return made


def far(got: torch.Tensor, wanted: torch.Tensor | npt.NDArray[Any]) -> float:
    assert tuple(got.shape) == tuple(wanted.shape)
    return float((got - torch.as_tensor(np.asarray(wanted))).abs().max())

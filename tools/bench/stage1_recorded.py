"""The recorded vectors of MiniCPM-o's talker and Token2Wav, as the checks on a device use them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stages.contract import Speech
from stages.minicpmo.schedule import LOOK_AHEAD, MAX_CALL_CODES, SILENCE_CODE, VocoderCall
from stages.minicpmo.voice_prompt import VoicePrompt

RECORDED: Final = Path(__file__).parents[2] / "tests" / "data" / "minicpmo"
STREAMS: Final[Mapping[str, tuple[int, int]]] = {
    "a_steps10": (31, 10),
    "a_steps5": (31, 5),
    "b_steps5": (32, 5),
}
"""Name of a recorded stream: its voice, and steps."""
_GREEDY: Final = 7


@dataclass(frozen=True, slots=True, eq=False)
class TalkerVector:
    """One recorded unit of the talker's."""

    speech: Speech
    start_position: int
    codes: tuple[int, ...]
    logits: npt.NDArray[np.float32]
    """[steps, columns], before temperature and penalty"""


@cache
def arrays(name: str) -> Mapping[str, npt.NDArray[Any]]:
    """Return a file's arrays."""
    with np.load(RECORDED / f"{name}.npz") as file:
        return dict(file)


def columns() -> npt.NDArray[np.int64]:
    """Return the codes whose logits are recorded."""
    return arrays("talker")["code_columns"]


def greedy_units() -> list[TalkerVector]:
    """Return the recorded conversation, whose codes are the likeliest ones."""
    return [_unit(f"greedy_{number}") for number in range(_GREEDY)]


def _unit(name: str) -> TalkerVector:
    every = arrays("talker")
    one = {key: every[f"{name}_{key}"] for key in ("token_ids", "hidden", "codes", "raw_logits")}
    start = int(every[f"{name}_start_position"])
    speech = Speech(
        "",
        segment_end=True,
        turn_end=bool(every[f"{name}_end_of_turn"]),
        token_ids=tuple(one["token_ids"].tolist()),
        hidden=one["hidden"],
        turn_start=start == 0,
    )
    return TalkerVector(speech, start, tuple(one["codes"].tolist()), one["raw_logits"])


def prompt(number: int, codes: int = 40) -> VoicePrompt:
    """Return a recorded voice, or only its first codes."""
    every = arrays("token2wav")
    return VoicePrompt(
        tuple(every[f"prompt{number}_tokens"][:codes].tolist()),
        every[f"prompt{number}_mel"][: 2 * codes],
        every[f"prompt{number}_speaker"],
    )


def turn_calls(number: int) -> Sequence[VocoderCall]:
    """Return the calls of the recorded turn: four of 28 codes, and the last 15 in one."""
    spoken = arrays("token2wav")[f"tokens{number}"].tolist()
    codes = (*(SILENCE_CODE,) * LOOK_AHEAD, *spoken)
    looking = [
        VocoderCall(codes[start : start + MAX_CALL_CODES], is_first=start == 0, is_last=False)
        for start in (0, 25, 50, 75)
    ]
    return [*looking, VocoderCall(codes[100:], is_first=False, is_last=True)]

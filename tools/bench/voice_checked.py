"""MiniCPM-o's flow through CUDA graphs, held against itself without them; and what they save.

`python -m tools.bench.voice_checked` prints, for batches of turns of several ages and voices, the
largest difference that graphs make, then the time of a call both ways and the memory that graphs
take. It fails if a difference is beyond its bound. The sizes are the published ones, the weights
random, and convolutions do not round to TensorFloat-32.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from stages.minicpmo.dummy_voice import dummy_prompt, dummy_token2wav
from stages.minicpmo.schedule import MAX_CALL_CODES, VocoderCall
from stages.minicpmo.token2wav import Due, Spoken, Token2Wav, Token2WavSettings, Turn
from stages.minicpmo.voice_memory import FRAMES_PER_SECOND
from tools.bench.conditions import conditions

BOUNDS: Final = {"float32": 1e-3, "float16": 5e-2, "bfloat16": 5e-1}
"""Of mel and of keys and values, as a share of the largest one: kernels add in another order."""
_VOICES_S: Final = (6, 4, 2)
_LENGTHS: Final = ((28, False), (10, False), (19, False), (28, True), (3, True))
"""Codes of a call, and whether it is its turn's last."""
_ROUNDS: Final = 20
_MOST: Final = 16


@dataclass(frozen=True, slots=True)
class _Apart:
    """Largest differences between two ways to make the same calls."""

    mel: float
    memory: float
    wave: float


def main() -> int:
    """Check and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--dtypes", nargs="+", choices=tuple(BOUNDS), default=["float32", "float16"]
    )
    parser.add_argument("--steps", type=int, default=5)
    given = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False
    print(conditions("voice_checked").replace("bench voice_checked", "bench.voice_checked"))
    faults = sum(_check(dtype, given.steps) for dtype in given.dtypes)
    print(f"\n{faults} faults")
    return min(faults, 1)


def _check(dtype: str, steps: int) -> int:
    frames = _VOICES_S[0] * FRAMES_PER_SECOND
    plain, graphs = (
        dummy_token2wav(
            Token2WavSettings(
                steps=steps, dtype=getattr(torch, dtype), max_batch=_MOST, graph_frames=room
            ),
            torch.device("cuda"),
            time.monotonic,
        )
        for room in (0, frames)
    )
    plain.warm_up(frames, [1, _MOST])
    torch.cuda.empty_cache()
    before, began_s = torch.cuda.memory_reserved(), time.monotonic()
    graphs.warm_up(frames, [])
    took_s = time.monotonic() - began_s
    torch.cuda.empty_cache()
    taken, said = torch.cuda.memory_reserved() - before, graphs.graph_bytes(frames)
    print(f"\n{dtype}, {steps} steps: graphs recorded in {took_s:.1f} s, ", end="")
    print(f"{taken / 1e6:.0f} MB of memory, {said / 1e6:.0f} MB were counted\n")
    return int(taken > said) + _differences(plain, graphs, BOUNDS[dtype]) + _times(plain, graphs)


def _differences(plain: Token2Wav, graphs: Token2Wav, bound: float) -> int:
    turns, faults = _turns(plain), 0
    print("| turns | codes | mel | keys and values | wave | fault |\n| - | - | - | - | - | - |")
    for batch in (1, 2, 3, 5, 8, 9, _MOST):
        for codes, is_last in _LENGTHS:
            call = VocoderCall(tuple(range(50, 50 + codes)), is_first=False, is_last=is_last)
            # The oldest last, so that what it leaves behind is there for the next batch.
            due = [Due(turn, call) for turn in turns[-batch:]]
            apart = _apart(plain.speak(due), graphs.speak(due))
            bad = not (apart.mel < bound and apart.memory < bound)
            faults += bad
            print(
                f"| {batch} | {codes}{', last' if is_last else ''} | {apart.mel:.1e} "
                f"| {apart.memory:.1e} | {apart.wave:.1e} | {'FAULT' if bad else '-'} |"
            )
    return faults


def _turns(voices: Token2Wav) -> list[Turn]:
    """Return turns that have spoken once to five times, with voices of several lengths."""
    made = []
    for number in range(_MOST):
        seconds = _VOICES_S[number % len(_VOICES_S)]
        voice = voices.prepare(str(seconds), dummy_prompt(seconds))
        turn = voices.begin(voice, number)
        for place in range(1 + number % 5):
            turn = _spoken(voices, [turn], _codes(place), is_first=place == 0)[0].turn
        made.append(turn)
    return made


def _spoken(
    voices: Token2Wav, turns: Sequence[Turn], codes: tuple[int, ...], *, is_first: bool
) -> list[Spoken]:
    call = VocoderCall(codes, is_first=is_first, is_last=False)
    made = voices.speak([Due(turn, call) for turn in turns])
    spoken = [one for one in made if isinstance(one, Spoken)]
    if len(spoken) < len(turns):
        raise RuntimeError(f"a call failed: {made}")
    return spoken


def _codes(place: int) -> tuple[int, ...]:
    return tuple(range(100 + place, 100 + place + MAX_CALL_CODES))


def _apart(plain: Sequence[object], graphs: Sequence[object]) -> _Apart:
    mel, memory, wave = 0.0, 0.0, 0.0
    for one, other in zip(plain, graphs, strict=True):
        if not (isinstance(one, Spoken) and isinstance(other, Spoken)):
            return _Apart(float("inf"), float("inf"), float("inf"))
        mel = max(mel, _far(one.turn.vocoder.mel, other.turn.vocoder.mel))
        held, kept = one.turn.flow, other.turn.flow
        memory = max(memory, _far(held.attention, kept.attention))
        memory = max(memory, _far(held.convolutions, kept.convolutions))
        wave = max(wave, float(abs(one.wave - other.wave).max()))
    return _Apart(mel, memory, wave)


def _far(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest difference as a share of the largest value."""
    difference = (one.float() - other.float()).abs().max()
    return float(difference / one.float().abs().max())


def _times(plain: Token2Wav, graphs: Token2Wav) -> int:
    """Print the time of calls of old turns; nothing here is a fault."""
    print("\n| turns | | call p50 / max ms | flow ms | vocoder ms |\n| - | - | - | - | - |")
    for batch in (1, 2, 4, 8, _MOST):
        for voices, how in ((plain, "without"), (graphs, "graphs")):
            voice = voices.prepare("time", dummy_prompt(_VOICES_S[0]))
            turns = [voices.begin(voice, number) for number in range(batch)]
            whole, flow, vocoder = [], [], []
            for place in range(_ROUNDS + 3):
                began_s = time.monotonic()
                spoken = _spoken(voices, turns, _codes(place), is_first=place == 0)
                whole.append(time.monotonic() - began_s)
                flow.append(spoken[0].flow_s)
                vocoder.append(spoken[0].vocoder_s)
                turns = [one.turn for one in spoken]
                del spoken
            middle = [1e3 * statistics.median(part[3:]) for part in (whole, flow, vocoder)]
            print(
                f"| {batch} | {how} | {middle[0]:.1f} / {1e3 * max(whole[3:]):.1f} "
                f"| {middle[1]:.1f} | {middle[2]:.1f} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())

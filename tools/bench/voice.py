"""MiniCPM-o's flow and vocoder by number of turns that are due together.

The sizes are the published ones, the weights random: times and memory mean something, the sound
does not. All turns of a level are due at the same moment, which is the worst that can happen.
"""

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from stages.minicpmo.dummy_voice import dummy_prompt, dummy_token2wav
from stages.minicpmo.flow_sizes import KEPT_FRAMES
from stages.minicpmo.schedule import MAX_CALL_CODES, VocoderCall
from stages.minicpmo.token2wav import (
    Due,
    Spoken,
    Token2Wav,
    Token2WavSettings,
    Voice,
)
from stages.minicpmo.voice_memory import FRAMES_PER_SECOND

_VOICE_S: Final = 6
_VOICE_FRAMES: Final = _VOICE_S * FRAMES_PER_SECOND
_FULL_AFTER: Final = KEPT_FRAMES // 50 + 1
"""Calls until a turn's memory no longer grows."""
_HEAD: Final = (
    "| turns | batch | call p50 / max s | flow s | vocoder s | audio per s | first of 28 codes s | "
    "first of 10 codes s | memory MB a turn | device MB at most |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


@dataclass(frozen=True, slots=True)
class _Options:
    device: torch.device
    dtype: torch.dtype
    steps: int
    turns: tuple[int, ...]
    max_batch: int
    rounds: int
    has_graphs: bool


@dataclass(frozen=True, slots=True)
class _Round:
    """One moment at which every turn is due."""

    whole_s: float
    flow_s: float
    vocoder_s: float


def bench_voice(arguments: Sequence[str]) -> None:
    """Measure each number of turns and print a table."""
    options = _options(arguments)
    settings = Token2WavSettings(
        steps=options.steps,
        dtype=options.dtype,
        max_batch=options.max_batch,
        graph_frames=_VOICE_FRAMES if options.has_graphs else 0,
    )
    voices = dummy_token2wav(settings, options.device, time.monotonic)
    voice = voices.prepare("bench", dummy_prompt(_VOICE_S))
    voices.warm_up(_VOICE_FRAMES, [min(options.max_batch, max(options.turns)), 1])
    print(f"{options.device}, {options.dtype}, {options.steps} steps, a voice of 6 s\n")
    print(_HEAD, flush=True)
    for turns in options.turns:
        print(_row(options, voices, voice, turns), flush=True)


def _options(arguments: Sequence[str]) -> _Options:
    parser = argparse.ArgumentParser(prog="python -m tools.bench voice", description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default="float32")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--turns", type=int, nargs="+", default=[1])
    parser.add_argument("--max-batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--graphs", choices=("on", "off"), default="on", help="ignored on a CPU")
    given = parser.parse_args(arguments)
    return _Options(
        torch.device(given.device),
        getattr(torch, given.dtype),
        given.steps,
        tuple(given.turns),
        given.max_batch,
        given.rounds,
        given.graphs == "on",
    )


def _row(options: _Options, voices: Token2Wav, voice: Voice, turns: int) -> str:
    if options.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(options.device)
    short = min(next(_rounds(voices, voice, turns, 10)).whole_s for _ in range(2))
    made = list(_take(_rounds(voices, voice, turns, MAX_CALL_CODES), options.rounds + _FULL_AFTER))
    full = made[_FULL_AFTER:]
    whole = [one.whole_s for one in full]
    most = (
        f"{torch.cuda.max_memory_allocated(options.device) / 1e6:.0f}"
        if options.device.type == "cuda"
        else "-"
    )
    middle = statistics.median(whole)
    return (
        f"| {turns} | {min(turns, options.max_batch)} | {middle:.3f} / {max(whole):.3f} "
        f"| {statistics.median(one.flow_s for one in full):.3f} "
        f"| {statistics.median(one.vocoder_s for one in full):.3f} | {turns / middle:.1f} "
        f"| {made[0].whole_s:.3f} | {short:.3f} "
        f"| {voices.turn_bytes(_VOICE_FRAMES) / 1e6:.0f} | {most} |"
    )


def _take(rounds: Iterator[_Round], count: int) -> Iterator[_Round]:
    for _, one in zip(range(count), rounds, strict=False):
        yield one


def _rounds(voices: Token2Wav, voice: Voice, turns: int, first: int) -> Iterator[_Round]:
    """Yield how long each call of all turns took; a call but the first gives a second of audio."""
    held = [voices.begin(voice, seed) for seed in range(turns)]
    codes = tuple(range(1000, 1000 + MAX_CALL_CODES))
    is_first = True
    while True:
        call = VocoderCall(codes[: first if is_first else None], is_first=is_first, is_last=False)
        began_s = time.monotonic()
        made = voices.speak([Due(turn, call) for turn in held])
        whole_s = time.monotonic() - began_s
        spoken = [one for one in made if isinstance(one, Spoken)]
        if len(spoken) < turns:
            raise RuntimeError(f"{turns - len(spoken)} of {turns} turns failed: {made[0]}")
        held = [one.turn for one in spoken]
        is_first = False
        yield _Round(
            whole_s,
            # Each batch's time is told by each of its turns.
            sum(one.flow_s / one.batch for one in spoken),
            sum(one.vocoder_s / one.batch for one in spoken),
        )

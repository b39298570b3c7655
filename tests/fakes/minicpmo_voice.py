"""MiniCPM-o's vocoder without networks: what a turn sounds like follows from its history alone."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from session.errors import StageFailed, UnsupportedOption
from stages.minicpmo.flow_state import FlowState
from stages.minicpmo.schedule import VocoderCall
from stages.minicpmo.token2wav import Due, Spoken, Turn, Voice
from stages.minicpmo.vocoder_stream import VocoderState
from stages.minicpmo.voice_prompt import NamedPrompt, VoicePrompt

FLOW_S, VOCODER_S = 0.25, 0.125


def named_prompt(key: str, codes: int = 50) -> NamedPrompt:
    """Return a made-up voice of so many codes."""
    mel = np.zeros((2 * codes, 80), np.float32)
    return NamedPrompt(key, VoicePrompt((7,) * codes, mel, np.ones(192, np.float32)))


@dataclass
class FakePrompts:
    """Implements `stages.minicpmo.voice_prompt.Prompts`: a recording's name is its bytes."""

    own: NamedPrompt = field(default_factory=lambda: named_prompt("own"))

    async def learned(self, sample: bytes) -> NamedPrompt:
        """Return a voice of as many codes as the recording has bytes."""
        if sample == b"noise":
            raise UnsupportedOption("nobody speaks in it", param="session.ref_audio")
        return named_prompt(sample.decode(), len(sample))


class FakeVoices:
    """Implements `stages.minicpmo.voice_desk.Voices`; calls note who asked for what."""

    def __init__(self) -> None:
        self.prepared: list[str] = []
        self.calls: list[tuple[int, VocoderCall]] = []
        """Seed of the turn, and the call."""
        self.fail_next = False
        self._goes = threading.Event()
        self._goes.set()
        self.reached = threading.Event()

    def hold(self) -> None:
        """Make rounds wait in their thread from now on."""
        self._goes.clear()
        self.reached.clear()

    def go_on(self) -> None:
        """Let them pass."""
        self._goes.set()

    def prepare(self, key: str, prompt: VoicePrompt) -> Voice:
        """Note the key."""
        del prompt
        self.prepared.append(key)
        nothing = torch.zeros(0)
        return Voice(nothing, FlowState(0, nothing, nothing, nothing, nothing, nothing))

    def begin(self, voice: Voice, seed: int) -> Turn:
        """Return a turn that has made no call."""
        nothing = torch.zeros(0)
        return Turn(voice, voice.start, VocoderState(seed, 0, nothing, nothing, nothing))

    def warm_up(self, voice_frames: int, batch_sizes: Sequence[int]) -> None:
        """Do nothing."""

    def speak(self, due: Sequence[Due]) -> list[Spoken | StageFailed]:
        """Return a tone of the turn's own for each call."""
        self.reached.set()
        assert self._goes.wait(30)
        if self.fail_next:
            self.fail_next = False
            return [StageFailed("the vocoder is out of tune") for _ in due]
        return [self._spoken(one, len(due)) for one in due]

    def _spoken(self, one: Due, batch: int) -> Spoken:
        before = one.turn.vocoder
        assert one.call.is_first == (before.calls == 0)
        self.calls.append((before.seed, one.call))
        level = 0.1 + 0.8 * (hash((before.seed, before.calls, one.call.codes)) % 997) / 997
        after = VocoderState(
            before.seed, before.calls + 1, before.mel, before.source, torch.zeros(1)
        )
        wave = np.full(one.call.samples, level, np.float32)
        turn = Turn(one.turn.voice, one.turn.flow, after)
        return Spoken(wave, turn, FLOW_S, VOCODER_S, batch)

"""Silero voice activity detection: one stateless network, one small state per session.

Rule 1: the network sees windows of 512 samples at 16 kHz, each after the 64 samples before it.
Rule 2: all memory is in `VadState`; a `SileroVad` may be used from many threads at once, a state
        from one at a time.
Rule 3: samples that do not fill a window wait in the state for the next call.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import onnxruntime

from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES
from stages.package_files import package_file

WINDOW_SAMPLES: Final = 512
CONTEXT_SAMPLES: Final = 64
WINDOW_MS: Final = WINDOW_SAMPLES * 1000 // INPUT_RATE_HZ

_WINDOW_BYTES: Final = WINDOW_SAMPLES * SAMPLE_BYTES
_FULL_SCALE: Final = np.float32(1 / 32768)
_RATE: Final = np.array(INPUT_RATE_HZ, np.int64)

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class WindowScore:
    """The probability that one window holds speech, and where that window ends."""

    probability: float
    end_sample: int
    """Samples since the state was made."""


@dataclass(slots=True)
class VadState:
    """What the detector remembers of one audio stream."""

    carry: bytes = b""
    """Bytes that do not fill a window yet."""
    end_sample: int = 0
    """End of the last scored window."""
    context: Floats = field(default_factory=lambda: np.zeros(CONTEXT_SAMPLES, np.float32))
    recurrent: Floats = field(default_factory=lambda: np.zeros((2, 128), np.float32))


class SileroVad:
    """The network; holds weights and nothing else."""

    def __init__(self, network: onnxruntime.InferenceSession) -> None:
        self._network = network

    @classmethod
    def load(cls) -> Self:
        """Load the weights from the installed `silero-vad` package; imports no torch."""
        path = package_file(
            "silero_vad", "data/silero_vad_16k_op15.onnx", distribution="silero-vad"
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        return cls(
            onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        )

    def new_state(self) -> VadState:
        """Return the state of a stream that has not begun."""
        return VadState()

    def score(self, state: VadState, pcm: bytes) -> tuple[WindowScore, ...]:
        """Continue `state` with 16 kHz PCM16 and score every window that this completes."""
        return self.score_batch((state,), (pcm,))[0]

    def score_batch(
        self, states: Sequence[VadState], pcms: Sequence[bytes]
    ) -> list[tuple[WindowScore, ...]]:
        """Score several streams, one network call for all windows of the same rank.

        Each state must be a different one.
        """
        scores: list[list[WindowScore]] = [[] for _ in states]
        waiting = [
            (state, _windows_of(state, pcm), found)
            for state, pcm, found in zip(states, pcms, scores, strict=True)
        ]
        rank = 0
        while waiting := [entry for entry in waiting if rank < len(entry[1])]:
            self._score_rank(
                [state for state, _, _ in waiting],
                np.stack([windows[rank] for _, windows, _ in waiting]),
                [found for _, _, found in waiting],
            )
            rank += 1
        return [tuple(found) for found in scores]

    def _score_rank(
        self, states: list[VadState], windows: Floats, found: list[list[WindowScore]]
    ) -> None:
        feed: dict[str, Any] = {
            "input": np.concatenate([np.stack([s.context for s in states]), windows], axis=1),
            "state": np.stack([s.recurrent for s in states], axis=1),
            "sr": _RATE,
        }
        probabilities, recurrent = self._network.run(None, feed)
        for index, state in enumerate(states):
            state.context = windows[index, -CONTEXT_SAMPLES:].copy()
            state.recurrent = recurrent[:, index].copy()
            state.end_sample += WINDOW_SAMPLES
            found[index].append(WindowScore(float(probabilities[index, 0]), state.end_sample))


def _windows_of(state: VadState, pcm: bytes) -> Floats:
    """Take the whole windows of the stream as floats; leave the rest in the state."""
    stream = state.carry + pcm
    whole = len(stream) // _WINDOW_BYTES * _WINDOW_BYTES
    state.carry = stream[whole:]
    samples = np.frombuffer(stream[:whole], "<i2").astype(np.float32) * _FULL_SCALE
    return samples.reshape(-1, WINDOW_SAMPLES)

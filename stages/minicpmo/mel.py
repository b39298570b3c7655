"""What the audio encoder is given: log-mel of a conversation second by second, and of a voice.

The model was trained on the spectrogram of a growing window: each second is appended to it, at
30 s its oldest 10 s go, and the whole is computed again. Here each frame is computed once.

Rule 1: the conversation begins with 560 zeros, so sample 0 and frame 0 lie before the first
        second. (Vectors, section 1, clause 1.)
Rule 2: unit u appends up to sample 16 000 u + 16 480, and 80 samples always wait. (Clause 2.)
Rule 3: a window begins at a multiple of 160 000, thus at sample 16 000 s for a unit s. Its first
        two frames are mirrored at its beginning, its last one at its end, and frames
        [100 u + 2, 100 u + 102) are the same in every window: those are computed in unit u, from
        its samples [16 000 u, 16 000 u + 16 480). The spectrogram of just these samples has, at
        its ends, the mirrored frames of a window that begins or ends with them. (Clause 3.)
Rule 4: a window of 5 s or more is raised to 8 decades below its loudest frame, the mirrored ones
        included. So frames are kept unlimited, and of each unit its loudest values. (Clause 4.)
Rule 5: a unit emits its 100 frames behind the last four of the unit before. (Clause 5.)

A state is a value: whoever keeps an old one can give the unit again. Nothing is shared.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from session.errors import StageFailed, UnsupportedOption
from session.unit import INPUT_RATE_HZ
from stages.log_mel import BANDS, DYNAMIC_RANGE, HOP, Floats, as_features, log_mel, mel_decades

UNIT_SAMPLES: Final = INPUT_RATE_HZ
UNIT_FRAMES: Final = UNIT_SAMPLES // HOP
LEAD_SAMPLES: Final = 560
"""Zeros before the first second; later, the samples that two units share or that wait."""
WAITING_SAMPLES: Final = 80
REFERENCE_SAMPLES: Final = 30 * INPUT_RATE_HZ
"""A voice's recording is padded to this, and may not be longer."""

_WINDOW_SAMPLES: Final = 30 * INPUT_RATE_HZ
_DROPPED_UNITS: Final = 10
_LIMITED_SAMPLES: Final = 5 * INPUT_RATE_HZ
_MIRRORED: Final = 2
"""Frames at the beginning of a window that see its mirrored beginning."""
_AGAIN: Final = 4
"""Frames of the unit before that a unit emits again: two are context, two came too late."""
_NO_LIMIT: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class UnitPeaks:
    """The loudest values of one unit, in decades."""

    first: float
    """Of the two mirrored frames of a window that begins with this unit."""
    inner: float
    """Of the 100 frames that are the same in every window."""


@dataclass(frozen=True, slots=True, eq=False)
class MelState:
    """All that one conversation's front end remembers, in 4 kB; its arrays are read-only."""

    units: int
    """Units heard so far."""
    tail: Floats
    """[560] The conversation's samples from 16 000 * units on."""
    again: Floats
    """[80, 4] Decades of the last frames of the unit before; no frames before unit 0."""
    peaks: tuple[UnitPeaks, ...]
    """Of the units in the window, oldest first."""

    @property
    def window_samples(self) -> int:
        """Samples in the window."""
        before = LEAD_SAMPLES - WAITING_SAMPLES if self.peaks else 0
        return before + len(self.peaks) * UNIT_SAMPLES

    @property
    def dropped_units(self) -> int:
        """Seconds that have left the window."""
        return self.units - len(self.peaks)


def new_conversation() -> MelState:
    """Return the state before unit 0."""
    return MelState(
        units=0,
        tail=_read_only(np.zeros(LEAD_SAMPLES, np.float32)),
        again=_read_only(np.zeros((BANDS, 0), np.float32)),
        peaks=(),
    )


def hear(state: MelState, pcm: Floats) -> tuple[MelState, tuple[Floats, ...]]:
    """Return the state after whole seconds of audio, and each one's mel: [80, 102], then [80, 104].

    `pcm` is float32 at 16 kHz in -1..1. A conversation's first audio may be 560 samples longer
    than whole seconds: these then stand where the zeros would. Raise StageFailed for anything
    else; the given state is as good as before.
    """
    _refuse_bad_audio(state, pcm)
    if len(pcm) % UNIT_SAMPLES:
        state = replace(state, tail=_read_only(pcm[:LEAD_SAMPLES].copy()))
        pcm = pcm[LEAD_SAMPLES:]
    features = []
    for second in pcm.reshape(-1, UNIT_SAMPLES):
        state, heard = _hear_second(state, second)
        features.append(heard)
    return state, tuple(features)


def reference_mel(pcm: Floats) -> Floats:
    """Return the [80, ceil(samples / 160)] mel of a voice's recording (vectors, section 3).

    `pcm` is float32 at 16 kHz in -1..1, at most 30 s. Raise UnsupportedOption for anything else.
    """
    if not (_is_audio(pcm) and 0 < len(pcm) <= REFERENCE_SAMPLES):
        raise UnsupportedOption(
            "the recording of the voice can not be used: send up to 30 s of mono audio"
        )
    features = log_mel(np.pad(pcm, (0, REFERENCE_SAMPLES - len(pcm))))
    return features[:, : -(-len(pcm) // HOP)].copy()


def _hear_second(state: MelState, second: Floats) -> tuple[MelState, Floats]:
    samples = np.concatenate([state.tail, second])
    decades = mel_decades(samples[:-WAITING_SAMPLES])
    inner = decades[:, _MIRRORED : _MIRRORED + UNIT_FRAMES]
    peaks = UnitPeaks(first=float(decades[:, :_MIRRORED].max()), inner=float(inner.max()))
    window = _with_room(replace(state, units=state.units + 1, peaks=(*state.peaks, peaks)))
    # In unit 0 the window's beginning is the conversation's, so its mirrored frames are given out.
    new = inner if state.units else decades[:, : _MIRRORED + UNIT_FRAMES]
    lowest = _lowest(window, last=float(decades[:, -1].max()))
    features = as_features(np.concatenate([state.again, new], axis=1), lowest=lowest)
    heard = replace(
        window,
        tail=_read_only(samples[-LEAD_SAMPLES:].copy()),
        again=_read_only(inner[:, -_AGAIN:].copy()),
    )
    return heard, features


def _with_room(state: MelState) -> MelState:
    if state.window_samples < _WINDOW_SAMPLES:
        return state
    return replace(state, peaks=state.peaks[_DROPPED_UNITS:])


def _lowest(state: MelState, *, last: float) -> float:
    """Return the floor in decades; `last` is the loudest value of the frame mirrored at the end."""
    if state.window_samples < _LIMITED_SAMPLES:
        return _NO_LIMIT
    loudest = max(state.peaks[0].first, last, *(unit.inner for unit in state.peaks))
    return loudest - DYNAMIC_RANGE


def _refuse_bad_audio(state: MelState, pcm: Floats) -> None:
    if not _is_audio(pcm):
        raise StageFailed("the unit is not mono float32 audio in -1..1: send finite samples")
    seconds, rest = divmod(len(pcm), UNIT_SAMPLES)
    if not seconds or rest not in ((0,) if state.units else (0, LEAD_SAMPLES)):
        raise StageFailed(f"{len(pcm)} samples are not whole seconds: send {UNIT_SAMPLES} a unit")


def _is_audio(pcm: Floats) -> bool:
    # One comparison for all samples; what is not a number fails it too.
    return pcm.dtype == np.float32 and pcm.ndim == 1 and bool((np.abs(pcm) <= 1.0).all())


def _read_only(values: Floats) -> Floats:
    values.flags.writeable = False
    return values

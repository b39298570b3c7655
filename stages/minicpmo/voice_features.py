"""The spectrograms of a voice's recording: one each for the two networks, and one for the prompt.

Each is what the networks were trained on, so nothing in it is ours to choose. The first and the
last are compared with recordings of the published functions, the second with Kaldi's definition.
"""

from typing import Final

import kaldi_native_fbank
import numpy as np

from session.unit import INPUT_RATE_HZ, VOICE_RATE_HZ
from stages.log_mel import FFT, Floats, log_mel, slaney_filters

TOKENIZER_BANDS: Final = 128
SPEAKER_BANDS: Final = 80
VOICE_BANDS: Final = 80
VOICE_HOP: Final = 480

_VOICE_FFT: Final = 1920
_VOICE_TOP_HZ: Final = 8000.0
_LEAST_MAGNITUDE: Final = np.float32(1e-5)
_LEAST_POWER: Final = 1e-9


def tokenizer_mel(audio: Floats) -> Floats:
    """Return what the speech tokenizer takes: [128, samples // 160] of 16 kHz in -1..1."""
    return log_mel(audio, _TOKENIZER_FILTERS)


def speaker_fbank(audio: Floats) -> Floats:
    """Return what the speaker network takes of 16 kHz in -1..1: [frames, 80].

    A frame is 25 ms, one begins each 10 ms, none reaches over the end. Each band's mean is 0.
    """
    # In -1..1 and not, as Kaldi has it, in 16 bits: the least energy of a band is absolute, and
    # the network was trained with it there.
    online = kaldi_native_fbank.OnlineFbank(_fbank_options())
    online.accept_waveform(INPUT_RATE_HZ, audio)
    online.input_finished()
    frames = np.stack([online.get_frame(index) for index in range(online.num_frames_ready)])
    centred: Floats = frames - frames.mean(axis=0, keepdims=True)
    return centred


def voice_mel(audio: Floats) -> Floats:
    """Return the mel of a prompt: [samples // 480, 80] of a recording at VOICE_RATE_HZ in -1..1."""
    padded = np.pad(audio, (_VOICE_FFT - VOICE_HOP) // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, _VOICE_FFT)[::VOICE_HOP]
    spectrum = np.fft.rfft(frames * _VOICE_WINDOW, axis=1)
    magnitudes = np.sqrt(np.abs(spectrum) ** 2 + _LEAST_POWER).astype(np.float32)
    # Not a matrix product: the threads of a BLAS would spin longer than this takes.
    bands = np.einsum("fk,bk->fb", magnitudes, _VOICE_FILTERS)
    mel: Floats = np.log(np.maximum(bands, _LEAST_MAGNITUDE))
    return mel


def _fbank_options() -> kaldi_native_fbank.FbankOptions:
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.samp_freq = INPUT_RATE_HZ
    options.frame_opts.dither = 0.0
    options.mel_opts.num_bins = SPEAKER_BANDS
    return options


_TOKENIZER_FILTERS: Final = slaney_filters(
    TOKENIZER_BANDS, fft=FFT, rate_hz=INPUT_RATE_HZ, top_hz=INPUT_RATE_HZ / 2
)
_VOICE_FILTERS: Final = slaney_filters(
    VOICE_BANDS, fft=_VOICE_FFT, rate_hz=VOICE_RATE_HZ, top_hz=_VOICE_TOP_HZ
)
_VOICE_WINDOW: Final = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_VOICE_FFT) / _VOICE_FFT)

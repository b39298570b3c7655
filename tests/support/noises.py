"""Sounds of a room without a speaker, and recorded speech in them: seeded, 16 kHz, mono.

Rule 1: a sound is a function of its name, its level and the seed; the same everywhere.
Rule 2: levels are those of a microphone on a desk: dBFS of the root mean square for what goes on
        without pause, of the peak for what is short.
Rule 3: nothing here was chosen by looking at what a detector makes of it.
"""

import wave
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from session.unit import INPUT_RATE_HZ

DATA: Final = Path(__file__).parents[1] / "data"
SECONDS: Final = 12.0
"""Length of one sound of the set."""
ROOM: Final = 2 * INPUT_RATE_HZ
"""Samples before and after a voice."""
FRAME: Final = INPUT_RATE_HZ // 100
AUDIBLE: Final = 0.05
"""A recording can be heard where 10 ms of it have this share of its loudest 10 ms (-26 dB)."""
VOICE: Final = 0.1
VOICE_FRAMES: Final = 5
"""A voice begins where 50 ms without a gap have a tenth of the loudest 10 ms (-20 dB): the breath
that a reader draws before the first word is heard, and is no word."""

Floats = npt.NDArray[np.float64]
Maker = Callable[[np.random.Generator, int], Floats]


@dataclass(frozen=True, slots=True)
class Sound:
    """Something that a microphone hears."""

    kind: str
    detail: str
    """Its level, or what is around a voice."""
    pcm: bytes
    """16 kHz PCM16."""

    @property
    def name(self) -> str:
        """Kind and detail."""
        return f"{self.kind}, {self.detail}"

    @property
    def seconds(self) -> float:
        """Its length."""
        return len(self.pcm) / 2 / INPUT_RATE_HZ


@dataclass(frozen=True, slots=True)
class Spoken(Sound):
    """A sound in which one person says one thing."""

    heard_from: int
    """Sample at which the recording can be heard, a breath before the first word included."""
    onset: int
    """Sample at which the voice begins."""
    end: int
    """Sample at which it has ended."""


# --- the set --------------------------------------------------------------------------------------


def noise_set(seed: int = 1, seconds: float = SECONDS) -> tuple[Sound, ...]:
    """Return one sound of each kind at each of its levels."""
    return tuple(
        _sound(name, maker, level_db, (seed, index, step), seconds)
        for index, (name, maker, levels_db) in enumerate(_KINDS)
        for step, level_db in enumerate(levels_db)
    )


def speech_set(seed: int = 1) -> tuple[Spoken, ...]:
    """Return each recording clean, and in steady and in sudden noise of several strengths."""
    found: list[Spoken] = []
    for index, (name, voice) in enumerate(recordings()):
        found.append(spoken(name, "clean", voice))
        for noise_name, snr_db in _MIXES:
            rng = np.random.default_rng((seed, 1000 + index))
            maker = next(maker for kind, maker, _ in _KINDS if kind == noise_name)
            around = maker(rng, len(voice) + 2 * ROOM)
            detail = f"{snr_db} dB over {noise_name}"
            found.append(spoken(name, detail, voice, around, snr_db=snr_db))
    return tuple(found)


def recordings() -> list[tuple[str, Floats]]:
    """Return the human voices of tests/data, each with its level brought to -23 dBFS."""
    voices: list[tuple[str, Floats]] = []
    raw = (DATA / "goforward.raw").read_bytes()
    voices.append(("goforward", np.frombuffer(raw, "<i2").astype(np.float64)))
    for clip in sorted(DATA.glob("austen_*.wav")):
        with wave.open(str(clip)) as recording:
            frames = recording.readframes(recording.getnframes())
        voices.append((clip.stem, np.frombuffer(frames, "<i2").astype(np.float64)))
    return [(name, _at_rms(voice, -23.0)) for name, voice in voices]


def spoken(
    kind: str, detail: str, voice: Floats, noise: Floats | None = None, *, snr_db: float = 0.0
) -> Spoken:
    """Put a voice into noise that is `snr_db` weaker than it, with noise alone around it."""
    first, last = audible(voice)
    said = voice[first:last]
    whole = np.concatenate([np.zeros(ROOM), said, np.zeros(ROOM)])
    if noise is not None:
        whole = whole + _at_rms(noise[: len(whole)], _rms_db(said) - snr_db)
    end = ROOM + len(said)
    return Spoken(kind, detail, to_pcm(whole), ROOM, ROOM + voice_begins(said), end)


def audible(voice: Floats) -> tuple[int, int]:
    """Return the samples between which a voice can be heard."""
    levels = _levels(voice)
    loud = np.flatnonzero(levels >= AUDIBLE * levels.max())
    return int(loud[0]) * FRAME, (int(loud[-1]) + 1) * FRAME


def voice_begins(voice: Floats) -> int:
    """Return the sample at which the first word begins."""
    levels = _levels(voice)
    loud = (levels >= VOICE * levels.max()).astype(np.int64)
    runs = np.convolve(loud, np.ones(VOICE_FRAMES, np.int64), "valid")
    return int(np.argmax(runs == VOICE_FRAMES)) * FRAME


def chunks(pcm: bytes, chunk_ms: int) -> Iterator[bytes]:
    """Cut PCM16 as a client would send it; the last chunk may be shorter."""
    step = chunk_ms * INPUT_RATE_HZ // 1000 * 2
    return (pcm[at : at + step] for at in range(0, len(pcm), step))


def to_pcm(samples: Floats) -> bytes:
    """Return PCM16 of samples between -1 and 1."""
    scaled: npt.NDArray[np.int16] = (np.clip(samples, -1.0, 1.0) * 32767).astype("<i2")
    return scaled.tobytes()


# --- how they are made ----------------------------------------------------------------------------


def _sound(
    name: str, maker: Maker, level_db: float, seed: tuple[int, int, int], seconds: float
) -> Sound:
    made = maker(np.random.default_rng(seed), int(seconds * INPUT_RATE_HZ))
    level = _at_peak(made, level_db) if name in _SHORT else _at_rms(made, level_db)
    return Sound(name, f"{level_db:g} dBFS", to_pcm(level))


def _hum(mains_hz: float) -> Maker:
    """Mains hum: harmonics of the mains that fade as they rise, the even ones stronger."""

    def make(rng: np.random.Generator, samples: int) -> Floats:
        time_s = _times(samples)
        wobble = 1.0 + 0.05 * np.sin(2 * np.pi * 0.3 * time_s)
        whole = np.zeros(samples)
        for harmonic in range(1, 25):
            strength = (1.0 if harmonic in (1, 2) else 0.6 / harmonic) * rng.uniform(0.5, 1.0)
            phase = rng.uniform(0, 2 * np.pi)
            whole += strength * np.sin(2 * np.pi * mains_hz * harmonic * time_s + phase)
        return whole * wobble

    return make


def _white(rng: np.random.Generator, samples: int) -> Floats:
    return rng.standard_normal(samples)


def _pink(rng: np.random.Generator, samples: int) -> Floats:
    return _shaped(rng, samples, lambda hz: 1 / np.sqrt(np.maximum(hz, 20.0)))


def _fan(rng: np.random.Generator, samples: int) -> Floats:
    """Air that falls off above 500 Hz, and the tone of the blades."""
    air = _shaped(rng, samples, lambda hz: 1 / (1 + np.square(hz / 500.0)))
    time_s = _times(samples)
    blades = sum(np.sin(2 * np.pi * 117.0 * k * time_s) / k for k in (1, 2, 3))
    return _at_rms(air, 0.0) + 0.3 * np.asarray(blades)


def _clicks(rng: np.random.Generator, samples: int) -> Floats:
    """A mouse: a resonance of two milliseconds, twice for each click."""

    def click() -> Floats:
        pair = np.zeros(INPUT_RATE_HZ // 5)
        for at_s, strength in ((0.0, 1.0), (rng.uniform(0.06, 0.12), 0.6)):
            ring = _ringing(rng.uniform(1800, 4200), 0.002, 0.02)
            at = int(at_s * INPUT_RATE_HZ)
            pair[at : at + len(ring)] += strength * ring
        return pair

    return _scattered(rng, samples, click, (0.4, 1.2))


def _keyboard(rng: np.random.Generator, samples: int) -> Floats:
    """Typing: each key is a rattle of plastic and a thump of the desk, down and up."""

    def key() -> Floats:
        stroke = np.zeros(INPUT_RATE_HZ // 6)
        for at_s, strength in ((0.0, 1.0), (rng.uniform(0.05, 0.09), 0.45)):
            length_s = rng.uniform(0.008, 0.02)
            rattle = _band(rng, int(length_s * INPUT_RATE_HZ), 1500, 6500)
            rattle *= np.exp(-_times(len(rattle)) / (length_s / 3))
            thump = 0.5 * _ringing(rng.uniform(150, 320), 0.012, 0.05)
            at = int(at_s * INPUT_RATE_HZ)
            stroke[at : at + len(rattle)] += strength * _at_peak(rattle, 0.0)
            stroke[at : at + len(thump)] += strength * thump
        return stroke * rng.uniform(0.5, 1.0)

    return _scattered(rng, samples, key, (0.09, 0.22))


def _slam(rng: np.random.Generator, samples: int) -> Floats:
    """A door: a crack of noise, then its leaf and the room at a few low resonances."""

    def slam() -> Floats:
        whole = np.zeros(INPUT_RATE_HZ)
        crack = _band(rng, len(whole), 80, 2500) * np.exp(-_times(len(whole)) / 0.03)
        whole += _at_peak(crack, 0.0)
        for hz in rng.uniform(55, 240, size=4):
            whole += 0.7 * _ringing(float(hz), 0.12, 1.0)
        return whole

    return _scattered(rng, samples, slam, (2.0, 3.5))


def _cough(rng: np.random.Generator, samples: int) -> Floats:
    """A cough without voice: a burst, then air that dies away through the mouth's resonances."""
    return _scattered(rng, samples, lambda: _cough_once(rng, voiced=False), (1.0, 2.5))


def _voiced_cough(rng: np.random.Generator, samples: int) -> Floats:
    """A cough that ends in a short tone of the throat, as many do."""
    return _scattered(rng, samples, lambda: _cough_once(rng, voiced=True), (1.0, 2.5))


def _cough_once(rng: np.random.Generator, *, voiced: bool) -> Floats:
    length_s = rng.uniform(0.30, 0.45)
    time_s = _times(int(length_s * INPUT_RATE_HZ))
    formants = ((rng.uniform(550, 750), 200), (rng.uniform(1300, 1700), 300), (2700, 400))
    air = _formed(rng.standard_normal(len(time_s)), formants)
    burst = np.exp(-np.square((time_s - 0.03) / 0.025))
    decay = 0.45 * np.exp(-np.maximum(time_s - 0.05, 0) / 0.09) * (time_s > 0.03)
    whole = _at_rms(air, 0.0) * (burst + decay)
    if voiced:
        pulses = np.sign(np.sin(2 * np.pi * np.cumsum(180 - 90 * time_s) / INPUT_RATE_HZ))
        tone = _at_rms(_formed(pulses, formants), 0.0)
        whole += 0.35 * tone * np.exp(-np.square((time_s - 0.2) / 0.05))
    return whole


def _breath(rng: np.random.Generator, samples: int) -> Floats:
    """Breathing close to the microphone: in and out, soft edges."""

    def breath() -> Floats:
        length = int(rng.uniform(0.8, 1.4) * INPUT_RATE_HZ)
        air = _formed(rng.standard_normal(length), ((rng.uniform(700, 1100), 500), (2200, 900)))
        return _at_rms(air, 0.0) * np.square(np.sin(np.pi * np.arange(length) / length))

    return _scattered(rng, samples, breath, (0.5, 1.0))


def _tune(rng: np.random.Generator, samples: int) -> Floats:
    """A melody of plucked tones with overtones, two voices."""
    whole = np.zeros(samples + INPUT_RATE_HZ)
    for low in (220.0, 440.0):
        at = 0
        while at < samples:
            hz = low * 2 ** (int(rng.choice([0, 2, 4, 5, 7, 9, 11, 12])) / 12)
            time_s = _times(INPUT_RATE_HZ)
            note = sum(np.sin(2 * np.pi * hz * k * time_s) / k**1.5 for k in range(1, 7))
            whole[at : at + len(time_s)] += np.asarray(note) * np.exp(-time_s / 0.35)
            at += int(rng.choice([0.25, 0.5]) * INPUT_RATE_HZ)
    return whole[:samples]


_KINDS: Final[Sequence[tuple[str, Maker, Sequence[float]]]] = (
    ("hum 50 Hz", _hum(50.0), (-55, -40, -25)),
    ("hum 60 Hz", _hum(60.0), (-55, -40, -25)),
    ("white noise", _white, (-55, -40, -25)),
    ("pink noise", _pink, (-55, -40, -25)),
    ("fan", _fan, (-50, -35)),
    ("clicks", _clicks, (-20, -6)),
    ("keyboard", _keyboard, (-20, -8)),
    ("door slam", _slam, (-12, -3)),
    ("breath", _breath, (-40, -28)),
    ("cough", _cough, (-18, -6)),
    ("voiced cough", _voiced_cough, (-18, -6)),
    ("tune", _tune, (-40, -26)),
)
_SHORT: Final = frozenset({"clicks", "keyboard", "door slam", "cough", "voiced cough"})
_MIXES: Final = (("fan", 20), ("fan", 10), ("pink noise", 5), ("hum 50 Hz", 10), ("keyboard", 15))


def _levels(voice: Floats) -> Floats:
    frames = voice[: len(voice) // FRAME * FRAME].reshape(-1, FRAME)
    return np.asarray(np.sqrt(np.mean(np.square(frames), axis=1)), np.float64)


def _times(samples: int) -> Floats:
    return np.arange(samples) / INPUT_RATE_HZ


def _scattered(
    rng: np.random.Generator,
    samples: int,
    make: Callable[[], Floats],
    pause_s: tuple[float, float],
) -> Floats:
    """Repeat a short sound at irregular intervals over a faint room."""
    whole = np.zeros(samples)
    at = int(rng.uniform(0.3, 0.6) * INPUT_RATE_HZ)
    while at < samples:
        piece = make()[: samples - at]
        whole[at : at + len(piece)] += piece
        at += len(piece) if pause_s[0] >= 0.5 else 0
        at += int(rng.uniform(*pause_s) * INPUT_RATE_HZ)
    loudest = float(np.abs(whole).max())
    return whole + 0.001 * loudest * rng.standard_normal(samples)


def _shaped(rng: np.random.Generator, samples: int, gain: Callable[[Floats], Floats]) -> Floats:
    spectrum = np.fft.rfft(rng.standard_normal(samples))
    hz = np.asarray(np.fft.rfftfreq(samples, 1 / INPUT_RATE_HZ), np.float64)
    return np.asarray(np.fft.irfft(spectrum * gain(hz), samples), np.float64)


def _band(rng: np.random.Generator, samples: int, low_hz: float, high_hz: float) -> Floats:
    return _shaped(rng, samples, lambda hz: ((hz >= low_hz) & (hz <= high_hz)).astype(np.float64))


def _formed(source: Floats, formants: Sequence[tuple[float, float]]) -> Floats:
    """Let a source sound through resonances, each a frequency and a width in Hz."""
    spectrum = np.fft.rfft(source)
    hz = np.fft.rfftfreq(len(source), 1 / INPUT_RATE_HZ)
    gain = sum(1 / (1 + np.square((hz - centre) / (width / 2))) for centre, width in formants)
    return np.asarray(np.fft.irfft(spectrum * gain, len(source)), dtype=np.float64)


def _ringing(hz: float, decay_s: float, length_s: float) -> Floats:
    time_s = _times(int(length_s * INPUT_RATE_HZ))
    return np.asarray(np.sin(2 * np.pi * hz * time_s) * np.exp(-time_s / decay_s), np.float64)


def _rms_db(samples: Floats) -> float:
    return float(20 * np.log10(np.sqrt(np.mean(np.square(samples)))))


def _at_rms(samples: Floats, level_db: float) -> Floats:
    rms = np.sqrt(np.mean(np.square(samples)))
    return np.asarray(samples * (10 ** (level_db / 20) / rms), np.float64)


def _at_peak(samples: Floats, level_db: float) -> Floats:
    return np.asarray(samples * (10 ** (level_db / 20) / np.abs(samples).max()), np.float64)

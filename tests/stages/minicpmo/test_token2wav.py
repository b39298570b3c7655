"""Token2Wav as a stage uses it: voices, turns, batches, and what a checkpoint's folder holds."""

import gc
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch

from session.errors import StageFailed, UnsupportedOption
from stages.minicpmo.checkpoint_files import CheckpointUnreadable
from stages.minicpmo.hift import take_hift
from stages.minicpmo.schedule import (
    MAX_CALL_CODES,
    VocoderCall,
    Waiting,
    schedule_unit,
)
from stages.minicpmo.tiny_voice import (
    tiny_voice,
    tiny_voice_folder,
    write_tiny_voice,
)
from stages.minicpmo.token2wav import (
    BANDS,
    Due,
    Spoken,
    Token2Wav,
    Token2WavSettings,
    Turn,
    Voice,
    recorder,
)
from stages.minicpmo.vocoder_stream import VocoderStream, drawn_noise
from stages.minicpmo.voice_files import HIFT_FILE, VOICE_FILE, load_hift, read_prompt, read_tensors
from stages.minicpmo.voice_prompt import VoicePrompt
from tests.stages.minicpmo.graph_rerun import Reruns
from tests.stages.minicpmo.voice_weights import CPU, flow, new_flow, prompt

pytestmark = pytest.mark.models

SAME: Final = 1e-3
CODES: Final = tuple(range(100, 160))


class Clock:
    """Each look is a second later."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1
        return self.now_s


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("token2wav")
    write_tiny_voice(made)
    return made


@cache
def vocoder(folder: Path) -> VocoderStream:
    return VocoderStream(load_hift(folder, CPU), BANDS, drawn_noise(CPU), CPU)


def token2wav(folder: Path, **settings: Any) -> Token2Wav:
    return Token2Wav(flow(), vocoder(folder), Token2WavSettings(**settings), Clock())


def voice_of(voices: Token2Wav, number: int = 31) -> Voice:
    return voices.prepare(str(number), prompt(number))


def speak(voices: Token2Wav, turn: Turn, calls: Sequence[VocoderCall]) -> list[np.ndarray]:
    waves = []
    for call in calls:
        (spoken,) = voices.speak([Due(turn, call)])
        assert isinstance(spoken, Spoken)
        turn = spoken.turn
        waves.append(spoken.wave)
    return waves


def calls_of(codes: Sequence[int], *, first: int = MAX_CALL_CODES) -> Sequence[VocoderCall]:
    return schedule_unit(Waiting(), codes, turn_ends=True, first_call_codes=first)[0]


def test_a_turn_is_exactly_as_long_as_its_codes(folder: Path) -> None:
    voices = token2wav(folder)
    calls = calls_of(CODES)
    waves = speak(voices, voices.begin(voice_of(voices), 1), calls)
    assert [len(wave) for wave in waves] == [call.samples for call in calls]
    assert sum(len(wave) for wave in waves) == (3 + len(CODES)) * 960
    assert all(np.abs(wave).max() > 0.01 for wave in waves)


def test_a_first_call_of_fewer_codes_is_sound_sooner_and_no_less_of_it(folder: Path) -> None:
    voices = token2wav(folder)
    voice = voice_of(voices)
    long, short = (
        speak(voices, voices.begin(voice, 1), calls_of(CODES, first=first)) for first in (28, 10)
    )
    assert len(long[0]) == 25 * 960 - 3840
    assert len(short[0]) == 7 * 960 - 3840
    assert sum(map(len, short)) == sum(map(len, long))
    with pytest.raises(ValueError, match="first call of 7"):
        calls_of(CODES, first=7)


def test_turns_that_are_due_together_sound_as_alone(folder: Path) -> None:
    voices = token2wav(folder)
    prepared = [voice_of(voices, 31), voices.prepare("short", prompt(32, codes=12))]
    calls = [calls_of(CODES), calls_of(CODES[20:])]
    alone = [
        speak(voices, voices.begin(voice, seed), made)
        for seed, (voice, made) in enumerate(zip(prepared, calls, strict=True))
    ]
    turns = [voices.begin(voice, seed) for seed, voice in enumerate(prepared)]
    for number in range(max(map(len, calls))):
        present = [side for side in range(2) if number < len(calls[side])]
        due = [Due(turns[side], calls[side][number]) for side in present]
        for side, spoken in zip(present, voices.speak(due), strict=True):
            assert isinstance(spoken, Spoken)
            assert np.abs(spoken.wave - alone[side][number]).max() < SAME
            turns[side] = spoken.turn


def test_calls_become_batches_of_one_length_and_at_most_so_many(folder: Path) -> None:
    voices = token2wav(folder, max_batch=2)
    voice = voice_of(voices)
    call, other = calls_of(CODES)[0], VocoderCall(CODES[:9], is_first=True, is_last=False)
    due = [Due(voices.begin(voice, seed), call) for seed in range(5)]
    due.insert(1, Due(voices.begin(voice, 9), other))
    made = voices.speak(due)
    spoken = [one for one in made if isinstance(one, Spoken)]
    assert [one.batch for one in spoken] == [2, 1, 2, 2, 2, 1]
    assert [len(one.wave) for one in spoken] == [one.call.samples for one in due]
    assert {(one.flow_s, one.vocoder_s) for one in spoken} == {(1.0, 1.0)}


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (VocoderCall((*CODES[:27], 6561), is_first=True, is_last=False), "does not know"),
        (VocoderCall((*CODES[:27], -1), is_first=True, is_last=False), "does not know"),
        (VocoderCall(CODES[:28], is_first=False, is_last=False), "does not follow"),
        (VocoderCall(CODES[:7], is_first=True, is_last=False), "too few codes"),
        (VocoderCall((), is_first=True, is_last=True), "too few codes"),
    ],
)
def test_a_call_that_can_not_be_made_fails_alone(
    folder: Path, bad: VocoderCall, words: str
) -> None:
    voices = token2wav(folder)
    turn = voices.begin(voice_of(voices), 1)
    good = Due(turn, calls_of(CODES)[0])
    (alone,) = voices.speak([good])
    first, failed, last = voices.speak([good, Due(turn, bad), good])
    assert isinstance(failed, StageFailed)
    assert words in str(failed)
    for spoken in (first, last):
        assert isinstance(spoken, Spoken)
        assert isinstance(alone, Spoken)
        assert np.abs(spoken.wave - alone.wave).max() < SAME


def test_a_voice_that_became_not_finite_fails_its_turns_alone(folder: Path) -> None:
    voices = token2wav(folder)
    voice = voice_of(voices)
    ill = replace(voice, speaker=voice.speaker * float("inf"))
    call = calls_of(CODES)[0]
    good, bad = voices.speak([Due(voices.begin(one, 1), call) for one in (voice, ill)])
    assert isinstance(good, Spoken)
    assert isinstance(bad, StageFailed)


def test_who_lets_go_of_a_turn_gives_its_memory_back(folder: Path) -> None:
    voices = token2wav(folder)
    turn = voices.begin(voice_of(voices), 1)
    calls = calls_of(CODES)
    (spoken,) = voices.speak([Due(turn, calls[0])])
    assert isinstance(spoken, Spoken)
    kept = [weakref.ref(spoken.turn.flow.attention), weakref.ref(spoken.turn.vocoder.source)]
    (after,) = voices.speak([Due(spoken.turn, calls[1])])
    assert isinstance(after, Spoken)
    del spoken
    gc.collect()
    assert [one() for one in kept] == [None, None]


def test_a_voice_is_prepared_once_and_the_last_ones_are_kept(folder: Path) -> None:
    voices = token2wav(folder, max_voices=2)
    first, second = voice_of(voices, 31), voice_of(voices, 32)
    assert voice_of(voices, 31) is first
    voices.prepare("third", prompt(31, codes=5))
    assert voice_of(voices, 31) is first
    assert voice_of(voices, 32) is not second
    turn = voices.begin(second, 1)
    assert isinstance(voices.speak([Due(turn, calls_of(CODES)[0])])[0], Spoken)


def test_a_turns_memory_is_as_large_as_said(folder: Path) -> None:
    voices = token2wav(folder)
    turn = voices.begin(voice_of(voices), 1)
    for call in calls_of(range(120))[:3]:
        (spoken,) = voices.speak([Due(turn, call)])
        assert isinstance(spoken, Spoken)
        turn = spoken.turn
    kept = (turn.vocoder.mel, turn.vocoder.source, turn.vocoder.held_back)
    held = turn.flow.memory_bytes + sum(one.untyped_storage().nbytes() for one in kept)
    assert held == voices.turn_bytes(80)
    assert voice_of(voices).start.memory_bytes == voices.voice_bytes(80)


def no_codes(one: VoicePrompt) -> VoicePrompt:
    return replace(one, codes=(), mel=one.mel[:0])


def too_long(one: VoicePrompt) -> VoicePrompt:
    return replace(one, codes=(1,) * 751, mel=np.zeros((1502, BANDS), np.float32))


def unknown_code(one: VoicePrompt) -> VoicePrompt:
    return replace(one, codes=(*one.codes[:-1], 6561))


def not_finite(one: VoicePrompt) -> VoicePrompt:
    return replace(one, speaker=np.full(192, np.nan, np.float32))


def odd_mel(one: VoicePrompt) -> VoicePrompt:
    return replace(one, mel=one.mel[:-1])


@pytest.mark.parametrize("spoil", [no_codes, too_long, unknown_code, not_finite, odd_mel])
def test_a_voice_that_can_not_be_used_is_refused(
    folder: Path, spoil: Callable[[VoicePrompt], VoicePrompt]
) -> None:
    voices = token2wav(folder)
    with pytest.raises(UnsupportedOption) as refused:
        voices.prepare("bad", spoil(prompt(31)))
    assert refused.value.param == "voice"


def test_a_checkpoints_folder_speaks_with_its_own_voice(folder: Path) -> None:
    voices = Token2Wav.from_folder(folder, Token2WavSettings(seed=3), CPU, Clock())
    made = read_prompt(folder / VOICE_FILE)
    parts = {"codes": np.array(made.codes), "mel": made.mel, "speaker": made.speaker}
    assert all(np.array_equal(parts[name], value) for name, value in tiny_voice().items())
    waves = speak(voices, voices.begin(voices.prepare("own", made), 1), calls_of(CODES))
    assert sum(map(len, waves)) == (3 + len(CODES)) * 960
    voices.warm_up(100, [1, 2])


def copy_of(folder: Path, tmp_path: Path) -> Path:
    for name in ("flow.pt", "hift.pt"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    return tmp_path


def load(folder: Path) -> Token2Wav:
    return Token2Wav.from_folder(folder, Token2WavSettings(), CPU, Clock())


def test_the_later_layout_is_refused_by_its_name(folder: Path, tmp_path: Path) -> None:
    there = copy_of(folder, tmp_path)
    (there / "hift_original.pt").write_bytes(b"")
    with pytest.raises(CheckpointUnreadable, match="later generation") as refused:
        load(there)
    assert refused.value.file.name == "hift_original.pt"


def test_a_file_that_can_not_be_used_is_named(folder: Path, tmp_path: Path) -> None:
    there = copy_of(folder, tmp_path)
    flow_file, hift_file = there / "flow.pt", there / HIFT_FILE
    tensors = read_tensors(hift_file)
    whole = hift_file.read_bytes()
    torch.save({**tensors, "generator.conv_post.bias": torch.zeros(17)}, hift_file)
    with pytest.raises(CheckpointUnreadable, match="has shape"):
        load(there)
    for content, words in (
        (["no", "names"], "not an object"),
        ({"steps": 3}, "steps: not a tensor"),
        ({"counts": torch.zeros(2, dtype=torch.int64)}, "no plain number"),
    ):
        torch.save(content, hift_file)
        with pytest.raises(CheckpointUnreadable, match=words):
            load(there)
    hift_file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointUnreadable, match=": damaged"):
        load(there)
    flow_file.unlink()
    with pytest.raises(CheckpointUnreadable, match="can not be read"):
        load(there)


def test_a_prompt_that_can_not_be_used_is_named(tmp_path: Path) -> None:
    file, parts = tmp_path / "voice.npz", dict(tiny_voice())
    with pytest.raises(CheckpointUnreadable, match="can not be read"):
        read_prompt(file)
    file.write_bytes(b"no archive")
    with pytest.raises(CheckpointUnreadable, match="no prompt"):
        read_prompt(file)
    for name, value in (
        ("codes", np.array([Bomb()], object)),
        ("codes", np.zeros((2, 2), np.int64)),
        ("codes", np.zeros(2)),
        ("speaker", np.zeros(192, np.int64)),
    ):
        np.savez(file, **{**parts, name: value})  # type: ignore[arg-type]
        with pytest.raises(CheckpointUnreadable, match=r"voice\.npz"):
            read_prompt(file)
    del parts["mel"]
    np.savez(file, **parts)  # type: ignore[arg-type]
    with pytest.raises(CheckpointUnreadable, match="mel"):
        read_prompt(file)


class Bomb:
    """What a pickle would run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("exploded"),))


def test_nothing_in_a_file_is_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = copy_of(folder, tmp_path)
    monkeypatch.chdir(tmp_path)
    torch.save({"x": Bomb()}, there / HIFT_FILE)
    with pytest.raises(CheckpointUnreadable, match="damaged"):
        load(there)
    assert not Path("exploded").exists()


def test_a_vocoder_saved_without_its_holders_name_is_the_same(folder: Path, tmp_path: Path) -> None:
    there = copy_of(folder, tmp_path)
    tensors = read_tensors(there / HIFT_FILE)
    mel = torch.from_numpy(prompt(31).mel).T[None]
    wanted = take_hift(tensors, CPU).pitch(mel)
    torch.save({name.split(".", 1)[1]: one for name, one in tensors.items()}, there / HIFT_FILE)
    assert torch.equal(load_hift(there, CPU).pitch(mel), wanted)


def test_a_tiny_folder_is_the_same_every_time(folder: Path, tmp_path: Path) -> None:
    write_tiny_voice(tmp_path)
    for file in folder.iterdir():
        assert file.read_bytes() == (tmp_path / file.name).read_bytes()


def test_a_tiny_folder_is_written_once_and_whole(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tiny_voice_folder(tmp_path / "cache")
    assert {file.name for file in made.iterdir()} == {file.name for file in folder.iterdir()}
    assert oct(made.stat().st_mode & 0o777) == "0o755"

    def fail(_: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("stages.minicpmo.tiny_voice.write_tiny_voice", fail)
    assert tiny_voice_folder(tmp_path / "cache") == made
    with pytest.raises(OSError, match="disk full"):
        tiny_voice_folder(tmp_path / "other")
    assert list((tmp_path / "other").iterdir()) == []


def test_the_slower_of_two_writers_is_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first: list[Path] = []
    made_meanwhile: list[Path] = []

    def write_late(folder: Path) -> None:
        first.append(folder)
        if len(first) == 1:
            made_meanwhile.append(tiny_voice_folder(tmp_path))
        write_tiny_voice(folder)

    monkeypatch.setattr("stages.minicpmo.tiny_voice.write_tiny_voice", write_late)
    made = tiny_voice_folder(tmp_path)
    assert made_meanwhile == [made]
    assert list(tmp_path.iterdir()) == [made]


def test_a_warm_up_records_graphs_and_turns_sound_as_without(folder: Path) -> None:
    reruns, without = Reruns(), token2wav(folder, max_batch=3)
    settings = Token2WavSettings(max_batch=3, graph_frames=80)
    voices = Token2Wav(new_flow(), vocoder(folder), settings, Clock(), reruns)
    assert without.graph_bytes(80) == 0
    assert 0 < voices.graph_bytes(60) == voices.graph_bytes(80) < voices.graph_bytes(100)
    voices.warm_up(60, [1, 3])
    assert reruns.sizes == [3, 2, 1]
    # Four calls of each size, and one of every shorter length.
    assert reruns.played == [1] * (4 + 25) + [3] * 4
    reruns.played.clear()
    calls = calls_of(CODES)
    waves = [speak(one, one.begin(voice_of(one), 1), calls) for one in (voices, without)]
    assert reruns.played == [1] * len(calls)
    for made, wanted in zip(*waves, strict=True):
        assert np.abs(made - wanted).max() < SAME


def test_there_are_no_cuda_graphs_without_a_gpu() -> None:
    assert recorder(Token2WavSettings(graph_frames=300), CPU) is None
    assert recorder(Token2WavSettings(), torch.device("cuda")) is None

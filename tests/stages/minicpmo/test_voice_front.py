"""From a recording to a prompt, with toy networks in the published files' place."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from session.errors import StageFailed, UnsupportedOption
from session.unit import SAMPLE_BYTES, VOICE_RATE_HZ
from stages.minicpmo.checkpoint_files import CheckpointUnreadable
from stages.minicpmo.schedule import Waiting, schedule_unit
from stages.minicpmo.tiny_voice import tiny_voice_folder
from stages.minicpmo.token2wav import Due, Spoken, Token2Wav, Token2WavSettings
from stages.minicpmo.voice_features import voice_mel
from stages.minicpmo.voice_front import VoiceFront, find_front, fitted
from stages.minicpmo.voice_networks import (
    CODES,
    SPEAKER_FILE,
    TOKENIZER_FILE,
    SpeakerNetwork,
    SpeechTokenizer,
)
from stages.minicpmo.voice_pcm import voice_floats
from tests.stages.minicpmo.voice_recordings import recording

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_voice_folder(tmp_path_factory.mktemp("voices"))


@pytest.fixture
def toys(tmp_path: Path, folder: Path) -> Path:
    """Return a folder of the two networks, to be damaged."""
    for name in (TOKENIZER_FILE, SPEAKER_FILE):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    return tmp_path


def front(folder: Path, seconds: float = 6.0) -> VoiceFront:
    return VoiceFront.from_folder(folder, seconds)


@pytest.mark.parametrize("seconds", [1.0, 1.01, 1.03, 2.0, 5.99, 6.0])
def test_two_frames_a_code_and_25_codes_a_second(folder: Path, seconds: float) -> None:
    prompt = front(folder).prompt(recording(1, seconds))
    frames_16k = round(seconds * 16_000) // 160
    assert len(prompt.codes) == -(-frames_16k // 4)
    assert prompt.mel.shape == (2 * len(prompt.codes), 80)
    assert prompt.speaker.shape == (192,)
    assert prompt.mel.dtype == prompt.speaker.dtype == np.float32


def test_the_last_frame_fills_up(folder: Path) -> None:
    pcm = recording(1, 1.03)
    made = voice_mel(voice_floats(pcm))
    prompt = front(folder).prompt(pcm)
    assert (len(made), len(prompt.mel)) == (51, 52)
    np.testing.assert_array_equal(prompt.mel[:51], made)
    np.testing.assert_array_equal(prompt.mel[51], made[50])


def test_what_is_too_much_is_cut() -> None:
    mel = np.arange(12, dtype=np.float32).reshape(6, 2)
    np.testing.assert_array_equal(fitted(mel, 4), mel[:4])
    assert fitted(mel, 6) is not mel
    np.testing.assert_array_equal(fitted(mel, 6), mel)


def test_only_the_first_seconds_count(folder: Path) -> None:
    six, other = recording(1, 6.0), recording(2, 6.0)
    whole = front(folder).prompt(six + other)
    alone = front(folder).prompt(six)
    assert whole.codes == alone.codes
    np.testing.assert_array_equal(whole.mel, alone.mel)
    np.testing.assert_array_equal(whole.speaker, alone.speaker)
    assert front(folder, 2.5).used(six) == six[: 60_000 * SAMPLE_BYTES]


def test_equal_recordings_are_equal_prompts_and_others_differ(folder: Path) -> None:
    first, again = (front(folder).named(recording(1, 2.0)) for _ in range(2))
    other = front(folder).named(recording(2, 2.0))
    assert first.key == again.key != other.key
    assert first.prompt.codes == again.prompt.codes != other.prompt.codes
    np.testing.assert_array_equal(first.prompt.mel, again.prompt.mel)
    assert not np.allclose(first.prompt.speaker, other.prompt.speaker)


@pytest.mark.parametrize(
    ("pcm", "says"),
    [
        (b"", "lasts 0.00 s: send 1 s at least"),
        (recording(1, 0.99), "lasts 0.99 s: send 1 s at least"),
        (bytes(VOICE_RATE_HZ * 4), "silent in its first 2 s"),
        (np.full(VOICE_RATE_HZ * 2, 12_000, "<i2").tobytes(), "silent in its first 2 s"),
        (bytes(VOICE_RATE_HZ * 12) + recording(1, 2.0), "silent in its first 6 s"),
    ],
    ids=["nothing", "short", "silent", "steady", "late"],
)
def test_a_recording_that_can_not_be_used_is_refused(folder: Path, pcm: bytes, says: str) -> None:
    with pytest.raises(UnsupportedOption, match=says) as caught:
        front(folder).prompt(pcm)
    assert caught.value.param == "session.ref_audio"


def test_a_quiet_recording_is_taken(folder: Path) -> None:
    quiet = (np.frombuffer(recording(1, 2.0), "<i2") // 40).astype("<i2")
    assert front(folder).prompt(quiet.tobytes()).codes


def test_a_prompt_of_a_recording_speaks(folder: Path) -> None:
    settings, cpu = Token2WavSettings(steps=1, max_batch=1), torch.device("cpu")
    voices = Token2Wav.from_folder(folder, settings, cpu, lambda: 0.0)
    waves = []
    for number in (1, 2):
        named = front(folder).named(recording(number, 1.03))
        voice = voices.prepare(named.key, named.prompt)
        calls, _ = schedule_unit(Waiting(), tuple(range(30)), turn_ends=True)
        spoken = voices.speak([Due(voices.begin(voice, 7), calls[0])])[0]
        assert isinstance(spoken, Spoken)
        waves.append(spoken.wave)
    assert waves[0].shape == waves[1].shape
    assert np.abs(waves[0] - waves[1]).max() > 1e-3


# --- files -------------------------------------------------------------------------------------


def test_no_networks_are_no_front_but_one_alone_is_an_error(toys: Path) -> None:
    assert find_front(toys / "elsewhere", 6.0) is None
    assert find_front(toys, 6.0) is not None
    (toys / SPEAKER_FILE).unlink()
    with pytest.raises(CheckpointUnreadable, match="is missing") as caught:
        find_front(toys, 6.0)
    assert caught.value.file == toys / SPEAKER_FILE


@pytest.mark.parametrize("name", [TOKENIZER_FILE, SPEAKER_FILE])
@pytest.mark.parametrize("damage", [lambda whole: b"", lambda whole: whole[:700], lambda _: b"no"])
def test_a_damaged_file_is_named(toys: Path, name: str, damage: Any) -> None:
    file = toys / name
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(CheckpointUnreadable) as caught:
        front(toys)
    assert caught.value.file == file


def test_networks_in_each_others_place_are_told_apart(toys: Path) -> None:
    tokenizer, speaker = toys / TOKENIZER_FILE, toys / SPEAKER_FILE
    swapped = tokenizer.read_bytes(), speaker.read_bytes()
    speaker.write_bytes(swapped[0])
    tokenizer.write_bytes(swapped[1])
    with pytest.raises(CheckpointUnreadable, match="it has 1 inputs, not 2"):
        front(toys)


def network(nodes: Any, inputs: Any, output: Any, **weights: np.ndarray) -> bytes:
    tensors = [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "made", inputs, [output], tensors)
    opset = [helper.make_opsetid("", 17)]
    made: bytes = helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    return made


def tokenizer_that_gives(codes: np.ndarray) -> bytes:
    kind = helper.np_dtype_to_tensor_dtype(codes.dtype)
    return network(
        [helper.make_node("Identity", ["made"], ["codes"])],
        [
            helper.make_tensor_value_info("feats", TensorProto.FLOAT, [1, 128, "T"]),
            helper.make_tensor_value_info("feats_length", TensorProto.INT32, [1]),
        ],
        helper.make_tensor_value_info("codes", kind, list(codes.shape)),
        made=codes,
    )


def speaker_that_gives(row: np.ndarray) -> bytes:
    return network(
        [helper.make_node("Identity", ["made"], ["row"])],
        [helper.make_tensor_value_info("fbank", TensorProto.FLOAT, [1, "T", 80])],
        helper.make_tensor_value_info("row", TensorProto.FLOAT, list(row.shape)),
        made=row,
    )


@pytest.mark.parametrize(
    ("codes", "says"),
    [
        (np.zeros((1, 50), np.int32), "50 codes for a second, not 25"),
        (np.zeros((1, 0), np.int32), "codes that there are not"),
        (np.full((1, 25), CODES, np.int64), "codes that there are not"),
        (np.full((1, 25), -1, np.int32), "codes that there are not"),
        (np.zeros((1, 25), np.float32), "float32, which are no codes"),
    ],
)
def test_another_tokenizer_is_found_at_the_start(toys: Path, codes: np.ndarray, says: str) -> None:
    (toys / TOKENIZER_FILE).write_bytes(tokenizer_that_gives(codes))
    with pytest.raises(CheckpointUnreadable, match=says) as caught:
        front(toys)
    assert caught.value.file == toys / TOKENIZER_FILE


def test_the_highest_code_is_one(toys: Path) -> None:
    (toys / TOKENIZER_FILE).write_bytes(tokenizer_that_gives(np.full((1, 25), CODES - 1, np.int64)))
    assert front(toys).prompt(recording(1, 1.0)).codes == (6560,) * 25


def test_another_speaker_network_is_found_at_the_start(toys: Path) -> None:
    (toys / SPEAKER_FILE).write_bytes(speaker_that_gives(np.zeros((1, 512), np.float32)))
    with pytest.raises(CheckpointUnreadable, match=r"\[1, 512\], not float32 \[1, 192\]") as caught:
        front(toys)
    assert caught.value.file == toys / SPEAKER_FILE


def test_a_speaker_that_is_no_number_is_refused(toys: Path) -> None:
    (toys / SPEAKER_FILE).write_bytes(speaker_that_gives(np.full((1, 192), np.nan, np.float32)))
    with pytest.raises(UnsupportedOption, match="no speaker can be made out"):
        front(toys).prompt(recording(1, 1.0))


def test_a_network_that_fails_is_named(folder: Path) -> None:
    with pytest.raises(StageFailed, match=TOKENIZER_FILE):
        SpeechTokenizer(folder).codes(np.zeros((80, 100), np.float32))
    with pytest.raises(StageFailed, match=SPEAKER_FILE):
        SpeakerNetwork(folder).row(np.zeros((100, 81), np.float32))

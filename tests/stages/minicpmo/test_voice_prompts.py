"""Where voices come from: the operator's own, and recordings that sessions bring."""

import asyncio
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soxr

from session.errors import UnsupportedOption
from session.unit import VOICE_RATE_HZ
from stages.minicpmo.checkpoint_files import CheckpointUnreadable
from stages.minicpmo.tiny_voice import tiny_voice, tiny_voice_folder
from stages.minicpmo.voice_files import VOICE_FILE
from stages.minicpmo.voice_front import VoiceFront
from stages.minicpmo.voice_networks import SPEAKER_FILE, TOKENIZER_FILE
from stages.minicpmo.voice_pcm import voice_floats
from stages.minicpmo.voice_prompt import NamedPrompt, VoicePrompt
from stages.minicpmo.voice_prompts import VoicePrompts, own_prompt, prompts_of
from stages.wav import build_wav
from tests.stages.minicpmo.voice_recordings import recording

pytestmark = pytest.mark.models

USED = 4
OWN = NamedPrompt("own", VoicePrompt((1,), np.zeros((2, 80), np.float32), np.ones(192, np.float32)))


class CountingFront:
    """A front whose codes are the recording; it waits where a test says so."""

    def __init__(self) -> None:
        self.learned: list[bytes] = []
        self.began = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def used(self, pcm: bytes) -> bytes:
        return pcm[:USED]

    def prompt(self, pcm: bytes) -> VoicePrompt:
        self.learned.append(pcm)
        self.began.set()
        assert self.may_go_on.wait(10)
        if pcm.startswith(b"bad"):
            raise UnsupportedOption("not this one", param="session.ref_audio")
        return VoicePrompt(tuple(pcm), OWN.prompt.mel, OWN.prompt.speaker)


@pytest.fixture
def front() -> CountingFront:
    return CountingFront()


@pytest.fixture
def make(front: CountingFront) -> Iterator[Callable[..., VoicePrompts]]:
    made: list[VoicePrompts] = []

    def build(kept: int = 8) -> VoicePrompts:
        made.append(VoicePrompts(OWN, front, kept=kept))
        return made[-1]

    yield build
    front.may_go_on.set()
    for one in made:
        one.close()


async def test_a_recording_is_learned_once(
    front: CountingFront, make: Callable[..., VoicePrompts]
) -> None:
    prompts = make()
    first = await prompts.learned(b"abcd")
    assert first.prompt.codes == tuple(b"abcd")
    assert await prompts.learned(b"abcd") is first
    assert await prompts.learned(b"abcd and what does not count") is first
    other = await prompts.learned(b"efgh")
    assert other.key != first.key
    assert front.learned == [b"abcd", b"efgh"]


async def test_the_prompts_used_last_are_kept(
    front: CountingFront, make: Callable[..., VoicePrompts]
) -> None:
    prompts = make(kept=2)
    for sample in (b"a", b"b", b"a", b"c", b"a", b"b"):
        await prompts.learned(sample)
    assert front.learned == [b"a", b"b", b"c", b"b"]


async def begun(front: CountingFront) -> None:
    assert await asyncio.to_thread(front.began.wait, 10)


async def test_two_who_come_at_once_wait_for_one(
    front: CountingFront, make: Callable[..., VoicePrompts]
) -> None:
    prompts = make()
    front.may_go_on.clear()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(prompts.learned(b"abcd"))
        await begun(front)
        second = group.create_task(prompts.learned(b"abcd"))
        await asyncio.sleep(0)
        front.may_go_on.set()
    assert first.result() is second.result()
    assert front.learned == [b"abcd"]


async def test_who_gives_up_takes_nothing_from_the_others(
    front: CountingFront, make: Callable[..., VoicePrompts]
) -> None:
    prompts = make()
    front.may_go_on.clear()
    first = asyncio.ensure_future(prompts.learned(b"abcd"))
    await begun(front)
    second = asyncio.ensure_future(prompts.learned(b"abcd"))
    waiting = asyncio.ensure_future(prompts.learned(b"efgh"))
    also = asyncio.ensure_future(prompts.learned(b"efgh"))
    await asyncio.sleep(0)
    first.cancel()
    waiting.cancel()
    await asyncio.wait([first, waiting])
    front.may_go_on.set()
    assert (await second).prompt.codes == tuple(b"abcd")
    assert (await also).prompt.codes == tuple(b"efgh")
    assert first.cancelled()
    assert waiting.cancelled()
    assert front.learned == [b"abcd", b"efgh"]


async def test_a_bad_recording_fails_all_who_bring_it_and_is_not_remembered(
    front: CountingFront, make: Callable[..., VoicePrompts]
) -> None:
    prompts = make()
    results = await asyncio.gather(
        *(prompts.learned(b"bad!") for _ in range(2)), return_exceptions=True
    )
    assert [type(one) for one in results] == [UnsupportedOption] * 2
    with pytest.raises(UnsupportedOption, match="not this one"):
        await prompts.learned(b"bad!")
    assert front.learned == [b"bad!"] * 2
    assert (await prompts.learned(b"good")).prompt.codes


async def test_the_loop_goes_on_while_a_voice_is_learned(
    front: CountingFront, make: Callable[..., VoicePrompts]
) -> None:
    prompts = make()
    front.may_go_on.clear()
    learning = asyncio.ensure_future(prompts.learned(b"abcd"))
    # Only a loop that is free can let the front go on.
    await begun(front)
    front.may_go_on.set()
    await learning


async def test_without_networks_a_session_is_told_what_is_missing() -> None:
    prompts = VoicePrompts(OWN, None, kept=2)
    assert prompts.own is OWN
    with pytest.raises(UnsupportedOption) as caught:
        await prompts.learned(b"abcd")
    assert caught.value.param == "session.ref_audio"
    assert TOKENIZER_FILE in caught.value.message
    assert SPEAKER_FILE in caught.value.message


# --- the operator's own ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_voice_folder(tmp_path_factory.mktemp("voices"))


@pytest.fixture(scope="module")
def learner(folder: Path) -> VoiceFront:
    return VoiceFront.from_folder(folder, 6.0)


def test_the_folders_voice_is_the_own_one(folder: Path, learner: VoiceFront) -> None:
    named = own_prompt(None, folder, learner)
    assert named.prompt.codes == tuple(tiny_voice()["codes"])
    assert named.key == own_prompt(str(folder / VOICE_FILE), folder, None).key


def test_prompts_that_differ_have_names_that_differ(folder: Path, tmp_path: Path) -> None:
    keys = {own_prompt(None, folder, None).key}
    for part in ("codes", "mel", "speaker"):
        voice = {name: value.copy() for name, value in tiny_voice().items()}
        voice[part].flat[0] += 1
        file = tmp_path / f"{part}.npz"
        np.savez(file, codes=voice["codes"], mel=voice["mel"], speaker=voice["speaker"])
        keys.add(own_prompt(str(file), folder, None).key)
    assert len(keys) == 4


async def test_a_client_that_brings_the_operators_recording_has_its_voice(
    folder: Path, tmp_path: Path
) -> None:
    pcm = recording(1, 2.0)
    file = tmp_path / "voice.WAV"
    file.write_bytes(build_wav(pcm, VOICE_RATE_HZ))
    prompts = prompts_of(str(file), folder, seconds=6.0, kept=2)
    assert await prompts.learned(pcm) is prompts.own
    assert len(prompts.own.prompt.codes) == 50
    assert (await prompts.learned(recording(2, 2.0))).key != prompts.own.key
    prompts.close()


def float_wav(samples: np.ndarray, rate_hz: int) -> bytes:
    body = samples.astype("<f4").tobytes()
    form = struct.pack("<HHIIHH", 3, 1, rate_hz, rate_hz * 4, 4, 32)
    chunks = b"fmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


@pytest.mark.parametrize("rate_hz", [16_000, 24_000, 44_100, 96_000])
def test_a_recording_of_any_rate_is_learned(
    folder: Path, learner: VoiceFront, tmp_path: Path, rate_hz: int
) -> None:
    file = tmp_path / "voice.wav"
    samples = soxr.resample(voice_floats(recording(1, 2.0)), VOICE_RATE_HZ, rate_hz)
    file.write_bytes(float_wav(samples, rate_hz))
    made = own_prompt(str(file), folder, learner).prompt
    same = learner.prompt(recording(1, 2.0))
    assert len(made.codes) == 50
    # The bands that every rate holds: up to 7 kHz.
    assert np.abs(made.mel - same.mel)[5:-5, :75].mean() < 0.05


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("none.wav", None, "model_settings.voice.prompt can not be read"),
        ("bad.wav", b"no recording", "model_settings.voice.prompt: this is not a WAV"),
        ("short.wav", build_wav(recording(1, 0.5), VOICE_RATE_HZ), "lasts 0.50 s"),
        ("nan.wav", float_wav(np.full(48_000, np.nan), 24_000), "samples that are not numbers"),
        ("rate.wav", build_wav(bytes(8_000), 4_000), "a sample rate of 4000 Hz"),
        ("voice.mp3", b"ID3", r"model_settings.voice.prompt must name a recording \(.wav\)"),
        ("none.npz", None, "can not be read"),
    ],
)
def test_a_setting_that_can_not_be_used_is_named(
    folder: Path,
    learner: VoiceFront,
    tmp_path: Path,
    name: str,
    content: bytes | None,
    says: str,
) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CheckpointUnreadable, match=says) as caught:
        own_prompt(str(file), folder, learner)
    assert caught.value.file == file


def test_a_folder_without_a_voice_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnreadable, match=r"let model_settings\.voice\.prompt name"):
        prompts_of(None, tmp_path, seconds=6.0, kept=2)


def test_a_recording_without_networks_says_what_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "voice.wav"
    file.write_bytes(build_wav(recording(1, 2.0), VOICE_RATE_HZ))
    with pytest.raises(CheckpointUnreadable, match=rf"{TOKENIZER_FILE}.*{SPEAKER_FILE}"):
        prompts_of(str(file), tmp_path, seconds=6.0, kept=2)


async def test_without_networks_the_own_voice_still_speaks(folder: Path, tmp_path: Path) -> None:
    (tmp_path / VOICE_FILE).write_bytes((folder / VOICE_FILE).read_bytes())
    prompts = prompts_of(None, tmp_path, seconds=6.0, kept=2)
    assert prompts.own.prompt.codes
    with pytest.raises(UnsupportedOption, match="can not learn a voice"):
        await prompts.learned(recording(1, 2.0))
    prompts.close()

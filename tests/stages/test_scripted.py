"""The scripted model: its timetable, its faults, and the contract that every model keeps."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from session.config import RuntimeConfig
from session.errors import StageFailed, UnsupportedOption
from session.ids import SessionId
from session.unit import OUTPUT_RATE_HZ, Decision, SpeechChunk, Unit
from stages.contract import Plugin, Speech
from stages.plugins import load_plugin
from stages.scripted.hearing import ScriptedStage0
from stages.scripted.plugin import PLUGIN
from stages.scripted.settings import read_settings
from stages.scripted.speaking import ScriptedStage1, tone_hz
from tests.support.stage_contract import StageContract

SID = SessionId("sess_a")
LOUD = Unit(pcm=(b"\x00\x20" + b"\x00\xe0") * 8000)
QUIET = Unit(pcm=bytes(32_000))
SPEECH = Speech("Answer one, part two.", segment_end=True, turn_end=False)


class TestScriptedKeepsTheContract(StageContract):
    @pytest.fixture
    def plugin(self) -> Plugin:
        return load_plugin("scripted")


class Slept:
    """Sleeps no time and remembers how long it should have been."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


async def hear(
    *units: Unit, runtime: RuntimeConfig | None = None, slept: Slept | None = None, **knobs: Any
) -> list[str]:
    """Return what is said to each unit, "-" where it is listened to."""
    stage = ScriptedStage0(
        read_settings({"sentence": "{answer}.{part}", **knobs}), slept or Slept()
    )
    await stage.open(SID, runtime or RuntimeConfig())
    results = [(await stage.append(SID, unit)).result for unit in units]
    return ["-" if r.decision is Decision.LISTEN else r.text.strip() for r in results]


async def make_speech(stage: ScriptedStage1, session: SessionId = SID) -> list[SpeechChunk]:
    await stage.open(session, RuntimeConfig())
    return [chunk async for chunk in stage.speak(session, SPEECH)]


@pytest.mark.parametrize(
    ("units", "said"),
    [
        ([QUIET, QUIET], "- -"),
        ([LOUD, LOUD, QUIET, QUIET, QUIET], "- - 1.1 1.2 -"),
        ([LOUD, QUIET, LOUD, QUIET, QUIET], "- 1.1 1.2 2.1 2.2"),
        ([Unit(b"", text="hi"), QUIET, QUIET], "1.1 1.2 -"),
        ([Unit(LOUD.pcm, closes_input=True), QUIET, QUIET], "1.1 1.2 -"),
        ([Unit(b"", closes_input=True), QUIET, QUIET], "1.1 1.2 -"),
        ([LOUD, Unit(QUIET.pcm, force_listen=True), QUIET, QUIET], "- - 1.1 1.2"),
        ([LOUD, QUIET, Unit(QUIET.pcm, force_listen=True), QUIET], "- 1.1 - 1.2"),
    ],
)
async def test_the_rules_of_an_answer(units: list[Unit], said: str) -> None:
    assert await hear(*units) == said.split()


async def test_a_client_that_asks_for_answers_gets_them_only_when_it_asks() -> None:
    asked = Unit(QUIET.pcm, closes_input=True)
    turn_mode = RuntimeConfig(auto_response=False)
    said = await hear(LOUD, QUIET, Unit(b"", text="hi"), asked, QUIET, QUIET, runtime=turn_mode)
    assert said == ["-", "-", "-", "1.1", "1.2", "-"]


async def test_the_timetable_may_name_units() -> None:
    assert await hear(QUIET, QUIET, QUIET, speak_at_units=[2], sentences=1) == ["-", "1.1", "-"]


async def test_the_first_units_can_be_made_to_listen() -> None:
    patient = RuntimeConfig(force_listen_count=2)
    assert await hear(LOUD, QUIET, QUIET, runtime=patient, sentences=1) == ["-", "-", "1.1"]


async def test_the_text_of_the_user_may_be_part_of_the_answer() -> None:
    said = await hear(Unit(b"", text="ping"), sentence="You said {said}.")
    assert said == ["You said ping."]


async def test_an_answer_names_its_session() -> None:
    stage = ScriptedStage0(read_settings({}), Slept())
    for name in ("sess_a", "sess_b"):
        await stage.open(SessionId(name), RuntimeConfig())
        said = await stage.append(SessionId(name), Unit(b"", text="hi"))
        assert name in said.result.text


async def test_an_interrupt_ends_the_answer_and_what_it_answered() -> None:
    stage = ScriptedStage0(read_settings({"sentence": "{answer}.{part}"}), Slept())
    await stage.open(SID, RuntimeConfig())
    for unit in (LOUD, QUIET, LOUD):
        await stage.append(SID, unit)
    await stage.interrupt(SID, "1.1", undoes_unit=False)
    assert (await stage.append(SID, QUIET)).result.decision is Decision.LISTEN
    await stage.append(SID, LOUD)
    assert (await stage.append(SID, QUIET)).result.text == "2.1 "


async def test_delays_are_those_of_the_settings() -> None:
    slept = Slept()
    await hear(QUIET, QUIET, slept=slept, unit_delay_ms=40)
    assert slept.seconds == [0.04, 0.04]
    slept = Slept()
    settings = read_settings({"chunk_delay_ms": 7, "sentence_ms": 50, "chunk_ms": 20})
    await make_speech(ScriptedStage1(settings, slept))
    assert slept.seconds == [0.007] * 3


async def test_a_unit_fails_where_the_script_says() -> None:
    with pytest.raises(StageFailed, match="unit 2"):
        await hear(QUIET, QUIET, fail_at_units=[2])


async def test_a_sentence_fails_where_the_script_says() -> None:
    stage = ScriptedStage1(read_settings({"fail_at_sentences": [2]}), Slept())
    await make_speech(stage)
    with pytest.raises(StageFailed, match="sentence 2"):
        [chunk async for chunk in stage.speak(SID, SPEECH)]


async def test_a_hanging_unit_is_freed_by_an_interrupt() -> None:
    stage = ScriptedStage0(read_settings({"hang_at_units": [1]}), Slept())
    await stage.open(SID, RuntimeConfig())
    hanging = asyncio.ensure_future(stage.append(SID, QUIET))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not hanging.done()
    await stage.interrupt(SID, "", undoes_unit=False)
    assert (await hanging).result.decision is Decision.LISTEN


async def test_closes_fail_as_often_as_the_script_says() -> None:
    settings = read_settings({"failing_closes": 1})
    for stage in (ScriptedStage0(settings), ScriptedStage1(settings)):
        await stage.open(SID, RuntimeConfig())
        with pytest.raises(StageFailed):
            await stage.close(SID)
        await stage.close(SID)
        await stage.close(SID)


async def test_a_voice_that_is_not_there_is_refused_and_changes_nothing() -> None:
    stage = ScriptedStage1(read_settings({}), Slept())
    with pytest.raises(UnsupportedOption, match="there are: low, high"):
        await stage.open(SID, RuntimeConfig(voice="soprano"))
    await stage.open(SID, RuntimeConfig(voice="low"))
    with pytest.raises(UnsupportedOption):
        await stage.configure(SID, RuntimeConfig(voice="soprano"))
    assert pitch_of([c async for c in stage.speak(SID, SPEECH)]) == pytest.approx(
        tone_hz(SID, "low"), abs=2
    )


def samples_of(chunks: list[SpeechChunk]) -> np.ndarray[Any, np.dtype[np.float64]]:
    pcm = b"".join(chunk.pcm for chunk in chunks)
    return np.frombuffer(pcm, dtype="<i2").astype(np.float64)


def pitch_of(chunks: list[SpeechChunk]) -> float:
    samples = samples_of(chunks)
    padded = 16 * len(samples)
    peak = int(np.argmax(np.abs(np.fft.rfft(samples * np.hanning(len(samples)), padded))))
    return peak * OUTPUT_RATE_HZ / padded


async def test_two_sessions_sound_different() -> None:
    stage = ScriptedStage1(read_settings({}), Slept())
    names = [SessionId(f"sess_{letter}") for letter in "ab"]
    pitches = [pitch_of(await make_speech(stage, name)) for name in names]
    assert pitches == pytest.approx([tone_hz(name) for name in names], abs=2)
    assert abs(pitches[0] - pitches[1]) > 20


async def test_the_tone_does_not_click_between_chunks() -> None:
    chunks = await make_speech(ScriptedStage1(read_settings({"chunk_ms": 13}), Slept()))
    steps = np.abs(np.diff(samples_of(chunks)))
    borders = np.cumsum([chunk.samples for chunk in chunks])[:-1] - 1
    inside = np.delete(steps, borders)
    assert steps[borders].max() <= inside.max() * 1.01


@pytest.mark.parametrize("text", ["Answer one, part two.", "Hi", ""])
async def test_the_text_is_shared_out_among_the_chunks(text: str) -> None:
    stage = ScriptedStage1(read_settings({"sentence_ms": 450, "chunk_ms": 200}), Slept())
    await stage.open(SID, RuntimeConfig())
    speech = Speech(text, segment_end=True, turn_end=True)
    chunks = [chunk async for chunk in stage.speak(SID, speech)]
    assert "".join(chunk.transcript for chunk in chunks) == text
    assert [chunk.samples for chunk in chunks] == [4800, 4800, 1200]
    assert [chunk.turn_end for chunk in chunks] == [False, False, True]


async def test_a_turn_starts_its_tone_anew() -> None:
    stage = ScriptedStage1(read_settings({"sentence_ms": 70}), Slept())
    await stage.open(SID, RuntimeConfig())

    async def spoken(speech: Speech) -> AsyncIterator[bytes]:
        async for chunk in stage.speak(SID, speech):
            yield chunk.pcm

    last = Speech("x", segment_end=True, turn_end=True)
    turns = [[pcm async for pcm in spoken(last)] for _ in range(3)]
    assert all(one == other for one, other in pairwise(turns))
    await stage.interrupt(SID)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"sentences": 0}, "sentences"),
        ({"chunk_ms": "200"}, "chunk_ms"),
        ({"sentence": "{nobody}"}, "sentence"),
        ({"sentence": "{0}"}, "sentence"),
        ({"tempo": 1}, "tempo"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        PLUGIN.check_settings(settings)


def test_the_factories_read_the_settings_too() -> None:
    with pytest.raises(ValueError, match="sentences"):
        PLUGIN.make_stage0({"sentences": 0})

"""MiniCPM-o's Stage0 on the real engine: from PCM to words, and nothing that harms a neighbour."""

import asyncio
import io
import threading
from typing import Any

import numpy as np
import pytest
from PIL import Image

from session.config import RuntimeConfig
from session.errors import StageFailed, StageRefused
from session.fence import Fence
from session.ids import OperationId, SessionId
from session.unit import Decision, Unit
from stages.binding import Stage0Door
from stages.contract import Appended
from stages.minicpmo.stage0 import MiniCPMOStage0
from tests.stages.minicpmo.vectors import FOLDER, load
from tests.support.models import settle
from tests.support.running_minicpmo import RunningMiniCPMO
from tests.support.stage0_talk import Said, Talk, second

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]

ROWS_ALIKE = 1e-5
UNITS = 12
NOT_A_NUMBER = float("nan")
FREE_RUN = load("free_run.json")


@pytest.fixture
def stage(whole: RunningMiniCPMO) -> MiniCPMOStage0:
    return whole.stage


async def alone(stage: MiniCPMOStage0, units: int, audio: int) -> tuple[list[Said], list[Any]]:
    """Return what an undisturbed session says, and its hidden rows."""
    talk = await Talk(stage, f"alone-{audio}", audio).open()
    said = await talk.listen(units)
    await talk.close()
    return said, talk.hidden


def check_rows(found: list[Any], wanted: list[Any]) -> None:
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=ROWS_ALIKE, rtol=0)


async def test_the_recorded_conversation_from_its_sound_to_its_words(stage: MiniCPMOStage0) -> None:
    with np.load(FOLDER / "mel.npz") as recorded:
        pcm = recorded["pcm_int16"].astype("<i2").tobytes()
    settings = FREE_RUN["settings"]
    talk = await Talk(stage, "free").open(
        RuntimeConfig(force_listen_count=settings["force_listen_count"])
    )
    for case in FREE_RUN["units"]:
        at = case["unit"]
        sound = pcm[32_000 * at : 32_000 * (at + 1)]
        said = await talk.append(Unit(sound, force_listen=at in settings["force_listen_units"]))
        remembered = stage.conversation(talk.session).units[-1]
        assert [*remembered.fed, remembered.terminator] == case["emitted"][:-1]
        is_listen = said.result.decision is Decision.LISTEN
        assert is_listen is case["is_listen"]
        if not is_listen:
            assert said.result.text == case["text"]
            assert list(said.tokens or ()) == case["condition_token_ids"]
            assert said.result.turn_end is case["end_of_turn"]
    await talk.close()


async def test_the_metrics_are_the_units_own(stage: MiniCPMOStage0) -> None:
    talk = await Talk(stage, "timed", 40).open()
    for _ in range(6):
        await talk.append()
        metrics = talk.metrics[-1]
        assert metrics is not None
        remembered = stage.conversation(talk.session).units[-1]
        assert metrics.generated_tokens == len(remembered.fed) + 1
        assert len(metrics.itls_ms) == len(remembered.fed)
        assert metrics.ttft_ms > 0
        assert metrics.tpot_ms == pytest.approx(np.mean(metrics.itls_ms or (0,)))
    await talk.close()


async def test_sessions_beside_each_other_are_as_they_are_alone(stage: MiniCPMOStage0) -> None:
    wanted = [await alone(stage, UNITS, audio) for audio in range(8)]
    talks = [await Talk(stage, f"beside-{audio}", audio).open() for audio in range(8)]
    said: list[list[Said]] = [[] for _ in talks]
    for _ in range(UNITS):
        for mine, one in zip(said, await asyncio.gather(*(t.append() for t in talks)), strict=True):
            mine.append(one)
    for talk, mine, (theirs, rows) in zip(talks, said, wanted, strict=True):
        assert mine == theirs
        check_rows(talk.hidden, rows)
        await talk.close()
    assert len({repr(one) for one, _ in wanted}) == len(wanted), "they all say the same"


async def fail_once(
    whole: RunningMiniCPMO, monkeypatch: pytest.MonkeyPatch, talk: Talk, *, inside: bool
) -> None:
    """Let the session's next unit fail: before the engine has it, or when it is done with it."""
    with monkeypatch.context() as patch:
        if inside:
            patch.setattr("stages.minicpmo.unit_model._check_agreement", break_off)
        else:
            whole.ear.spoil_with = NOT_A_NUMBER
        with pytest.raises(StageFailed):
            await talk.append()


def break_off(*_: object) -> None:
    raise StageFailed("made to fail")


async def test_units_that_failed_leave_nothing(
    whole: RunningMiniCPMO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty units, across the encoder's reset, of which many had to be given twice."""
    units = 50
    wanted, rows = await alone(whole.stage, units, audio=20)
    talk = await Talk(whole.stage, "failing", audio=20).open()
    said: list[Said] = []
    for at in range(units):
        if at % 7 == 3 or at == 29:
            await fail_once(whole, monkeypatch, talk, inside=at % 2 == 1)
        said.append(await talk.append())
    assert said == wanted
    check_rows(talk.hidden, rows)
    await talk.close()


async def test_trouble_of_some_is_not_felt_by_others(
    whole: RunningMiniCPMO, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = whole.stage
    wanted = [await alone(stage, UNITS, audio) for audio in (30, 31, 32)]
    talks = [await Talk(stage, f"calm-{audio}", audio).open() for audio in (30, 31, 32)]
    cut = await Talk(stage, "cut", 33).open()
    long = await Talk(stage, "long", 34).open()
    said: list[list[Said]] = [[], [], []]
    for at in range(UNITS):
        if at in (4, 7):
            await fail_once(whole, monkeypatch, talks[2], inside=at == 7)
        answers = await asyncio.gather(
            *(talk.append() for talk in talks),
            interrupted(cut),
            long.append(Unit(second(at, seconds=9))),  # more than it may remember
        )
        for mine, one in zip(said, answers[:3], strict=True):
            mine.append(one)
    for talk, mine, (theirs, rows) in zip(talks, said, wanted, strict=True):
        assert mine == theirs
        check_rows(talk.hidden, rows)
    assert whole.engine.held_tokens("long") < 1024
    for talk in (*talks, cut, long):
        await talk.close()


async def interrupted(talk: Talk) -> Said:
    """Give a unit, and interrupt it somewhere on its way."""
    running = asyncio.create_task(talk.append())
    await asyncio.sleep(0.01)
    await talk.interrupt()
    try:
        return await running
    except StageRefused:
        return await talk.append()


async def test_what_was_not_heard_is_not_remembered_by_the_engine(whole: RunningMiniCPMO) -> None:
    stage = whole.stage
    talk = await Talk(stage, "heard", 50).open()
    while not stage.conversation(talk.session).is_answering:
        await talk.append()
    await talk.append()
    await talk.interrupt("")
    conversation = stage.conversation(talk.session)
    fresh = await Talk(stage, "fresh", 50).open()
    for unit in conversation.units:
        assert not unit.said
        await fresh.append(fresh.unit(force_listen=True))
    rest = slice(len(talk.hidden), None)
    assert await talk.listen(6) == await fresh.listen(6)
    check_rows(talk.hidden[rest], fresh.hidden)
    await talk.close()
    await fresh.close()


async def test_a_cancel_while_the_encoder_is_blocked_holds_nobody_up(
    whole: RunningMiniCPMO,
) -> None:
    door = Stage0Door(whole.stage, cache_size=8)
    fence = Fence(SessionId("blocked"), incarnation=0, epoch=0, turn=0)
    await door.open(fence, RuntimeConfig())
    blocked = threading.Event()
    hold = asyncio.create_task(whole.ear.real.in_thread(lambda: blocked.wait(60)))
    old = asyncio.create_task(append(door, fence, "old"))
    await settle()
    later = fence.next_epoch()
    await door.cancel(fence, later, "")
    with pytest.raises(StageRefused):
        await old
    new = asyncio.create_task(append(door, later, "new"))
    await settle()
    assert not new.done()
    blocked.set()
    await hold
    appended = await new
    assert appended.request_id == "blocked/0.1.1/0.1"
    with pytest.raises(StageRefused, match="stale"):
        await append(door, fence, "older", seq=1)
    await door.close(later)


async def append(door: Stage0Door, fence: Fence, operation: str, seq: int = 0) -> Appended:
    return await door.append(
        fence,
        seq=seq,
        operation_id=OperationId(operation),
        unit=Unit(second(60)),
        config_generation=0,
    )


async def test_a_voice_and_a_picture_are_fed_where_they_belong(
    whole: RunningMiniCPMO, picture: bytes
) -> None:
    # Samples of three seconds are two of a voice, whose rate is higher.
    runtime = RuntimeConfig(voice_sample=second(70, seconds=3))
    talk = await Talk(whole.stage, "voice", 71).open(runtime)
    await talk.append(talk.unit(video_frames=((picture,),)))
    with pytest.raises(StageFailed):
        await talk.append(talk.unit(video_frames=((b"no picture",),)))
    await talk.append()
    context = whole.stage.conversation(talk.session).context
    assert context.reference is not None
    assert len(context.reference) == 20
    # What the engine holds: the context, a unit with a picture, one without; the last is open.
    fed = sum(len(unit.fed) for unit in whole.stage.conversation(talk.session).units)
    assert whole.engine.held_tokens("voice") == len(context) + (1 + 66 + 10) + 2 + (1 + 10) + fed
    await talk.close()


@pytest.fixture
def picture() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (64, 48), (200, 30, 30)).save(out, "PNG")
    return out.getvalue()


async def test_nothing_is_left_of_anybody(whole: RunningMiniCPMO) -> None:
    """Runs last in this file: after closes, failures, cancels and refusals."""
    left = await whole.tables()
    errors = left.pop("errors")
    assert {name: count for name, count in left.items() if count} == {}
    assert errors == 0

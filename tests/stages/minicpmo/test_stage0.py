"""MiniCPM-o's Stage0 over an ear and a language model that answer by what is held."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from session.config import AnswerSettings, RuntimeConfig
from session.context import ContextMessage
from session.errors import (
    AdmissionRefused,
    StageFailed,
    StageRefused,
    StageUnavailable,
    UnsupportedOption,
)
from session.ids import RequestId, SessionId
from session.unit import Decision, Unit
from stages.minicpmo.conversation import held_pieces
from stages.minicpmo.layout import RowCounts
from stages.minicpmo.loaded import Loaded
from stages.minicpmo.settings import MiniCPMOSettings, read_settings
from stages.minicpmo.stage0 import MiniCPMOStage0
from stages.minicpmo.tokenizer import Tokenizer
from stages.minicpmo.windows import BasicWindow, ContextWindow, Window, WindowOff
from tests.fakes.minicpmo_parts import DigestEar, DigestModel, digest
from tests.support.models import settle
from tests.support.stage0_talk import Said, Talk, second

COUNTS = RowCounts.from_config(audio_pool_step=5, query_num=64)
GREEDY: dict[str, Any] = {"decoding": {"greedy": True}}


class Bench:
    """A Stage0 and the parts that it is built of."""

    def __init__(
        self, tokenizer: Tokenizer, window: Window, settings: dict[str, Any], now: float = 0.0
    ) -> None:
        self.now = now
        self.ear = DigestEar()
        self.tokens = tokenizer.specials
        self.model = DigestModel(tokenizer.specials, tokenizer.decode)
        self.loaded = Loaded(self.ear, self.model, tokenizer, COUNTS, window)
        self.stage = MiniCPMOStage0(
            read_settings({**GREEDY, **settings}), self._load, lambda: self.now
        )

    async def _load(self, settings: MiniCPMOSettings) -> Loaded:
        del settings
        return self.loaded

    async def talk(self, name: str = "a", audio: int = 0, **runtime: Any) -> Talk:
        """Open a session."""
        return await Talk(self.stage, name, audio).open(RuntimeConfig(**runtime))

    def holds_what_it_says(self, talk: Talk) -> bool:
        """Whether the language model holds exactly what the conversation says."""
        conversation = self.stage.conversation(talk.session)
        return digest(self.model.held[talk.session]) == digest(
            held_pieces(conversation, self.tokens)
        )


@pytest.fixture(scope="module")
def tokenizer(tiny_folder: Path) -> Tokenizer:
    return Tokenizer(tiny_folder)


@pytest.fixture
def bench_of(tokenizer: Tokenizer) -> Callable[..., Any]:
    async def make(kept: Window = WindowOff(), **settings: Any) -> Bench:  # noqa: B008 - a value
        bench = Bench(tokenizer, kept, settings)
        await bench.stage.warm_up()
        bench.model.asked.clear()
        return bench

    return make


@pytest.fixture
async def bench(bench_of: Callable[..., Any]) -> Bench:
    made: Bench = await bench_of()
    return made


async def alone(bench: Bench, units: int, audio: int = 0) -> list[Said]:
    """Return what an undisturbed session says to so many units."""
    talk = await bench.talk(f"alone-{audio}", audio)
    said = await talk.listen(units)
    await talk.close()
    return said


async def test_it_listens_and_speaks_and_ends_turns(bench: Bench) -> None:
    said = await alone(bench, 40)
    decisions = {one.result.decision for one in said}
    assert decisions == {Decision.LISTEN, Decision.SPEAK}
    assert any(one.result.turn_end for one in said)
    for one in said:
        assert one.result.speech_follows is (one.result.decision is Decision.SPEAK)
        assert one.result.segment_end is (one.result.decision is Decision.SPEAK)


async def test_a_turn_starts_once(bench: Bench) -> None:
    is_open = False
    for one in await alone(bench, 60):
        if one.turn_start is not None:
            assert one.turn_start is not is_open
            is_open = True
        if one.result.turn_end:
            is_open = False


async def test_the_model_holds_what_the_conversation_says_after_every_unit(bench: Bench) -> None:
    talk = await bench.talk()
    for _ in range(20):
        await talk.append()
        assert bench.holds_what_it_says(talk)


async def test_sessions_do_not_see_each_other(bench: Bench) -> None:
    wanted = [await alone(bench, 12, audio) for audio in range(3)]
    talks = [await bench.talk(f"s{audio}", audio) for audio in range(3)]
    said: list[list[Said]] = [[], [], []]
    for _ in range(12):
        for mine, answer in zip(
            said, await asyncio.gather(*(talk.append() for talk in talks)), strict=True
        ):
            mine.append(answer)
    assert said == wanted


async def test_metrics_are_the_segments_own(bench: Bench) -> None:
    talk = await bench.talk()
    appended = await bench.stage.append(talk.session, talk.unit(), request_id=RequestId("x"))
    metrics = appended.result.metrics
    assert metrics is not None
    assert metrics.ttft_ms == 3.0
    assert metrics.generated_tokens == len(metrics.itls_ms) + 1


async def test_several_seconds_are_heard_and_the_last_is_decided_on(bench: Bench) -> None:
    talk = await bench.talk()
    await talk.append(Unit(second(1, seconds=3)))
    conversation = bench.stage.conversation(talk.session)
    assert [unit.fed for unit in conversation.units[:2]] == [(), ()]
    assert [unit.terminator for unit in conversation.units[:2]] == [bench.tokens.listen] * 2
    assert len(bench.model.asked) == 1
    assert bench.holds_what_it_says(talk)


async def test_less_than_a_second_is_filled_up_with_silence(bench: Bench) -> None:
    short, filled = await bench.talk("short"), await bench.talk("filled")
    sound = second(5)[:10_000]
    assert await short.append(Unit(sound)) == await filled.append(Unit(sound + bytes(22_000)))
    assert await short.append(Unit(b"", closes_input=True)) == await filled.append(
        Unit(bytes(32_000), closes_input=True)
    )


async def test_frames_belong_to_the_unit_that_they_come_with(bench: Bench) -> None:
    talk = await bench.talk()
    await talk.append(talk.unit(video_frames=((b"one",), (b"two", b"three"))))
    conversation = bench.stage.conversation(talk.session)
    assert len(conversation.units[0].frames) == 3
    assert bench.holds_what_it_says(talk)


async def test_a_bad_picture_fails_its_unit_and_changes_nothing(bench: Bench) -> None:
    wanted = await alone(bench, 6)
    talk = await bench.talk()
    said = await talk.listen(3)
    with pytest.raises(StageFailed, match="picture"):
        await talk.append(talk.unit(video_frames=((b"bad",),)))
    assert said + await talk.listen(3) == wanted


@pytest.mark.parametrize("at", range(5))
async def test_a_unit_that_failed_may_be_given_again(bench: Bench, at: int) -> None:
    wanted = await alone(bench, 6)
    talk = await bench.talk()
    said = await talk.listen(at)
    bench.model.faults.append(StageFailed("once"))
    with pytest.raises(StageFailed, match="once"):
        await talk.append()
    assert bench.holds_what_it_says(talk)
    assert said + await talk.listen(6 - at) == wanted


@pytest.mark.parametrize(
    "unit",
    [
        Unit(b"", text="hello"),
        Unit(bytes(32_000), messages=(ContextMessage("system", "hello"),)),
        Unit(bytes(32_000), closes_input=True, is_fresh=True),
    ],
)
async def test_text_is_refused(bench: Bench, unit: Unit) -> None:
    talk = await bench.talk()
    with pytest.raises(StageFailed, match="can not be written to"):
        await talk.append(unit)


async def test_an_answer_to_nothing_is_asked_for_over_a_second_of_silence(bench: Bench) -> None:
    """The model hears the silence like any other, and decides."""
    bare, silent = await bench.talk("bare"), await bench.talk("silent")
    for _ in range(6):
        unit = Unit(bytes(32_000), closes_input=True, is_bare=True)
        assert await bare.append(unit) == await silent.append(Unit(bytes(32_000)))


async def test_forced_listening_ends_an_open_turn(bench: Bench) -> None:
    talk = await bench.talk()
    while not bench.stage.conversation(talk.session).speech.is_turn_open:
        await talk.append()
    said = await talk.append(talk.unit(force_listen=True))
    assert said.result.decision is Decision.LISTEN
    assert said.result.turn_end
    assert bench.stage.conversation(talk.session).units[-1].fed == (bench.tokens.turn_eos,)
    again = await talk.append(talk.unit(force_listen=True))
    assert not again.result.turn_end


async def test_the_first_units_are_listened_to_as_the_client_asked(bench: Bench) -> None:
    talk = await bench.talk(force_listen_count=4)
    said = await talk.listen(12)
    assert [one.result.decision for one in said[:4]] == [Decision.LISTEN] * 4
    assert Decision.SPEAK in [one.result.decision for one in said]


async def test_an_undone_unit_never_was(bench: Bench) -> None:
    wanted = await alone(bench, 8)
    undone = 0
    for at in range(1, 8):
        talk = await bench.talk(f"undone-{at}")
        said = await talk.listen(at - 1)
        # What an interruption does to an open answer is another test's.
        if not bench.stage.conversation(talk.session).is_answering:
            await talk.append()
            await talk.interrupt(undoes_unit=True)
            assert said + await talk.listen(9 - at) == wanted
            undone += 1
        await talk.close()
    assert undone > 1


async def test_an_interruption_stops_the_unit_that_runs(bench: Bench) -> None:
    wanted = await alone(bench, 5)
    talk = await bench.talk()
    said = await talk.listen(2)
    assert not bench.stage.conversation(talk.session).speech.is_turn_open
    bench.model.gate.hold()
    running = asyncio.create_task(talk.append())
    await bench.model.gate.reached.wait()
    await talk.interrupt()
    with pytest.raises(StageRefused):
        await running
    assert said + await talk.listen(3) == wanted


async def test_an_interruption_voids_a_unit_that_is_still_being_heard(bench: Bench) -> None:
    wanted = await alone(bench, 5)
    talk = await bench.talk()
    said = await talk.listen(2)
    bench.ear.gate.hold()
    running = asyncio.create_task(talk.append())
    await bench.ear.gate.reached.wait()
    await talk.interrupt()
    bench.ear.gate.release()
    with pytest.raises(StageRefused, match="interrupted"):
        await running
    assert len(bench.model.asked) == 5 + 2
    assert said + await talk.listen(3) == wanted


async def test_what_was_not_heard_of_an_answer_is_forgotten(bench: Bench) -> None:
    talk = await bench.talk()
    while not bench.stage.conversation(talk.session).speech.is_turn_open:
        await talk.append()
    await talk.interrupt("")
    conversation = bench.stage.conversation(talk.session)
    assert not conversation.speech.is_turn_open
    assert not any(unit.said for unit in conversation.units[-1:])
    assert bench.holds_what_it_says(talk)
    await settle()
    assert bench.model.prepared[-1] == talk.session


async def test_interrupting_nobody_is_no_error(bench: Bench) -> None:
    await bench.stage.interrupt(SessionId("nobody"), "", undoes_unit=False)
    await bench.stage.close(SessionId("nobody"))
    await bench.stage.interrupt(SessionId("nobody"), "", undoes_unit=False)


async def test_a_window_leaves_room_and_the_model_holds_what_is_left(
    bench_of: Callable[..., Any],
) -> None:
    for window in (BasicWindow(high=120, low=80), ContextWindow(4, 20, marker=(25,))):
        bench = await bench_of(window)
        talk = await bench.talk()
        for _ in range(30):
            await talk.append()
            assert bench.holds_what_it_says(talk)
        assert len(bench.stage.conversation(talk.session).units) < 12
        assert bench.model.replaced


async def test_a_window_that_is_wider_than_the_memory_gives_up_units_all_the_same(
    bench_of: Callable[..., Any],
) -> None:
    window = BasicWindow(high=4000, low=3000)
    bench = await bench_of(window, language_model={"session_tokens": 160}, window={"mode": "off"})
    talk = await bench.talk()
    await talk.listen(30)
    assert bench.holds_what_it_says(talk)
    held = sum(len(piece) for piece in bench.model.held[talk.session])
    assert held <= 160


async def test_without_a_window_a_conversation_that_is_too_long_ends(
    bench_of: Callable[..., Any],
) -> None:
    bench = await bench_of(language_model={"session_tokens": 140}, window={"mode": "off"})
    talk = await bench.talk()
    with pytest.raises(StageUnavailable, match="too long") as caught:
        await talk.listen(20)
    assert caught.value.wire_code == "context_length_exceeded"


async def test_a_unit_that_can_never_fit_fails_alone_and_is_not_even_heard(
    bench_of: Callable[..., Any],
) -> None:
    bench = await bench_of(
        BasicWindow(high=120, low=80),
        language_model={"session_tokens": 300},
        window={"mode": "off"},
    )
    wanted = await alone(bench, 6)
    talk = await bench.talk()
    said = await talk.listen(3)
    bench.ear.gate.hold()  # whoever is heard now waits for ever
    with pytest.raises(StageFailed, match="send less at once") as caught:
        await talk.append(Unit(second(9, seconds=40)))
    assert caught.value.wire_code == "unit_too_long"
    bench.ear.gate.release()
    assert said + await talk.listen(3) == wanted


async def test_too_many_pictures_are_not_looked_at(bench: Bench) -> None:
    talk = await bench.talk()
    with pytest.raises(StageFailed, match="9 pictures in one unit, the most is 8"):
        await talk.append(talk.unit(video_frames=((b"one",) * 9,)))
    await talk.append(talk.unit(video_frames=((b"one",) * 8,)))


@pytest.mark.parametrize(
    "settings",
    [{"language_model": {"session_tokens": 600}}, {"window": {"low": 9000}}],
)
def test_settings_that_leave_no_room_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"model_settings(\.window)?: .*must"):
        read_settings(settings)


async def test_new_instructions_stand_in_front_of_everything(bench: Bench) -> None:
    talk = await bench.talk(instructions="Be brief.")
    await talk.listen(3)
    await bench.stage.configure(talk.session, RuntimeConfig(instructions="Be kind."))
    assert bench.holds_what_it_says(talk)
    other = await bench.talk("other", instructions="Be kind.")
    mine = bench.stage.conversation(talk.session)
    assert mine.context == bench.stage.conversation(other.session).context
    assert len(mine.units) == 3


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"temperature": 0.0}, "session.temperature"),
        ({"temperature": 2.5}, "session.temperature"),
        ({"instructions": "say <|turn_eos|>"}, "session.instructions"),
        ({"instructions": "word " * 9000}, "session.instructions"),
        ({"force_listen_count": -1}, "session.force_listen_count"),
    ],
)
async def test_settings_that_can_not_be_are_refused_and_change_nothing(
    bench: Bench, changes: dict[str, Any], param: str
) -> None:
    with pytest.raises(UnsupportedOption) as caught:
        await bench.talk("refused", **changes)
    assert caught.value.param == param
    assert SessionId("refused") not in bench.model.held
    wanted = await alone(bench, 4)
    talk = await bench.talk()
    said = await talk.listen(2)
    with pytest.raises(UnsupportedOption):
        await bench.stage.configure(talk.session, replace(RuntimeConfig(), **changes))
    assert said + await talk.listen(2) == wanted


async def test_a_temperature_of_an_answer_that_can_not_be_is_refused(bench: Bench) -> None:
    wanted = await alone(bench, 3)
    talk = await bench.talk()
    own = AnswerSettings(temperature=0.0)
    with pytest.raises(UnsupportedOption):
        await talk.append(talk.unit(closes_input=True, options=own))
    assert await talk.listen(3) == wanted


async def test_a_temperature_of_an_answer_holds_for_that_answer(bench: Bench) -> None:
    talk = await bench.talk(temperature=0.5)
    own = AnswerSettings(temperature=1.5)
    await talk.append(talk.unit(closes_input=True, options=own))
    while not bench.stage.conversation(talk.session).speech.is_turn_open:
        await talk.append()
    while bench.stage.conversation(talk.session).speech.is_turn_open:
        await talk.append()
    await talk.append()
    temperatures = [asked.decode.temperature for asked in bench.model.asked]
    assert temperatures[:-1] == [1.5] * (len(temperatures) - 1)
    assert temperatures[-1] == 0.5


async def test_deadlines_are_a_second_apart_however_fast_units_come(bench: Bench) -> None:
    talk, late = await bench.talk(), await bench.talk("late")
    await talk.listen(3)
    bench.now = 10.0
    await talk.append()
    await late.append()
    assert [asked.deadline_s for asked in bench.model.asked] == [1.0, 2.0, 3.0, 11.0, 11.0]


async def test_every_attempt_draws_anew_and_none_draws_like_another(bench: Bench) -> None:
    talk = await bench.talk()
    bench.model.faults.append(StageFailed("once"))
    with pytest.raises(StageFailed):
        await talk.append()
    await talk.listen(2)
    assert len({asked.seed for asked in bench.model.asked}) == 3


async def test_a_voice_stands_in_the_context(bench: Bench) -> None:
    # Samples of three seconds are two of a voice, whose rate is higher.
    talk = await bench.talk(voice_sample=second(3, seconds=3))
    reference = bench.stage.conversation(talk.session).context.reference
    assert reference is not None
    assert len(reference) == 20
    await bench.stage.configure(talk.session, RuntimeConfig(instructions="Be kind."))
    assert bench.stage.conversation(talk.session).context.reference is reference


async def test_of_a_long_recording_both_halves_hear_the_same_seconds(bench: Bench) -> None:
    # Of 40 s of the rate of a unit, which are 26 of a voice, six count.
    talk = await bench.talk(voice_sample=second(3, seconds=40))
    reference = bench.stage.conversation(talk.session).context.reference
    assert reference is not None
    assert len(reference) == 60


async def test_the_operators_voice_stands_where_a_session_brings_none(
    bench_of: Callable[..., Any],
) -> None:
    bench = await bench_of()
    own = await bench.ear.learn_voice(second(4, seconds=2))
    bench.loaded = replace(bench.loaded, own_voice=own)
    await bench.stage.warm_up()
    silent = await bench.talk("silent")
    assert bench.stage.conversation(silent.session).context.reference is own
    brings = await bench.talk("brings", voice_sample=second(3, seconds=3))
    assert bench.stage.conversation(brings.session).context.reference is not own


async def test_what_was_said_is_restored_in_another_place(bench: Bench) -> None:
    talk = await bench.talk()
    while not (said := bench.stage.snapshot(talk.session)):
        await talk.append()
    await bench.stage.restore(SessionId("again"), RuntimeConfig(), said)
    assert "".join(bench.stage.snapshot(SessionId("again"))) == "".join(said)
    again = Talk(bench.stage, "again")
    await again.append()
    assert bench.holds_what_it_says(again)


async def test_a_session_that_does_not_fit_takes_nothing(bench: Bench) -> None:
    for name in "abcd":
        await bench.talk(name)
    with pytest.raises(AdmissionRefused):
        await bench.talk("e")
    with pytest.raises(StageRefused, match="not open"):
        await bench.stage.append(SessionId("e"), Unit(second(1)), request_id=RequestId("e"))
    await bench.stage.close(SessionId("a"))
    await bench.talk("e")


async def test_after_the_close_nothing_is_left(bench: Bench) -> None:
    talk = await bench.talk()
    await talk.listen(2)
    await talk.close()
    assert bench.model.held == {}
    with pytest.raises(StageRefused, match="not open"):
        await talk.append()


async def test_a_session_is_not_opened_twice(bench: Bench) -> None:
    await bench.talk()
    with pytest.raises(StageRefused, match="open already"):
        await bench.talk()


async def test_before_the_warm_up_nothing_opens(tokenizer: Tokenizer) -> None:
    cold = Bench(tokenizer, WindowOff(), {})
    with pytest.raises(StageUnavailable, match="not loaded"):
        await cold.talk()


async def test_the_death_of_the_engine_is_told(bench: Bench) -> None:
    assert await bench.stage.died() == "it was asked"


async def test_closing_what_never_opened_is_no_error(tokenizer: Tokenizer) -> None:
    bench = Bench(tokenizer, WindowOff(), {})
    await bench.stage.close(SessionId("nobody"))
    await bench.stage.interrupt(SessionId("nobody"), "", undoes_unit=False)

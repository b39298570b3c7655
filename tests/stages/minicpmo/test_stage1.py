"""Stage1 over an engine of arithmetic and a vocoder of tones: turns, chunks, ends of all kinds."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from session.config import RuntimeConfig
from session.errors import AdmissionRefused, StageFailed, StageRefused, UnsupportedOption
from session.ids import SessionId
from session.unit import OUTPUT_RATE_HZ, SpeechChunk
from stages.contract import Speech
from stages.engine.backend import BackendFacts
from stages.engine.engine import ResumableEngine
from stages.engine.settings import EngineSettings
from stages.minicpmo.loaded_voice import LoadedVoice
from stages.minicpmo.settings import MiniCPMOSettings, read_settings
from stages.minicpmo.stage1 import MiniCPMOStage1
from stages.minicpmo.talker import Talker, TalkerSetup
from stages.minicpmo.talker_condition import TalkerCondition
from stages.minicpmo.talker_policy import PUBLISHED_TALKER
from stages.minicpmo.talker_unit import SERVING_RULES
from stages.minicpmo.voice_desk import VoiceDesk
from stages.minicpmo.voice_memory import VoiceMemory, VoiceSizes
from tests.fakes.engine_backend import HIDDEN, FakeBackend
from tests.fakes.minicpmo_voice import FLOW_S, VOCODER_S, FakePrompts, FakeVoices

pytestmark = pytest.mark.models

ONE, TWO = SessionId("one"), SessionId("two")
LLM = 4
STOP = 5000
"""A code that the engine's digests never come to."""
FULL = (1,) * 25
FIRST_SAMPLES = 25 * 960 - 3840
LEFT_ZEROS = OUTPUT_RATE_HZ - FIRST_SAMPLES
SIZES = VoiceSizes(turn_bytes=lambda frames: 10 * frames, voice_bytes=lambda frames: frames)


class Backend(FakeBackend):
    """Can stop in the middle of a segment."""

    def __init__(self) -> None:
        super().__init__(max_model_len=1024, kv_blocks=512)
        self.hold_after: int | None = None

    async def start(self) -> BackendFacts:
        return replace(await super().start(), vocab_size=STOP + 2)

    async def flow(self) -> None:
        if self.hold_after is not None:
            self.hold_after -= 1
            if self.hold_after < 0:
                self.hold_after = None
                self.hold()
        await super().flow()


class Bench:
    """A Stage1 and the parts that it is built of."""

    def __init__(self, total_bytes: int = 100_000, **voice: Any) -> None:
        self.backend = Backend()
        self.voices = FakeVoices()
        self.memory = VoiceMemory(total_bytes, SIZES)
        self.settings = read_settings({"voice": {"greedy": True, **voice}})
        self.now_s = 0.0
        self.stage = MiniCPMOStage1(self.settings, self._load, lambda: self.now_s)
        self.engine = ResumableEngine(
            EngineSettings(
                model=Path("model"),
                tokenizer=Path("model"),
                dtype="float32",
                max_model_len=1024,
                session_tokens=1024,
                max_sessions=3,
                max_in_flight=3,
                max_num_seqs=4,
                max_num_batched_tokens=512,
                placeholder_ids={"condition": 0},
            ),
            self.backend,
            lambda: self.backend.now_s,
        )

    async def _load(self, settings: MiniCPMOSettings) -> LoadedVoice:
        await self.engine.start()
        setup = TalkerSetup(
            SERVING_RULES, PUBLISHED_TALKER, STOP, session_tokens=1024, recomputes=False
        )
        desk = VoiceDesk(self.voices, batch=settings.voice.max_batch)
        talker = Talker(self.engine, condition(), setup)
        return LoadedVoice(talker, desk, FakePrompts(), self.memory)

    async def speak(self, speech: Speech, session: SessionId = ONE) -> list[SpeechChunk]:
        return [chunk async for chunk in self.stage.speak(session, speech)]

    async def say(
        self, codes: Sequence[int], text: str = "", session: SessionId = ONE, **flags: bool
    ) -> list[SpeechChunk]:
        """Speak a unit for which the engine samples `codes`, and then stops."""
        self.backend.script = [*codes, STOP]
        return await self.speak(speech(text, **flags), session)

    def seeds(self) -> list[int]:
        """Return the turns' seeds, in the order in which they were first heard."""
        return list(dict.fromkeys(seed for seed, _ in self.voices.calls))


def speech(text: str = "", tokens: int = 2, **flags: bool) -> Speech:
    hidden = np.full((tokens, LLM), len(text), np.float32)
    said = Speech(
        text, segment_end=True, turn_end=False, token_ids=tuple(range(tokens)), hidden=hidden
    )
    named: dict[str, Any] = dict(flags)
    return replace(said, **named)


def condition() -> TalkerCondition:
    source = torch.Generator().manual_seed(1)
    shapes = ((HIDDEN, LLM), (HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN,))
    projector = [torch.randn(*shape, generator=source) for shape in shapes]
    return TalkerCondition(torch.randn(30, HIDDEN, generator=source), projector, audio_bos=29)


def samples(chunks: Sequence[SpeechChunk]) -> list[int]:
    return [chunk.samples for chunk in chunks]


def left_zeros(chunk: SpeechChunk) -> int:
    """Return how many samples of silence are in front of the sound."""
    sound = np.flatnonzero(np.frombuffer(chunk.pcm, "<i2"))
    return int(sound[0])


async def warm(total_bytes: int = 100_000, **voice: Any) -> Bench:
    bench = Bench(total_bytes, **voice)
    await bench.stage.warm_up()
    bench.voices.calls.clear()
    assert bench.memory.reserved_bytes == 0
    return bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = await warm()
    await made.stage.open(ONE, RuntimeConfig())
    yield made
    for session in (ONE, TWO):
        await made.stage.close(session)
    assert made.memory.reserved_bytes == 0
    assert made.backend.requests == {}
    assert made.engine.capacity().open_sessions == 0
    await made.engine.stop()


async def test_a_second_of_words_is_a_second_of_sound(bench: Bench) -> None:
    (first,) = await bench.say(FULL, " one", turn_start=True)
    assert (first.samples, left_zeros(first), first.transcript) == (24_000, LEFT_ZEROS, " one")
    (second,) = await bench.say(FULL, " two")
    assert (second.samples, left_zeros(second), second.transcript) == (24_000, 0, " two")
    assert (second.segment_end, second.turn_end) == (True, False)
    assert len(bench.seeds()) == 1


async def test_the_end_of_a_turn_says_all_that_is_left(bench: Bench) -> None:
    await bench.say(FULL, " one", turn_start=True)
    chunks = await bench.say(FULL * 2 + FULL[:9], " two three four", turn_end=True)
    # All codes, and the three of silence that a turn begins with, are heard; nothing is filled up.
    assert sum(samples(chunks)) + FIRST_SAMPLES == (3 + 25 + 59) * 960
    assert samples(chunks) == [24_000, 24_000, 9 * 960, 3 * 960 + 3840]
    assert [chunk.transcript for chunk in chunks] == [" two three", " four", "", ""]
    assert [chunk.turn_end for chunk in chunks] == [False, False, False, True]
    assert [chunk.segment_end for chunk in chunks] == [False, False, False, True]
    (after,) = await bench.say(FULL, " new")
    assert left_zeros(after) == LEFT_ZEROS
    assert len(bench.seeds()) == 2


async def test_a_turn_of_no_codes_has_the_sound_of_its_silence(bench: Bench) -> None:
    (chunk,) = await bench.say((), "", turn_start=True, turn_end=True)
    assert (chunk.samples, chunk.turn_end) == (3 * 960, True)


async def test_codes_that_are_too_few_wait_and_their_words_do_not(bench: Bench) -> None:
    (chunk,) = await bench.say((1, 2), " hm", turn_start=True)
    assert chunk == SpeechChunk(b"", " hm", segment_end=True)
    (later,) = await bench.say(FULL[:23], " so", turn_end=False)
    assert later.samples == 24_000
    assert bench.voices.calls[0][1].codes == (4218, 4218, 4218, 1, 2, *FULL[:23])


async def test_a_new_turn_forgets_what_waits_of_the_one_before(bench: Bench) -> None:
    await bench.say((1, 2), turn_start=True)
    await bench.say(FULL, turn_start=True)
    assert bench.voices.calls[0][1].codes == (4218, 4218, 4218, *FULL)


async def test_a_chunk_tells_what_it_took(bench: Bench) -> None:
    bench.backend.seconds_a_token = 0.01
    (chunk,) = await bench.say(FULL, turn_start=True)
    metrics = chunk.metrics
    assert metrics is not None
    assert metrics.talker_ms == pytest.approx(260)
    assert (metrics.flow_ms, metrics.vocoder_ms) == (FLOW_S * 1000, VOCODER_S * 1000)
    assert (metrics.waited_ms, metrics.batch) == (0, 1)
    assert chunk.real_time_factor == pytest.approx((260 + 250 + 125) / 1000)


async def test_chunks_share_the_time_that_their_codes_took() -> None:
    bench = await warm(first_call_codes=12)
    await bench.stage.open(ONE, RuntimeConfig())
    bench.backend.seconds_a_token = 0.01
    bench.stage._now = lambda: bench.backend.now_s  # noqa: SLF001 - one clock for all
    chunks = await bench.say(FULL, turn_start=True)
    took_ms = [chunk.metrics.talker_ms for chunk in chunks if chunk.metrics]
    assert len(took_ms) == 2
    assert sum(took_ms) == pytest.approx(260)
    assert took_ms[0] >= 90
    await bench.engine.stop()


async def test_the_first_sound_is_there_before_all_codes_are() -> None:
    bench = await warm(first_call_codes=12)
    await bench.stage.open(ONE, RuntimeConfig())
    bench.backend.hold_after = 9
    bench.backend.script = [*range(1, 26), STOP]
    async with aclosing(bench.stage.speak(ONE, speech(" a b c", turn_start=True))) as chunks:  # type: ignore[type-var]
        first = await anext(chunks)
        assert bench.backend.script
        assert (first.samples, left_zeros(first)) == (LEFT_ZEROS + 4800, LEFT_ZEROS)
        assert (first.transcript, first.turn_end, first.segment_end) == (" a", False, False)
        bench.backend.go_on()
        second = await anext(chunks)
        assert (second.transcript, second.segment_end) == (" b c", True)
        assert first.samples + second.samples == 24_000
        with pytest.raises(StopAsyncIteration):
            await anext(chunks)
    # The same codes make the same calls when they come at once.
    bench.backend.tokens_at_once = 30
    again = await bench.say(range(1, 26), " a b c", turn_start=True)
    assert samples(again) == [first.samples, second.samples]
    seeds = bench.seeds()
    early, late = (
        [call for seed, call in bench.voices.calls if seed == one] for one in (seeds[0], seeds[1])
    )
    assert early == late
    # Later in the turn nothing is early.
    bench.backend.tokens_at_once = 1
    assert samples(await bench.say(FULL)) == [24_000]
    await bench.engine.stop()


async def test_a_long_end_of_a_turn_sounds_before_all_its_codes_are_there(bench: Bench) -> None:
    await bench.say(FULL, turn_start=True)
    bench.backend.hold_after = 30
    bench.backend.script = [*range(1, 61), STOP]
    end = speech(" a b c d", turn_end=True)
    async with aclosing(bench.stage.speak(ONE, end)) as chunks:  # type: ignore[type-var]
        first = await anext(chunks)
        assert bench.backend.script
        assert (first.samples, first.transcript, first.turn_end) == (24_000, " a b", False)
        bench.backend.go_on()
        left = [chunk async for chunk in chunks]
    assert "".join(chunk.transcript for chunk in left) == " c d"
    assert [chunk.turn_end for chunk in left] == [False, False, True]
    # Of 60 codes and three of the unit before, and what its last call held back.
    assert first.samples + sum(samples(left)) == 63 * 960 + 3840


@pytest.mark.parametrize(("codes", "calls"), [(9, 1), (12, 1), (17, 2)])
async def test_a_unit_that_stops_early_still_lasts_a_second(codes: int, calls: int) -> None:
    bench = await warm(first_call_codes=12)
    await bench.stage.open(ONE, RuntimeConfig())
    chunks = await bench.say(range(codes), " a b", turn_start=True)
    assert len(bench.voices.calls) == calls
    assert sum(samples(chunks)) == 24_000
    assert "".join(chunk.transcript for chunk in chunks) == " a b"
    assert [chunk.segment_end for chunk in chunks] == [False, True]
    await bench.engine.stop()


async def test_an_early_call_whose_unit_fails_ends_the_turns_sound() -> None:
    bench = await warm(first_call_codes=12)
    await bench.stage.open(ONE, RuntimeConfig())
    bench.backend.break_after = 15
    stream = bench.stage.speak(ONE, speech(turn_start=True))
    assert (await anext(stream)).samples
    with pytest.raises(StageFailed):
        await anext(stream)
    before = len(bench.voices.calls)
    assert left_zeros((await bench.say(FULL))[0]) == LEFT_ZEROS
    assert bench.voices.calls[before][1].is_first
    await bench.engine.stop()


async def test_an_interruption_ends_what_is_spoken_and_the_next_unit_begins_anew(
    bench: Bench,
) -> None:
    await bench.say(FULL, turn_start=True)
    bench.voices.hold()
    unit = asyncio.create_task(bench.say(FULL))
    await asyncio.to_thread(bench.voices.reached.wait, 30)
    await bench.stage.interrupt(ONE)
    assert bench.engine.held_tokens(ONE) == 0
    bench.voices.go_on()
    with pytest.raises(StageRefused):
        await unit
    bench.backend.script.clear()
    (after,) = await bench.say(FULL)
    assert left_zeros(after) == LEFT_ZEROS
    assert len(bench.seeds()) == 2


async def test_an_interruption_after_the_last_code_says_no_word_more() -> None:
    bench = await warm(first_call_codes=12)
    await bench.stage.open(ONE, RuntimeConfig())
    bench.backend.hold_after = 9
    bench.backend.script = [*range(1, 10), STOP]
    stream = bench.stage.speak(ONE, speech(" a b c", turn_start=True))
    assert (await anext(stream)).transcript == " a"
    bench.backend.go_on()
    await bench.stage.interrupt(ONE)
    with pytest.raises(StageRefused):
        await anext(stream)
    await bench.engine.stop()


async def test_an_interruption_while_codes_are_made_ends_them(bench: Bench) -> None:
    await bench.say(FULL, turn_start=True)
    bench.backend.hold()
    unit = asyncio.create_task(bench.say(FULL))
    await bench.backend.reached.wait()
    cut = asyncio.create_task(bench.stage.interrupt(ONE))
    with pytest.raises(StageRefused):
        await unit
    await cut
    bench.backend.go_on()
    assert bench.backend.requests == {}
    assert left_zeros((await bench.say(FULL))[0]) == LEFT_ZEROS


async def test_a_turn_that_is_over_or_cut_gives_its_memory_back(bench: Bench) -> None:
    for end in ("cut", "over"):
        await bench.say(FULL, turn_start=True)
        (session,) = bench.stage._sessions.values()  # noqa: SLF001 - what it holds on to
        assert session.turn is not None
        state = weakref.ref(session.turn.vocoder.vocoder.held_back)
        if end == "cut":
            await bench.stage.interrupt(ONE)
        else:
            await bench.say(FULL, turn_end=True)
        gc.collect()
        assert state() is None


async def test_a_fault_of_the_vocoder_ends_the_turns_sound_and_not_the_session(
    bench: Bench,
) -> None:
    await bench.say(FULL, turn_start=True)
    bench.voices.fail_next = True
    with pytest.raises(StageFailed, match="out of tune"):
        await bench.say(FULL)
    (after,) = await bench.say(FULL)
    assert left_zeros(after) == LEFT_ZEROS
    # The talker began anew too: its memory is this unit's alone.
    assert bench.engine.held_tokens(ONE) == 3 + 25


async def test_whoever_goes_away_in_the_middle_leaves_no_half_a_turn(bench: Bench) -> None:
    bench.backend.script = [*FULL * 3, STOP]
    stream = bench.stage.speak(ONE, speech(" a b c", turn_start=True, turn_end=True))
    async with aclosing(stream) as chunks:  # type: ignore[type-var]
        await anext(chunks)
    (after,) = await bench.say(FULL)
    assert left_zeros(after) == LEFT_ZEROS
    assert bench.voices.calls[-1][1].is_first


async def test_sessions_beside_each_other_sound_as_alone() -> None:
    async def turn(bench: Bench, session: SessionId) -> list[SpeechChunk]:
        heard = []
        for number in range(4):
            said = speech(f" {session} {number}", number % 3, turn_end=number == 3)
            heard += await bench.speak(said, session)
        return [replace(chunk, metrics=None) for chunk in heard]

    alone: list[list[SpeechChunk]] = []
    for session in (ONE, TWO):
        bench = await warm(first_call_codes=10)
        await bench.stage.open(session, RuntimeConfig())
        alone.append(await turn(bench, session))
        await bench.engine.stop()
    bench = await warm(first_call_codes=10)
    for session in (ONE, TWO):
        await bench.stage.open(session, RuntimeConfig())
    together = await asyncio.gather(*(turn(bench, session) for session in (ONE, TWO)))
    assert together == alone
    assert alone[0] != alone[1]
    await bench.engine.stop()


async def test_a_session_speaks_with_the_voice_that_it_brought() -> None:
    bench = await warm()
    await bench.stage.open(ONE, RuntimeConfig(voice_sample=b"alice"))
    assert bench.voices.prepared[-1] == "alice"
    # 5 codes are 10 frames: a turn of 100 bytes, and the voice itself.
    assert bench.memory.reserved_bytes == 110
    await bench.stage.open(TWO, RuntimeConfig(voice_sample=b"alice"))
    assert bench.memory.reserved_bytes == 210
    await bench.stage.close(ONE)
    await bench.stage.close(TWO)
    assert bench.memory.reserved_bytes == 0
    with pytest.raises(UnsupportedOption, match="nobody speaks"):
        await bench.stage.open(ONE, RuntimeConfig(voice_sample=b"noise"))
    await bench.engine.stop()


async def test_what_can_not_be_opened_leaves_nothing(bench: Bench) -> None:
    with pytest.raises(StageRefused, match="open already"):
        await bench.stage.open(ONE, RuntimeConfig())
    before = bench.memory.reserved_bytes
    with pytest.raises(AdmissionRefused, match="bytes of memory"):
        await bench.stage.open(TWO, RuntimeConfig(voice_sample=b"x" * 20_000))
    for name in ("two", "three"):
        await bench.stage.open(SessionId(name), RuntimeConfig())
    with pytest.raises(AdmissionRefused):
        await bench.stage.open(SessionId("four"), RuntimeConfig())
    await bench.stage.close(SessionId("three"))
    await bench.stage.close(TWO)
    assert bench.memory.reserved_bytes == before


async def test_settings_change_without_the_recording_and_strangers_are_refused(
    bench: Bench,
) -> None:
    await bench.stage.open(TWO, RuntimeConfig(voice_sample=b"alice"))
    # The gateway sends a recording once.
    await bench.stage.configure(TWO, RuntimeConfig(instructions="Be brief."))
    await bench.stage.close(TWO)
    with pytest.raises(StageRefused, match="not open"):
        await bench.stage.configure(TWO, RuntimeConfig())
    with pytest.raises(StageRefused, match="not open"):
        await bench.say(FULL, session=TWO)
    await bench.stage.interrupt(TWO)
    await bench.stage.close(TWO)


async def test_closing_what_never_opened_is_no_error() -> None:
    bench = Bench()
    await bench.stage.close(ONE)
    await bench.stage.interrupt(ONE)

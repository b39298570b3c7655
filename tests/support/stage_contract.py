"""What every model's stages must do, as tests that a plugin's own test module inherits.

A subclass overrides the fixtures `plugin` and `settings`, and `question` if a text is not enough to
get an answer. Its name must begin with `Test`.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from session.config import AnswerSettings, RuntimeConfig
from session.context import ContextMessage
from session.errors import StageError, StageFailed, UnsupportedOption
from session.fence import Fence
from session.ids import OperationId, SessionId
from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES, Decision, SpeechChunk, Unit
from stages.binding import Stage0Door, Stage1Door
from stages.contract import Appended, Plugin, Released, Speech

MOST_UNITS = 64
"""Longest answer, in units, that a contract test waits for."""


@dataclass(slots=True)
class Conversation:
    """One session at both doors, as a gateway would drive it."""

    stage0: Stage0Door
    stage1: Stage1Door
    fence: Fence
    unit_ms: int
    seq: int = 0

    async def open(self, runtime: RuntimeConfig) -> None:
        """Open both halves."""
        await self.stage0.open(self.fence, runtime)
        await self.stage1.open(self.fence, runtime)

    def silence(self, *, is_continuation: bool = False) -> Unit:
        """Return one unit of silence."""
        samples = self.unit_ms * INPUT_RATE_HZ // 1000
        return Unit(bytes(samples * SAMPLE_BYTES), is_continuation=is_continuation)

    async def append(self, unit: Unit) -> Appended:
        """Give one unit to Stage0."""
        self.seq += 1
        operation = OperationId(f"op_{self.fence.session_id}_{self.fence.epoch}_{self.seq}")
        return await self.stage0.append(
            self.fence, seq=self.seq, operation_id=operation, unit=unit, config_generation=0
        )

    def speak(self, speech: Speech) -> AsyncIterator[SpeechChunk]:
        """Hand a unit's speech to Stage1."""
        return self.stage1.speak(self.fence, seq=self.seq, speech=speech)

    async def answer_to(self, question: Unit) -> list[Speech]:
        """Ask, and collect the speech of the answer until the model ends its turn."""
        spoken: list[Speech] = []
        unit = question
        for _ in range(MOST_UNITS):
            appended = await self.append(unit)
            if appended.speech is not None:
                spoken.append(appended.speech)
            if appended.result.turn_end:
                return spoken
            unit = self.silence(is_continuation=True)
        raise AssertionError(f"no turn end within {MOST_UNITS} units")

    async def interrupt(self, heard: str = "") -> None:
        """Cancel the epoch at both doors."""
        cancelled, self.fence, self.seq = self.fence, self.fence.next_epoch(), 0
        await self.stage0.cancel(cancelled, self.fence, heard)
        await self.stage1.cancel(cancelled, self.fence, heard)

    async def close(self) -> tuple[Released, Released]:
        """Close both halves."""
        return await self.stage0.close(self.fence), await self.stage1.close(self.fence)


class StageContract:
    """Inherit this in a class of tests for one plugin."""

    @pytest.fixture
    def plugin(self) -> Plugin:
        """Return the plugin under test; a subclass must override this."""
        raise AssertionError("override the fixture `plugin`")

    @pytest.fixture
    def settings(self) -> dict[str, Any]:
        """Return its settings."""
        return {}

    @pytest.fixture
    def question(self) -> Unit:
        """Return a unit that the model answers."""
        return Unit(pcm=b"", text="Hello, how are you?", closes_input=True)

    @pytest.fixture
    async def doors(
        self, plugin: Plugin, settings: dict[str, Any]
    ) -> tuple[Stage0Door, Stage1Door]:
        """Return both halves, warm, behind their doors."""
        stage0, stage1 = plugin.make_stage0(settings), plugin.make_stage1(settings)
        await asyncio.gather(stage0.warm_up(), stage1.warm_up())
        return Stage0Door(stage0, cache_size=8), Stage1Door(stage1)

    @pytest.fixture
    async def talk(
        self, plugin: Plugin, doors: tuple[Stage0Door, Stage1Door]
    ) -> AsyncIterator[Conversation]:
        """Return an open conversation, and close it afterwards."""
        talk = self._conversation(plugin, doors, "sess_one")
        await talk.open(RuntimeConfig())
        yield talk
        await talk.close()
        assert talk.stage0.bound_sessions == talk.stage1.bound_sessions == 0

    def _conversation(
        self, plugin: Plugin, doors: tuple[Stage0Door, Stage1Door], session: str
    ) -> Conversation:
        unit_ms = plugin.descriptor.profile.unit_ms
        return Conversation(*doors, Fence(SessionId(session), 0, 0, 0), unit_ms)

    def test_settings_are_checked(self, plugin: Plugin, settings: dict[str, Any]) -> None:
        """The right settings pass, and a misspelt one is named."""
        plugin.check_settings(settings)
        with pytest.raises(ValueError, match="no_such_setting"):
            plugin.check_settings({**settings, "no_such_setting": 1})

    async def test_silence_is_listened_to(self, talk: Conversation) -> None:
        """Nobody spoke, so nothing is said."""
        for _ in range(3):
            appended = await talk.append(talk.silence())
            assert appended.result.decision is Decision.LISTEN
            assert not appended.result.turn_end

    async def test_a_question_is_answered(self, talk: Conversation, question: Unit) -> None:
        """The answer is words, and its speech has the flags and the text of its units."""
        spoken = await talk.answer_to(question)
        assert "".join(speech.text for speech in spoken).strip()
        assert spoken[-1].turn_end
        assert not any(speech.turn_end for speech in spoken[:-1])

    async def test_the_hand_over_repeats_the_result(
        self, talk: Conversation, question: Unit
    ) -> None:
        """What the gateway is told and what Stage1 is told agree."""
        unit = question
        for _ in range(MOST_UNITS):
            result, speech = await self._one(talk, unit)
            if speech is not None:
                assert (speech.text, speech.turn_end) == (result.text, result.turn_end)
                assert speech.segment_end == result.segment_end
            else:
                assert result.text == ""
            if result.turn_end:
                return
            unit = talk.silence(is_continuation=True)
        raise AssertionError("the answer did not end")

    async def _one(self, talk: Conversation, unit: Unit) -> tuple[Any, Speech | None]:
        appended = await talk.append(unit)
        return appended.result, appended.speech

    async def test_speech_says_its_text_and_nothing_else(
        self, talk: Conversation, question: Unit
    ) -> None:
        """Joined transcripts are the text; every chunk but an empty last one has whole samples."""
        for speech in await talk.answer_to(question):
            if not speech.text:
                continue
            talk.seq += 1
            chunks = [chunk async for chunk in talk.speak(speech)]
            assert "".join(chunk.transcript for chunk in chunks) == speech.text
            assert all(chunk.pcm or chunk is chunks[-1] for chunk in chunks)
            assert all(len(chunk.pcm) % SAMPLE_BYTES == 0 for chunk in chunks)
            assert sum(chunk.samples for chunk in chunks) > 0
            assert not any(chunk.turn_end or chunk.segment_end for chunk in chunks[:-1])
            last = chunks[-1]
            assert (last.segment_end, last.turn_end) == (speech.segment_end, speech.turn_end)

    async def test_an_interrupted_answer_is_over(self, talk: Conversation, question: Unit) -> None:
        """After a cancel both halves listen, and answer the next question."""
        first = await talk.append(question)
        speech = first.speech or (await talk.answer_to(talk.silence(is_continuation=True)))[0]
        stream = talk.speak(speech)
        await anext(stream)
        await talk.interrupt()
        assert [chunk async for chunk in stream] == []
        assert (await talk.append(talk.silence())).result.decision is Decision.LISTEN
        assert (await talk.answer_to(question))[-1].turn_end

    async def test_two_sessions_do_not_hear_each_other(
        self,
        talk: Conversation,
        plugin: Plugin,
        doors: tuple[Stage0Door, Stage1Door],
        question: Unit,
    ) -> None:
        """One is asked and answers; the other one goes on listening."""
        other = self._conversation(plugin, doors, "sess_two")
        await other.open(RuntimeConfig())
        unit = question
        for _ in range(MOST_UNITS):
            appended = await talk.append(unit)
            quiet = await other.append(other.silence())
            assert quiet.result.decision is Decision.LISTEN
            if appended.result.turn_end:
                break
            unit = talk.silence(is_continuation=True)
        assert await other.close() == (Released(sessions=1), Released(sessions=1))

    async def test_a_poisoned_unit_harms_nobody_else(self, talk: Conversation) -> None:
        """Half a sample is refused, and the session goes on."""
        with pytest.raises(StageFailed):
            await talk.append(Unit(pcm=b"\x00"))
        await talk.append(talk.silence())

    async def test_a_residue_is_taken_where_the_descriptor_says_so(
        self, talk: Conversation, plugin: Plugin
    ) -> None:
        """A short unit, and one that only closes the input, are no fault of the client."""
        if plugin.descriptor.profile.accepts_short_units:
            await talk.append(Unit(pcm=bytes(3200)))
        await talk.append(Unit(pcm=b"", closes_input=True))

    async def test_messages_are_taken_and_ask_for_nothing(
        self, talk: Conversation, plugin: Plugin, question: Unit
    ) -> None:
        """Nobody has to answer them; a model that takes none says so, and lives on."""
        messages = (ContextMessage("system", "Be kind."), ContextMessage("user", "Hello there."))
        told = replace(talk.silence(), messages=messages)
        if plugin.descriptor.profile.messages:
            assert (await talk.append(told)).result.decision is Decision.LISTEN
        else:
            with pytest.raises(StageFailed):
                await talk.append(told)
        assert (await talk.append(talk.silence())).result.decision is Decision.LISTEN
        assert (await talk.answer_to(question))[-1].turn_end

    async def test_an_answer_to_nothing_is_given_or_ends(
        self, talk: Conversation, plugin: Plugin
    ) -> None:
        """A model that is written to has words; the turn ends in any case."""
        profile = plugin.descriptor.profile
        pcm = b"" if profile.accepts_short_units else talk.silence().pcm
        spoken = await talk.answer_to(Unit(pcm, closes_input=True, is_bare=True))
        if profile.text_input:
            assert "".join(speech.text for speech in spoken).strip()

    async def test_an_answer_apart_is_given_where_the_descriptor_says_so(
        self, talk: Conversation, plugin: Plugin, question: Unit
    ) -> None:
        """It ends like any other, and the conversation goes on."""
        apart = Unit(
            pcm=b"",
            text="Who are you?",
            closes_input=True,
            is_fresh=True,
            messages=(ContextMessage("system", "Be kind."),),
            options=AnswerSettings(is_out_of_band=True),
        )
        if "input" in plugin.descriptor.profile.response_options:
            assert (await talk.answer_to(apart))[-1].turn_end
        else:
            with pytest.raises(StageFailed):
                await talk.append(apart)
        assert (await talk.answer_to(question))[-1].turn_end

    async def test_wild_settings_are_refused_or_taken_whole(self, talk: Conversation) -> None:
        """Settings either hold or leave the session as it was; it lives in both cases."""
        for runtime in (RuntimeConfig(voice="no such voice"), RuntimeConfig(instructions="Be.")):
            for half in (talk.stage0, talk.stage1):
                try:
                    await half.configure(talk.fence, runtime, 0)
                except UnsupportedOption:
                    pass  # the client asked for something that there is not
                except StageError as error:
                    assert error.survives  # noqa: PT017 - both outcomes are right, only this is not
        await talk.append(talk.silence())

    async def test_a_session_may_be_opened_again_after_its_close(
        self, plugin: Plugin, doors: tuple[Stage0Door, Stage1Door], question: Unit
    ) -> None:
        """A second life remembers nothing of the first."""
        first = self._conversation(plugin, doors, "sess_again")
        await first.open(RuntimeConfig())
        await first.append(question)
        assert await first.close() == (Released(sessions=1), Released(sessions=1))
        assert await first.close() == (Released(), Released())
        second = self._conversation(plugin, doors, "sess_again")
        second.fence = Fence(SessionId("sess_again"), 1, 0, 0)
        await second.open(RuntimeConfig())
        assert (await second.append(second.silence())).result.decision is Decision.LISTEN
        await second.close()

    async def test_an_unknown_session_may_be_closed(
        self, plugin: Plugin, settings: dict[str, Any]
    ) -> None:
        """The model itself says nothing about a session that it does not know."""
        await plugin.make_stage0(settings).close(SessionId("sess_never"))
        await plugin.make_stage1(settings).close(SessionId("sess_never"))

"""The embedded model on vLLM: the reference's answers, and a memory that never misleads."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from session.config import RuntimeConfig
from session.ids import SessionId
from session.unit import Decision, Unit
from stages.embedded.conversation import Conversation
from stages.embedded.language_model import LanguageModel
from stages.embedded.ports import Networks, Prompt, TextModel, Writing
from stages.embedded.prepare import TOKENIZER, prepare_language_model
from stages.embedded.prompts import Prompts
from stages.embedded.settings import EmbeddedSettings, Engine
from stages.embedded.stage0 import EmbeddedStage0
from stages.embedded.vllm_language_model import VllmLanguageModel, engine_settings
from stages.embedded.whisper import Whisper
from stages.engine.engine import ResumableEngine
from stages.engine.held_request import Listener
from stages.engine.values import Segment, SegmentDone
from stages.engine.vllm_backend import VllmBackend
from stages.vad.silero import SileroVad

pytestmark = pytest.mark.vllm

INSTRUCTIONS = EmbeddedSettings().instructions
HISTORY = 256
MEMORIES = 2
MOST_TOKENS = 32
QUESTIONS = (
    "What is the capital of France?",
    "How many legs does a spider have?",
    "Who wrote Hamlet?",
    "Tell me about the moon.",
    "What is a good name for a dog?",
)


class CountingEngine(ResumableEngine):
    """Counts the positions that go into each segment."""

    fed: list[int]

    async def append(
        self, key: str, segment: Segment, listener: Listener | None = None
    ) -> SegmentDone:
        self.fed.append(sum(len(piece) for piece in segment.pieces))
        return await super().append(key, segment, listener)


def _tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / TOKENIZER))


@pytest.fixture(scope="module")
def folder() -> Path:
    return prepare_language_model(engine=Engine.VLLM)


@pytest.fixture(scope="module")
def engine(folder: Path) -> CountingEngine:
    settings = engine_settings(folder, MEMORIES)
    return CountingEngine(settings, VllmBackend(settings, time.monotonic), time.monotonic)


@pytest.fixture(scope="module")
def model(folder: Path, engine: CountingEngine) -> Iterator[VllmLanguageModel]:
    engine.fed = []
    model = VllmLanguageModel(engine, _tokenizer(folder), INSTRUCTIONS)
    model.start()
    yield model
    model.stop()


@pytest.fixture
def fed(engine: CountingEngine) -> list[int]:
    """Return how many positions each segment of this test takes."""
    engine.fed = []
    return engine.fed


@pytest.fixture
def memory(model: VllmLanguageModel, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return a name for a memory; it is gone after the test."""
    yield request.node.name
    model.forget(request.node.name)
    assert model.held(request.node.name) == ()


def answer(
    model: TextModel,
    prompt: Prompt,
    memory: str = "",
    most_tokens: int = MOST_TOKENS,
    temperature: float | None = None,
) -> list[str]:
    """Return the pieces of an answer."""
    pieces: list[str] = []

    def take(piece: str) -> bool:
        pieces.append(piece)
        return False

    model.write(prompt, Writing(most_tokens, temperature, memory), take)
    return pieces


def question(model: TextModel, text: str) -> Prompt:
    return model.prompt("", Conversation().user_said(text), HISTORY)


class Reference:
    """transformers on the same folder: the whole prompt at once, the likeliest token each time."""

    def __init__(self, folder: Path) -> None:
        # transformers' own types do not let one call generate().
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self._prompts = Prompts(_tokenizer(folder), INSTRUCTIONS)

    def answer(self, prompt: Prompt) -> str:
        ids = [self._prompts.id_of(token) for token in (*prompt.shared, *prompt.own)]
        with torch.inference_mode():
            made = self._model.generate(
                torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                max_new_tokens=MOST_TOKENS,
                do_sample=False,
            )
        return str(self._prompts.tokenizer.decode(made[0, len(ids) :].tolist()))


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return Reference(folder)


@pytest.mark.parametrize("text", QUESTIONS)
def test_an_answer_is_the_references(
    model: VllmLanguageModel, reference: Reference, memory: str, text: str
) -> None:
    prompt = question(model, text)
    assert "".join(answer(model, prompt, memory)) == reference.answer(prompt)


@pytest.mark.parametrize("text", QUESTIONS[:3])
def test_both_engines_say_the_same_where_the_model_is_sure(
    model: VllmLanguageModel, memory: str, text: str
) -> None:
    # CTranslate2 has 8-bit weights and a penalty for repetitions, so only facts come out alike.
    light = LanguageModel.load(
        prepare_language_model(), instructions=INSTRUCTIONS, workers=1, threads=1
    )
    prompt = question(model, text)
    assert answer(model, prompt, memory) == answer(light, prompt)


def test_a_conversation_goes_on_from_its_memory_and_says_what_it_would_without_one(
    model: VllmLanguageModel, reference: Reference, memory: str, fed: list[int]
) -> None:
    talk = Conversation()
    for text in QUESTIONS[:3]:
        talk = talk.user_said(text)
        prompt = model.prompt("", talk, HISTORY)
        held = len(model.held(memory))
        fed.clear()
        said = "".join(answer(model, prompt, memory))
        assert said == reference.answer(prompt)
        assert fed[0] == len(prompt.shared) + len(prompt.own) - held
        assert set(fed[1:]) == {1}
        talk = talk.assistant_said(said.strip())


def test_what_was_not_heard_is_not_remembered(
    model: VllmLanguageModel, reference: Reference, memory: str, fed: list[int]
) -> None:
    talk = Conversation().user_said("Tell me about the moon.")
    said = "".join(answer(model, model.prompt("", talk, HISTORY), memory))
    talk = talk.assistant_said(said).heard_only("The moon is").user_said(QUESTIONS[0])
    prompt = model.prompt("", talk, HISTORY)
    fed.clear()
    assert "".join(answer(model, prompt, memory)) == reference.answer(prompt)
    assert fed[0] == len(prompt.shared) + len(prompt.own)


def test_turns_that_the_prompt_has_no_room_for_stay_in_the_memory(
    model: VllmLanguageModel, memory: str, fed: list[int]
) -> None:
    talk = Conversation().user_said("My name is Anna.")
    said = "".join(answer(model, model.prompt("", talk, HISTORY), memory))
    talk = talk.assistant_said(said.strip()).user_said("What do bees make?")
    said = "".join(answer(model, model.prompt("", talk, HISTORY), memory))
    held = model.held(memory)
    talk = talk.assistant_said(said.strip()).user_said("Who wrote Hamlet?")
    room_for_one_turn = 24
    prompt = model.prompt("", talk, room_for_one_turn)
    assert "Anna" not in "".join(prompt.own)
    fed.clear()
    assert answer(model, prompt, memory)
    assert fed[0] < len(prompt.own)
    assert model.held(memory)[: len(held)] == held


def test_whoever_wants_no_more_gets_no_more(model: VllmLanguageModel, memory: str) -> None:
    pieces: list[str] = []

    def take(piece: str) -> bool:
        pieces.append(piece)
        return len(pieces) == 3

    model.write(question(model, QUESTIONS[3]), Writing(MOST_TOKENS, memory=memory), take)
    assert len(pieces) == 3


def test_a_limit_holds_and_a_temperature_makes_answers_differ(
    model: VllmLanguageModel, memory: str
) -> None:
    prompt = question(model, "Tell me a story.")
    assert len(answer(model, prompt, memory, 5)) == 5
    stories = set()
    for _ in range(4):
        stories.add("".join(answer(model, prompt, memory, 24, temperature=1.2)))
    assert len(stories) > 1


def test_more_conversations_than_memories_take_turns(model: VllmLanguageModel) -> None:
    names = [f"one of many {number}" for number in range(MEMORIES + 2)]
    prompt = question(model, QUESTIONS[0])
    with ThreadPoolExecutor(MEMORIES) as writers:
        said = list(writers.map(lambda name: answer(model, prompt, name), names * 2))
    assert all(one == said[0] for one in said)
    assert sum(bool(model.held(name)) for name in names) == MEMORIES
    for name in names:
        model.forget(name)
    assert [name for name in names if model.held(name)] == []


async def test_stage0_answers_with_it_and_forgets_a_session_that_closes(
    model: VllmLanguageModel,
) -> None:
    networks = Networks(SileroVad.load(), Whisper.load(workers=1, threads=1), model)
    stage = EmbeddedStage0(EmbeddedSettings(), lambda: datetime.now(UTC), lambda _: networks)
    await stage.warm_up()
    session = SessionId("sess_vllm")
    await stage.open(session, RuntimeConfig())
    unit = Unit(b"", text="What is the capital of France?", closes_input=True)
    appended = await stage.append(session, unit)
    assert appended.result.decision is Decision.SPEAK
    assert "Paris" in appended.result.text
    dying = asyncio.ensure_future(stage.died())
    assert await asyncio.to_thread(model.held, session)
    await stage.close(session)
    assert await asyncio.to_thread(model.held, session) == ()
    assert not dying.done()
    dying.cancel()

"""What is known to kill vLLM or to make it hang, done beside sessions that must not notice."""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import fields, replace
from typing import Any

import pytest
import pytest_asyncio
import torch

from stages.engine.errors import BadSegment, EngineFull, MemoryFull, SegmentCancelled, SegmentFailed
from stages.engine.values import Embeddings, Ids, Pieces, Sampling, Segment, Tokens
from stages.engine.vllm_backend import sampling_params
from tests.support.engine_contract import ROWS, STEPS
from tests.support.vllm_rig import FIRST_ID, HIDDEN, POSITIONS, SESSIONS, VOCAB, VllmRig, furthest

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]

VICTIM = "a0"
UNITS = 8


@pytest_asyncio.fixture(loop_scope="session")
async def rig(vllm_rig: VllmRig) -> AsyncIterator[VllmRig]:
    yield vllm_rig
    await vllm_rig.close_all()
    assert await vllm_rig.still_held() == []


async def refused(rig: VllmRig, kind: type[Exception], pieces: Pieces, **sampling: Any) -> None:
    values: dict[str, Any] = {"max_tokens": STEPS} | sampling
    named = rig.segment(pieces)
    segment = Segment(named.request_id, pieces, Sampling(**values), named.deadline_s)
    with pytest.raises(kind):
        await rig.engine.append(VICTIM, segment)


async def overflow(rig: VllmRig) -> None:
    for _ in range(3):
        await refused(rig, MemoryFull, (Ids((FIRST_ID,) * POSITIONS),))
    room = POSITIONS - rig.engine.held_tokens(VICTIM)
    await refused(rig, MemoryFull, (Ids((FIRST_ID,) * room),), max_tokens=1)


async def many_small_segments(rig: VllmRig) -> None:
    """Run into the limit as a session does that nobody rolls over."""
    piece = Ids((FIRST_ID,) * 90)
    for _ in range(POSITIONS // len(piece)):
        await rig.engine.append(VICTIM, rig.segment((piece,), 1))
    for _ in range(3):
        await refused(rig, MemoryFull, (piece,), max_tokens=1)


async def nothing(rig: VllmRig) -> None:
    await refused(rig, BadSegment, ())
    await refused(rig, BadSegment, (Ids(()), Ids(())))
    await raw(rig, {"type": "token", "prompt_token_ids": []})


async def no_such_token(rig: VllmRig) -> None:
    await refused(rig, BadSegment, (Ids((VOCAB,)),))
    await refused(rig, BadSegment, (Ids((-1,)),))
    await raw(rig, {"type": "token", "prompt_token_ids": [VOCAB + 5]})


async def bad_rows(rig: VllmRig) -> None:
    rows = torch.zeros(ROWS, HIDDEN)
    rows[0, 0] = math.inf
    await refused(rig, BadSegment, (Embeddings("audio", rows),))
    await refused(rig, BadSegment, (Embeddings("audio", torch.zeros(ROWS, HIDDEN - 1)),))


async def bad_sampling(rig: VllmRig) -> None:
    unit = rig.unit(5, 5)
    for sampling in (
        {"max_tokens": 0},
        {"temperature": math.nan},
        {"temperature": -1.0},
        {"top_p": 0.0},
        {"top_k": -2},
        {"repetition_penalty": 0.0},
        {"seed": 2**64},
        {"stop_token_ids": (VOCAB,)},
    ):
        await refused(rig, BadSegment, unit, **sampling)


async def no_message_can_carry_it(rig: VllmRig) -> None:
    with pytest.raises(SegmentFailed):
        await rig.engine.append(VICTIM, await rig.unheard(rig.unit(5, 5)))


async def more_sessions_than_slots(rig: VllmRig) -> None:
    opened = rig.engine.capacity().open_sessions
    for number in range(1, 1 + SESSIONS - opened):
        await rig.engine.open(f"a{number}")
        await rig.engine.append(f"a{number}", rig.segment(rig.unit(number, 0)))
    for _ in range(3):
        with pytest.raises(EngineFull):
            await rig.engine.open("a19")


async def abort_while_idle(rig: VllmRig) -> None:
    await rig.engine.append(VICTIM, rig.segment(rig.unit(5, 0)))
    await rig.engine.close(VICTIM)


async def abort_while_it_samples(rig: VllmRig) -> None:
    append = await rig.inside(VICTIM, rig.segment(rig.unit(5, 0), 300))
    await rig.engine.close(VICTIM)
    with pytest.raises(SegmentCancelled):
        await append


async def aborts_at_every_moment(rig: VllmRig) -> None:
    for moment in range(1, 13):
        segment = rig.segment(rig.unit(5, moment), 50)
        append = asyncio.create_task(rig.engine.append(VICTIM, segment))
        for _ in range(moment):
            await asyncio.sleep(0)
        await rig.engine.cancel(VICTIM)
        with pytest.raises(SegmentCancelled):
            await append
    assert rig.engine.held(VICTIM) == ()


async def several_answers(rig: VllmRig) -> None:
    await raw(rig, {"type": "token", "prompt_token_ids": [FIRST_ID]}, n=2)


async def stop_strings(rig: VllmRig) -> None:
    await raw(rig, {"type": "token", "prompt_token_ids": [FIRST_ID]}, stop=["x"], detokenize=True)


async def rows_as_a_prompt(rig: VllmRig) -> None:
    await raw(rig, {"type": "embeds", "prompt_embeds": torch.zeros(3, HIDDEN)})


async def raw(rig: VllmRig, prompt: Any, **sampling: Any) -> None:
    """Feed vLLM, behind our engine's back, what our values can not say."""
    from vllm.engine.protocol import StreamingInput  # noqa: PLC0415 - as the backend does

    params = sampling_params(Sampling(max_tokens=1))
    for name, value in sampling.items():
        setattr(params, name, value)

    async def segments() -> AsyncGenerator[Any, None]:
        yield StreamingInput(prompt=prompt, sampling_params=params)

    rig.names.append(f"raw-{len(rig.names)}")
    with pytest.raises(Exception, match=r".") as caught:
        async for _ in rig.backend.llm.generate(segments(), params, rig.names[-1]):
            pass
    assert "EngineDead" not in type(caught.value).__name__


@pytest.mark.parametrize(
    "hazard",
    [
        overflow,
        many_small_segments,
        nothing,
        no_such_token,
        bad_rows,
        bad_sampling,
        no_message_can_carry_it,
        more_sessions_than_slots,
        abort_while_idle,
        abort_while_it_samples,
        aborts_at_every_moment,
        several_answers,
        stop_strings,
        rows_as_a_prompt,
    ],
)
async def test_a_hazard_hurts_nobody(
    rig: VllmRig, hazard: Callable[[VllmRig], Awaitable[None]]
) -> None:
    alone: list[list[Tokens]] = []
    for voice in range(2):
        await rig.engine.open(f"b{voice}")
        alone.append(await rig.say(f"b{voice}", voice, range(UNITS)))
    rows = [await rig.rows(name) for name in rig.backend.names[-2:]]
    await rig.close_all()
    await rig.engine.open("b2")
    await rig.engine.open("b3")
    names = len(rig.backend.names)
    speaking = [
        asyncio.create_task(rig.say(f"b{voice + 2}", voice, range(UNITS))) for voice in range(2)
    ]
    await asyncio.sleep(0)
    await rig.engine.open(VICTIM)
    await hazard(rig)
    assert await asyncio.gather(*speaking) == alone
    for name in rig.backend.names[names:]:
        if name.startswith(("b2.", "b3.")):
            voice = int(name[1]) - 2
            assert furthest(await rig.rows(name), rows[voice]) < 1e-5
    await rig.engine.close(VICTIM)
    assert await rig.alone("a1" if hazard is not more_sessions_than_slots else VICTIM, 0, UNITS)


async def test_the_pool_holds_all_that_was_reserved(rig: VllmRig) -> None:
    capacity = rig.engine.capacity()
    assert capacity.kv_tokens - SESSIONS * POSITIONS < POSITIONS + 64, "the pool is too large"

    async def fill(key: str) -> int:
        await rig.engine.open(key)
        for _ in range(POSITIONS // 128 - 1):
            await rig.engine.append(key, rig.segment((Ids((FIRST_ID,) * 127),), 2))
        room = POSITIONS - rig.engine.held_tokens(key)
        await rig.engine.append(key, rig.segment((Ids((FIRST_ID,) * (room - 1)),), 1))
        return rig.engine.held_tokens(key)

    filled = await asyncio.gather(*(fill(f"a{number}") for number in range(SESSIONS)))
    assert filled == [POSITIONS - 1] * SESSIONS
    # All at once they lose their memory and have it rebuilt, in the same pool.
    for number in range(SESSIONS):
        await rig.engine.replace(f"a{number}", rig.engine.held(f"a{number}"))
    await asyncio.gather(*(rig.engine.prepare(f"a{number}") for number in range(SESSIONS)))
    assert rig.engine.capacity().kv_tokens_used == SESSIONS * (POSITIONS - 1)


async def test_what_was_fed_is_not_written_to(rig: VllmRig) -> None:
    rows = torch.ones(ROWS, HIDDEN)
    pieces: Pieces = (Ids((FIRST_ID, FIRST_ID + 1)), Embeddings("audio", rows))
    for key in ("a0", "a1"):
        await rig.engine.open(key)
        for _ in range(3):
            await rig.engine.append(key, rig.segment(pieces))
    assert pieces[0] == Ids((FIRST_ID, FIRST_ID + 1))
    assert bool((rows == 1).all())
    assert rig.engine.held_tokens("a0") == 3 * (ROWS + 2 + STEPS - 1)
    one, other = [await rig.rows(name) for name in rig.backend.names[-2:]]
    assert furthest(one, other) < 1e-5


async def test_nobody_can_ask_for_logprobs_or_several_answers() -> None:
    assert {field.name for field in fields(Sampling)} == {
        "max_tokens",
        "stop_token_ids",
        "temperature",
        "top_p",
        "top_k",
        "repetition_penalty",
        "seed",
        "extra_args",
    }
    params = sampling_params(replace(Sampling(max_tokens=3), temperature=0.5, seed=1))
    assert (params.n, params.logprobs, params.prompt_logprobs, params.stop) == (1, None, None, [])


async def test_an_own_seed_makes_sampling_repeatable(rig: VllmRig) -> None:
    said: list[Tokens] = []
    for key, seed in (("a0", 1), ("a1", 1), ("a2", 2)):
        await rig.engine.open(key)
        named = rig.segment(rig.unit(1, 0))
        sampling = Sampling(max_tokens=20, temperature=1.0, top_p=0.95, top_k=50, seed=seed)
        segment = Segment(named.request_id, named.pieces, sampling, named.deadline_s)
        said.append((await rig.engine.append(key, segment)).token_ids)
    assert said[0] == said[1]
    assert said[0] != said[2]

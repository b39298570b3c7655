"""The engine's smaller parts: accounts, settings, timing and errors."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session.errors import LimitError, StageError
from stages.engine import errors
from stages.engine.accounting import Accounting
from stages.engine.backend import Output
from stages.engine.errors import EngineFull, NotOpen
from stages.engine.settings import EngineSettings
from stages.engine.timing import segment_timing
from stages.engine.values import StopReason
from stages.engine.vllm_backend import LEAST_SHARE, engine_args

GOOD = EngineSettings(
    model=Path("model"),
    tokenizer=Path("model"),
    dtype="float32",
    max_model_len=100,
    session_tokens=100,
    max_sessions=4,
    max_in_flight=2,
    max_num_seqs=5,
    max_num_batched_tokens=512,
)


def accounts(*, kv_blocks: int, session_tokens: int = 100, max_sessions: int = 4) -> Accounting:
    return Accounting(
        max_sessions=max_sessions,
        session_tokens=session_tokens,
        kv_blocks=kv_blocks,
        block_size=16,
    )


def test_slots_are_not_given_twice() -> None:
    book = accounts(kv_blocks=1000)
    for number in range(4):
        book.reserve(f"s{number}")
    with pytest.raises(EngineFull):
        book.reserve("s4")
    book.release("s0")
    book.release("s0")
    book.reserve("s4")
    assert book.sessions == 4


def test_a_session_takes_whole_blocks() -> None:
    book = accounts(kv_blocks=14)  # a hundred positions are seven blocks of sixteen
    assert book.max_sessions == 2
    book.reserve("a")
    book.reserve("b")
    assert book.kv_tokens_reserved == book.kv_tokens == 14 * 16
    with pytest.raises(EngineFull):
        book.reserve("c")


def test_a_session_is_reserved_for_once() -> None:
    book = accounts(kv_blocks=1000)
    book.reserve("a")
    with pytest.raises(NotOpen):
        book.reserve("a")
    assert book.sessions == 1


def test_a_pool_too_small_for_one_session_is_an_error() -> None:
    assert accounts(kv_blocks=7).max_sessions == 1
    with pytest.raises(ValueError, match="one session needs 7 blocks"):
        accounts(kv_blocks=6)


@given(
    kv_blocks=st.integers(8, 60),
    session_tokens=st.integers(1, 128),
    story=st.lists(st.tuples(st.booleans(), st.sampled_from("abcdefgh")), max_size=40),
)
def test_reservations_never_exceed_the_pool(
    kv_blocks: int, session_tokens: int, story: list[tuple[bool, str]]
) -> None:
    book = accounts(kv_blocks=kv_blocks, session_tokens=session_tokens, max_sessions=6)
    held: set[str] = set()
    for is_open, key in story:
        if not is_open:
            book.release(key)
            held.discard(key)
        elif key not in held and len(held) < book.max_sessions:
            book.reserve(key)
            held.add(key)
        assert book.sessions == len(held) <= 6
        assert len(held) * session_tokens <= book.kv_tokens_reserved <= book.kv_tokens


@pytest.mark.parametrize(
    "change",
    [
        {"session_tokens": 101},
        {"session_tokens": 0},
        {"max_sessions": 5},
        {"max_in_flight": 0},
        {"max_item_rows": 513},
        {"stuck_after_s": 0.0},
    ],
)
def test_settings_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        replace(GOOD, **change)


def outputs(*counts_and_times: tuple[int, float]) -> list[Output]:
    return [Output(tuple(range(count)), at_s, None) for count, at_s in counts_and_times]


def test_a_segments_times_are_its_own() -> None:
    timing = segment_timing(
        arrived_s=1.0, fed_s=1.5, outputs=outputs((1, 2.0), (1, 2.25), (1, 2.75))
    )
    assert (timing.queued_ms, timing.ttft_ms) == (500.0, 500.0)
    assert timing.itls_ms == (250.0, 500.0)
    assert timing.tpot_ms == 375.0
    assert timing.generated_tokens == 3


def test_tokens_that_come_together_share_the_time() -> None:
    timing = segment_timing(arrived_s=0.0, fed_s=0.0, outputs=outputs((1, 1.0), (4, 2.0), (1, 2.5)))
    assert timing.itls_ms == (250.0,) * 4 + (500.0,)
    assert timing.generated_tokens == 6


def test_tokens_that_come_with_the_first_are_counted_and_not_timed() -> None:
    timing = segment_timing(arrived_s=0.0, fed_s=0.0, outputs=outputs((3, 1.0), (0, 1.25), (1, 2)))
    assert timing.ttft_ms == 1000.0
    assert timing.itls_ms == (1000.0,)
    assert timing.generated_tokens == 4


def test_a_segment_without_tokens_has_no_times() -> None:
    timing = segment_timing(arrived_s=0.0, fed_s=1.0, outputs=[Output((), 2.0, StopReason.LENGTH)])
    assert (timing.ttft_ms, timing.itls_ms, timing.generated_tokens) == (0.0, (), 0)


KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and kind.__module__ == errors.__name__
]


@pytest.mark.parametrize("kind", KINDS)
def test_errors_reach_other_processes(kind: type[StageError]) -> None:
    there = pickle.loads(pickle.dumps(kind("a reason")))
    assert type(there) is kind
    assert there.message == "a reason"
    assert issubclass(kind, StageError | LimitError)


def test_only_the_engines_own_end_ends_sessions() -> None:
    fatal = {kind for kind in KINDS if not getattr(kind, "survives", True)}
    assert fatal == {errors.EngineDied, errors.EngineFailed}


@pytest.mark.parametrize(
    ("kv_bytes", "share", "asked"),
    [(None, None, None), (None, 0.5, 0.5), (1 << 30, None, LEAST_SHARE), (1 << 30, 0.5, 0.5)],
)
def test_two_engines_fit_on_a_gpu_where_each_is_told_its_memory(
    kv_bytes: int | None, share: float | None, asked: float | None
) -> None:
    settings = replace(GOOD, kv_cache_memory_bytes=kv_bytes, gpu_memory_utilization=share)
    args = engine_args(settings)
    assert args.get("gpu_memory_utilization") == asked
    assert args.get("kv_cache_memory_bytes") == kv_bytes
